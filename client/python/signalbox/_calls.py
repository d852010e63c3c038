"""Calls: one request to the cluster, to whichever node replies.

A call is sent to the node that worked last. If it fails (no connection, no reply, 502, 503, 504), the call is repeated at the next node with the same
idempotency key. After each round in which all nodes failed, the call pauses for a short random time, or for as long as the nodes asked.
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
from ._errors import Refused, SignalboxError, Unavailable, Unreachable, WaitEnded, final, no_effect, of_node, refusal
from ._gather import Gatherer, Silent, Untried, shareable
from ._http import NotSent, Pool
from ._nodes import Node, Nodes, encode
from ._reactor import GRACE, Reactor
from ._time import Cancel, in_loop, now
from ._values import milliseconds

_EXIT = 1.0  # seconds for releasing leases when the interpreter ends; leases that are not released by then end with their ttl
_SHORTEST_SHARE = 0.5  # seconds that one attempt has at least, so that a healthy node can reply
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_CONTENDED, _MAX_CONTENDED = 1.0, 1024  # seconds for which a semaphore counts as contended, and how many are remembered


def back_off(rounds: int) -> float:
    """Returns a random pause after this many rounds over all nodes: between half and all of a bound that doubles with each round."""
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
        self._gatherers: Dict[int, Gatherer] = {}  # by the id of the node
        self._contended: Dict[Tuple[str, str], float] = {}  # places where a call had to wait, and until when the place counts as contended
        self.sessions: Dict[str, Live] = {}  #: the sessions that are renewed, by their ids
        _callers.add(self)

    # The reactor

    @property
    def reactor(self) -> Reactor:
        """Runs the calls. A child process gets a new one."""
        self.check_process()
        return self._reactor

    def check_process(self) -> None:
        """Detects a fork that did not run the handlers of os.register_at_fork, for example in a server that is written in C."""
        if self._pid != os.getpid():
            self.forked()

    def forked(self) -> None:
        """Resets this object in a child process. The parent keeps its connections and sessions."""
        self._pid = os.getpid()
        for gatherer in self._gatherers.values():
            gatherer.abandon()
        self._gatherers = {}
        self._reactor.abandon()
        sessions, self.sessions = list(self.sessions.values()), {}
        for session in sessions:
            session.orphan()

    def begin_end(self) -> List[Cancel]:
        """Starts to end all sessions, and returns an event for each session. The event comes when a node has confirmed the end."""
        self.check_process()
        return [session.begin_close() for session in list(self.sessions.values())]

    def await_end(self, events: Iterable[Cancel], timeout: float) -> bool:
        """Blocks until all events have come, and returns whether they came within the time."""
        until = time.monotonic() + timeout
        return all([self.reactor.wait(event, until - time.monotonic()) for event in events])

    def retire(self) -> None:
        """Closes the connections and ends the thread as soon as all calls have ended."""
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
                        self.nodes.failed(node, time.monotonic() + e.retry_after)  # the next call starts at another node
                    else:
                        self.nodes.worked(node)
                    e.outcome_unknown = ambiguous and not final(e) and call.method != "GET"
                    raise
                last = e
                ambiguous = ambiguous or not no_effect(e)
                self.nodes.failed(node, time.monotonic() + e.retry_after)
                if e.code == "overloaded":  # another node would not help, because all nodes share one leader
                    least = e.retry_after * (1 + random.random() / 4)
                    if call.listen or call.patient or call.until is not None:
                        since = time.monotonic()  # give_up_after bounds the time without a cluster, and the cluster has replied
            except Untried:
                continue
            except OSError as e:
                if not isinstance(e, (NotSent, ssl.SSLCertVerificationError)):
                    ambiguous = True
                last = e
                if isinstance(e.__cause__, ssl.SSLCertVerificationError):  # a retry at this node would fail too, but another node may have a valid certificate
                    of_nodes += 1
                    if of_nodes >= len(self.nodes):
                        raise _given_up(cancel, deadline, last, ambiguous and call.method != "GET") from e
                held = call.until is not None and wait > 0  # the node may have delayed its reply because of the wait, so its silence is no failure
                self.nodes.failed(node, silent=isinstance(e, Silent) and not held)
            failures += 1
            if failures == 1:
                since = time.monotonic()
            if call.failed is not None:
                call.failed(last)

    def _allow(self, call: Call, deadline: Optional[float], failures: int) -> Tuple[float, float]:
        """Returns the seconds that the next attempt may take, and the wait that its request asks for.

        The attempt gets the node's share of the time left, so that a node which never replies leaves time for the other nodes.
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
        # A node that delays its reply looks like a dead node, so a long wait is made of shorter requests.
        total = min(self._longest_wait + patience, share, max(self.give_up_after / count, self._attempt_timeout))
        if total >= left:  # there is no time for another attempt
            return left + _SHORTEST_SHARE, min(left, self._longest_wait)
        return total, total - min(patience, max(total / 4, _SHORTEST_SHARE / 2))

    async def _attempt(self, node: Node, call: Call, body: Optional[bytes], total: float, wait: float, cancel: Cancel) -> Reply:
        """Sends a call once, separately or in a shared request."""
        end = time.monotonic() + total
        if not shareable(call, wait):
            return await self._send_request(node, call, body, end, wait, cancel)
        gatherer = self._gatherers.get(id(node))
        if gatherer is None:
            batch = Call("POST", ("v1", "batch"))
            gatherer = self._gatherers[id(node)] = Gatherer(
                str(node), lambda body, end, cancel: self._send_request(node, batch, body, end, 0.0, cancel), lambda work: self._reactor.spawn(work)
            )
        return await gatherer.attempt(call, end, cancel, lambda: self._send_request(node, call, body, end, wait, cancel))

    async def _send_request(self, node: Node, call: Call, body: Optional[bytes], end: float, wait: float, cancel: Cancel) -> Reply:
        """Sends one request. If the node refuses the token and the token file has changed, the request is sent again with the new token."""
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
            if not over:  # otherwise another request may already use the connection
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
                continue  # the node may only have closed an idle connection: try a new connection
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
        """Reports whether a recent call for this place had to wait for its permits."""
        return time.monotonic() < self._contended.get(place, 0.0)

    def contend(self, place: Tuple[str, str]) -> None:
        """Notes that a call for this place had to wait for its permits."""
        if len(self._contended) >= _MAX_CONTENDED:
            self._contended.clear()
        self._contended[place] = time.monotonic() + _CONTENDED

    def growing(self) -> Callable[[], float]:
        """Returns the patience of a call that goes on after its caller has left: the time for one attempt. It doubles with each round over all nodes."""
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
    """Ends all sessions now, because the daemon threads stop when the interpreter ends."""
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
        error = cancel._error()
    elif last is None:
        error = Unreachable("the time for the call was over before a node replied")
    else:
        error = Unreachable(f"no node could carry out the call; the latest failure: {last}")
    error.__cause__ = last
    error.outcome_unknown = ambiguous
    return error


def wait_ended(name: str, refused: Optional[Unavailable] = None) -> WaitEnded:
    """Returns the error of a request that was withdrawn at the end of its wait. It has the members of the node's refusal, if there was one."""
    members = {} if refused is None else refused.members
    return WaitEnded(409, {**members, "code": Unavailable.code, "semaphore": name, "detail": f"The permits of {name} were not free before the end of the wait."})
