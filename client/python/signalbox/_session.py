"""Sessions and leases: renewal, deadlines, loss and release."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from . import _values as values
from ._call import Call, Reply, end_of, new_key
from ._calls import Caller, back_off, wait_ended
from ._errors import (
    Closed, Deleted, ExpiredSession, Hierarchy, InvalidRequest, LeaseExists, LimitReached, LineFull, Lost, Never, NoTotal, NotHeld, NotRenewed, Over,
    PreconditionFailed, Refused, Revoked, SignalboxError, Superseded, Unavailable, UnknownSemaphore, UnknownSession, Unreachable,
)  # fmt: skip
from ._reactor import GRACE, Work
from ._time import Cancel, Unpicklable, either, monotonic_of, now
from ._values import Place, Wants

T = TypeVar("T")

log = logging.getLogger("signalbox")

_LOOK = 1.0  # seconds between two checks of the deadlines, because the loop's timers stop while the machine sleeps

_MOST_SPENT = 2**53  # the largest count in ``Lease.settle``

_SESSION_GONE = (UnknownSession, ExpiredSession)
_LEASE_GONE = (UnknownSemaphore, UnknownSession, ExpiredSession, NotHeld, Revoked, Deleted)
#: After these refusals the cluster certainly has no waiting request of the call.
SETTLED = (Unavailable, Never, Hierarchy, LeaseExists, LineFull, Superseded, NoTotal, UnknownSemaphore, Deleted, PreconditionFailed, InvalidRequest)


def _lease_exists() -> LeaseExists:
    return LeaseExists(409, {"detail": "This session holds the semaphore, or waits for it, already. Release that first, or use another session."})


def _place_of(body: Mapping[str, Any], places: List[Place]) -> Place:
    """Returns the place that a lease was requested for. The cluster may have replaced its group by the caller's identity."""
    exact = (body["semaphore"], body.get("group", ""))
    return exact if exact in places else next((place for place in places if place[0] == body["semaphore"]), exact)


def _lost_lease(lease: Lease, why: BaseException) -> Lost:
    error = Lost(f"the lease of {lease.semaphore} was lost: {why}")
    error.__cause__ = why
    return error


class LostEvent(threading.Event):
    """An Event whose ``is_set`` also checks the deadline, so that it is right even if the renewing thread could not run."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self._check = check

    def is_set(self) -> bool:
        self._check()
        return super().is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        return self.is_set() or super().wait(timeout) or self.is_set()


class Block:
    """A context manager that raises ``Lost`` at its end only if the body raised no error."""

    def _end_block(self) -> None:
        raise NotImplementedError

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            self._end_block()
        except Lost:
            if error is None:
                raise


class _Holder(Block, Unpicklable):
    """The base of sessions and leases: each ends once, with a reason."""

    def __init__(self, check: Callable[[], None]) -> None:
        #: Set once the session or lease is lost, or ended by the program. ``error`` has the reason.
        self.lost: threading.Event = LostEvent(check)
        self._reason: Dict[str, SignalboxError] = {}  # setdefault keeps the first reason when several threads end the session or lease
        self._over = Cancel()

    @property
    def error(self) -> Optional[SignalboxError]:
        """None while the session or lease lives, then ``Closed``, or ``Lost`` with the reason as its ``__cause__``."""
        self.lost.is_set()
        return self._error

    @property
    def _error(self) -> Optional[SignalboxError]:
        return self._reason.get("")

    def _end(self, error: SignalboxError) -> bool:
        """Ends the session or lease, and returns False if it had ended before."""
        first = self._reason.setdefault("", error) is error
        if first:
            self.lost.set()
            self._over.cancel()
        return first

    def _orphan(self, error: SignalboxError) -> None:
        """Ends the session or lease in a child process, which may have inherited a locked lock of the event, and callbacks of the parent."""
        threading.Event.__init__(self.lost)
        self._reason.setdefault("", error)
        self._over = Cancel()
        self._over.cancel()
        self.lost.set()

    def check(self) -> None:
        """Raises ``error`` if the session or lease is over."""
        if self.error is not None:
            raise self.error


class Lease(_Holder):
    """Permits held by a session; a context manager that releases them.

    ``token`` is larger than the token of every earlier grant of this semaphore. Send it with each write to the resource that the lease protects, and let
    the resource refuse a token that is smaller than the largest it has seen. Only this stops the writes of a process that lost its lease during a pause.
    """

    def __init__(self, session: Session, body: Mapping[str, Any], place: Place, reply: Reply) -> None:
        super().__init__(self._check)
        self._session = session
        self._place = place  # as requested; ``group`` may differ, because the cluster may have chosen the group of the session's owner
        self.semaphore: str = body["semaphore"]
        self.group: str = body.get("group", "")
        self.session = session.id  #: the id of the session that holds the lease
        self.count: int = body["count"]
        self.token: int = body["token"]
        self.slots: List[int] = body.get("slots", [])  #: the numbers of the lease's permits, if the semaphore has slots
        self.spent: bool = body.get("spent", False)  #: the lease is a receipt: its permits are spent, and come back one window after the grant
        self._left = Cancel()  # canceled once a node has confirmed the release
        self._deadline = self._latest = 0.0  # by ``now``: the lease certainly lives until _deadline, and is certainly over after _latest
        self._capped = False  # max_hold ends the lease before its session
        self._extend(reply.deadline(body["waited_ms"], body["expires_in_ms"])[0], reply.latest(body["expires_in_ms"]))

    def _extend(self, deadline: float, latest: float) -> None:
        """Sets the end that a node reports for this lease. It may be earlier than the session's end, because of ``max_hold``."""
        self._deadline, self._latest = max(self._deadline, deadline), max(self._latest, latest)
        self._capped = self._session._deadline - self._deadline > self._session.ttl / 12

    def _check(self) -> None:
        self._session._check_deadline()
        if self._error is not None:
            return
        if self._session._error is not None:
            self._end(self._session._error)
        elif now() >= self._deadline - self._session.margin:
            why: SignalboxError = NotRenewed("no node has confirmed it in time")
            if self._capped:
                why = Revoked(410, {"reason": "max-hold", "detail": "It has reached the longest time that the semaphore lets a lease hold."})
            self._end(_lost_lease(self, why))

    @property
    def deadline(self) -> float:
        """The time, by ``time.monotonic()``, until which the lease is certainly held if no further renewal succeeds. It changes with each renewal and sleep."""
        return monotonic_of(self._deadline)

    def settle(self, count: int) -> bool:
        """Sets how many permits of a receipt were really spent, fewer or more than granted. For example, settle(3) of 10 permits brings 7 back at once.

        Returns False, without a change, if the permits have come back already. Raises InvalidRequest if the lease is no receipt.
        """
        return self._session._calls.reactor.run(self._to_settle(count))

    def _to_settle(self, count: int) -> Work[bool]:
        if not self.spent:
            raise InvalidRequest(400, {"detail": f"Only a lease of a semaphore with a window can be settled; {self.semaphore} had none.", "field": "count"})
        session, left = self._session, Cancel()
        call = session._lease_call("PATCH", (self.semaphore, self.group), token=str(self.token))
        call.body, call.key = {"count": values.whole("count", count, 0, _MOST_SPENT)}, new_key()

        async def start() -> bool:
            self.check()
            try:
                with either(left, self._over) as both:
                    reply = await session._calls.do(call, None, both)
            except SignalboxError as e:
                if isinstance(e, _SESSION_GONE):
                    session._lose(e)
                elif isinstance(e, _LEASE_GONE):
                    session._lose_lease(self, e)
                self.check()
                raise
            self.count = reply.body["count"]
            return bool(reply.body["settled"])

        return Work(start, left, renewed=False)

    def release(self, timeout: float = 5.0) -> bool:
        """Gives the permits back, and returns whether a node confirmed it within timeout. If not, the release goes on in the background until the deadline.

        Raises ``Lost`` if the lease was lost before. A second call waits until a node has confirmed the first.
        """
        timeout = values.seconds("timeout", timeout)
        lost = self.error
        if isinstance(lost, Lost):
            raise lost
        return self._session._calls.reactor.wait(self._begin_release(), timeout)

    def _begin_release(self) -> Cancel:
        session = self._session
        if session.one_shot or session._error is not None:
            return session.begin_close()
        if self._end(Closed("the lease was released")):
            session._calls.reactor.submit(session._leave(self))
        return self._left

    def __enter__(self) -> Lease:
        return self

    def _end_block(self) -> None:
        self.release()


class Session(_Holder):
    """A session holds leases, which end with it. It is renewed in the background until ``close``, or until it is lost.

    A context manager that closes the session. Safe for concurrent use.
    """

    def __init__(self, calls: Caller, session: str, ttl: float, margin: float, one_shot: bool) -> None:
        super().__init__(self._check_deadline)
        self._calls, self.id, self.ttl, self.margin, self.one_shot = calls, session, ttl, margin, one_shot
        self._deadline = self._renew_at = 0.0  # by ``now``
        # Each place has a Lease that is held, a Cancel that ends once a release is confirmed, or None for a request. Only the loop changes the dictionary.
        self._claims: Dict[Place, Union[Lease, Cancel, None]] = {}
        self._failure: Optional[Exception] = None  # the error of the latest attempt to renew
        self._timer: Optional[asyncio.TimerHandle] = None  # calls _look
        self._due = Cancel()  # canceled when the next renewal is due
        self._asked: Dict[str, Cancel] = {}  # under "": once the end was requested, an event that comes when a node has confirmed it

    def _begin(self, reply: Reply, waited_ms: int, expires_in_ms: int) -> None:
        self._renew_at = reply.deadline(waited_ms, expires_in_ms)[1]
        self._extend(reply, waited_ms, expires_in_ms)
        self._calls.sessions[self.id] = self
        self._calls.reactor.spawn(self._keep())

    @property
    def deadline(self) -> float:
        """The time until which the session certainly lives, see ``Lease.deadline``."""
        return monotonic_of(self._deadline)

    def acquire(
        self, name: str, *, count: int = 1, group: str = "", head_start: float = 0.0, wait: Optional[float] = None, epoch: Optional[int] = None,
        cancel: Optional[Cancel] = None,
    ) -> Lease:  # fmt: skip
        """Waits until the session is granted the semaphore, first come, first served. The request keeps its place in line across failures.

        ``wait`` is in seconds: None waits without a limit, 0 does not wait. Raises ``Unavailable`` (``WaitEnded`` after a wait) when it was not granted,
        ``Unreachable`` when no node replied, ``Lost`` when the session was lost meanwhile, ``Canceled``, and other refusals at once.
        Unless a recent call had to wait for the semaphore, the client first tries without waiting, and gets its place in line only with the next request.
        A session may have a lease in each ``group`` of a semaphore that has groups. With ``head_start``, the request gets the place of a request that was
        made this many seconds earlier, at most the semaphore's ``head_start``.
        """
        return self._calls.reactor.run(self._to_acquire(name, count=count, group=group, head_start=head_start, wait=wait, epoch=epoch, cancel=cancel))

    def acquire_all(self, wants: Wants, *, head_start: float = 0.0, wait: Optional[float] = None, cancel: Optional[Cancel] = None) -> List[Lease]:
        """Like ``acquire``, but for all of the semaphores in one step: a mapping of names to counts, or a sequence of names and ``Want``s."""
        return self._calls.reactor.run(self._to_acquire_all(wants, head_start=head_start, wait=wait, cancel=cancel))

    def acquire_any(self, wants: Wants, *, head_start: float = 0.0, wait: Optional[float] = None, cancel: Optional[Cancel] = None) -> Lease:
        """Like ``acquire``, but for one of the semaphores: the first that is available."""
        return self._calls.reactor.run(self._to_acquire_any(wants, head_start=head_start, wait=wait, cancel=cancel))

    def _to_acquire(
        self, name: str, *, count: int = 1, group: str = "", head_start: float = 0.0, wait: Optional[float] = None, epoch: Optional[int] = None,
        cancel: Optional[Cancel] = None,
    ) -> Work[Lease]:  # fmt: skip
        want = values.want(name, count, group)
        call = self._lease_call("PUT", want.place, **values.query(epoch))
        call.body, call.operation = {"count": want.count, **values.head_start(head_start)}, "acquire"
        return self._work([want.place], call, wait, cancel, lambda leases: leases[0])

    def _to_acquire_all(self, wants: Wants, *, head_start: float = 0.0, wait: Optional[float] = None, cancel: Optional[Cancel] = None) -> Work[List[Lease]]:
        return self._work(*self._several("all", wants, head_start), wait, cancel, list)

    def _to_acquire_any(self, wants: Wants, *, head_start: float = 0.0, wait: Optional[float] = None, cancel: Optional[Cancel] = None) -> Work[Lease]:
        return self._work(*self._several("any", wants, head_start), wait, cancel, lambda leases: leases[0])

    def _several(self, mode: str, wants: Wants, head_start: float) -> Tuple[List[Place], Call]:
        checked = values.wants(wants)
        semaphores = [{key: value for key, value in asdict(want).items() if value != ""} for want in checked]
        body = {"semaphores": semaphores, "mode": mode, **values.head_start(head_start)}
        return [want.place for want in checked], Call("POST", ("v1", "sessions", self.id, "acquire"), body=body)

    def _lease_call(self, method: str, place: Place, **query: str) -> Call:
        """Returns a call about the lease, or the request, in a group of a semaphore."""
        name, group = place
        return Call(method, ("v1", "sessions", self.id, "leases", name), query={**query, "group": group} if group else query, semaphore=name, session=self.id)

    def _work(self, places: List[Place], call: Call, wait: Optional[float], cancel: Optional[Cancel], pick: Callable[[List[Lease]], T]) -> Work[T]:
        wait, stop, left = values.some_seconds("wait", wait), values.cancel(cancel), Cancel()
        granted: List[Lease] = []

        async def start() -> T:
            with either(stop, left) as both:
                granted.extend(await self._acquire(places, call, wait, both))
            return pick(granted)

        def undo(_: T) -> None:
            for lease in granted:
                lease._begin_release()

        return Work(start, left, undo)

    async def _acquire(self, places: List[Place], call: Call, wait: Optional[float], cancel: Optional[Cancel]) -> List[Lease]:
        deadline = None if wait is None else time.monotonic() + wait
        with either(cancel, self._over) as both:
            await self._claim(places, deadline, both)
            try:
                return self._grant(places, await self._ask(call, wait, deadline, both))
            except Exception as e:
                if isinstance(e, _SESSION_GONE):
                    self._lose(e)
                over = self.error
                if over is not None or isinstance(e, SETTLED) and not e.outcome_unknown:
                    for place in places:
                        self._claims.pop(place, None)
                    if over is not None:
                        raise over from e
                    raise
                left = self._let_go(places, unsure=call if getattr(e, "outcome_unknown", True) else None)
                grace = time.monotonic() + GRACE
                confirmed = await left.pause(GRACE)
                if confirmed and isinstance(e, SignalboxError):
                    e.outcome_unknown = False  # the request was withdrawn
                if confirmed and deadline is not None and isinstance(e, Unreachable) and time.monotonic() >= deadline:
                    # The cluster confirmed the withdrawal, so only the permits were missing.
                    raise wait_ended(", ".join(name for name, _ in places), await self._find_pause(places, grace, both)) from e
                raise

    async def _find_pause(self, places: List[Place], until: float, cancel: Cancel) -> Optional[Unavailable]:
        """Returns the refusal by the first paused semaphore, or None.

        It reads the semaphores, because the reply to a withdrawal does not tell why the request waited. A pause that a refused try has told before the wait
        may be over.
        """
        for name, _ in places:
            try:
                query = {"consistency": "stale", "holders": "0", "waiters": "0"}
                shown = await self._calls.do(Call("GET", ("v1", "semaphores", name), query=query), until, cancel)
            except SignalboxError:
                return None
            if shown.body.get("paused"):
                return Unavailable(409, {"reason": shown.body["paused"], "rule": "paused"})
        return None

    async def _claim(self, places: List[Place], deadline: Optional[float], cancel: Cancel) -> None:
        """Reserves the places. It first waits until their earlier releases are confirmed, because a late release could withdraw the new request."""
        while True:
            self.check()
            if not places:
                raise InvalidRequest(400, {"detail": "There is no name of a semaphore.", "field": "semaphores"})
            if len(set(places)) < len(places) or any(place in self._claims and not isinstance(self._claims[place], Cancel) for place in places):
                raise _lease_exists()
            leaving = [claim for claim in map(self._claims.get, places) if isinstance(claim, Cancel)]
            if not leaving:
                self._claims.update(dict.fromkeys(places))
                return
            with either(leaving[0], cancel) as first:
                ended = await first.pause(None if deadline is None else deadline - time.monotonic())
            if cancel.canceled:
                self.check()
                raise cancel._error()
            if not ended and deadline is not None and time.monotonic() >= deadline:
                raise wait_ended(places[0][0])

    async def _ask(self, call: Call, wait: Optional[float], deadline: Optional[float], cancel: Cancel) -> Reply:
        """Repeats the request until it is granted or refused. The repeats have the same key, and so keep one place in line.

        Unless the semaphore is contended, the first attempt does not wait, so that it may share an HTTP request with other calls.
        """
        place = (call.semaphore, call.query.get("group", ""))
        trying = wait != 0 and call.operation == "acquire" and not self._calls.contended(place)
        call.key, call.key_optional, call.listen, call.patient = new_key(), True, wait != 0 and not trying, wait != 0
        if not call.listen:
            call.query["try"] = "true"
        if wait == 0:
            deadline = None  # only the time limits of the attempts bound the call
        waits, early = False, 0
        while True:
            pause = 0.0
            try:
                reply = await self._calls.do(call, deadline, cancel)
                if reply.status != 202:
                    return reply
                waits = True
                early = early + 1 if reply.early else 0
            except Over:  # an earlier attempt, whose reply was lost, was granted a lease that has ended since
                call.key, early = new_key(), early + 1
            except Unavailable:
                self._calls.contend(place)
                if not trying:
                    raise
                del call.query["try"]
                trying, call.key, call.key_optional, call.listen = False, new_key(), True, True
            except LimitReached as e:
                if not waits:
                    raise
                pause, early = e.retry_after, early + 1
            if early:  # a node that is shutting down replies to its waiters early
                pause = max(pause, back_off(early))
                await cancel.pause(pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic())))

    def _grant(self, places: List[Place], reply: Reply) -> List[Lease]:
        bodies = reply.body.get("leases") or [reply.body]
        for body in bodies:
            self._extend(reply, body["waited_ms"], body["expires_in_ms"])
        self.check()
        leases = [Lease(self, body, _place_of(body, places), reply) for body in bodies]
        held = {(claim.semaphore, claim.token) for claim in self._claims.values() if isinstance(claim, Lease)}
        if any((lease.semaphore, lease.token) in held for lease in leases):
            raise _lease_exists()  # the lease is in the group of the session's owner, which an earlier call named differently
        for place in places:
            self._claims.pop(place, None)  # acquire_any is granted only one of the places
        self._claims.update({lease._place: lease for lease in leases})
        self._look()  # a lease may end before the next scheduled check
        return leases

    # Renewal

    def _extend(self, reply: Reply, waited_ms: int, expires_in_ms: int) -> None:
        """Moves the deadline forward. The session lives at least until the deadline of each reply, so the latest deadline counts."""
        self._deadline = max(self._deadline, reply.deadline(waited_ms, expires_in_ms)[0])
        self._look()

    def _look(self) -> None:
        """Checks all deadlines, and schedules the next check. It runs on its own timer, so that a slow renewal can't delay a loss."""
        self._check_deadline()
        if self._timer is not None:
            self._timer.cancel()
        ends = [self._deadline]
        for lease in self._held():
            lease._check()
            if self._error is None and isinstance(lease._error, Lost):  # the lease ended before its session
                log.warning("session %s: %s", self.id, lease._error)
                self._let_go([lease._place], lease, not_before=lease._latest)
            else:
                ends.append(lease._deadline)
        if self._error is None:
            left, due = min(ends) - self.margin - now(), self._renew_at - now()
            if due <= 0:
                self._due.cancel()
            self._timer = asyncio.get_running_loop().call_later(min(_LOOK, max(left, 0.0), *([due] if due > 0 else [])), self._look)

    def _held(self) -> List[Lease]:
        return [claim for claim in self._claims.values() if isinstance(claim, Lease)]

    def _check_deadline(self) -> None:
        """Marks the session as lost if its deadline has passed."""
        self._calls.check_process()
        if self._error is None and self._deadline and now() >= self._deadline - self.margin:
            reason = NotRenewed(f"not renewed in time; the latest failure: {self._failure}" if self._failure else "not renewed in time")
            reason.__cause__ = self._failure
            self._lose(reason)

    def _lose(self, why: BaseException) -> None:
        error = Lost(f"session {self.id} was lost: {why}")
        error.__cause__ = why
        if self._finish(error):
            log.warning("session %s lost: %s", self.id, why)

    def _finish(self, error: SignalboxError) -> bool:
        """Ends the session and its leases, and returns False if the session had ended before."""
        first = self._end(error)
        for lease in self._held():
            lease._check()
        self._calls.sessions.pop(self.id, None)
        return first

    def orphan(self) -> None:
        """Marks the session as lost in a child process. It sends no request, because the session belongs to the parent."""
        error = Lost(f"session {self.id} belongs to the parent process")
        self._asked[""] = Cancel()  # close sends no request
        self._orphan(error)
        for lease in self._held():
            lease._orphan(error)

    async def _keep(self) -> None:
        """Renews the session every third of its ttl until it is over."""
        while self._error is None:
            if now() < self._renew_at:
                self._due = Cancel()
                self._look()
                with either(self._due, self._over) as first:
                    await first.pause(None)
                continue
            try:
                await self._renew()
            except Exception as e:  # the next attempt may succeed before the deadline
                self._note(e)
                self._renew_at = now() + max(self.ttl / 12, 0.001)

    def _note(self, failure: Exception) -> None:
        if self._failure is None and self._error is None:
            log.warning("session %s: a renewal failed, trying on: %s", self.id, failure)
        self._failure = failure

    async def _renew(self) -> None:
        """Renews once, and repeats the attempt while the session lives. The call needs no idempotency key, because a second renewal does no harm."""
        held = self._held()
        # An attempt takes only a part of the time left, so that other nodes can be asked if a node does not reply.
        patience = lambda: max((self._deadline - now()) / 4, self.ttl / 30, 0.05)  # noqa: E731
        call = Call("PUT", ("v1", "sessions", self.id), query={"leases": "true"} if held else {}, body={}, patience=patience,
                    max_pause=max(self.ttl / 12, 0.001), failed=self._note)  # fmt: skip
        try:
            reply = await self._calls.do(call, self.deadline, self._over)
        except (*_SESSION_GONE, Revoked) as e:
            self._lose(e)
            return
        expires = reply.body["expires_in_ms"]
        self._renew_at, self._failure = reply.deadline(0, expires)[1], None
        self._extend(reply, 0, expires)
        if held:
            await self._verify(held, reply, monotonic_of(self._renew_at))

    async def _verify(self, held: List[Lease], reply: Reply, until: float) -> None:
        """Sets the deadlines of the leases after a renewal. Marks as lost each lease that was revoked or whose semaphore was deleted.

        The node reports the remaining time of each lease. It counts from when the renewal was sent.
        """
        shown, source = reply.body.get("leases"), reply
        try:
            if shown is None:  # the node's own state was behind
                query = {"consistency": "stale", "min_index": str(reply.index)} if reply.index else {}
                source = await self._calls.do(Call("GET", ("v1", "sessions", self.id), query=query), until, self._over)
                shown = source.body["leases"]
            living = {(body["semaphore"], body["token"]): body["expires_in_ms"] for body in shown if not body.get("revoked")}
            for lease in held:
                expires = living.get((lease.semaphore, lease.token))
                if expires is not None:
                    lease._extend(reply.deadline(0, expires)[0], source.latest(expires))
                    continue
                try:
                    r = await self._calls.do(self._lease_call("GET", (lease.semaphore, lease.group)), until, self._over)
                    if r.status != 200 or r.body["token"] != lease.token:
                        self._lose_lease(lease, NotHeld(404, {"detail": "Another lease, or a waiting request, has taken its place."}))
                    else:
                        lease._extend(reply.deadline(0, r.body["expires_in_ms"])[0], r.latest(r.body["expires_in_ms"]))
                except _LEASE_GONE as e:
                    self._lose_lease(lease, e)
        except SignalboxError:
            pass  # if the session is gone, the next renewal fails with the reason
        self._look()

    def _lose_lease(self, lease: Lease, why: Refused) -> None:
        """Ends a lease that the cluster has taken away, and releases it, because the cluster remembers a revoked lease until its release."""
        error = _lost_lease(lease, why)
        if lease._end(error):
            log.warning("session %s: %s", self.id, error)
            self._let_go([lease._place], lease)

    # Release

    async def _leave(self, lease: Lease) -> None:
        self._let_go([lease._place], lease)

    def _let_go(self, places: List[Place], lease: Optional[Lease] = None, unsure: Optional[Call] = None, not_before: float = 0.0) -> Cancel:
        """Starts to release a lease. Without a lease, it withdraws the request for the places, or releases what the request was granted.

        The places can't be requested again until a node has confirmed the release. ``unsure`` is a request that may still arrive at a node: it is settled
        first. A lease that has ended by this clock is released at not_before, when it has ended in the cluster too. Until then its holder has time to stop.
        """
        done = lease._left if lease else Cancel()
        self._claims.update(dict.fromkeys(places, done))

        async def run() -> None:
            await self._over.pause(not_before - now())
            if unsure is not None:
                await self._settle(unsure)
            for place in [(lease.semaphore, lease.group)] if lease else places:
                await self._release(place, lease.token if lease else None)
            for place in places:
                self._claims.pop(place, None)
            done.cancel()

        self._calls.reactor.spawn(run())
        return done

    async def _settle(self, request: Call) -> None:
        """Repeats a request with its key, without waiting, until the cluster has it in line or has recorded its outcome.

        After that, an attempt that arrives late has no effect. Otherwise a late attempt could arrive after the withdrawal, and be granted a lease that the
        program does not know.
        """
        call, rounds = replace(request, listen=False, elsewhere=True, patience=self._calls.growing()), 0
        while not self._over.canceled:
            rounds += 1
            try:
                await self._calls.do(call, None, self._over)
                return
            except (Unreachable, OSError):
                await self._over.pause(back_off(rounds))
            except SignalboxError:
                return

    async def _release(self, place: Place, token: Optional[int]) -> None:
        """Repeats the release until a node confirms it, or the session is over. The token and the key keep a late request from releasing a later lease."""
        call = self._lease_call("DELETE", place, **({} if token is None else {"token": str(token)}))
        call = replace(call, key=new_key(), key_optional=True, patience=self._calls.growing(), operation="release")
        rounds = 0
        while not self._over.canceled:
            rounds += 1
            try:
                await self._calls.do(call, None, self._over)
                return
            except _SESSION_GONE as e:
                self._lose(e)
            except _LEASE_GONE:
                return
            except (SignalboxError, OSError) as e:
                await self._over.pause(max(back_off(rounds), getattr(e, "retry_after", 0.0)))

    def close(self, timeout: float = 5.0) -> bool:
        """Ends the session, with its leases and waiting requests, and returns whether a node confirmed it within timeout.

        If not, the call goes on in the background until the session expires at its deadline. Raises ``Lost`` if the session was lost before.
        """
        timeout = values.seconds("timeout", timeout)
        lost, done = self.error, self.begin_close()
        if isinstance(lost, Lost):
            raise lost
        return self._calls.reactor.wait(done, timeout)

    def begin_close(self) -> Cancel:
        """Starts to end the session, and returns an event that comes when a node has confirmed the end."""
        done = Cancel()
        first = self._asked.setdefault("", done)
        if first is done:
            self._finish(Closed("the session was closed"))
            try:
                self._calls.reactor.submit(self._ask_for_end(done))
            except SignalboxError:  # the interpreter is shutting down: the session expires
                pass
        return first

    async def _ask_for_end(self, done: Cancel) -> None:
        until, rounds = max(self.deadline, time.monotonic() + GRACE), 0
        while time.monotonic() < until:
            rounds += 1
            try:
                await self._calls.do(replace(end_of(self.id), patience=self._calls.growing(), max_pause=self.ttl / 12), until)
            except _SESSION_GONE:
                pass
            except (SignalboxError, OSError):
                await asyncio.sleep(min(back_off(rounds), self.ttl / 12))
                continue
            done.cancel()
            return

    def __enter__(self) -> Session:
        return self

    def _end_block(self) -> None:
        self.close()
