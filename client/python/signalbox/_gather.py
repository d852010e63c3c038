"""Shared requests: calls that come while a request to a node is under way share the next request, ``POST /v1/batch``.

The first call is sent at once. The calls after it are sent in one request when the first request has returned, or after 10 ms. So a lone call never waits.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Coroutine, Dict, List, Optional, Union

from ._call import Call, Reply
from ._errors import Refused, refused
from ._http import NotSent
from ._time import Cancel, in_loop

_MAX_DELAY = 0.01  # seconds that a shared request waits for the earlier request to return: the node may be far away, or silent
_MAX_MEMBERS, _MAX_BYTES = 256, 256 << 10  # of one shared request, well below a node's limits
_OVERLOAD_PAUSE = 1.0  # seconds for which calls of _GIVES_BACK are sent separately after a node was overloaded
_SEPARATE_FOR = 60.0  # seconds for which all calls are sent separately after a node or a proxy has refused a shared request
_RETRY_AFTER = {"unavailable": 1.0, "storage-full": 10.0, "states-differ": 10.0}  # a member's result has no Retry-After header; other 429 and 503: 1 s
_GIVES_BACK = frozenset(("release", "end", "up"))  # operations that give permits back: an overloaded node prefers them if they are sent separately


class Silent(OSError):
    """The node did not reply in time."""


class Untried(NotSent):
    """The caller gave up before the shared request was sent: the node has not failed."""


class _Separate(Exception):
    """The node refused the shared request: each call is sent separately."""


@dataclass
class _Member:
    operation: bytes
    result: asyncio.Future[Union[Reply, Exception]]  # an error is a result too: set_exception would log a warning in a child, which never reads the future


@dataclass
class _SharedRequest:
    """One request of several calls."""

    end: float = 0.0  # the latest deadline of the members, by the loop's clock
    members: List[_Member] = field(default_factory=list)
    size: int = 0
    timer: Optional[asyncio.TimerHandle] = None
    sent: bool = False
    waiting: int = 0  # members whose callers still wait
    cancel: Cancel = field(default_factory=Cancel)


def shareable(call: Call, wait: float) -> bool:
    """Reports whether a call may share a request. A call that waits for permits may not, because it would delay the replies to the other calls."""
    return bool(call.operation) and not call.listen and wait == 0 and not call.headers and (call.key is not None or call.operation == "end")


class Gatherer:
    """Gathers the calls to one node while a request to it is under way. Only the client's loop may use it."""

    def __init__(
        self, node: str, request: Callable[[bytes, float, Cancel], Coroutine[Any, Any, Reply]], spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._node, self._request, self._spawn = node, request, spawn
        self._under_way = 0  # requests
        self._overloaded_until = 0.0  # until then, calls of _GIVES_BACK are sent separately
        self._separate_until = 0.0  # until then, all calls are sent separately
        self._next: Optional[_SharedRequest] = None  # collects the calls of the next request

    def abandon(self) -> None:
        """Stops sending, in a child process: the inherited calls belong to the parent."""
        self._spawn = lambda work: work.close()

    async def attempt(self, call: Call, end: float, cancel: Cancel, send_separately: Callable[[], Coroutine[Any, Any, Reply]]) -> Reply:
        """Sends a call once, separately or in a shared request."""
        moment = time.monotonic()
        if self._under_way == 0 or moment < self._separate_until or call.operation in _GIVES_BACK and moment < self._overloaded_until:
            self._under_way += 1
            try:
                return await send_separately()
            finally:
                self._finish()
        loop = asyncio.get_running_loop()
        member = _Member(_operation(call), loop.create_future())
        shared = self._join(member, end)

        timer = loop.call_at(end, self._leave, shared, member, True)
        try:
            with cancel.notify(in_loop(loop, lambda: self._leave(shared, member, False))):
                result = await member.result
            if isinstance(result, Exception):
                raise result
            return result
        except _Separate:
            self._separate_until = time.monotonic() + _SEPARATE_FOR
            return await send_separately()
        except Refused as e:
            if e.code != "overloaded" or call.operation not in _GIVES_BACK:
                raise
            self._overloaded_until = time.monotonic() + _OVERLOAD_PAUSE
            return await send_separately()
        finally:
            timer.cancel()

    def _join(self, member: _Member, end: float) -> _SharedRequest:
        if self._next is not None and self._next.size + len(member.operation) > _MAX_BYTES:
            self._send(self._next)
        shared = self._next
        if shared is None:
            shared = self._next = _SharedRequest()
            shared.timer = asyncio.get_running_loop().call_later(_MAX_DELAY, self._send, shared)
        shared.members.append(member)
        shared.size, shared.waiting, shared.end = shared.size + len(member.operation) + 1, shared.waiting + 1, max(shared.end, end)
        if len(shared.members) == _MAX_MEMBERS:
            self._send(shared)
        return shared

    def _leave(self, shared: _SharedRequest, member: _Member, timed_out: bool) -> None:
        """Ends a call that was canceled or has timed out. When the callers of all members have left, it aborts the shared request."""
        if member.result.done():
            return
        shared.waiting -= 1
        if not shared.sent:
            shared.members.remove(member)
            member.result.set_result(Untried("the call waited for others"))
            return
        member.result.set_result(Silent(f"{self._node} did not reply in time") if timed_out else OSError("the call was given up"))
        if shared.waiting == 0:
            shared.cancel.cancel()

    def _finish(self) -> None:
        """Counts a request that has returned, and sends the next request if no other is under way."""
        self._under_way -= 1
        if self._under_way == 0 and self._next is not None:
            self._send(self._next)

    def _send(self, shared: _SharedRequest) -> None:
        if shared.sent:
            return
        shared.sent, self._next = True, None
        if shared.timer is not None:
            shared.timer.cancel()
        if shared.members:
            self._under_way += 1
            self._spawn(self._exchange(shared))

    async def _exchange(self, shared: _SharedRequest) -> None:
        body = b'{"operations":[' + b",".join(member.operation for member in shared.members) + b"]}"
        outcomes: List[Union[Reply, Exception]]
        try:
            reply = await self._request(body, shared.end, shared.cancel)
            outcomes = self._results(reply, len(shared.members))
        except Exception as e:
            outcomes = [_error_of_member(e) for _ in shared.members]
        finally:
            self._finish()
        for member, outcome in zip(shared.members, outcomes):
            if not member.result.done():
                member.result.set_result(outcome)

    def _results(self, reply: Reply, count: int) -> List[Union[Reply, Exception]]:
        """Returns the reply or the refusal of each member."""
        results, overloaded = reply.body.get("results"), False
        if not isinstance(results, list) or len(results) != count or not all(isinstance(result.get("status"), int) for result in results):
            raise OSError(f"the reply of {self._node} can't be read")  # each call is then repeated with its key, and so learns its outcome
        outcomes: List[Union[Reply, Exception]] = []
        for result in results:
            status, body = result["status"], result.get("body") or {}
            if 200 <= status < 300:
                outcomes.append(replace(reply, status=status, body=body, replayed=result.get("replayed", False)))
                continue
            if status == 413 or status == 400 and body.get("field") == "operations":  # a proxy split the request, and a part was too large for its node
                outcomes.append(_Separate())
                continue
            overloaded = overloaded or body.get("code") == "overloaded"
            if overloaded and body.get("code") == "not-applied":  # the node skipped this member after it refused an earlier member as overloaded
                body = {**body, "code": "overloaded"}
            outcomes.append(refused(status, body, _retry_after(status, body), self._node))
        return outcomes


def _retry_after(status: int, body: Dict[str, Any]) -> float:
    if body.get("available_in_ms") is not None:
        return float(math.ceil(body["available_in_ms"] / 1000))
    return _RETRY_AFTER.get(str(body.get("code")), 1.0 if status in (429, 503) else 0.0)


def _error_of_member(error: Exception) -> Exception:
    """Returns the error of each member of a shared request that failed. It is _Separate if the node does not know ``POST /v1/batch``, or has smaller limits."""
    if isinstance(error, Refused) and (error.status in (400, 404, 405, 413) or error.status == 403 and not error.code):
        return _Separate()
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _operation(call: Call) -> bytes:
    """Returns the call as a member of ``POST /v1/batch``: one JSON object of the call's query and body."""
    names = {"semaphore": call.semaphore, "session": call.session, "key": call.key, "group": call.query.get("group")}
    query = {name: json.loads(value) for name, value in call.query.items() if name != "group"}  # numbers, and true
    members: Dict[str, Any] = {"op": call.operation, **{name: value for name, value in names.items() if value}, **query, **(call.body or {})}
    return json.dumps(members).encode()
