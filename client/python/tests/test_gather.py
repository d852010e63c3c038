"""Calls that share requests: with a scripted node, and with one of the program that SIGNALBOX names."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import unittest
from typing import Any, Callable, Coroutine, Dict, List, Tuple
from unittest import mock

from node import NodeTest, sb
from signalbox._call import Call, Reply
from signalbox._calls import Caller
from signalbox._gather import Gatherer, Silent, Untried, shareable
from signalbox._time import Cancel


def reply(body: Dict[str, Any]) -> Reply:
    return Reply(200, sent=1.0, received=2.0, wait=0.0, replayed=False, index=7, body=body)


class Script:
    """A node whose replies the test gives: each request waits for its future."""

    def __init__(self) -> None:
        self.alone: List[asyncio.Future[Reply]] = []
        self.shared: List[Tuple[List[Dict[str, Any]], asyncio.Future[Reply], Cancel]] = []
        self.gatherer = Gatherer("n1", self._request, asyncio.ensure_future)

    async def _request(self, body: bytes, end: float, cancel: Cancel) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.shared.append((json.loads(body)["operations"], future, cancel))
        return await future

    def ask(self, operation: str = "release", end: float = 60.0, cancel: Any = None, **members: Any) -> asyncio.Task[Reply]:
        call = Call("DELETE", ("v1", "sessions", "7"), operation=operation, key="k", session="7", semaphore="db", **members)

        async def alone() -> Reply:
            self.alone.append(asyncio.get_running_loop().create_future())
            return await self.alone[-1]

        async def attempt() -> Reply:
            return await self.gatherer.attempt(call, asyncio.get_running_loop().time() + end, cancel or Cancel(), alone)

        return asyncio.ensure_future(attempt())


async def until(condition: Callable[[], bool]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0)

    await asyncio.wait_for(poll(), 10)


def scripted(test: Callable[[Any, Script], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    def run(self: Any) -> None:
        async def main() -> None:
            await test(self, Script())

        asyncio.run(main())

    return run


class TestGatherer(unittest.TestCase):
    @scripted
    async def test_calls_that_come_meanwhile_share_the_next_request(self, node: Script) -> None:
        first = node.ask()
        await until(lambda: len(node.alone) == 1)
        rest = [node.ask("acquire", query={"try": "true", "epoch": "5", "group": "a\"b"}, body={"count": i}) for i in range(3)]
        await until(lambda: node.gatherer._next is not None and len(node.gatherer._next.members) == 3)
        node.alone[0].set_result(reply({"n": 0}))
        self.assertEqual((await first).body, {"n": 0})
        await until(lambda: len(node.shared) == 1)
        operations, future, _ = node.shared[0]
        one = {"op": "acquire", "semaphore": "db", "session": "7", "key": "k", "group": "a\"b", "try": True, "epoch": 5}
        self.assertEqual(operations, [{**one, "count": i} for i in range(3)])
        future.set_result(reply({"results": [
            {"status": 201, "body": {"token": 3}, "replayed": True},
            {"status": 409, "body": {"code": "unavailable", "detail": "No."}},
            {"status": 503, "body": {"code": "no-leader"}},
        ]}))  # fmt: skip
        granted = await rest[0]
        self.assertEqual((granted.status, granted.body, granted.replayed, granted.index), (201, {"token": 3}, True, 7))
        with self.assertRaises(sb.Unavailable) as refused:
            await rest[1]
        self.assertEqual((refused.exception.retry_after, refused.exception.address), (1.0, "n1"))
        with self.assertRaises(sb.Refused) as none:
            await rest[2]
        self.assertEqual(none.exception.retry_after, 1.0, "a member has no Retry-After")
        again = node.ask()
        await until(lambda: len(node.alone) == 2)  # a lone call again
        node.alone[1].set_result(reply({}))
        await again

    @scripted
    async def test_silent_request_keeps_no_other_waiting(self, node: Script) -> None:
        first = node.ask()
        await until(lambda: len(node.alone) == 1)
        second = node.ask()
        await until(lambda: len(node.shared) == 1)  # after 10 ms, although the first has no reply
        node.shared[0][1].set_result(reply({"results": [{"status": 200, "body": {}}]}))
        await second
        node.alone[0].set_result(reply({}))
        await first

    @mock.patch("signalbox._gather._MAX_DELAY", 60.0)
    @scripted
    async def test_call_that_is_given_up(self, node: Script) -> None:
        first, cancel, kept = node.ask(), Cancel(), Cancel()
        await until(lambda: len(node.alone) == 1)
        unsent = node.ask(cancel=cancel)
        await until(lambda: node.gatherer._next is not None)
        cancel.cancel()
        with self.assertRaises(Untried):
            await unsent
        node.alone[0].set_result(reply({}))
        await first
        self.assertEqual(node.shared, [], "a request without a call")

        blocker = node.ask()
        await until(lambda: len(node.alone) == 2)
        one, other = node.ask(cancel=kept), node.ask(end=0.05)
        await until(lambda: node.gatherer._next is not None and len(node.gatherer._next.members) == 2)
        node.gatherer._send(node.gatherer._next)  # type: ignore[arg-type]
        with self.assertRaises(Silent):
            await other
        self.assertFalse(node.shared[0][2].canceled, "the request has another call")
        kept.cancel()
        with self.assertRaises(OSError) as given_up:
            await one
        self.assertNotIsInstance(given_up.exception, (Untried, Silent))
        self.assertTrue(node.shared[0][2].canceled, "nobody waits for the request")
        node.shared[0][1].set_exception(OSError("cut"))
        node.alone[1].set_result(reply({}))
        await blocker
        await until(lambda: node.gatherer._under_way == 0)

    @scripted
    async def test_node_that_does_not_take_the_request(self, _: Script) -> None:
        """Its calls are sent separately, and so are later calls."""
        for status, code, separate in ((404, "", True), (413, "too-large", True), (403, "", True), (403, "forbidden", False), (503, "no-leader", False)):
            node = Script()
            first = node.ask()
            await until(lambda: len(node.alone) == 1)
            rest = [node.ask(), node.ask()]
            await until(lambda: node.gatherer._next is not None and len(node.gatherer._next.members) == 2)
            node.alone[0].set_result(reply({}))
            await first
            await until(lambda: len(node.shared) == 1)
            node.shared[0][1].set_exception(sb.Refused(status, {"code": code}, 0.0, "n1"))
            if separate:
                await until(lambda: len(node.alone) == 3)
                later = node.ask()
                await until(lambda: len(node.alone) == 4)
                for future in node.alone[1:]:
                    future.set_result(reply({}))
                await asyncio.gather(later, *rest)
                self.assertEqual(len(node.shared), 1)
                continue
            failed = await asyncio.gather(*rest, return_exceptions=True)
            self.assertEqual([(type(e), e.status, e.code) for e in failed if isinstance(e, sb.Refused)], [(sb.Refused, status, code)] * 2)
            self.assertIsNot(failed[0], failed[1], "each call has its own error, which it may change")

    @scripted
    async def test_overloaded_node_takes_releases_alone(self, node: Script) -> None:
        """A node refuses the first call of a request as overloaded, and does not try the others."""
        first = node.ask()
        await until(lambda: len(node.alone) == 1)
        acquire, release = node.ask("acquire"), node.ask()
        await until(lambda: node.gatherer._next is not None and len(node.gatherer._next.members) == 2)
        node.alone[0].set_result(reply({}))
        await until(lambda: len(node.shared) == 1)
        node.shared[0][1].set_result(reply({"results": [{"status": 503, "body": {"code": code}} for code in ("overloaded", "not-applied")]}))
        with self.assertRaises(sb.Refused):
            await acquire
        await until(lambda: len(node.alone) == 2)
        later = node.ask()
        await until(lambda: len(node.alone) == 3)  # at once, although another is under way
        for future in node.alone[1:]:
            future.set_result(reply({}))
        await asyncio.gather(first, release, later)

    @scripted
    async def test_reply_that_cannot_be_read(self, node: Script) -> None:
        """Its calls may have been carried out: they are repeated with their keys."""
        first = node.ask()
        await until(lambda: len(node.alone) == 1)
        rest = [node.ask(), node.ask(), node.ask()]
        await until(lambda: node.gatherer._next is not None and len(node.gatherer._next.members) == 3)
        node.alone[0].set_result(reply({}))
        await until(lambda: len(node.shared) == 1)
        node.shared[0][1].set_result(reply({"results": [{"status": 200}]}))
        for failed in await asyncio.gather(*rest, return_exceptions=True):
            self.assertIs(type(failed), OSError)
        await first

    @scripted
    async def test_refusals_say_when_to_ask_again(self, node: Script) -> None:
        for status, body, seconds in (
            (409, {"code": "unavailable"}, 1.0), (409, {"code": "unavailable", "available_in_ms": 4001}, 5.0), (503, {"code": "storage-full"}, 10.0),
            (409, {"code": "lease-exists"}, 0.0),
        ):  # fmt: skip
            found = node.gatherer._results(reply({"results": [{"status": status, "body": body}]}), 1)[0]
            assert isinstance(found, sb.Refused)
            self.assertEqual(found.retry_after, seconds, body)

    @scripted
    async def test_request_has_a_bound(self, node: Script) -> None:
        first = node.ask()
        await until(lambda: len(node.alone) == 1)
        many = [node.ask() for _ in range(300)]
        await until(lambda: len(node.shared) == 2)
        self.assertEqual([len(operations) for operations, _, _ in node.shared], [256, 44])
        for operations, future, _ in node.shared:
            future.set_result(reply({"results": [{"status": 200, "body": {}}] * len(operations)}))
        node.alone[0].set_result(reply({}))
        await asyncio.gather(first, *many)

    def test_what_may_share(self) -> None:
        call = Call("PUT", ("v1",), operation="acquire", key="k")
        self.assertTrue(shareable(call, 0.0))
        self.assertFalse(shareable(call, 0.1), "a node would hold the replies to the others")
        for change in ({"listen": True}, {"headers": {"X": "y"}}, {"key": None}, {"operation": ""}):
            self.assertFalse(shareable(Call(**{**vars(call), **change}), 0.0), change)


class TestShared(NodeTest):
    def setUp(self) -> None:
        super().setUp()
        self.sent: List[str] = []
        alone = Caller._send_request

        async def counted(caller: Caller, node: Any, call: Call, *rest: Any) -> Reply:
            self.sent.append("/".join(call.path[1:2]))
            return await alone(caller, node, call, *rest)

        Caller._send_request = counted  # type: ignore[method-assign]
        self.addCleanup(setattr, Caller, "_send_request", alone)

    def until(self, condition: Callable[[], bool]) -> None:
        late = time.monotonic() + 10
        while not condition():
            self.assertLess(time.monotonic(), late)

    def test_threads_share_requests(self) -> None:
        """Threads of one client take leases of their own and of a shared semaphore: each has its own grant, and all come back."""
        self.client.create("crowd", 8)
        tokens: List[int] = []
        held, most, lock = 0, 0, threading.Lock()

        def work() -> None:
            nonlocal held, most
            for _ in range(10):
                with self.client.lease("crowd", ttl=30) as lease:
                    with lock:
                        tokens.append(lease.token)
                        held, most = held + 1, max(most, held + 1)
                    with lock:
                        held -= 1

        threads = [threading.Thread(target=work) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(tokens)), 320)
        self.assertLessEqual(most, 8)
        self.assertEqual(self.client.get("crowd").available, 8)
        self.assertIn("batch", self.sent)

    def test_tasks_share_requests(self) -> None:
        self.client.create("tasks", 64)

        async def main() -> int:
            async with sb.AsyncClient(self.address, token=self.tokens["alice"]) as client:
                async def work() -> None:
                    for _ in range(5):
                        async with client.lease("tasks", ttl=30):
                            pass

                before = len(self.sent)
                await asyncio.gather(*(work() for _ in range(64)))
                return len(self.sent) - before

        self.assertLess(asyncio.run(main()), 640 / 2, "640 calls in fewer than half as many requests")
        self.assertEqual(self.client.get("tasks").available, 64)

    def test_session_tries_before_it_waits(self) -> None:
        self.client.create("one", 1)
        with self.client.session(ttl=30) as session, self.client.session(ttl=30) as other:
            held = session.acquire("one")
            waiting = self.pool.submit(other.acquire, "one")
            self.until(lambda: bool(self.client.get("one").waiters))
            held.release()
            waiting.result(10).release()
            with mock.patch.object(other._calls, "_contended", {("one", ""): float("inf")}):
                held, asked = session.acquire("one"), self.sent.count("sessions")
                waiting = self.pool.submit(other.acquire, "one")  # one request: the semaphore is contended
                self.until(lambda: bool(self.client.get("one").waiters))
                self.assertEqual(self.sent.count("sessions") - asked, 1)
                held.release()
                waiting.result(10).release()

    def test_wait_goes_on_while_the_cluster_has_no_room_for_keys(self) -> None:
        self.client.create("keys", 1)
        refuse = [2]
        alone = Caller._send_request

        async def full(caller: Caller, node: Any, call: Call, *rest: Any) -> Reply:
            if call.operation == "acquire" and call.key is not None and refuse[0] > 0:
                refuse[0] -= 1
                raise sb.LimitReached(429, {"code": "limit-reached", "rule": "keys"})
            return await alone(caller, node, call, *rest)

        with self.client.session(ttl=30) as session, self.client.session(ttl=30) as other:
            held = session.acquire("keys")
            with mock.patch.object(Caller, "_send_request", full):
                waiting = self.pool.submit(other.acquire, "keys")
                self.until(lambda: bool(self.client.get("keys").waiters))
            self.assertEqual(refuse, [0])
            held.release()
            waiting.result(10).release()


if __name__ == "__main__":
    unittest.main()
