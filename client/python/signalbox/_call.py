"""One call to the cluster, and its reply."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Optional, Tuple

MAX_SECONDS = 200 * 365 * 86_400  #: longer than any duration that a node returns
_DRIFT = 1024  # this clock may run slower than the leader's by 1/_DRIFT, so deadlines are computed that much earlier
_ROUNDING = 0.001  # the nodes' clocks count whole milliseconds


def new_key() -> str:
    """Draws an idempotency key."""
    return secrets.token_urlsafe(18)


@dataclass
class Call:
    """One request. All calls are safe to repeat: they have a key, or are idempotent."""

    method: str
    path: Tuple[str, ...]  # plain segments
    query: Dict[str, str] = field(default_factory=dict)
    body: Optional[Dict[str, Any]] = None
    headers: Dict[str, str] = field(default_factory=dict)
    key: Optional[str] = None  # makes a repeat return the outcome of the first attempt
    key_optional: bool = False  # send the call without its key if the cluster can't store more keys
    until: Optional[float] = None  # the end of the wait for which the request asks the cluster
    listen: bool = False  # a node may delay its reply while there is no outcome yet
    patient: bool = False  # keep trying while the cluster is overloaded, because the caller of this call waits for permits
    patience: Optional[Callable[[], float]] = None  # bounds one attempt, not counting its wait
    max_pause: Optional[float] = None  # bounds the pause after failures
    elsewhere: bool = False  # begin at another node than the last that worked
    failed: Optional[Callable[[Exception], None]] = None  # is called with the error of each failed attempt
    operation: str = ""  # its name in ``POST /v1/batch``; empty if the call can't share a request
    semaphore: str = ""  # of the operation
    session: str = ""  # of the operation


@dataclass
class Reply:
    """A node's reply, with a status below 300."""

    status: int
    sent: float  # when the attempt that succeeded was sent, by the clock ``now``
    received: float
    wait: float  # seconds by which the attempt allowed the node to delay the reply
    replayed: bool  # the reply repeats the outcome of an earlier attempt with the same key
    index: int  # the Raft index of the state that the reply shows; 0 if unknown
    body: Dict[str, Any]

    @property
    def early(self) -> bool:
        """Whether the reply came before the end of the wait."""
        return self.wait == 0 or self.received - self.sent < self.wait

    def deadline(self, waited_ms: int, expires_in_ms: int) -> Tuple[float, float]:
        """Returns the time, by ``now``, until which the session of this reply certainly lives, and the time to renew it.

        The deadline counts from when the attempt was sent, plus waited_ms. In a replayed reply waited_ms belongs to an earlier attempt, and does not count.
        """
        waited = _seconds(waited_ms)
        granted = self.sent if self.replayed else min(self.received, self.sent + waited - waited / _DRIFT)
        left = _seconds(expires_in_ms)
        return granted + left - left / _DRIFT - _ROUNDING, granted + left / 3

    def latest(self, expires_in_ms: int) -> float:
        """Returns the time, by ``now``, at which a lease of this reply has certainly ended in the cluster too, unless it is renewed."""
        left = _seconds(expires_in_ms)
        return self.received + left + left / _DRIFT + _ROUNDING


def _seconds(ms: int) -> float:
    return min(max(ms, 0), MAX_SECONDS * 1000) / 1000


def end_of(session: str) -> Call:
    """Returns the call that ends a session."""
    return Call("DELETE", ("v1", "sessions", session), operation="end", session=session)
