"""Calls: one request to the cluster, to whichever node replies.

A call is sent to the node that worked last. Without a reply (no connection, silence, 502, 503, 504) the next one is asked, with the same
idempotency key, after a short random pause each time that all have failed, and not before the time that a node asked for.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import random
import ssl
import time
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Protocol, Tuple
from urllib.parse import urlencode

from ._call import MAX_SECONDS, Call, Reply
from ._credentials import Credentials
from ._errors import Canceled, Refused, SignalboxError, Unavailable, Unreachable, WaitEnded, final, no_effect, of_node, refusal
from ._flight import Flights, Silent, Untried, shareable
from ._http import NotSent, Pool
from ._nodes import Node, Nodes, encode
from ._reactor import GRACE, Reactor
from ._time import Cancel, in_loop, now
from ._values import milliseconds

_EXIT = 1.0  # seconds in which leases are released when the interpreter ends; later ones are left to the ttl
_SHORTEST_SHARE = 0.5  # seconds that one attempt has at least: a healthy node needs some
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_CONTENDED, _MAX_CONTENDED = 1.0, 1024  # seconds for which a semaphore counts as contended, and how many are remembered


def back_off(rounds: int) -> float:
    """The pause after so many rounds: doubling, and between half and all of it by chance."""
    full = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(max(rounds - 1, 0), 10))
    return full / 2 + random.random() * full / 2


class Live(Protocol):
    """A session that is renewed."""

    def begin_close(self) -> Cancel: ...

    def orphan(self) -> None: ...


class Caller:
    """Sends calls to the nodes, and turns to the next node when one fails. Its coroutines run in its reactor."""

    def __init__(
        self, nodes: Nodes, credentials: Credentials, headers: Mapping[str, str], attempt_timeout: float, longest_wait: float, give_up_after: float
    ) -> None:
        self.nodes, self._credentials, self._headers = nodes, credentials, dict(headers)
        self._attempt_timeout, self._longest_wait, self.give_up_after = attempt_timeout, longest_wait, give_up_after
        self._pool = Pool(credentials)
        self._reactor, self._pid = Reactor(self._pool.close), os.getpid()
        self._flights: Dict[int, Flights] = {}  # by the id of the node
        self._contended: Dict[Tuple[str, str], float] = {}  # places that were not free at once, and until when that counts
        self.sessions: Dict[str, Live] = {}  #: that are renewed
        _callers.add(self)

    # The reactor

    @property
    def reactor(self) -> Reactor:
        """Runs the calls; in a child process another one."""
        self.check_process()
        return self._reactor

    def check_process(self) -> None:
        """Notices a fork that has called no handlers, for example in a server that is written in C."""
        if self._pid != os.getpid():
            self.forked()

    def forked(self) -> None:
        """Begins again in a child process. The parent keeps its connections and sessions."""
        self._pid = os.getpid()
        for flights in self._flights.values():
            flights.abandon()
        self._flights = {}
        self._reactor.abandon()
        sessions, self.sessions = list(self.sessions.values()), {}
        for session in sessions:
            session.orphan()

    def begin_end(self) -> List[Cancel]:
        """Begins to end all sessions, and returns an event for each: that a node has confirmed it."""
        self.check_process()
        return [session.begin_close() for session in list(self.sessions.values())]

    def await_end(self, events: Iterable[Cancel], timeout: float) -> bool:
        """Blocks until all events, and returns whether they came within the time."""
        until = time.monotonic() + timeout
        return all([self.reactor.wait(event, until - time.monotonic()) for event in events])

    def retire(self) -> None:
        """Closes connections, and ends the thread, as soon as no call goes on."""
        self.reactor.retire()

    async def do(self, call: Call, deadline: Optional[float] = None, cancel: Optional[Cancel] = None) -> Reply:
        """Sends a call until it has a reply or a refusal, or the deadline has passed, or it is canceled."""
        body = None if call.body is None else json.dumps(call.body).encode()
        cancel = cancel or Cancel()
        failures, of_nodes, since, least = 0, 0, time.monotonic(), 0.0
        last: Optional[Exception] = None
        ambiguous = False
        while True:
            moment = time.monotonic()
            elsewhere = call.elsewhere and failures == 0
            pause = max(self.nodes.pick(moment, elsewhere)[1], least)
            if failures and failures % len(self.nodes) == 0:
                pause = max(pause, back_off(failures // len(self.nodes)))
            if call.max_pause is not None:
                pause = min(pause, call.max_pause)
            cut = deadline is not None and moment + pause >= deadline
            if await cancel.pause(max(0.0, deadline - moment) if deadline is not None and cut else pause) or cut or deadline is None and failures and moment - since >= self.give_up_after:
                raise _given_up(cancel, deadline, last, ambiguous and call.method != "GET")
            node = self.nodes.pick(time.monotonic(), elsewhere)[0]
            total, wait = self._allow(call, deadline, failures)
            least = 0.0
            try:
                reply = await self._attempt(node, call, body, total, wait, cancel)
                self.nodes.worked(node)
                return reply
            except Refused as e:
                if e.rule == "keys" and e.code == "limit-reached" and call.key_optional:
                    call.key, call.key_optional = None, False
                    continue
                own = of_node(e) or e.status == 500
                of_nodes += int(own)
                if not (e.status in (408, 502, 503, 504) or own and of_nodes < len(self.nodes)):
                    if of_node(e):
                        self.nodes.failed(node, time.monotonic() + e.retry_after)  # the next call begins elsewhere
                    else:
                        self.nodes.worked(node)
                    e.outcome_unknown = ambiguous and not final(e) and call.method != "GET"
                    raise
                last = e
                ambiguous = ambiguous or not no_effect(e)
                self.nodes.failed(node, time.monotonic() + e.retry_after)
                if e.code == "overloaded":  # all nodes share one leader: another node is no help
                    least = e.retry_after * (1 + random.random() / 4)
                    if call.listen or call.patient or call.until is not None:
                        since = time.monotonic()  # the cluster is there; the wait goes on
            except Untried:
                continue
            except OSError as e:
                if not isinstance(e, (NotSent, ssl.SSLCertVerificationError)):
                    ambiguous = True
                last = e
                if isinstance(e.__cause__, ssl.SSLCertVerificationError):  # time rarely mends that, but another node may do
                    of_nodes += 1
                    if of_nodes >= len(self.nodes):
                        raise _given_up(cancel, deadline, last, ambiguous and call.method != "GET") from e
                held = call.until is not None and wait > 0  # it may hold the request, which is no fault
                self.nodes.failed(node, silent=isinstance(e, Silent) and not held)
            failures += 1
            if failures == 1:
                since = time.monotonic()
            if call.failed is not None:
                call.failed(last)

    def _allow(self, call: Call, deadline: Optional[float], failures: int) -> Tuple[float, float]:
        """Returns the time that the next attempt may take, and the wait in it that it may name.

        Each node has its share of the time that is left, so that nodes which accept requests and never reply leave theirs to the others.
        """
        moment, count = time.monotonic(), len(self.nodes)
        left = MAX_SECONDS if deadline is None else deadline - moment
        share = max(left / (count - failures % count), _SHORTEST_SHARE)
        patience = self._attempt_timeout if call.patience is None else min(self._attempt_timeout, call.patience())
        if call.until is not None:
            wait = max(0.0, call.until - moment)
            return min(min(wait, self._longest_wait) + patience, share + _SHORTEST_SHARE), wait
        if not call.listen or failures:  # after a failure, first see which node replies
            return min(patience, share), 0.0
        # Nothing tells a node that holds the request from a dead one: so a call that waits for long does not wait for long with one node.
        total = min(self._longest_wait + patience, share, max(self.give_up_after / count, self._attempt_timeout))
        if total >= left:  # there is no time for another attempt
            return left + _SHORTEST_SHARE, min(left, self._longest_wait)
        return total, total - min(patience, max(total / 4, _SHORTEST_SHARE / 2))

    async def _attempt(self, node: Node, call: Call, body: Optional[bytes], total: float, wait: float, cancel: Cancel) -> Reply:
        """One attempt at a call, which may share its request with others."""
        end = time.monotonic() + total
        if not shareable(call, wait):
            return await self._alone(node, call, body, end, wait, cancel)
        flights = self._flights.get(id(node))
        if flights is None:
            batch = Call("POST", ("v1", "batch"))
            flights = self._flights[id(node)] = Flights(
                str(node), lambda body, end, cancel: self._alone(node, batch, body, end, 0.0, cancel), lambda work: self._reactor.spawn(work)
            )
        return await flights.attempt(call, end, cancel, lambda: self._alone(node, call, body, end, wait, cancel))

    async def _alone(self, node: Node, call: Call, body: Optional[bytes], end: float, wait: float, cancel: Cancel) -> Reply:
        """One request to a node, and its reply; a second one if the node refuses the token and its file has another by now."""
        authorization = self._credentials.authorization(node)
        try:
            return await self._request(node, call, body, end, wait, cancel, authorization)
        except Refused as e:
            if e.status != 401 or not self._credentials.resend:
                raise
            another = self._credentials.authorization(node, force=True)
            if another == authorization:
                raise
            return await self._request(node, call, body, end, wait, cancel, another)

    async def _request(self, node: Node, call: Call, body: Optional[bytes], end: float, wait: float, cancel: Cancel, authorization: Optional[str]) -> Reply:
        query = dict(call.query)
        if milliseconds(wait) > 0:
            query["wait"] = str(milliseconds(wait))
        target = node.path + encode(call.path) + ("?" + urlencode(query) if query else "")
        headers = {"Accept": "application/json, application/problem+json", **self._headers, **call.headers}
        if authorization is not None:
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = "application/json"
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        loop, over = asyncio.get_running_loop(), False

        def cut() -> None:
            if not over:  # else another request may have the connection by now
                exchange.cut()

        while True:
            exchange, over, sent = self._pool.take(node), False, now()
            timer = loop.call_at(end, cut)
            try:
                with cancel.notify(in_loop(loop, cut)):
                    response = await exchange.send(call.method, target, body, headers, end)
            except OSError as e:
                exchange.end()
                if time.monotonic() >= end and not isinstance(e, NotSent):
                    raise Silent(f"{node} did not reply in time") from e
                if cancel.canceled or not exchange.used:
                    raise
                continue  # the node has closed an idle connection: a new one shows whether it is there
            except BaseException:
                exchange.end()
                raise
            finally:
                over = True
                timer.cancel()
            received = now()
            if response.keep:
                self._pool.give(exchange)
            else:
                exchange.end()
            if not 200 <= response.status < 300:
                raise refusal(response.status, response.headers.get("content-type"), response.headers.get("retry-after"), response.body, str(node))
            try:
                decoded, index = json.loads(response.body or b"{}"), int(response.headers.get("x-signalbox-index") or 0)
            except ValueError:
                decoded = None
            if not isinstance(decoded, dict):
                raise SignalboxError(f"the reply of {node} can't be read")
            replayed = response.headers.get("idempotency-replayed") == "true"
            return Reply(response.status, sent, received, wait, replayed, index, decoded)

    def contended(self, place: Tuple[str, str]) -> bool:
        """Reports whether a call could not have its permits at once there a short time ago."""
        return time.monotonic() < self._contended.get(place, 0.0)

    def contend(self, place: Tuple[str, str]) -> None:
        """Remembers a call that could not have its permits at once."""
        if len(self._contended) >= _MAX_CONTENDED:
            self._contended.clear()
        self._contended[place] = time.monotonic() + _CONTENDED

    def growing(self) -> Callable[[], float]:
        """The patience of a call whose caller waits for a short time, and which goes on after that: twice as long in each round over all nodes."""
        attempts = 0

        def patience() -> float:
            nonlocal attempts
            rounds, attempts = attempts // len(self.nodes), attempts + 1
            return float(max(GRACE / len(self.nodes), 0.5) * 2 ** min(rounds, 6))

        return patience


_callers: weakref.WeakSet[Caller] = weakref.WeakSet()


def _in_child() -> None:
    for caller in list(_callers):
        caller.forked()


def _at_exit() -> None:
    """Releases what is held: a daemon thread does not outlive this."""
    until = time.monotonic() + _EXIT
    ends = [(caller, caller.begin_end()) for caller in list(_callers)]
    for caller, events in ends:
        caller.await_end(events, until - time.monotonic())
        caller.reactor.exit(until - time.monotonic())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)


def _given_up(cancel: Cancel, deadline: Optional[float], last: Optional[Exception], ambiguous: bool) -> SignalboxError:
    error: SignalboxError
    if cancel.canceled:
        error = Canceled("the call was canceled")
    elif last is None:
        error = Unreachable("the time for the call was over before a node replied")
    else:
        error = Unreachable(f"no node could carry out the call; the latest failure: {last}")
    error.__cause__ = last
    error.outcome_unknown = ambiguous
    return error


def wait_ended(name: str, refused: Optional[Unavailable] = None) -> WaitEnded:
    """The error of a wait whose time is over, and that was then withdrawn. It has the members of the node's refusal, such as the reason of a pause."""
    members = {} if refused is None else refused.members
    return WaitEnded(409, {**members, "code": Unavailable.code, "semaphore": name, "detail": f"The permits of {name} were not free before the end of the wait."})
