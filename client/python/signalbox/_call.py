"""One call to the cluster, and its reply."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Optional, Tuple

MAX_SECONDS = 200 * 365 * 86_400  #: durations of a node are shorter
_DRIFT = 1024  # spans of cluster time are shortened by 1/_DRIFT: this clock may run that much slower than the leader's
_ROUNDING = 0.001  # the nodes' clocks count whole milliseconds


def new_key() -> str:
    """Draws an idempotency key."""
    return secrets.token_urlsafe(18)


@dataclass
class Call:
    """One request. All calls are safe to repeat: by their key, or since twice has the effect of once."""

    method: str
    path: Tuple[str, ...]  # plain segments
    query: Dict[str, str] = field(default_factory=dict)
    body: Optional[Dict[str, Any]] = None
    headers: Dict[str, str] = field(default_factory=dict)
    key: Optional[str] = None  # makes a repeat return the outcome of the first attempt
    key_optional: bool = False  # it may go without its key, if the cluster has no room for more keys
    until: Optional[float] = None  # the end of a wait that the request names to the cluster
    listen: bool = False  # a node may hold the request: the reply is then that there is no outcome yet
    patient: bool = False  # its caller waits: an overloaded cluster does not end the call, though this request does not wait
    patience: Optional[Callable[[], float]] = None  # bounds an attempt without its wait
    max_pause: Optional[float] = None  # bounds the pause after failures
    elsewhere: bool = False  # begin at another node than the last that worked
    failed: Optional[Callable[[Exception], None]] = None  # is called with each failed attempt
    operation: str = ""  # of ``POST /v1/batch``, with which it may share a request
    semaphore: str = ""  # of the operation
    session: str = ""  # of the operation


@dataclass
class Reply:
    """A node's reply, with a status below 300."""

    status: int
    sent: float  # of the attempt that succeeded, by ``now``, as received
    received: float
    wait: float  # how long that attempt allowed the node to hold it
    replayed: bool  # the outcome of an earlier attempt with the same key
    index: int  # of the state that it reflects; 0 unknown
    body: Dict[str, Any]

    @property
    def early(self) -> bool:
        """Whether it came before the end of the wait."""
        return self.wait == 0 or self.received - self.sent < self.wait

    def deadline(self, waited_ms: int, expires_in_ms: int) -> Tuple[float, float]:
        """Returns until when the session of this reply certainly lives, by ``now``, and when to renew it.

        It counts from when the attempt was sent: a node counts waited_ms from the later arrival. A repeated outcome
        has the wait of an earlier attempt, which does not count.
        """
        waited = _seconds(waited_ms)
        granted = self.sent if self.replayed else min(self.received, self.sent + waited - waited / _DRIFT)
        left = _seconds(expires_in_ms)
        return granted + left - left / _DRIFT - _ROUNDING, granted + left / 3

    def latest(self, expires_in_ms: int) -> float:
        """Returns from when on a lease of this reply is certainly over, by ``now``, unless a renewal moves its end."""
        left = _seconds(expires_in_ms)
        return self.received + left + left / _DRIFT + _ROUNDING


def _seconds(ms: int) -> float:
    return min(max(ms, 0), MAX_SECONDS * 1000) / 1000


def end_of(session: str) -> Call:
    """Returns the call that ends a session."""
    return Call("DELETE", ("v1", "sessions", session), operation="end", session=session)
