"""The client of one cluster."""

from __future__ import annotations

import random
import time
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union, cast

from . import _values as values
from ._call import Call, Reply, end_of, new_key
from ._calls import Caller, back_off, wait_ended
from ._credentials import Credentials
from ._decorator import limited
from ._errors import LimitReached, Over, SignalboxError, Unavailable, Unreachable
from ._nodes import Nodes
from ._reactor import GRACE, Work
from ._session import SETTLED, Lease, Session
from ._time import Cancel, Closing, Unpicklable, either, void
from ._values import Place

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
KEEP: Any = object()  #: given as a setting of ``put``, it leaves the setting unchanged
_LEVELS = 2**31


@dataclass(frozen=True)
class Semaphore:
    """The state of a semaphore in one reply."""

    name: str
    permits: Optional[int]  # the declared capacity; None: only the groups have limits
    offset: int  # moved by up, down and set_value
    held: int  # permits that leases hold
    available: Optional[int]  # permits + offset - held - returning
    level: Optional[int]
    metadata: Mapping[str, str]
    epoch: int  # changes when a semaphore is deleted and created again under the same name
    modified_index: int  # rises with every change of permits, offset, leases or waiters
    holder_count: int
    waiter_count: int
    holders: Sequence[Mapping[str, Any]] = ()  # the first holders, see docs/api-semaphores.md; empty in lists
    waiters: Sequence[Mapping[str, Any]] = ()
    groups: Optional[str] = None  # this field and the next are explained in docs/api-groups.md
    per_group: Optional[int] = None
    groups_count: int = 0
    sweeping: bool = False
    paused: Optional[str] = None
    max_waiting: Optional[int] = None
    when_full: Optional[str] = None
    head_start: float = 0.0
    window: Optional[float] = None  # this field and the fields below are explained in docs/api-returns.md
    cooldown: float = 0.0
    on_lost: str = "release"  # "release", "quarantine", or a duration, for example "30s"
    max_hold: Optional[float] = None
    slots: bool = False
    returning: int = 0  # permits that come back later
    next_return_in: Optional[float] = None
    lost_count: int = 0  # the number of lost holds


@dataclass(frozen=True)
class LostHold:
    """The permits of a lease that expired or reached ``max_hold``. They come back after a delay, or when ``free_lost`` frees them."""

    token: int
    session: str  # empty if the caller may not see it
    count: int
    lost: float  # seconds since the loss
    back_in: Optional[float]  # seconds until the permits come back; None: only ``free_lost`` brings them back
    metadata: Mapping[str, str]
    group: str = ""
    slots: Sequence[int] = ()


@dataclass(frozen=True)
class Group:
    """The state of a group of a semaphore in one reply."""

    group: str
    limit: Optional[int]  # None: no limit
    own: bool  # the limit was set for this group by ``set_group_limit``
    used: int  # permits that count against the limit
    held: int  # by leases
    waiting: int  # requests
    oldest_wait: float
    groups_before: int  # groups that are served before the first request of this group


def _shown(kind: Callable[..., T], body: Mapping[str, Any]) -> T:
    """Decodes a reply, and converts its times to seconds."""
    members = {**body, **{key[:-3]: None if value is None else value / 1000 for key, value in body.items() if key.endswith("_ms")}}
    return kind(**{f.name: members[f.name] for f in fields(cast(Any, kind)) if f.name in members})


def _semaphore(body: Mapping[str, Any]) -> Semaphore:
    return _shown(Semaphore, body)


class Operations:
    """The calls that ``Client`` and ``AsyncClient`` make with one request."""

    def _send(self, call: Call, decode: Callable[[Reply], T]) -> T:
        raise NotImplementedError

    def create(
        self, name: str, permits: Optional[int], *, level: Optional[int] = None, metadata: Optional[Mapping[str, str]] = None, groups: Optional[str] = None,
        per_group: Optional[int] = None, paused: Optional[str] = None, max_waiting: Optional[int] = None, when_full: Optional[str] = None,
        head_start: Optional[float] = None, window: Optional[float] = None, cooldown: Optional[float] = None, on_lost: Union[str, float, None] = None,
        max_hold: Optional[float] = None, slots: Optional[bool] = None,
    ) -> Tuple[Semaphore, bool]:  # fmt: skip
        """Creates a semaphore, or leaves an existing semaphore unchanged. Returns it, and whether it was created. ``put`` lists the settings."""
        given = {"level": level, "metadata": metadata, "groups": groups, "per_group": per_group, "paused": paused, "max_waiting": max_waiting,
                 "when_full": when_full, "head_start": head_start, "window": window, "cooldown": cooldown, "on_lost": on_lost, "max_hold": max_hold,
                 "slots": slots}  # fmt: skip
        body = {"name": values.semaphore(name), **_settings(permits=permits, **{key: value for key, value in given.items() if value is not None})}
        return self._send(Call("POST", ("v1", "semaphores"), body=body, key=new_key()), _made)

    def put(
        self, name: str, permits: Optional[int] = KEEP, *, level: Optional[int] = KEEP, metadata: Optional[Mapping[str, str]] = KEEP,
        groups: Optional[str] = KEEP, per_group: Optional[int] = KEEP, paused: Optional[str] = KEEP, max_waiting: Optional[int] = KEEP,
        when_full: Optional[str] = KEEP, head_start: Optional[float] = KEEP, window: Optional[float] = KEEP, cooldown: Optional[float] = KEEP,
        on_lost: Union[str, float, None] = KEEP, max_hold: Optional[float] = KEEP, slots: Optional[bool] = KEEP, only_new: bool = False,
        epoch: Optional[int] = None,
    ) -> Tuple[Semaphore, bool]:  # fmt: skip
        """Creates a semaphore, or changes only the given settings (None clears a setting). Returns it, and whether it was created.

        Additional permits are granted to waiters at once. Leases go on even if fewer permits are set than they hold. With only_new, an existing semaphore
        raises ``PreconditionFailed``.

        permits: None: only the groups have limits; needs groups and per_group.
        groups: "request": a request belongs to the group that it names; "owner": the caller's identity is the group.
        per_group: the limit of each group without a limit of its own.
        paused: the reason of a pause, see ``pause``.
        max_waiting, when_full: the longest line. If it is full, when_full decides which request ends: "refuse": the new one, with ``LineFull``;
            "drop-oldest": the oldest, with ``Superseded``.
        head_start: the longest head start, in seconds, that a request may ask for.
        window: permits come back this many seconds after the grant, whether or not they are released: a lease is a receipt, see ``Lease.settle``.
        cooldown: permits come back this many seconds after the end of the lease.
        on_lost: when the permits come back after a lease has expired or reached max_hold: "release": as after a release; a number: after so many seconds;
            "quarantine": only by ``free_lost``.
        max_hold: the longest time, in seconds, that a lease is held, even if it is renewed.
        slots: leases say which permits they have, see ``Lease.slots``.
        """
        call = _change(name, "PUT", body=_settings(
            permits=permits, level=level, metadata=metadata, groups=groups, per_group=per_group, paused=paused, max_waiting=max_waiting, when_full=when_full,
            head_start=head_start, window=window, cooldown=cooldown, on_lost=on_lost, max_hold=max_hold, slots=slots,
        ), epoch=epoch)  # fmt: skip
        if values.flag("only_new", only_new):
            call.headers["If-None-Match"] = "*"
        return self._send(call, _made)

    def pause(self, name: str, reason: str, *, epoch: Optional[int] = None) -> Semaphore:
        """Stops all grants until ``resume``. Requests keep their places, and leases go on. A request with wait=0 raises ``Unavailable`` with the reason."""
        return self._pause(name, values.text("reason", reason), epoch)

    def resume(self, name: str, *, epoch: Optional[int] = None) -> Semaphore:
        """Ends a pause."""
        return self._pause(name, None, epoch)

    def _pause(self, name: str, reason: Optional[str], epoch: Optional[int]) -> Semaphore:
        return self._send(_change(name, "PATCH", body=_settings(paused=reason), epoch=epoch), lambda reply: _semaphore(reply.body))

    def get(self, name: str, *, stale: bool = False, epoch: Optional[int] = None) -> Semaphore:
        """Reads a semaphore with its first holders and waiters. With stale, a node replies from its own state, without asking the leader."""
        query = {**values.query(epoch), **({"consistency": "stale"} if values.flag("stale", stale) else {})}
        return self._send(Call("GET", ("v1", "semaphores", values.semaphore(name)), query=query), lambda reply: _semaphore(reply.body))

    def delete(self, name: str, *, epoch: Optional[int] = None) -> None:
        """Deletes a semaphore: its leases end, and its waiting requests raise ``Deleted``."""
        return self._send(_change(name, "DELETE", epoch=epoch), void)

    def up(self, name: str, count: int = 1, *, epoch: Optional[int] = None) -> int:
        """Adds permits that no lease holds, and returns how many are available after waiters were served."""
        return self._send(_change(name, "POST", "up", body={"count": values.whole("count", count)}, epoch=epoch, operation="up"), _value)

    def set_value(self, name: str, value: int, *, epoch: Optional[int] = None) -> int:
        """Makes this many permits available, and returns how many are available after waiters were served."""
        return self._send(_change(name, "PUT", "value", body={"value": values.whole("value", value, -values.LARGEST)}, epoch=epoch, operation="set"), _value)

    def page(self, prefix: str = "", cursor: str = "") -> Tuple[List[Semaphore], Optional[str]]:
        """Reads a page of the semaphores whose names begin with the prefix, sorted by name, and the cursor of the next page, if there is one."""
        query = {key: value for key, value in (("prefix", values.text("prefix", prefix)), ("cursor", values.text("cursor", cursor))) if value}
        return self._send(Call("GET", ("v1", "semaphores"), query=query), _page)

    # Groups

    def group(self, name: str, group: str) -> Group:
        """Reads a group of a semaphore. Raises ``UnknownGroup`` if no lease and no request names the group and it has no limit by ``set_group_limit``."""
        return self._send(Call("GET", _group_path(name, group)), lambda reply: _shown(Group, reply.body))

    def group_page(self, name: str, cursor: str = "", *, waiting: bool = False) -> Tuple[List[Group], Optional[str]]:
        """Reads a page of the groups of a semaphore, sorted by name, and the cursor of the next page, if any. With waiting, only groups with requests."""
        query = {**({"cursor": cursor} if values.text("cursor", cursor) else {}), **({"waiting": "true"} if values.flag("waiting", waiting) else {})}
        return self._send(Call("GET", ("v1", "semaphores", values.semaphore(name), "groups"), query=query), _group_page)

    def set_group_limit(self, name: str, group: str, limit: int, *, epoch: Optional[int] = None) -> None:
        """Gives a group a limit in place of ``per_group``. With 0, requests of the group raise ``Never``."""
        return self._limit(name, group, values.whole("limit", limit, 0), epoch)

    def clear_group_limit(self, name: str, group: str, *, epoch: Optional[int] = None) -> None:
        """Removes the limit of a group that ``set_group_limit`` has set. The semaphore's ``per_group`` then applies to the group again."""
        return self._limit(name, group, None, epoch)

    def _limit(self, name: str, group: str, limit: Optional[int], epoch: Optional[int]) -> None:
        return self._send(Call("PUT", _group_path(name, group), query=values.query(epoch), body={"limit": limit}, key=new_key()), void)

    # Lost holds

    def lost_page(self, name: str, cursor: str = "") -> Tuple[List[LostHold], Optional[str]]:
        """Reads a page of the lost holds of a semaphore, sorted by token, and the cursor of the next page, if there is one."""
        query = {"cursor": cursor} if values.text("cursor", cursor) else {}
        return self._send(Call("GET", ("v1", "semaphores", values.semaphore(name), "lost"), query=query), _lost_page)

    def free_lost(self, name: str, token: int, reason: str = "", *, epoch: Optional[int] = None) -> None:
        """Frees the permits of a lost lease now. Call it only when the work under the lease has stopped. Raises ``NotLost`` if the token has no lost hold."""
        call = _change(name, "DELETE", "lost", str(values.whole("token", token)), epoch=epoch)
        if values.text("reason", reason):
            call.query["reason"] = reason
        return self._send(call, void)

    # Operators

    def revoke(self, name: str, session: str, reason: str = "", *, group: str = "") -> None:
        """Takes one lease away from a session, as an operator. The holder notices it later; until then only the larger token of the next grant fences it."""
        call = _change(name, "DELETE", "holders", values.text("session", session), group=group)
        if values.text("reason", reason):
            call.query["reason"] = reason
        return self._send(call, void)

    def revoke_session(self, session: str, reason: str = "") -> None:
        """Ends a session as an operator. It also succeeds if the session has ended before."""
        body = {"reason": reason} if values.text("reason", reason) else {}
        return self._send(Call("POST", ("v1", "sessions", values.text("session", session), "revoke"), body=body, key=new_key()), void)

    def end_session(self, session: str) -> None:
        """Ends a session by its id, for its owner. It also succeeds if the session has ended before."""
        return self._send(Call("DELETE", ("v1", "sessions", values.text("session", session)), key=new_key()), void)


def _change(
    name: str, method: str, *more: str, body: Optional[Dict[str, Any]] = None, epoch: Optional[int] = None, group: str = "", operation: str = ""
) -> Call:
    path = ("v1", "semaphores", values.semaphore(name), *more)
    return Call(method, path, query=values.query(epoch, group), body=body, key=new_key(), operation=operation, semaphore=name)


def _group_path(name: str, group: str) -> Tuple[str, ...]:
    return "v1", "semaphores", values.semaphore(name), "groups", values.group_segment(group)


def _span(name: str) -> Callable[[Any], int]:
    return lambda value: values.milliseconds(values.seconds(name, value))


#: The functions that check the settings of semaphores, and return their values for a body.
_CHECKS: Dict[str, Callable[[Any], Any]] = {
    "permits": lambda value: values.whole("permits", value, 0),
    "level": lambda value: values.whole("level", value, -_LEVELS, _LEVELS - 1),
    "metadata": values.metadata,
    "groups": lambda value: values.text("groups", value),
    "per_group": lambda value: values.whole("per_group", value),
    "paused": lambda value: values.text("paused", value),
    "max_waiting": lambda value: values.whole("max_waiting", value),
    "when_full": lambda value: values.text("when_full", value),
    **{name: _span(name) for name in ("head_start", "window", "cooldown", "max_hold")},
    "on_lost": lambda value: value if isinstance(value, str) else _span("on_lost")(value),
    "slots": lambda value: values.flag("slots", value),
}


def _settings(**given: Any) -> Dict[str, Any]:
    return {name: None if value is None else _CHECKS[name](value) for name, value in given.items() if value is not KEEP}


def _pages(read: Callable[[str], Tuple[List[T], Optional[str]]]) -> Iterator[T]:
    cursor: Optional[str] = ""
    while cursor is not None:
        page, cursor = read(cursor)
        yield from page


def _group_page(reply: Reply) -> Tuple[List[Group], Optional[str]]:
    return [_shown(Group, body) for body in reply.body["groups"]], reply.body["next"] or None


def _lost_page(reply: Reply) -> Tuple[List[LostHold], Optional[str]]:
    return [_shown(LostHold, body) for body in reply.body["lost"]], reply.body["next"] or None


def _page(reply: Reply) -> Tuple[List[Semaphore], Optional[str]]:
    return [_semaphore(body) for body in reply.body["semaphores"]], reply.body["next"] or None


def _made(reply: Reply) -> Tuple[Semaphore, bool]:
    return _semaphore(reply.body), reply.status == 201


def _value(reply: Reply) -> int:
    return int(reply.body["value"])


@dataclass(frozen=True)
class _Life:
    """The options of a new session."""

    ttl: float
    margin: float
    body: Dict[str, Any]  # members of the body of the request that opens the session


class Client(Operations, Unpicklable):
    """The client of one cluster, through any of its nodes. Safe for concurrent use: a process needs one. A context manager that closes the client.

    The constructor sends no request. It raises ValueError or OSError for addresses that are not base URLs, and for credentials that can't be read or that
    must not be sent to these addresses. All times are in seconds.

    addresses: base URLs of the nodes ("http://n1:8701", or "n1:8701" for the same), tried in an order drawn at random unless in_order.
    token, token_file: sent with every request; the file is read again when it changes, and when a node refuses the token. Without insecure_http the
        token is never sent over plain HTTP to another machine, because others on the network could read it.
    ca: a PEM file with the authorities of the nodes' certificates; cert, key: the client's certificate. The files are read again when they change.
    headers: sent with every request, for example for a proxy in front of the nodes.
    attempt_timeout: bounds one attempt at one node, not counting the wait of the request.
    longest_wait: bounds the wait of one HTTP request; a longer wait takes several requests, and keeps its place in line.
    max_wait: the longest wait that the nodes accept in one request.
    give_up_after: ends a call without a deadline once no node could carry it out for this many seconds.
    anonymous: leaves host, pid and user out of the metadata of sessions and leases. Otherwise the client adds these keys unless the caller gives them.
    """

    def __init__(
        self, addresses: Union[str, Sequence[str]], *, token: Optional[str] = None, token_file: Optional[str] = None, insecure_http: bool = False,
        ca: Optional[str] = None, cert: Optional[str] = None, key: Optional[str] = None, headers: Optional[Mapping[str, str]] = None, in_order: bool = False,
        attempt_timeout: float = 12.0, longest_wait: float = 50.0, max_wait: float = 600.0, give_up_after: float = 60.0, anonymous: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(addresses, str):
            addresses = addresses.split(",")
        ordered = [values.text("an address", address) for address in addresses]
        if not values.flag("in_order", in_order):
            random.shuffle(ordered)  # so that clients spread over the nodes
        if token is not None:
            values.text("token", token)
        nodes = Nodes(ordered)
        credentials = Credentials(nodes, token, token_file, ca, cert, key, values.flag("insecure_http", insecure_http))
        self._max_wait, self._anonymous = values.seconds("max_wait", max_wait, 0.001), values.flag("anonymous", anonymous)
        longest = min(values.seconds("longest_wait", longest_wait, 0.001), self._max_wait)
        attempt, give_up = values.seconds("attempt_timeout", attempt_timeout, 0.001), values.seconds("give_up_after", give_up_after)
        self._calls = Caller(nodes, credentials, values.headers({} if headers is None else headers), attempt, longest, give_up)
        self._closing = Closing()
        weakref.finalize(self, self._calls.retire).atexit = False

    # Leases and sessions

    def lease(
        self, name: str, *, count: int = 1, group: str = "", head_start: float = 0.0, wait: Optional[float] = None, ttl: float = 30.0, margin: float = 0.0,
        metadata: Optional[Mapping[str, str]] = None, epoch: Optional[int] = None, cancel: Optional[Cancel] = None,
    ) -> Lease:  # fmt: skip
        """Waits for a lease, and renews it in the background until its release: the shortest way to hold one semaphore.

        A free semaphore costs one request. ``Session.acquire`` explains waits, ``group``, ``head_start`` and the errors. The lease ends ``ttl`` after its
        last renewal, and counts as lost ``margin`` before that, so that there is time to stop the work.
        """
        return self._calls.reactor.run(self._to_lease(
            name, count=count, group=group, head_start=head_start, wait=wait, ttl=ttl, margin=margin, metadata=metadata, epoch=epoch, cancel=cancel
        ))  # fmt: skip

    def _to_lease(
        self, name: str, *, count: int = 1, group: str = "", head_start: float = 0.0, wait: Optional[float] = None, ttl: float = 30.0, margin: float = 0.0,
        metadata: Optional[Mapping[str, str]] = None, epoch: Optional[int] = None, cancel: Optional[Cancel] = None,
    ) -> Work[Lease]:  # fmt: skip
        life, want = self._life(ttl, margin, metadata), values.want(name, count, group)
        asked = {"count": want.count, **values.head_start(head_start)}
        one = Call("POST", ("v1", "semaphores", name, "leases"), query=values.query(epoch, group), body={**asked, **life.body},
                   operation="acquire-once", semaphore=name, patient=wait != 0)  # fmt: skip
        wait, stop, left = values.some_seconds("wait", wait), values.cancel(cancel), Cancel()

        async def start() -> Lease:
            with self._while_open(stop, left) as both:
                return await self._lease(want.place, one, asked, wait, life, both)

        return Work(start, left, lambda lease: lease._begin_release())

    async def _lease(self, place: Place, one: Call, asked: Dict[str, Any], wait: Optional[float], life: _Life, cancel: Cancel) -> Lease:
        deadline = None if wait is None else time.monotonic() + wait
        try:
            reply = await self._once(one, deadline if wait else None, cancel)
        except Unavailable:
            self._calls.contend(place)
            if wait == 0:
                raise
        else:
            session = Session(self._calls, reply.body["session"], life.ttl, life.margin, True)
            lease = session._claims[place] = Lease(session, reply.body, place, reply)
            self._begin(session, reply, reply.body["waited_ms"])
            return lease
        try:
            session = await self._open(life, True, deadline, cancel)
        except Unreachable as e:
            if e.__cause__ is None and not cancel.canceled:
                raise wait_ended(place[0]) from e
            raise
        call = session._lease_call("PUT", place, **one.query)
        call.body, call.operation = asked, "acquire"
        try:
            return (await session._acquire([place], call, None if deadline is None else max(0.001, deadline - time.monotonic()), cancel))[0]
        except Exception:
            await session.begin_close().pause(GRACE)
            raise

    async def _once(self, call: Call, deadline: Optional[float], cancel: Cancel) -> Reply:
        """Repeats a call until it is granted or refused. If its outcome is unknown at the deadline, ``_settle`` finds the outcome, and undoes a grant."""
        rounds = 0
        while True:
            call.key = new_key()
            try:
                return await self._calls.do(call, deadline, cancel)
            except Over:  # an earlier attempt, whose reply was lost, was granted a lease that has ended since
                rounds += 1
                if await cancel.pause(back_off(rounds)):
                    raise
            except Exception as e:
                if getattr(e, "outcome_unknown", True) and await self._settled(call):
                    if isinstance(e, Unreachable) and deadline is not None and time.monotonic() >= deadline:
                        raise wait_ended(call.path[2]) from e
                    if isinstance(e, SignalboxError):
                        e.outcome_unknown = False
                raise

    async def _settled(self, call: Call) -> bool:
        try:
            await self._settle(call, lambda r: None)
            return True
        except SignalboxError:
            return False

    async def _settle(self, call: Call, keep: Callable[[Reply], Optional[Reply]]) -> Optional[Reply]:
        """Finds the outcome of a request whose caller no longer waits, and ends its session, so that no request stays in line."""
        call.elsewhere, call.until, grace = True, None, time.monotonic() + GRACE
        try:
            for _ in range(3):  # waiting, or unsure; ended; confirmed
                reply = await self._calls.do(call, grace)
                kept = keep(reply) if reply.status != 202 else None
                if kept is not None or "session" not in reply.body:
                    return kept
                await self._calls.do(end_of(reply.body["session"]), grace)
        except SignalboxError as e:
            if not isinstance(e, SETTLED + (Over, LimitReached)):
                raise
        return None

    def session(
        self, *, ttl: float = 30.0, margin: float = 0.0, metadata: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None
    ) -> Session:
        """Opens a session, which may acquire several semaphores, and renews it until its ``close``, or until it is lost."""
        return self._calls.reactor.run(self._to_open(ttl=ttl, margin=margin, metadata=metadata, timeout=timeout))

    def _to_open(self, *, ttl: float = 30.0, margin: float = 0.0, metadata: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None) -> Work[Session]:
        life, left, timeout = self._life(ttl, margin, metadata), Cancel(), values.some_seconds("timeout", timeout)

        async def start() -> Session:
            with self._while_open(left) as both:
                return await self._open(life, False, None if timeout is None else time.monotonic() + timeout, both)

        return Work(start, left, lambda session: session.begin_close())

    async def _open(self, life: _Life, one_shot: bool, deadline: Optional[float], cancel: Cancel) -> Session:
        call = Call("POST", ("v1", "sessions"), body=life.body, operation="open")
        while True:
            call.key = new_key()
            try:
                reply = await self._calls.do(call, deadline, cancel)
                break
            except Over:  # the first attempt opened a session, but the session ended before a reply came
                pass
            except Exception as e:
                if getattr(e, "outcome_unknown", True) and await self._settled(call) and isinstance(e, SignalboxError):
                    e.outcome_unknown = False
                raise
        session = Session(self._calls, reply.body["session"], life.ttl, life.margin, one_shot)
        self._begin(session, reply, 0)
        return session

    def _begin(self, session: Session, reply: Reply, waited_ms: int) -> None:
        session._begin(reply, waited_ms, reply.body["expires_in_ms"])
        if self._closing.canceled:  # ``close`` may have missed this session
            session.begin_close()
            raise self._closing._error()

    def _life(self, ttl: float, margin: float, metadata: Optional[Mapping[str, str]]) -> _Life:
        ttl, margin = values.seconds("ttl", ttl, 0.001), values.seconds("margin", margin)
        if margin > ttl / 2:
            raise ValueError("a margin is at most half of the ttl")
        pairs = values.metadata({} if metadata is None else metadata)
        if not self._anonymous:
            pairs = values.with_process(pairs)
        return _Life(ttl, margin, {"ttl": values.milliseconds(ttl), **({"metadata": pairs} if pairs else {})})

    def limited(self, name: str, **options: Any) -> Callable[[F], F]:
        """Returns a decorator that holds a lease of the semaphore while the function or generator runs. The options are those of ``lease``.

        A call raises ``Lost`` if the lease was lost before its end, and TypeError if it returns a coroutine or generator, whose body would run without the
        lease. The decorator raises TypeError for classes, asynchronous generators and coroutine functions (for these use ``AsyncClient.limited``).
        """
        return limited(lambda: self.lease(name, **options), None)

    # Semaphores

    def list(self, prefix: str = "") -> Iterator[Semaphore]:
        """Yields the semaphores whose names begin with the prefix, sorted by name. It reads a page at a time."""
        return _pages(lambda cursor: self.page(prefix, cursor))

    def groups(self, name: str, *, waiting: bool = False) -> Iterator[Group]:
        """Yields the groups that leases or requests of a semaphore name, or that have a limit by ``set_group_limit``. waiting: only those with requests."""
        return _pages(lambda cursor: self.group_page(name, cursor, waiting=waiting))

    def lost_holds(self, name: str) -> Iterator[LostHold]:
        """Yields the lost holds of a semaphore, sorted by token."""
        return _pages(lambda cursor: self.lost_page(name, cursor))

    def down(
        self, name: str, count: int = 1, *, group: str = "", head_start: float = 0.0, wait: Optional[float] = None, partial: bool = False,
        epoch: Optional[int] = None, cancel: Optional[Cancel] = None,
    ) -> int:  # fmt: skip
        """Takes permits without a lease, in the same queue as all requests, and returns how many. ``up`` or the semaphore's window brings them back.

        Retries don't take permits twice. With partial, fewer permits than count are enough, but at least one. A wait longer than max_wait starts again at
        the end of the queue. If permits are granted just at the end of the wait, the call succeeds. Raises ``Unavailable`` (``WaitEnded`` after a wait) when
        no permits were taken, and an error with outcome_unknown when no node could tell the outcome within 2 s.
        """
        return self._calls.reactor.run(self._to_down(name, count, group=group, head_start=head_start, wait=wait, partial=partial, epoch=epoch, cancel=cancel))

    def _to_down(
        self, name: str, count: int = 1, *, group: str = "", head_start: float = 0.0, wait: Optional[float] = None, partial: bool = False,
        epoch: Optional[int] = None, cancel: Optional[Cancel] = None,
    ) -> Work[int]:  # fmt: skip
        body = {"count": values.whole("count", count), "partial": values.flag("partial", partial), **values.head_start(head_start)}
        call = _change(name, "POST", "down", body=body, epoch=epoch, group=group)
        wait, stop, left = values.some_seconds("wait", wait), values.cancel(cancel), Cancel()

        async def start() -> int:
            with self._while_open(stop, left) as both:
                return await self._down(name, call, wait, both)

        async def give_back(taken: int) -> None:
            shown = await self._calls.do(Call("GET", ("v1", "semaphores", name), query=values.query(epoch)))
            if "window_ms" not in shown.body:  # with a window the permits come back without ``up``, which would add them a second time
                await self._calls.do(_change(name, "POST", "up", body={"count": taken}, epoch=epoch, operation="up"))

        def undo(taken: int) -> Any:
            return self._calls.reactor.submit(give_back(taken))

        return Work(start, left, undo, renewed=False)

    async def _down(self, name: str, call: Call, wait: Optional[float], cancel: Cancel) -> int:
        deadline = None if wait is None else time.monotonic() + wait
        taken = lambda r: r if r.body.get("granted") else None  # noqa: E731
        while True:
            call = replace(call, key=new_key())
            if wait != 0:
                call.until = min(time.monotonic() + self._max_wait, deadline or float("inf"))
            try:
                reply = await self._in_line(call, cancel)
            except Unavailable as e:
                if wait == 0:
                    raise
                if deadline is not None and time.monotonic() >= deadline - 0.001:
                    raise wait_ended(name, e) from None
                continue
            except SETTLED:
                raise
            except Exception as e:
                try:
                    late = await self._settle(call, taken)
                except SignalboxError:
                    raise e  # its outcome_unknown stays as it is
                if late is not None:
                    return int(late.body["granted"])
                if isinstance(e, SignalboxError):
                    e.outcome_unknown = False  # the request was withdrawn
                if isinstance(e, Unreachable) and deadline is not None and time.monotonic() >= deadline:
                    raise wait_ended(name) from e
                raise
            return int(reply.body["granted"])

    async def _in_line(self, call: Call, cancel: Cancel) -> Reply:
        """Repeats a request with the same key, and so at the same place in line, until it has ended."""
        early = 0
        while True:
            reply = await self._calls.do(call, call.until, cancel)
            if reply.status != 202:
                if not reply.body.get("granted"):
                    raise Unavailable(409, {"detail": "There are no permits."})
                return reply
            early = early + 1 if reply.early else 0
            if early and await cancel.pause(back_off(early)):
                raise cancel._error()

    # Inside

    @contextmanager
    def _while_open(self, *parents: Optional[Cancel]) -> Iterator[Cancel]:
        """Makes a Cancel that also ends with its parents and with the client. Raises ``Closed``, before anything is sent, if the client was closed."""
        if self._closing.canceled:
            raise self._closing._error()
        with either(*parents, self._closing) as cancel:
            yield cancel

    def _send(self, call: Call, decode: Callable[[Reply], T]) -> T:
        return self._calls.reactor.run(self._to_send(call, decode))

    def _to_send(self, call: Call, decode: Callable[[Reply], T]) -> Work[T]:
        left = Cancel()

        async def start() -> T:
            with self._while_open(left) as both:
                return decode(await self._calls.do(call, None, both))

        return Work(start, left, renewed=False)

    def close(self, timeout: float = 5.0) -> bool:
        """Ends all sessions, leases and waiting calls, and returns whether nodes confirmed the ends of the sessions within timeout."""
        timeout = values.seconds("timeout", timeout)
        self._closing.cancel()
        confirmed = self._calls.await_end(self._calls.begin_end(), timeout)
        self._calls.reactor.exit(0.2)
        return confirmed

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()
