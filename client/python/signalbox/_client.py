"""The client of one cluster."""

from __future__ import annotations

import functools
import random
import threading
import time
import weakref
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

from ._calls import Call, Caller, Reply, back_off, milliseconds, new_key, wait_ended
from ._credentials import Credentials
from ._errors import Canceled, Closed, InvalidRequest, LimitReached, Lost, Over, SignalboxError, Unavailable, Unreachable
from ._nodes import Nodes
from ._session import GRACE, SETTLED, Lease, Session
from ._time import Cancel, either

F = TypeVar("F", bound=Callable[..., Any])
KEEP: Any = object()  #: the setting of a semaphore that ``put`` leaves alone


@dataclass(frozen=True)
class Semaphore:
    """A semaphore as of one reply."""

    name: str
    permits: int  # the declared capacity
    offset: int  # moved by up, down and set_value
    held: int  # by leases
    available: int  # permits + offset - held
    level: Optional[int]
    metadata: Mapping[str, str]
    epoch: int  # differs between this semaphore and earlier and later ones of the same name
    modified_index: int  # rises with every change of permits, offset, leases or waiters
    holder_count: int
    waiter_count: int
    holders: Sequence[Mapping[str, Any]] = ()  # the first of them, as docs/api.md has them; lists leave them out
    waiters: Sequence[Mapping[str, Any]] = ()


def _semaphore(body: Mapping[str, Any]) -> Semaphore:
    return Semaphore(**{f.name: body[f.name] for f in fields(Semaphore) if f.name in body})


class Client:
    """Talks to one cluster through any of its nodes; safe for concurrent use, one serves a whole process. A context manager that closes it.

    It sends no request by itself; it raises ValueError or OSError for addresses that are not base URLs, and for credentials that can't be read or may
    not be sent there. All times are in seconds.

    addresses: base URLs of the nodes ("http://n1:8701", or "n1:8701" for the same), tried in an order drawn at random unless in_order.
    token, token_file: goes with every request; the file is read again when it changes, and when a node refuses the token. It does not go over plain
        HTTP to another machine, where everybody on the way could read it, unless insecure_http.
    ca: a PEM file with the authorities of the nodes' certificates; cert, key: the client's own. They are read again when they change.
    headers: of every request, for a proxy in front that asks for some.
    attempt_timeout: bounds one attempt at one node, beside the wait that was asked for.
    longest_wait: bounds one listening request; longer waits are made of several, which keep their place.
    max_wait: the most that the nodes accept as the wait of one request.
    give_up_after: ends a call without a deadline that no node could carry out for that time.
    """

    def __init__(
        self, addresses: Union[str, Sequence[str]], *, token: Optional[str] = None, token_file: Optional[str] = None, insecure_http: bool = False,
        ca: Optional[str] = None, cert: Optional[str] = None, key: Optional[str] = None, headers: Optional[Mapping[str, str]] = None, in_order: bool = False,
        attempt_timeout: float = 12.0, longest_wait: float = 50.0, max_wait: float = 600.0, give_up_after: float = 60.0,
    ) -> None:  # fmt: skip
        ordered = addresses.split(",") if isinstance(addresses, str) else list(addresses)
        if not in_order:
            random.shuffle(ordered)  # so that clients spread over the nodes
        nodes = Nodes(ordered)
        credentials = Credentials(nodes, token, token_file, ca, cert, key, insecure_http)
        self._calls = Caller(nodes, credentials, headers or {}, attempt_timeout, min(longest_wait, max_wait), give_up_after)
        self._max_wait = max_wait
        self._node_count = len(nodes)
        self._lock = threading.Lock()
        self._sessions: Dict[str, Session] = {}
        self._closing = Cancel()
        weakref.finalize(self, self._calls.close)

    # Leases and sessions

    def lease(
        self, name: str, *, count: int = 1, wait: Optional[float] = None, ttl: float = 30.0, margin: float = 0.0, metadata: Optional[Mapping[str, str]] = None,
        epoch: Optional[int] = None, cancel: Optional[Cancel] = None,
    ) -> Lease:  # fmt: skip
        """Waits until it is granted a lease of its own, which is renewed in the background until its release: the shortest way to hold one semaphore.

        A free semaphore costs one request; a wait is that of a session, see ``Session.acquire``, which lists the errors, too. ``ttl`` is how long the lease
        outlives its last renewal; ``margin`` makes it count as lost that long before its deadline, which leaves time to stop the work.
        """
        body: Dict[str, Any] = {"count": count, **self._life(ttl, margin, metadata)}
        query = {} if epoch is None else {"epoch": str(epoch)}
        deadline = None if wait is None else time.monotonic() + wait
        with either(cancel, self._closing) as both:
            try:
                reply = self._once(Call("POST", ("v1", "semaphores", _name(name), "leases"), query=query, body=body), deadline if wait else None, both)
            except Unavailable:
                if wait == 0:
                    raise
            else:
                session = Session(self, reply.body["session"], ttl, margin, True)
                lease = Lease(session, reply.body)
                session._claims[name] = lease
                session._begin(reply, reply.body["waited_ms"], reply.body["expires_in_ms"])
                return lease
            try:
                session = self._open(ttl, margin, metadata, True, deadline, both)
            except Unreachable as e:
                if e.__cause__ is None and not both.canceled:
                    raise wait_ended(name) from e
                raise
            try:
                return session.acquire(name, count=count, wait=None if deadline is None else max(0.001, deadline - time.monotonic()), epoch=epoch, cancel=both)
            except BaseException:
                _close(session, GRACE)
                raise

    def _once(self, call: Call, deadline: Optional[float], cancel: Cancel) -> Reply:
        """Makes a one-call request until it is granted or refused. One whose outcome is open when its time is over is repeated with its key, and undone."""
        rounds = 0
        while True:
            call.key = new_key()
            try:
                return self._calls.do(call, deadline, cancel)
            except Over:  # granted to an attempt whose reply was lost, and over since
                rounds += 1
                if cancel.wait(back_off(rounds)):
                    raise
            except BaseException as e:
                if getattr(e, "outcome_unknown", True) and self._settled(call):
                    if isinstance(e, Unreachable) and deadline is not None and time.monotonic() >= deadline:
                        raise wait_ended(call.path[2]) from e
                    if isinstance(e, SignalboxError):
                        e.outcome_unknown = False
                raise

    def _settled(self, call: Call) -> bool:
        try:
            self._settle(call, lambda r: None)
            return True
        except SignalboxError:
            return False

    def _settle(self, call: Call, keep: Callable[[Reply], Optional[Reply]]) -> Optional[Reply]:
        """Finds out, for a caller that no longer waits, how a request ended, and ends its session, so that no request stays behind."""
        call.elsewhere, call.until, grace = True, None, time.monotonic() + GRACE
        try:
            for _ in range(3):  # waiting, or unsure; ended; confirmed
                reply = self._calls.do(call, grace)
                kept = keep(reply) if reply.status != 202 else None
                if kept is not None or "session" not in reply.body:
                    return kept
                self._calls.do(Call("DELETE", ("v1", "sessions", reply.body["session"])), grace)
        except SignalboxError as e:
            if not isinstance(e, SETTLED + (Over, LimitReached)):
                raise
        return None

    def session(
        self, *, ttl: float = 30.0, margin: float = 0.0, metadata: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None
    ) -> Session:
        """Opens a session and keeps it renewed until its ``close``, or until it is lost: for several semaphores, one after another or at once."""
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._open(ttl, margin, metadata, False, deadline, self._closing)

    def _open(self, ttl: float, margin: float, metadata: Optional[Mapping[str, str]], one_shot: bool, deadline: Optional[float], cancel: Cancel) -> Session:
        call = Call("POST", ("v1", "sessions"), body=self._life(ttl, margin, metadata))
        while True:
            call.key = new_key()
            try:
                reply = self._calls.do(call, deadline, cancel)
                break
            except Over:  # the first attempt opened it, and its reply came too late
                pass
        session = Session(self, reply.body["session"], ttl, margin, one_shot)
        session._begin(reply, 0, reply.body["expires_in_ms"])
        return session

    def _life(self, ttl: float, margin: float, metadata: Optional[Mapping[str, str]]) -> Dict[str, Any]:
        if self._closing.canceled:
            raise Closed("the client was closed")
        if ttl < 0.001 or margin < 0 or margin > ttl / 2:
            raise ValueError("a ttl is at least 1 ms, and a margin at most half of it")
        return {"ttl": milliseconds(ttl), **({"metadata": dict(metadata)} if metadata else {})}

    def limited(self, name: str, **options: Any) -> Callable[[F], F]:
        """A decorator: the function runs while it holds a lease of the semaphore, with the options of ``lease``; raises ``Lost`` if that was lost meanwhile."""

        def decorate(function: F) -> F:
            @functools.wraps(function)
            def limited(*args: Any, **kwargs: Any) -> Any:
                with self.lease(name, **options):
                    return function(*args, **kwargs)

            return limited  # type: ignore[return-value]

        return decorate

    # Semaphores

    def create(self, name: str, permits: int, *, level: Optional[int] = None, metadata: Optional[Mapping[str, str]] = None) -> Tuple[Semaphore, bool]:
        """Makes a semaphore, or returns the existing one unchanged; and whether it was made."""
        body: Dict[str, Any] = {"name": _name(name), "permits": permits}
        if level is not None:
            body["level"] = level
        if metadata is not None:
            body["metadata"] = dict(metadata)
        reply = self._change(Call("POST", ("v1", "semaphores"), body=body))
        return _semaphore(reply.body), reply.status == 201

    def put(
        self, name: str, permits: int = KEEP, *, level: Optional[int] = KEEP, metadata: Optional[Mapping[str, str]] = KEEP, only_new: bool = False,
        epoch: Optional[int] = None,
    ) -> Tuple[Semaphore, bool]:  # fmt: skip
        """Creates a semaphore, or changes the given settings and no other (None clears level and metadata); and whether it was made.

        More permits serve waiters at once; fewer than are held end no lease. With only_new an existing one is ``PreconditionFailed``.
        """
        given = {"permits": permits, "level": level, "metadata": metadata}
        body = {key: value for key, value in given.items() if value is not KEEP}
        call = self._of(name, "PUT", body=body, epoch=epoch)
        if only_new:
            call.headers["If-None-Match"] = "*"
        reply = self._change(call)
        return _semaphore(reply.body), reply.status == 201

    def get(self, name: str, *, stale: bool = False, epoch: Optional[int] = None) -> Semaphore:
        """Reads a semaphore with its first holders and waiters; stale reads the state of the node that replies, without asking the leader."""
        call = self._of(name, "GET", epoch=epoch)
        if stale:
            call.query["consistency"] = "stale"
        return _semaphore(self._calls.do(call, None, self._closing).body)

    def list(self, prefix: str = "") -> Iterator[Semaphore]:
        """Goes through the semaphores whose names begin with the prefix, by name, a page at a time."""
        query = {"prefix": prefix} if prefix else {}
        while True:
            page = self._calls.do(Call("GET", ("v1", "semaphores"), query=query), None, self._closing).body
            yield from map(_semaphore, page["semaphores"])
            if not page["next"]:
                return
            query = {**query, "cursor": page["next"]}

    def delete(self, name: str, *, epoch: Optional[int] = None) -> None:
        """Deletes a semaphore: its leases are over, its waiters end with ``Deleted``."""
        self._change(self._of(name, "DELETE", epoch=epoch))

    def up(self, name: str, count: int = 1, *, epoch: Optional[int] = None) -> int:
        """Adds permits without an owner, and returns how many are available after the grants that this caused."""
        return self._value(self._of(name, "POST", "up", body={"count": count}, epoch=epoch))

    def set_value(self, name: str, value: int, *, epoch: Optional[int] = None) -> int:
        """Makes that many permits available, and returns how many are left after the grants that this caused."""
        return self._value(self._of(name, "PUT", "value", body={"value": value}, epoch=epoch))

    def down(
        self, name: str, count: int = 1, *, wait: Optional[float] = None, partial: bool = False, epoch: Optional[int] = None, cancel: Optional[Cancel] = None
    ) -> int:
        """Takes permits without a lease, in the same queue as all requests, and returns how many: only an ``up`` brings them back.

        However often the call had to be repeated, it takes permits once. With partial it takes fewer than count as soon as there is one. A wait longer than
        max_wait starts again at the end of the queue. When the time is over just as the permits are granted, they are returned; raises ``Unavailable``
        (``WaitEnded``) when none were taken, and an error with outcome_unknown when no node could be asked about that within 2 s.
        """
        body = {"count": count, "partial": partial}
        deadline = None if wait is None else time.monotonic() + wait
        taken = lambda r: r if r.body.get("granted") else None  # noqa: E731
        with either(cancel, self._closing) as both:
            while True:
                call = self._of(name, "POST", "down", body=body, epoch=epoch)
                call.key = new_key()
                if wait != 0:
                    call.until = min(time.monotonic() + self._max_wait, deadline or float("inf"))
                try:
                    reply = self._in_line(call, both)
                except Unavailable:
                    if wait == 0 or deadline is not None and time.monotonic() >= deadline - 0.001:
                        raise (wait_ended(name) if wait else Unavailable(409, {"detail": f"The permits of {name} are not free."})) from None
                    continue
                except SETTLED:
                    raise
                except BaseException as e:
                    try:
                        late = self._settle(call, taken)
                    except SignalboxError:
                        raise e  # and its outcome_unknown stands
                    if late is not None:
                        return int(late.body["granted"])
                    if isinstance(e, SignalboxError):
                        e.outcome_unknown = False  # it was withdrawn
                    if isinstance(e, Unreachable) and deadline is not None and time.monotonic() >= deadline:
                        raise wait_ended(name) from e
                    raise
                return int(reply.body["granted"])

    def _in_line(self, call: Call, cancel: Cancel) -> Reply:
        """Makes a request and repeats it, with the same key, until it has ended: a repeat joins the first at its place."""
        early = 0
        while True:
            reply = self._calls.do(call, call.until, cancel)
            if reply.status != 202:
                if not reply.body.get("granted"):
                    raise Unavailable(409, {"detail": "There are no permits."})
                return reply
            early = early + 1 if reply.early else 0
            if early and cancel.wait(back_off(early)):
                raise Canceled("the call was canceled")

    # Operators

    def revoke(self, name: str, session: str, reason: str = "") -> None:
        """Takes one lease away from a session, as an operator. The holder may go on for a while: the next grant's token fences it."""
        call = self._of(name, "DELETE", "holders", session)
        if reason:
            call.query["reason"] = reason
        self._change(call)

    def revoke_session(self, session: str, reason: str = "") -> None:
        """Ends a session as an operator. It is no error that it is over."""
        self._change(Call("POST", ("v1", "sessions", session, "revoke"), body={"reason": reason} if reason else {}))

    def end_session(self, session: str) -> None:
        """Ends a session by its id, for its owner. It is no error that it is over."""
        self._change(Call("DELETE", ("v1", "sessions", session)))

    # Inside

    def _of(self, name: str, method: str, *more: str, body: Optional[Dict[str, Any]] = None, epoch: Optional[int] = None) -> Call:
        return Call(method, ("v1", "semaphores", _name(name), *more), query={} if epoch is None else {"epoch": str(epoch)}, body=body)

    def _change(self, call: Call) -> Reply:
        call.key = new_key()
        return self._calls.do(call, None, self._closing)

    def _value(self, call: Call) -> int:
        return int(self._change(call).body["value"])

    def _growing(self) -> Callable[[], float]:
        """The patience of a call whose caller waits for a short time, and which goes on after that: twice as long in each round over all nodes."""
        attempts = 0

        def patience() -> float:
            nonlocal attempts
            rounds, attempts = attempts // self._node_count, attempts + 1
            return float(max(GRACE / self._node_count, 0.5) * 2 ** min(rounds, 6))

        return patience

    def _add(self, session: Session) -> None:
        with self._lock:
            self._sessions[session.id] = session

    def _remove(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)

    def close(self, timeout: float = 5.0) -> bool:
        """Ends every session and lease that is still open, and all calls that wait; returns whether nodes have confirmed it within the time."""
        self._closing.cancel()
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:  # all at a time
            _close(session, 0.0)
        until = time.monotonic() + timeout
        confirmed = [_close(session, max(0.0, until - time.monotonic())) for session in sessions]
        self._calls.close()
        return all(confirmed)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


def _name(name: str) -> str:
    if not name:
        raise InvalidRequest(400, {"detail": "A semaphore's name has 1 to 512 bytes.", "field": "name"})
    return name


def _close(session: Session, timeout: float) -> bool:
    try:
        return session.close(timeout)
    except Lost:
        return True
