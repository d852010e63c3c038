"""The errors of the client: one class for each refusal of the cluster that a program may want to catch."""

from __future__ import annotations

import json
from typing import Any, Dict, Optional, Type


class SignalboxError(Exception):
    """The base of all errors of this package.

    ``outcome_unknown`` is true when a change may have been carried out or not.
    """

    outcome_unknown = False


class Unreachable(SignalboxError):
    """No node replied, or no node could carry out the call; ``__cause__`` is the latest failure."""


class Canceled(SignalboxError):
    """The call was ended by its ``Cancel``."""


class Closed(SignalboxError):
    """The client, session or lease was closed or released by the program itself."""


class Lost(SignalboxError):
    """The session or lease ended although the program did not end it; ``__cause__`` is the reason."""


class NotRenewed(SignalboxError):
    """By this process's clock, no renewal succeeded before the deadline: another client may hold the permits from now on."""


class Refused(SignalboxError):
    """A refusal by a node (RFC 9457)."""

    code = ""  #: "never", "unknown-semaphore", …; empty when no node of Signalbox has made the reply

    def __init__(self, status: int, members: Dict[str, Any], retry_after: float = 0.0, address: str = "") -> None:
        self.status = status  #: the HTTP status
        self.members = members  #: all members of the problem document
        self.detail = str(members.get("detail", ""))  #: what happened, and what to do about it
        self.reason = str(members.get("reason", ""))  #: why an operator revoked the lease (Revoked) or paused the semaphore (Unavailable)
        self.rule = str(members.get("rule", ""))  #: the name of the limit, or the rule of the lock hierarchy, that refused the request
        self.field = str(members.get("field", ""))  #: the member or parameter that is wrong
        self.retry_after = retry_after  #: seconds, as the node asked
        self.address = address  #: the address of the node
        if not self.code:
            self.code = str(members.get("code", ""))
        super().__init__(status, members, retry_after, address)

    def __str__(self) -> str:
        text = f"{self.status} {self.code or 'reply of a server that is no node of Signalbox'}"
        if self.detail:
            text += f": {self.detail}"
        for name in ("field", "limit", "reason"):
            value = str(self.members.get(name) or "")
            if value and value not in text:
                text += f" ({name}: {value})"
        return text


class InvalidRequest(Refused, ValueError):
    """A member or parameter (``field``) is invalid; ``detail`` has the valid values. The client finds most of these errors before it sends a request."""

    code = "invalid-request"


class Unauthenticated(Refused):
    """The node does not know the token."""

    code = "unauthenticated"


class Forbidden(Refused):
    """The token does not allow the call."""

    code = "forbidden"


class UnknownSemaphore(Refused):
    """No semaphore has this name: create it first."""

    code = "unknown-semaphore"


class UnknownGroup(Refused):
    """No lease and no request of the semaphore names this group, and the group has no limit by ``set_group_limit``."""

    code = "unknown-group"


class UnknownSession(Refused):
    """The session was ended, or never opened."""

    code = "unknown-session"


class NotLost(Refused):
    """No lost hold of the semaphore has this token: it never had one, or its permits are back."""

    code = "not-lost"


class NotHeld(Refused):
    """The session neither holds the semaphore nor waits for it."""

    code = "not-held"


class Unavailable(Refused):
    """The permits are not free, or other requests wait for them."""

    code = "unavailable"

    @property
    def available_in(self) -> Optional[float]:
        """Seconds until enough permits have come back by the window. None if the semaphore has no window, or if other requests wait for the permits."""
        after = self.members.get("available_in_ms")
        return None if after is None else float(after) / 1000


class WaitEnded(Unavailable, TimeoutError):
    """The permits were not free before the end of the wait."""


class Never(Refused):
    """The request asks for more permits than the semaphore can ever have free."""

    code = "never"


class Hierarchy(Refused):
    """The semaphore's level is not below every level that the session holds, or the session waits for another level; see ``rule``."""

    code = "hierarchy"


class LeaseExists(Refused):
    """This session already holds the semaphore or waits for it, in the same group if the semaphore has groups."""

    code = "lease-exists"


class LineFull(Refused):
    """As many requests wait as the semaphore's ``max_waiting`` allows. The client does not retry."""

    code = "line-full"


class Superseded(Refused):
    """The line was full, and a newer request took this request's place. The client does not retry."""

    code = "superseded"


class NoTotal(Refused):
    """Only the groups of the semaphore have limits, so it has no permits that could be added, taken or set without a lease."""

    code = "no-total"


class RequestsWaiting(Refused):
    """Requests wait for the semaphore. ``groups``, and ``permits`` to or from None, can be changed only while no request waits."""

    code = "requests-waiting"


class Overflow(Refused):
    """A count would not fit into 64 bits."""

    code = "overflow"


class Deleted(Refused):
    """The semaphore was deleted during the wait."""

    code = "deleted"


class ExpiredSession(Refused):
    """The session was not renewed in time."""

    code = "expired-session"


class Revoked(Refused):
    """An operator revoked the lease or session, see ``reason``; or the lease has reached ``max_hold``, with the reason "max-hold"."""

    code = "revoked"


class Over(Refused):
    """The request repeats an earlier request with the same key, whose grant has ended."""

    code = "over"


class PreconditionFailed(Refused):
    """The semaphore's epoch differs from the epoch in the call, or the call was to create a semaphore that exists."""

    code = "precondition-failed"


class KeyReused(Refused):
    """The idempotency key was used for another request."""

    code = "key-reused"


class LimitReached(Refused):
    """A configured limit is reached, see ``rule``. The call had no effect."""

    code = "limit-reached"


_CLASSES: Dict[str, Type[Refused]] = {
    c.code: c
    for c in (
        InvalidRequest, Unauthenticated, Forbidden, UnknownSemaphore, UnknownGroup, UnknownSession, NotLost, NotHeld, Unavailable, Never, Hierarchy,
        LeaseExists, LineFull, Superseded, NoTotal, RequestsWaiting, Overflow, Deleted, ExpiredSession, Revoked, Over, PreconditionFailed, KeyReused,
        LimitReached,
    )
}  # fmt: skip

#: Codes of refusals after which the call certainly had no effect.
_NO_EFFECT = frozenset((
    "no-leader", "behind", "not-applied", "draining", "storage-full", "overloaded", "states-differ", "limit-reached", "unauthenticated", "forbidden",
))  # fmt: skip

_OF_NODE = frozenset(("connections", "body-memory", "reply-memory", "watchers"))
_MAX_RETRY_AFTER = 60


def refusal(status: int, kind: Optional[str], retry_after: Optional[str], body: bytes, address: str) -> Refused:
    """Returns the error of a reply. A reply without a problem document has an empty code, so that a proxy's 404 is not taken for the end of a session."""
    members: Any = None
    if (kind or "").split(";")[0].strip() == "application/problem+json":
        try:
            members = json.loads(body)
        except ValueError:
            pass
    if not isinstance(members, dict):
        members = {"detail": body[:200].decode("utf-8", "replace").strip(), "code": ""}
    seconds = int(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0
    return refused(status, members, float(min(seconds, _MAX_RETRY_AFTER)), address)


def refused(status: int, members: Dict[str, Any], retry_after: float, address: str) -> Refused:
    """Returns the error of a problem document."""
    return _CLASSES.get(str(members.get("code")), Refused)(status, members, retry_after, address)


def is_plain(e: Refused) -> bool:
    """Reports whether the node refused plain HTTP because it serves only HTTPS."""
    return e.status == 400 and not e.code and e.detail.startswith("Client sent an HTTP request to an HTTPS server")


def no_effect(e: Refused) -> bool:
    return e.code in _NO_EFFECT or is_plain(e)


def of_node(e: Refused) -> bool:
    """Reports whether the refusal comes from a limit, a file of tokens or a port of the node itself."""
    return e.code == "unauthenticated" or is_plain(e) or e.code == "limit-reached" and e.rule in _OF_NODE


def final(e: Refused) -> bool:
    """Reports whether the replicated state machine made the refusal. A repeat with the same key then has the same outcome."""
    return e.status in (404, 409, 410, 412, 422) and e.code != ""
