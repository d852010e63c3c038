"""Sessions and leases: renewal, deadlines, loss and release."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Type, Union

from ._calls import Call, Reply, back_off, new_key, wait_ended
from ._errors import (
    Canceled, Closed, Deleted, ExpiredSession, Hierarchy, InvalidRequest, LeaseExists, LimitReached, Lost, Never, NotHeld, NotRenewed, Over, PreconditionFailed,
    Refused, Revoked, SignalboxError, Unavailable, UnknownSemaphore, UnknownSession, Unreachable,
)  # fmt: skip
from ._time import Cancel, either

if TYPE_CHECKING:
    from ._client import Client

log = logging.getLogger("signalbox")

GRACE = 2.0  #: seconds that a call whose time is over takes at most to withdraw its request
Wants = Union[Mapping[str, int], Sequence[str]]

_SESSION_GONE = (UnknownSession, ExpiredSession)
_LEASE_GONE = (UnknownSemaphore, UnknownSession, ExpiredSession, NotHeld, Revoked, Deleted)
#: Refusals which make sure that no request waits.
SETTLED = (Unavailable, Never, Hierarchy, LeaseExists, UnknownSemaphore, Deleted, PreconditionFailed, InvalidRequest)


class LostEvent(threading.Event):
    """An Event whose ``is_set`` also looks at the clock: it is right even after a call that kept all threads from running."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self._check = check

    def is_set(self) -> bool:
        self._check()
        return super().is_set()


class _Holder:
    """The life of a session or a lease: ends once, with a reason."""

    def __init__(self, check: Callable[[], None]) -> None:
        #: Set once it is over: lost, or ended by the program. ``error`` has the reason.
        self.lost: threading.Event = LostEvent(check)
        self._error: Optional[SignalboxError] = None
        self._over = Cancel()

    @property
    def error(self) -> Optional[SignalboxError]:
        """None while it lives, and then the reason for its end: ``Lost``, whose ``__cause__`` has the reason, or ``Closed``."""
        self.lost.is_set()
        return self._error

    def _end(self, error: SignalboxError) -> None:  # with the session's lock
        if self._error is None:
            self._error = error
            self.lost.set()
            self._over.cancel()

    def check(self) -> None:
        """Raises the reason if it is over."""
        if self.error is not None:
            raise self.error


class Lease(_Holder):
    """Permits held by a session; a context manager that releases them.

    ``token`` is larger than the token of every earlier grant of this semaphore. Send it with each write to the resource that the lease protects, and
    let the resource refuse a smaller one than it has seen: only that protects against a process that was paused and has not noticed its loss.
    """

    def __init__(self, session: Session, body: Mapping[str, Any]) -> None:
        super().__init__(session._check_deadline)
        self._session = session
        self.semaphore: str = body["semaphore"]
        self.session = session.id  #: the id of the session that holds it
        self.count: int = body["count"]
        self.token: int = body["token"]
        self._leaving: Optional[Cancel] = None

    @property
    def deadline(self) -> float:
        """Until when it is held for certain, by ``time.monotonic()``, if no further renewal succeeds."""
        return self._session.deadline

    def release(self, timeout: float = 5.0) -> bool:
        """Gives the permits back, and returns whether a node has confirmed it within the time: else a thread goes on until the deadline.

        Raises ``Lost`` if the lease was lost before. Releasing again waits for the same.
        """
        lost = self.error
        if isinstance(lost, Lost):
            raise lost
        if self._session.one_shot:
            return self._session.close(timeout)
        with self._session._lock:
            if self._leaving is None:
                self._end(Closed("the lease was released"))
                self._leaving = self._session._let_go([self.semaphore], self.token)
        return self._leaving.wait(timeout)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            self.release()
        except Lost:
            if error is None:
                raise


class Session(_Holder):
    """A client's life as the cluster sees it: holds leases, which end with it. A thread renews it until ``close``, or until it is lost.

    A context manager that closes it. All methods may be called from several threads.
    """

    def __init__(self, client: Client, session: str, ttl: float, margin: float, one_shot: bool) -> None:
        super().__init__(self._check_deadline)
        self._client, self.id, self.ttl, self.margin, self.one_shot = client, session, ttl, margin, one_shot
        self._lock = threading.RLock()
        self._deadline = self._renew_at = 0.0
        self._claims: Dict[str, Union[Lease, Cancel, None]] = {}  # held, leaving, or asked for
        self._failure: Optional[Exception] = None  # of the latest attempt to renew
        self._undo: Callable[[], None] = lambda: None  # of the alarm
        self._ended: Optional[threading.Event] = None  # from close
        self._keeper = threading.Thread(target=self._keep, name=f"signalbox-renew-{session}", daemon=True)

    def _begin(self, reply: Reply, waited_ms: int, expires_in_ms: int) -> None:
        with self._lock:
            self._extend(reply, waited_ms, expires_in_ms)
            self._renew_at = reply.deadline(waited_ms, expires_in_ms)[1]
        self._client._add(self)
        self._keeper.start()

    @property
    def deadline(self) -> float:
        """Until when the session certainly lives, by ``time.monotonic()``, if no further renewal succeeds."""
        return self._deadline

    def acquire(self, name: str, *, count: int = 1, wait: Optional[float] = None, epoch: Optional[int] = None, cancel: Optional[Cancel] = None) -> Lease:
        """Waits until the session is granted the semaphore, strictly first come, first served, and keeps its place across failures.

        ``wait`` is in seconds: None waits as long as it takes, 0 not at all. Raises ``Unavailable`` (``WaitEnded`` after a wait) when it was not granted,
        ``Unreachable`` when no node could be asked, ``Lost`` when the session was lost meanwhile, ``Canceled``, and other refusals at once.
        """
        call = Call("PUT", ("v1", "sessions", self.id, "leases", name), body={"count": count})
        if epoch is not None:
            call.query["epoch"] = str(epoch)
        return self._acquire([name], call, wait, cancel)[0]

    def acquire_all(self, wants: Wants, *, wait: Optional[float] = None, cancel: Optional[Cancel] = None) -> List[Lease]:
        """Waits until the session is granted all of the semaphores, in one step: a mapping of names to counts, or names. Else as ``acquire``."""
        return self._acquire_many("all", wants, wait, cancel)

    def acquire_any(self, wants: Wants, *, wait: Optional[float] = None, cancel: Optional[Cancel] = None) -> Lease:
        """Waits until the session is granted one of the semaphores: the first that can be had. Else as ``acquire``."""
        return self._acquire_many("any", wants, wait, cancel)[0]

    def _acquire_many(self, mode: str, wants: Wants, wait: Optional[float], cancel: Optional[Cancel]) -> List[Lease]:
        counts = [(name, wants[name] if isinstance(wants, Mapping) else 1) for name in wants]
        body = {"semaphores": [{"name": name, "count": count} for name, count in counts], "mode": mode}
        return self._acquire([name for name, _ in counts], Call("POST", ("v1", "sessions", self.id, "acquire"), body=body), wait, cancel)

    def _acquire(self, names: List[str], call: Call, wait: Optional[float], cancel: Optional[Cancel]) -> List[Lease]:
        deadline = None if wait is None else time.monotonic() + wait
        with either(cancel, self._over) as both:
            self._claim(names, deadline, both)
            try:
                return self._grant(names, self._ask(call, wait, deadline, both))
            except BaseException as e:
                if isinstance(e, _SESSION_GONE):
                    self._lose(e)
                with self._lock:
                    over = self.error
                    if over is not None or isinstance(e, SETTLED) and not e.outcome_unknown:
                        for name in names:
                            self._claims.pop(name, None)
                        if over is not None:
                            raise over from e
                        raise
                    left = self._let_go(names, unsure=call if getattr(e, "outcome_unknown", True) else None)
                confirmed = left.wait(GRACE)
                if confirmed and isinstance(e, SignalboxError):
                    e.outcome_unknown = False  # it was withdrawn
                if confirmed and deadline is not None and isinstance(e, Unreachable) and time.monotonic() >= deadline:
                    raise wait_ended(", ".join(names)) from e  # the cluster was there, and the permits were not free in time
                raise

    def _claim(self, names: List[str], deadline: Optional[float], cancel: Cancel) -> None:
        """Reserves the names, once earlier releases of them are confirmed: a late one could withdraw the new request."""
        while True:
            with self._lock:
                self.check()
                if not names or not all(names):
                    raise InvalidRequest(400, {"detail": "A semaphore's name has 1 to 512 bytes.", "field": "name"})
                if len(set(names)) < len(names) or any(name in self._claims and not isinstance(self._claims[name], Cancel) for name in names):
                    raise LeaseExists(409, {"detail": "This session holds the semaphore, or waits for it, already. Release that first, or use another session."})
                leaving = [claim for claim in map(self._claims.get, names) if isinstance(claim, Cancel)]
                if not leaving:
                    self._claims.update(dict.fromkeys(names))
                    return
            with either(leaving[0], cancel) as first:
                ended = first.wait(None if deadline is None else deadline - time.monotonic())
            if cancel.canceled:
                self.check()
                raise Canceled("the call was canceled")
            if not ended:
                raise wait_ended(names[0])

    def _ask(self, call: Call, wait: Optional[float], deadline: Optional[float], cancel: Cancel) -> Reply:
        """Repeats the request until it is granted or refused. All repeats are one request to the cluster, and have one place."""
        call.key, call.key_optional, call.listen = new_key(), True, wait != 0
        if wait == 0:
            call.query["try"] = "true"
            deadline = None  # a call of its own length
        waits, early = False, 0
        while True:
            pause = 0.0
            try:
                reply = self._client._calls.do(call, deadline, cancel)
                if reply.status != 202:
                    return reply
                waits = True
                early = early + 1 if reply.early else 0
            except Over:  # granted to an attempt whose reply was lost
                call.key, early = new_key(), early + 1
            except LimitReached as e:
                if not waits:
                    raise
                pause, early = e.retry_after, early + 1
            if early:  # a node that is about to stop sends its waiters elsewhere early
                pause = max(pause, back_off(early))
                cancel.wait(pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic())))

    def _grant(self, names: List[str], reply: Reply) -> List[Lease]:
        bodies = reply.body.get("leases") or [reply.body]
        with self._lock:
            for body in bodies:
                self._extend(reply, body["waited_ms"], body["expires_in_ms"])
            self.check()
            for name in names:
                self._claims.pop(name, None)  # an "any" is granted one of them
            leases = [Lease(self, body) for body in bodies]
            self._claims.update({lease.semaphore: lease for lease in leases})
            return leases

    def _extend(self, reply: Reply, waited_ms: int, expires_in_ms: int) -> None:
        """Moves the deadline forward, with the lock. Every reply bounds it from below, so that the latest bound holds."""
        deadline = reply.deadline(waited_ms, expires_in_ms)[0]
        if self._error is None and deadline > self._deadline:
            self._deadline = deadline
            self._undo()
            self._undo = self._client._calls.alarm.at(deadline - self.margin, self._check_deadline)

    def _check_deadline(self) -> None:
        """Loses the session if its deadline has passed. It runs beside everything else, so that a renewal under way can't delay it."""
        if self._error is None and self._deadline and time.monotonic() >= self._deadline - self.margin:
            with self._lock:
                if time.monotonic() >= self._deadline - self.margin:
                    reason = NotRenewed(f"not renewed in time; the latest failure: {self._failure}" if self._failure else "not renewed in time")
                    reason.__cause__ = self._failure
                    self._lose(reason)

    def _lose(self, why: BaseException) -> None:
        error = Lost(f"session {self.id} was lost: {why}")
        error.__cause__ = why
        with self._lock:
            if self._error is None:
                log.warning("session %s lost: %s", self.id, why)
            self._finish(error)

    def _finish(self, error: SignalboxError) -> None:
        """Makes the session be over, if it is not yet, with all its leases."""
        with self._lock:
            self._end(error)
            self._undo()
            for claim in self._claims.values():
                if isinstance(claim, Lease):
                    claim._end(error)
        self._client._remove(self)

    def _keep(self) -> None:
        """Renews the session every third of its ttl until it is over."""
        while not self._over.wait(self._renew_at - time.monotonic()):
            try:
                self._renew()
            except Exception as e:  # whatever it is, the next attempt may succeed before the deadline
                if self._error is None:
                    self._note(e)
                    self._renew_at = time.monotonic() + max(self.ttl / 12, 0.001)

    def _note(self, failure: Exception) -> None:
        if self._failure is None:
            log.warning("session %s: a renewal failed, trying on: %s", self.id, failure)
        self._failure = failure

    def _renew(self) -> None:
        """Renews once, trying for as long as the session lives. It needs no key: twice only makes the session live longer."""
        with self._lock:
            held = [claim for claim in self._claims.values() if isinstance(claim, Lease)]
        # An attempt takes a part of the time left, so that there is time for another one, whichever nodes are silent.
        patience = lambda: max((self._deadline - time.monotonic()) / 4, self.ttl / 30, 0.05)  # noqa: E731
        call = Call("PUT", ("v1", "sessions", self.id), query={"leases": "true"} if held else {}, body={}, patience=patience,
                    max_pause=max(self.ttl / 12, 0.001), failed=self._note)  # fmt: skip
        try:
            reply = self._client._calls.do(call, self._deadline, self._over)
        except (*_SESSION_GONE, Revoked) as e:
            self._lose(e)
            return
        expires = reply.body["expires_in_ms"]
        with self._lock:
            self._extend(reply, 0, expires)
            self._renew_at, self._failure = reply.deadline(0, expires)[1], None
        if held:
            self._verify(held, reply, self._renew_at)

    def _verify(self, held: List[Lease], reply: Reply, until: float) -> None:
        """Finds out whether an operator took a lease away, or its semaphore was deleted: neither ends the session."""
        shown = reply.body.get("leases")
        try:
            if shown is None:  # the node's own state was behind
                query = {"consistency": "stale", "min_index": str(reply.index)} if reply.index else {}
                shown = self._client._calls.do(Call("GET", ("v1", "sessions", self.id), query=query), until, self._over).body["leases"]
            tokens = {lease["semaphore"]: lease["token"] for lease in shown if not lease.get("revoked")}
            for lease in held:
                if tokens.get(lease.semaphore) == lease.token:
                    continue
                try:
                    r = self._client._calls.do(Call("GET", ("v1", "sessions", self.id, "leases", lease.semaphore)), until, self._over)
                    if r.status != 200 or r.body["token"] != lease.token:
                        self._lose_lease(lease, NotHeld(404, {"detail": "Another lease, or a waiting request, has taken its place."}))
                except _LEASE_GONE as e:
                    self._lose_lease(lease, e)
        except SignalboxError:
            pass  # if the session is gone, the next renewal fails with the reason

    def _lose_lease(self, lease: Lease, why: Refused) -> None:
        """Ends a lease that the cluster has taken away, and releases it: the cluster remembers a revoked one until then."""
        error = Lost(f"the lease of {lease.semaphore} was lost: {why}")
        error.__cause__ = why
        with self._lock:
            if lease._error is None:
                log.warning("session %s: the lease of %s was lost: %s", self.id, lease.semaphore, why)
                lease._end(error)
                lease._leaving = self._let_go([lease.semaphore], lease.token)

    def _let_go(self, names: List[str], token: Optional[int] = None, unsure: Optional[Call] = None) -> Cancel:
        """Starts to release the lease of a token, or, without one, the lease or place of a request; with the lock.

        The names are not asked for again until a node has confirmed it. A request that may still be on its way, unsure, is settled first.
        """
        done = Cancel()
        self._claims.update(dict.fromkeys(names, done))

        def run() -> None:
            if unsure is not None:
                self._settle(unsure)
            for name in names:
                self._release(name, token)
            with self._lock:
                for name in names:
                    self._claims.pop(name, None)
            done.cancel()

        threading.Thread(target=run, name=f"signalbox-release-{self.id}", daemon=True).start()
        return done

    def _settle(self, asked: Call) -> None:
        """Repeats a request under its key, without waiting, until the cluster has it in line or has its outcome.

        An attempt that arrives later changes nothing. Else it could be carried out after the withdrawal: a lease unknown to the program.
        """
        call, rounds = replace(asked, listen=False, elsewhere=True, patience=self._client._growing()), 0
        while not self._over.canceled:
            rounds += 1
            try:
                self._client._calls.do(call, None, self._over)
                return
            except (Unreachable, OSError):
                self._over.wait(back_off(rounds))
            except SignalboxError:
                return

    def _release(self, name: str, token: Optional[int]) -> None:
        """Asks until a node confirms, or the session is over. It names the token and has a key: one that arrives late must not release a later lease."""
        call = Call("DELETE", ("v1", "sessions", self.id, "leases", name), key=new_key(), key_optional=True, patience=self._client._growing())
        if token is not None:
            call.query["token"] = str(token)
        rounds = 0
        while not self._over.canceled:
            rounds += 1
            try:
                self._client._calls.do(call, None, self._over)
                return
            except _SESSION_GONE as e:
                self._lose(e)
            except _LEASE_GONE:
                return
            except (SignalboxError, OSError) as e:
                self._over.wait(max(back_off(rounds), getattr(e, "retry_after", 0.0)))

    def close(self, timeout: float = 5.0) -> bool:
        """Ends the session, which releases its leases and withdraws its requests, and returns whether a node has confirmed it within the time.

        Else a thread goes on until the deadline, when it expires by itself. Raises ``Lost`` if the session was lost before.
        """
        lost = self.error
        with self._lock:
            if self._ended is None:
                self._ended = threading.Event()
                self._finish(Closed("the session was closed"))
                threading.Thread(target=self._ask_for_end, args=(self._ended,), name=f"signalbox-end-{self.id}", daemon=True).start()
        if isinstance(lost, Lost):
            raise lost
        return self._ended.wait(timeout)

    def _ask_for_end(self, done: threading.Event) -> None:
        until, rounds = max(self._deadline, time.monotonic() + GRACE), 0
        while time.monotonic() < until:
            rounds += 1
            try:
                self._client._calls.do(Call("DELETE", ("v1", "sessions", self.id), patience=self._client._growing(), max_pause=self.ttl / 12), until)
                break
            except _SESSION_GONE:
                break
            except (SignalboxError, OSError):
                time.sleep(min(back_off(rounds), self.ttl / 12))
        else:
            return
        done.set()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            self.close()
        except Lost:
            if error is None:
                raise
