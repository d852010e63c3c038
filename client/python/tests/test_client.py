"""Tests of the client against a node in this process. client/conformance has those against a cluster."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import json
import logging
import os
import socket
import ssl
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

import signalbox as sb  # noqa: E402
from signalbox._call import Reply  # noqa: E402
from signalbox._time import now  # noqa: E402

logging.getLogger("signalbox").addHandler(logging.NullHandler())
logging.getLogger("signalbox").propagate = False


class Node:
    """A node with one session: it grants what is asked for, and expires the session by its own clock unless it is renewed."""

    def __init__(self, context: Optional[ssl.SSLContext] = None) -> None:
        self.token = ""  # that it asks for; empty: none
        self.deaf = False  # takes no more requests
        self.proxy: Optional[Tuple[int, str, bytes]] = None  # status, type and body of what a proxy replies in its place
        self.proxied = 0
        self.granted: Callable[[], bool] = lambda: True
        self.caller = threading.local()  # of reply: key
        self.requests: List[Tuple[str, str, str]] = []  # method, path, Authorization
        self.gathered = 0  # calls in shared requests
        self.bodies: List[Dict[str, Any]] = []
        self.ports: List[Tuple[str, int]] = []  # path, port of the client
        self.sessions = 0  # opened
        self.ttl = 0.0
        self.renewed = 0.0
        self.ended = False
        self.longest = 0.0  # between two renewals
        self.group = ""  # of the leases that it grants
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args: Any) -> None:
                pass

            def handle_any(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
                outer.caller.key = self.headers.get("Idempotency-Key")
                shared = self.path == "/v1/batch"  # this node has no such route: each call comes separately after that
                if shared:
                    outer.gathered += len(body["operations"])
                else:
                    outer.bodies.append(body)
                    outer.ports.append((self.path, self.client_address[1]))
                    outer.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
                while outer.deaf and not outer.closed.wait(0.01):
                    pass
                if outer.proxy:
                    status, kind, content = outer.proxy
                    outer.proxied += 1
                else:
                    status, reply = (404, {}) if shared else outer.reply(self.command, self.path, self.headers.get("Authorization", ""), body)
                    kind, content = "application/json" if status < 300 else "application/problem+json", json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = handle_any

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:  # the client hung up
                pass

        self.closed = threading.Event()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.address = f"http{'s' if context else ''}://127.0.0.1:{self.server.server_address[1]}"
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reply(self, method: str, path: str, authorization: str, body: Dict[str, Any]) -> Tuple[int, Dict[str, Any]]:
        if self.token and authorization != "Bearer " + self.token:
            return 401, {"code": "unauthenticated", "detail": "This node needs a token."}
        now = time.monotonic()
        if method == "PUT" and path.startswith("/v1/sessions/7") and "/leases/" not in path:
            self.longest, self.renewed = max(self.longest, now - self.renewed), now
            left = {"expires_in_ms": int(self.ttl * 1000)}
            return 200, {"session": "7", **left, "leases": [{"semaphore": "db", "token": 5, **left}]}
        if method == "DELETE":
            self.ended = True
            return 200, {}
        if not self.granted():
            return 409, {"code": "unavailable", "detail": "Not free."}
        session = "7" + "0" * self.sessions
        if "ttl" in body:
            self.ttl, self.renewed, self.sessions = body["ttl"] / 1000, now, self.sessions + 1
        return 201, {"session": session, "semaphore": "db", "count": body.get("count", 1), "token": 5, "expires_in_ms": int(self.ttl * 1000), "waited_ms": 0, "value": 1,
                     "group": self.group}  # fmt: skip

    def close(self) -> None:
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()


class LateNode(Node):
    """A node that carries the first acquire of the session out late, and each key once."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False  # by the session
        self.go, self.late = threading.Event(), threading.Event()  # the first acquire may go on; it was carried out
        self._lock, self._outcomes = threading.Lock(), set()

    def reply(self, method: str, path: str, authorization: str, body: Dict[str, Any]) -> Tuple[int, Dict[str, Any]]:
        if "/leases/" not in path:
            return super().reply(method, path, authorization, body)
        with self._lock:
            first = sum("/leases/" in asked[1] for asked in self.requests) == 1
        if first:
            self.go.wait(10)
        with self._lock:
            if self.caller.key not in self._outcomes:
                self._outcomes.add(self.caller.key)
                self.held = method == "PUT"
        if first:
            self.late.set()
        return 200, {"session": "7", "semaphore": "db", "count": 1, "token": 5, "expires_in_ms": int(self.ttl * 1000), "waited_ms": 0}


class TestClient(unittest.TestCase):
    def setUp(self) -> None:
        self.node = Node()
        self.addCleanup(self.node.close)

    def client(self, **options: Any) -> sb.Client:
        client = sb.Client([self.node.address], **options)
        self.addCleanup(client.close, 0.2)
        return client

    def test_blocked_main_thread_loses_no_lease(self) -> None:
        """A main thread that blocks, in a lock and in a computation, for three times its ttl; SIGNALBOX_BLOCK sets the seconds of each."""
        block = float(os.environ.get("SIGNALBOX_BLOCK", "3"))
        with self.client().lease("db", ttl=max(block / 3, 0.3)) as lease:
            threading.Event().wait(block)
            self.assertFalse(lease.lost.is_set())
            end, n = time.monotonic() + block, 0
            while time.monotonic() < end:
                n += 1
            self.assertFalse(lease.lost.is_set())
            self.assertLess(self.node.longest, lease._session.ttl, "the node would have ended the lease")
        self.assertTrue(self.node.ended)

    def test_blocked_event_loop_loses_no_lease(self) -> None:
        async def main() -> bool:
            async with sb.AsyncClient([self.node.address]) as client:
                async with client.lease("db", ttl=0.3) as lease:
                    time.sleep(1.5)  # the loop stands still
                    return lease.lost.is_set()

        self.assertFalse(asyncio.run(main()))
        self.assertLess(self.node.longest, 0.3)

    def test_lost_by_its_own_clock(self) -> None:
        """A client that is cut off has lost its lease before the node would end it."""
        lease = self.client(attempt_timeout=0.1).lease("db", ttl=0.6)
        self.assertFalse(lease.lost.wait(1.0))
        self.node.deaf = True
        self.assertTrue(lease.lost.wait(5))
        self.assertLess(time.monotonic(), self.node.renewed + self.node.ttl + 0.05)
        self.assertLess(lease.deadline, self.node.renewed + self.node.ttl)
        self.assertIsInstance(lease.error, sb.Lost)
        self.assertIsInstance(lease.error.__cause__, sb.NotRenewed)
        with self.assertRaises(sb.Lost):
            lease.release()

    def test_lease_that_no_node_confirms(self) -> None:
        """The session is renewed, and no node tells how long the lease lives: it is lost in time, and released after that, as the session goes on."""
        released, releases, told = threading.Event(), [], False
        granting = self.node.reply

        def reply(method: str, path: str, authorization: str, body: Dict[str, Any]) -> Tuple[int, Dict[str, Any]]:
            if method == "GET":
                shown = {"semaphore": "db", "token": 5, "expires_in_ms": int(self.node.ttl * 1000)}
                return (200, {"leases": [shown]}) if told else (503, {"code": "behind"})
            status, members = granting(method, path, authorization, body)
            members.pop("leases", None)
            if method == "DELETE" and "/leases/db?" in path:
                releases.append(time.monotonic())
                released.set()
            return status, members

        self.node.reply = reply  # type: ignore[method-assign]
        client = self.client()
        session = client.session(ttl=30)
        self.node.ttl = 0.6  # of the lease, by the reply to its acquire
        began = time.monotonic()
        lease = session.acquire("db")
        self.node.ttl = 30
        self.assertLess(lease.deadline, time.monotonic() + 0.6)
        self.assertTrue(lease.lost.wait(5))
        self.assertLess(time.monotonic(), began + 0.9, "it was lost at a look at the clock that did not know of it")
        assert lease.error is not None
        self.assertEqual(getattr(lease.error.__cause__, "reason", ""), "max-hold")
        self.assertTrue(released.wait(5))
        self.assertGreater(releases[0], began + 0.6, "it was released before its end")
        self.assertIsNone(session.error)

        told, short = True, client.session(ttl=0.9)
        other = short.acquire("db")
        self.assertFalse(other.lost.wait(1.5), "the node told that it lives")
        told = False
        self.assertTrue(other.lost.wait(5))
        self.assertIsNone(short.error)
        assert other.error is not None
        self.assertIsInstance(other.error.__cause__, sb.NotRenewed)

    def test_deadline_of_a_reply(self) -> None:
        """It counts from the sending. This clock may be slower than the leader's, in the wait too."""
        for name, replayed, received, waited_ms, deadline in (
            ("granted at once", False, 100.5, 0, 101.022),
            ("granted after a wait", False, 103.0, 2048, 103.068),
            ("an earlier attempt waited", True, 103.0, 2048, 101.022),
            ("no grant after the reply", False, 101.0, 5000, 102.022),
        ):
            reply = Reply(200, sent=100.0, received=received, wait=0, replayed=replayed, index=0, body={})
            self.assertAlmostEqual(reply.deadline(waited_ms, 1024)[0], deadline, msg=name)
            self.assertAlmostEqual(reply.latest(1024), received + 1.026, msg=name)

    def test_margin(self) -> None:
        lease = self.client(attempt_timeout=0.1).lease("db", ttl=1.0, margin=0.5)
        self.node.deaf = True
        self.assertTrue(lease.lost.wait(5))
        self.assertLess(time.monotonic(), lease.deadline)

    def test_lost_is_right_without_any_thread(self) -> None:
        lease = self.client().lease("db", ttl=30)
        lease._session._deadline = now() - 0.001  # before the next look at the clock
        self.assertTrue(lease.lost.is_set())

    def test_lost_inside_with(self) -> None:
        with self.assertRaises(sb.Lost):
            with self.client(attempt_timeout=0.1).lease("db", ttl=0.4) as lease:
                self.node.deaf = True
                lease.lost.wait(5)
        self.node.deaf = False
        with self.assertRaises(KeyError):  # the error of the block wins
            with self.client(attempt_timeout=0.1).lease("db", ttl=0.4) as lease:
                self.node.deaf = True
                lease.lost.wait(5)
                raise KeyError

    def test_decorators(self) -> None:
        client = self.client()

        @client.limited("db", ttl=5)
        def work(a: int, b: int = 2) -> int:
            """Adds."""
            self.assertFalse(self.node.ended)
            return a + b

        self.assertEqual((work(1, b=3), work.__name__, work.__doc__, self.node.ended), (4, "work", "Adds.", True))

        @client.limited("db")
        def numbers() -> Any:
            self.node.ended = False
            try:
                self.assertEqual((yield 1), "sent")
                self.assertFalse(self.node.ended, "the lease is over before the body")
            finally:
                return "returned"

        began = numbers()
        self.assertEqual((next(began), self.node.ended), (1, False))
        with self.assertRaises(StopIteration) as end:
            began.send("sent")
        self.assertEqual((end.exception.value, self.node.ended), ("returned", True))

        async def main() -> int:
            async with sb.AsyncClient([self.node.address]) as client:

                @client.limited("db")
                async def work(a: int) -> int:
                    self.assertFalse(self.node.ended)
                    return a + 1

                self.node.ended = False
                return await work(1)

        self.assertEqual(asyncio.run(main()), 2)
        self.assertTrue(self.node.ended)

    def test_decorators_refuse(self) -> None:
        """What no lease can be held for is a TypeError, and its body does not run without one."""
        client, later, ran = self.client(), sb.AsyncClient([self.node.address]), []

        class Callable_:
            async def __call__(self) -> None:
                ran.append(1)

        async def coroutine() -> None:
            ran.append(1)

        async def asynchronous() -> Any:
            yield ran.append(1)

        def plain() -> None:
            ran.append(1)

        def generator() -> Any:
            yield ran.append(1)

        never: Tuple[Any, ...] = (asynchronous, Callable_, staticmethod(plain), classmethod(plain), None, "db")
        for limited, refused in (
            (client.limited, (coroutine, Callable_(), functools.partial(coroutine), functools.partial(functools.partial(asynchronous)), *never)),
            (later.limited, (plain, generator, functools.partial(plain), *never)),
        ):
            for function in refused:
                with self.subTest(function), self.assertRaises(TypeError):
                    limited("db")(function)
        for hidden in (lambda: coroutine(), lambda: generator(), lambda: asynchronous(), contextlib.contextmanager(generator), contextlib.asynccontextmanager(asynchronous)):
            with self.assertRaises(TypeError):
                client.limited("db")(hidden)()

        async def hides() -> Any:
            return coroutine()

        with self.assertRaises(TypeError):
            asyncio.run(later.limited("db")(hides)())
        self.assertEqual(ran, [])

    def test_wrong_values_are_not_sent(self) -> None:
        client, later = self.client(), sb.AsyncClient([self.node.address])
        session, inf, nan = client.session(), float("inf"), float("nan")
        asked = len(self.node.requests)
        times: Tuple[Any, ...] = (-1, nan, inf, 1e300, "3", True, timedelta(seconds=1))
        counts: Tuple[Any, ...] = (0, -1, 1.0, "2", True, 2**63, None)
        names: Tuple[Any, ...] = ("", None, b"db", 7, "\ud800")
        groups: Tuple[Any, ...] = (None, b"a", 7, "\ud800", "a" * 129, "ä" * 65, "a\n", "\x7f", "\x85")
        wrong: List[Tuple[Callable[..., Any], str, Tuple[Any, ...]]] = [
            (lambda wait: client.lease("db", wait=wait), "wait", times),
            (lambda wait: later.lease("db", wait=wait), "wait", times),
            (lambda wait: client.down("db", wait=wait), "wait", times),
            (lambda wait: session.acquire("db", wait=wait), "wait", times),
            (lambda wait: session.acquire_all(["db"], wait=wait), "wait", times),
            (lambda ttl: client.lease("db", ttl=ttl), "ttl", (0, None, *times)),
            (lambda ttl: later.session(ttl=ttl), "ttl", (0, None, *times)),
            (lambda margin: client.session(margin=margin), "margin", (20, None, *times)),
            (lambda timeout: client.session(timeout=timeout), "timeout", times),
            (lambda timeout: session.close(timeout), "timeout", (None, *times)),
            (lambda count: client.lease("db", count=count), "count", counts),
            (lambda count: client.down("db", count), "count", counts),
            (lambda count: client.up("db", count), "count", counts),
            (lambda count: session.acquire_any({"db": count}), "count", counts),
            (lambda permits: client.create("db", permits), "permits", (-1, 1.0, "2")),
            (lambda group: client.lease("db", group=group), "group", groups),
            (lambda group: client.down("db", group=group), "group", groups),
            (lambda group: client.revoke("db", "7", group=group), "group", groups),
            (lambda group: client.group("db", group), "group", groups),
            (lambda group: client.set_group_limit("db", group, 1), "group", groups),
            (lambda group: session.acquire("db", group=group), "group", groups),
            (lambda group: session.acquire_all([sb.Want("db", group=group)]), "group", groups),
            (lambda limit: client.set_group_limit("db", "a", limit), "limit", (-1, 1.0, "2", True, None)),
            (lambda head_start: client.lease("db", head_start=head_start), "head_start", (None, *times)),
            (lambda head_start: client.down("db", head_start=head_start), "head_start", (None, *times)),
            (lambda head_start: session.acquire("db", head_start=head_start), "head_start", (None, *times)),
            (lambda head_start: session.acquire_any(["db"], head_start=head_start), "head_start", (None, *times)),
            (lambda head_start: client.put("db", head_start=head_start), "head_start", times),
            (lambda per_group: client.put("db", per_group=per_group), "per_group", (0, 1.0, "2")),
            (lambda max_waiting: client.create("db", 1, max_waiting=max_waiting), "max_waiting", (0, 1.0, "2")),
            (lambda text: client.put("db", groups=text), "groups", (1, b"owner")),
            (lambda text: client.put("db", when_full=text), "when_full", (1, True)),
            (lambda reason: client.pause("db", reason), "reason", (None, 1)),
            (lambda level: client.put("db", 1, level=level), "level", (1.0, "2", 2**31)),
            (lambda value: client.set_value("db", value), "value", (1.0, None, 2**63)),
            (lambda name: client.lease(name), "name", names),
            (lambda name: client.get(name), "name", names),
            (lambda name: session.acquire_all([name]), "name", names),
            (lambda wants: session.acquire_all(wants), "wants", ("db", b"db", 7, None, [()], [("db", 1, "a", 2)], [("db", "a")], [["db", 1]])),
            (lambda metadata: client.lease("db", metadata=metadata), "metadata", ({"a": 1}, {1: "a"}, ["a"])),
            (lambda epoch: client.lease("db", epoch=epoch), "epoch", (-1, 1.5, "1")),
            (lambda cancel: client.lease("db", cancel=cancel), "cancel", (1, threading.Event())),
            (lambda seconds: sb.Client("http://n1", attempt_timeout=seconds), "attempt_timeout", (0, None, *times)),
            (lambda flag: sb.Client("http://n1", insecure_http=flag), "insecure_http", ("no", 1, None)),
            (lambda flag: sb.Client("http://n1", in_order=flag), "in_order", ("no", 1, None)),
            (lambda flag: sb.AsyncClient("http://n1", anonymous=flag), "anonymous", ("no", 1, None)),
            (lambda flag: client.down("db", partial=flag), "partial", ("no", 1, None)),
            (lambda flag: client.get("db", stale=flag), "stale", ("no", 1, None)),
            (lambda flag: list(client.groups("db", waiting=flag)), "waiting", ("no", 1, None)),
            (lambda flag: client.put("db", 1, only_new=flag), "only_new", ("no", 1, None)),
            (lambda headers: sb.Client("http://n1", headers=headers), "headers", ({"a": "b\r\nc: d"}, {"a b": "c"}, {"Host": "x"}, {"a": 1}, "a")),
        ]  # fmt: skip
        for call, what, values in wrong:
            for value in values:
                with self.subTest(what, value=value), self.assertRaises((TypeError, ValueError)):
                    call(value)
        self.assertEqual(len(self.node.requests), asked)

    def test_final_refusals(self) -> None:
        """The client does not ask again, and has no request to withdraw."""
        client = self.client()
        session = client.session()
        asked = len(self.node.requests)
        for code, kind in (("line-full", sb.LineFull), ("superseded", sb.Superseded), ("no-total", sb.NoTotal), ("requests-waiting", sb.RequestsWaiting)):
            self.node.proxy = (409, "application/problem+json", json.dumps({"code": code}).encode())
            calls: List[Callable[[], Any]] = [lambda: client.put("db", 1)]
            if kind is not sb.RequestsWaiting:
                calls += [lambda: client.down("db"), lambda: session.acquire("db"), lambda: session.acquire_any([sb.Want("db", group="a"), "db"])]
            for call in calls:
                with self.subTest(code), self.assertRaises(kind):
                    call()
                asked += 1
                self.assertEqual(len(self.node.requests), asked, self.node.requests[asked - 1 :])

    def test_the_group_of_the_owner(self) -> None:
        """A request keeps its place in the session under the group that it named, if it was granted in another one."""
        session = self.client().session()
        self.node.group = "alice"
        lease = session.acquire("db", group="a")
        asked = len(self.node.requests)
        for refused in (lambda: session.acquire("db", group="a"), lambda: session.acquire_all(["x", sb.Want("db", group="a")])):
            with self.assertRaises(sb.LeaseExists):
                refused()
        self.assertEqual((lease.group, len(self.node.requests)), ("alice", asked))
        with self.assertRaises(sb.LeaseExists):  # the same lease, by its token
            session.acquire("db")
        lease.release()
        self.assertIn("token=5&group=alice", self.node.requests[-1][1])

    def test_addresses_with_zones(self) -> None:
        """A zone is for this machine's sockets: neither the Host header nor the name in a certificate has it."""
        for text in ("http://[fe80::5%25lo]:1", "http://[fe80::5%lo]:1", "[fe80::5%25lo]:1"):
            (node,) = sb.Client([text])._calls.nodes
            self.assertEqual((node.host, node.name, node.authority), ("fe80::5%lo", "fe80::5", "[fe80::5]:1"))
        for text in ("http://[fe80::5", "http://::1:8701", "http://n1:x", "http://n1/a b", "http://n1/\xe4", "ftp://n1", 7, None):
            with self.subTest(text), self.assertRaises((ValueError, TypeError)):
                sb.Client([text])  # type: ignore[list-item]

    def test_sessions_show_their_process(self) -> None:
        def sent(client: sb.Client, **options: Any) -> Any:
            client.lease("db", **options)
            return self.node.bodies[-1].get("metadata")

        client = self.client()
        shown = sent(client)
        self.assertEqual((shown["host"], shown["pid"]), (socket.gethostname()[:64], str(os.getpid())))
        self.assertTrue(shown["user"])
        self.assertEqual(sent(client, metadata={"pid": "mine", "job": "a"}), {**shown, "pid": "mine", "job": "a"})
        self.assertIsNone(sent(self.client(anonymous=True)))
        for full in ({str(i): "" for i in range(16)}, {"a": "ä" * 511}, {"a": "b" * 1010}):
            pairs = sent(client, metadata=full)
            self.assertLessEqual(full.items(), pairs.items())
            self.assertLessEqual(len(pairs), 16)
            self.assertLessEqual(sum(len((key + value).encode()) for key, value in pairs.items()), 1024)

    def test_a_machine_that_slept(self) -> None:
        """After a suspension the lease is over, though ``time.monotonic`` says that no time has passed."""
        real, lease = time.clock_gettime, self.client().lease("db", ttl=30)
        before = lease.deadline
        with mock.patch("time.clock_gettime", lambda clock: real(clock) + 40 * (clock != time.CLOCK_MONOTONIC)):
            self.assertTrue(threading.Event.wait(lease.lost, 5), "nothing has looked at the clock")
            self.assertLess(lease.deadline, time.monotonic())
        self.assertGreater(before, time.monotonic() + 20)

    def test_threads(self) -> None:
        """Leases share a thread with all else that the client does, and a wait of a task costs none."""

        def ours() -> int:
            return sum(thread.name.startswith("signalbox") for thread in threading.enumerate())

        others, client = ours(), sb.AsyncClient([self.node.address])
        for _ in range(20):
            client.sync.lease("db")
        self.assertEqual(ours(), others + 1)
        self.node.deaf = True

        async def main() -> None:
            waits = [asyncio.ensure_future(client.lease("db").__aenter__()) for _ in range(20)]
            while len(self.node.requests) + self.node.gathered < 40:
                await asyncio.sleep(0.01)
            self.assertEqual(ours(), others + 1)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

        asyncio.run(main())
        self.node.deaf = False
        self.assertTrue(client.sync.close(10))
        self.until(lambda: ours() <= others, "the thread ends")

    def test_no_thread_to_be_had(self) -> None:
        """Then no lease is asked for, which no one would renew; other calls run in the caller's thread. Later the client works as before."""
        client, later, start = self.client(), sb.AsyncClient([self.node.address]), threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name.startswith("signalbox"):
                raise RuntimeError("can't start new thread")
            start(thread)

        with mock.patch("threading.Thread.start", refuse):
            with self.assertRaises(sb.SignalboxError):
                client.lease("db")
            self.assertEqual(self.node.requests, [])
            self.assertEqual((client.up("db"), client.up("db")), (1, 1))
            with self.assertRaises(sb.SignalboxError):
                client.session()
            with self.assertRaises(sb.SignalboxError):
                asyncio.run(later.lease("db").__aenter__())
        self.assertEqual(len(self.node.requests), 2)
        with client.lease("db", ttl=0.9) as lease:
            self.assertFalse(lease.lost.wait(1.2), "it is not renewed")

    def test_dead_address_costs_a_share(self) -> None:
        """A node that dies during a wait without an end, a name server that never replies, and an address that takes no connections."""
        second, served = LateNode(), threading.Event()
        second.go.set()
        self.addCleanup(second.close)
        client = sb.Client([self.node.address, second.address], in_order=True, give_up_after=2, attempt_timeout=0.5)
        session = client.session(ttl=30)
        self.node.deaf, began = True, time.monotonic()
        session.acquire("db")
        self.assertLess(time.monotonic() - began, 4)  # its share is 1 s
        client.close(0.2)
        real = socket.getaddrinfo

        def look_up(host: str, *args: Any, **options: Any) -> Any:
            if host == "dead.example" and not options.get("flags"):
                served.wait(30)
            return real(host, *args, **options)

        self.addCleanup(served.set)
        full = socket.create_server(("127.0.0.1", 0), backlog=0)
        queued = [socket.create_connection(full.getsockname(), 1) for _ in range(1)]
        self.addCleanup(lambda: [sock.close() for sock in (full, *queued)])
        with mock.patch("socket.getaddrinfo", look_up), mock.patch("signalbox._http._CONNECT", 0.3):
            for dead in ("http://dead.example:1", f"http://127.0.0.1:{full.getsockname()[1]}"):
                client, began = sb.Client([dead, second.address], in_order=True), time.monotonic()
                self.assertEqual(client.up("db"), 1)
                self.assertLess(time.monotonic() - began, 4)
                client.close()

    def test_forms_of_replies(self) -> None:
        """Every form that HTTP/1.1 allows is read, a broken one is no reply."""
        ok = b"HTTP/1.1 200 OK\r\n"
        for raw, value in (
            (ok + b"Content-Length: 11\r\n\r\n" + b'{"value":4}', 4),
            (b"HTTP/1.1 100 Continue\r\n\r\n" + ok + b"content-length:11\r\n\r\n" + b'{"value":4}', 4),
            (ok + b"Transfer-Encoding: chunked\r\n\r\n" + b'4;x=y\r\n{"va\r\n7\r\nlue":4}\r\n0\r\nTrailer: 1\r\n\r\n', 4),
            (b"HTTP/1.0 200 OK\r\n\r\n" + b'{"value":4}', 4),
            (ok + b"Connection: close\r\n\r\n" + b'{"value":4}', 4),
            (ok + b"Content-Length: 12\r\n\r\n" + b'{"value":4}', None),
            (ok + b"Content-Length: -1\r\n\r\n" + b'{"value":4}', None),
            (ok + b"Content-Length: 999999999999\r\n\r\n" + b'{"value":4}', None),
            (ok + b"Transfer-Encoding: chunked\r\n\r\n" + b'zz\r\n{"value":4}', None),
            (b"SSH-2.0-x\r\n\r\n", None),
            (b"HTTP/1.1 200 OK\r\nA: " + b"b" * (1 << 18), None),
            (b"", None),
        ):
            with self.subTest(raw[:60]), socket.create_server(("127.0.0.1", 0)) as server:

                def serve() -> None:
                    while True:
                        try:
                            connection = server.accept()[0]
                        except OSError:
                            return
                        with connection:
                            connection.recv(1 << 16)
                            connection.sendall(raw)

                threading.Thread(target=serve, daemon=True).start()
                client = sb.Client(f"http://127.0.0.1:{server.getsockname()[1]}", attempt_timeout=2, give_up_after=0)
                try:
                    self.assertEqual(client.up("db"), value)
                except sb.Unreachable as e:
                    self.assertIsNone(value, e)
                client.close()
                server.shutdown(socket.SHUT_RDWR)

    def test_cancelled_task_gives_back(self) -> None:
        """A task that is cancelled while the node grants leaves no lease and no session behind, while its client lives on."""

        async def main(pending: Callable[[sb.AsyncClient], Any]) -> None:
            asked, go = threading.Event(), threading.Event()

            def granted() -> bool:
                asked.set()
                return go.wait(10)

            node = Node()  # of its own: requests of other clients may still be on their way to the other
            self.addCleanup(node.close)
            node.granted = granted
            async with sb.AsyncClient([node.address]) as client:
                task = asyncio.ensure_future(pending(client).__aenter__())
                await asyncio.get_running_loop().run_in_executor(None, asked.wait)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertFalse(node.ended)
                go.set()
                late = time.monotonic() + 10
                while not node.ended and time.monotonic() < late:
                    await asyncio.sleep(0.01)
                self.assertTrue(node.ended, "only the end of the client gives it back")

        for name, pending in (("lease", lambda client: client.lease("db")), ("session", lambda client: client.session())):
            with self.subTest(name):
                asyncio.run(main(pending))

    def test_given_up_acquire_comes_to_nothing(self) -> None:
        """A request that is carried out after its withdrawal leaves the session no lease."""
        node = LateNode()
        self.addCleanup(node.close)
        client = sb.Client([node.address])
        self.addCleanup(client.close, 0.2)
        session = client.session(ttl=30)
        with self.assertRaises(sb.WaitEnded):
            session.acquire("db", wait=0.1)
        node.go.set()
        self.assertTrue(node.late.wait(10))
        self.assertFalse(node.held)

    def test_cancel_ends_a_request(self) -> None:
        self.node.deaf = True
        cancel = sb.Cancel()
        threading.Timer(0.1, cancel.cancel).start()
        began = time.monotonic()
        with self.assertRaises(sb.Canceled):
            self.client().lease("db", cancel=cancel)
        self.assertLess(time.monotonic() - began, 4)  # with the two seconds to withdraw it

    def test_a_closed_client_says_so(self) -> None:
        """``Closed``, not ``Canceled``: for calls that were under way, and for later calls, which send nothing."""
        calls: List[Callable[[sb.Client], object]] = [
            lambda c: c.lease("db", cancel=sb.Cancel()), lambda c: c.session(), lambda c: c.down("db"), lambda c: c.up("db"), lambda c: c.get("db"),
        ]  # fmt: skip
        self.node.deaf = True
        for call in calls[0], calls[-1]:
            client = self.client()
            threading.Timer(0.1, client.close, (0,)).start()
            with self.assertRaises(sb.Closed):
                call(client)
        self.node.deaf = False
        sent = len(self.node.requests)
        for call in calls:
            with self.assertRaises(sb.Closed):
                call(client)
        self.assertEqual(len(self.node.requests), sent)

    def test_a_closed_client_says_so_to_asyncio(self) -> None:
        async def main() -> None:
            client = sb.AsyncClient(self.node.address, attempt_timeout=1)
            self.node.deaf = True
            under_way = [asyncio.ensure_future(call) for call in (client.get("db"), client.up("db"), client.down("db"))]
            await asyncio.sleep(0)  # starts the tasks
            await client.close(0)
            self.node.deaf = False
            for task in under_way:
                with self.assertRaises(sb.Closed):
                    await task
            sent = len(self.node.requests)
            for call in (lambda: client.get("db"), lambda: client.down("db"), lambda: client.lease("db"), lambda: client.session()):
                with self.assertRaises(sb.Closed):
                    await call()
            self.assertEqual(len(self.node.requests), sent)

        asyncio.run(main())

    def test_token_file_is_followed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "token")
            path.write_text("first\n")
            self.node.token = "first"
            client = self.client(token_file=str(path))
            self.assertEqual(client._send(_get(), lambda reply: reply.status), 201)
            path.write_text("second-one\n")
            self.node.token = "second-one"
            self.assertEqual(client._send(_get(), lambda reply: reply.status), 201)
            seen = os.stat(path)
            path.write_text("third-one!\n")  # of the same size and time: 401 makes it be read again
            os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            self.node.token = "third-one!"
            self.assertEqual(client._send(_get(), lambda reply: reply.status), 201)
            path.unlink()
            self.assertEqual(client._send(_get(), lambda reply: reply.status), 201)  # the one from before

    def test_tokens_stay_on_the_way(self) -> None:
        secret = "kG7-the-secret"
        for options in ({"token": secret}, {}):
            address = "http://10.0.0.1:8701" if options else f"http://me:{secret}@n1:8701"
            with self.assertRaises(ValueError) as refused:
                sb.Client([address], **options)
            self.assertNotIn(secret, str(refused.exception))
        for addresses in (["https://n1"], ["http://127.0.0.1:1"], ["http://[::1]:1"], ["localhost:1"]):
            sb.Client(addresses, token=secret)
        sb.Client(["http://n1"], token=secret, insecure_http=True)
        turning = sb.Client(["http://n1:8701", "https://n1:8701"], token=secret, in_order=True)
        plain, secure = turning._calls.nodes
        self.assertIsNone(turning._calls._credentials.authorization(plain))
        self.assertEqual(turning._calls._credentials.authorization(secure), "Bearer " + secret)
        for token in ("", "two words", "a\r\nHost: b", "grün"):
            with self.assertRaises(ValueError):
                sb.Client(["https://n1"], token=token)

    def test_foreign_refusals_end_no_session(self) -> None:
        """A proxy's reply in place of a renewal's is no word of the cluster, whatever its body says: the session goes on. The cluster's own ends it."""
        told = b'{"code":"unknown-session"}'
        session = self.client().session(ttl=3)
        for foreign in ((404, "text/html", b"not found"), (404, "application/json", told), (410, "text/plain", told), (404, "application/problem+json", b"[]")):
            with self.subTest(foreign):
                before, self.node.proxied, self.node.proxy = session.deadline, 0, foreign
                self.until(lambda: self.node.proxied > 1, "the proxy is asked twice")
                self.assertIsNone(session.error)
                self.node.proxy = None
                self.until(lambda: session.deadline > before + 0.3, "a renewal succeeds behind the proxy")
                self.assertIsNone(session.error)
        self.node.proxy = (404, "application/problem+json", told)
        self.assertTrue(session.lost.wait(10))
        self.assertIsInstance(session.error.__cause__, sb.UnknownSession)
        self.assertLess(time.monotonic(), session.deadline, "it was lost by its deadline alone")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        late = time.monotonic() + 10
        while not condition():
            self.assertLess(time.monotonic(), late, what)
            time.sleep(0.005)

    def test_syntax_of_3_9(self) -> None:
        for path in Path(sb.__file__).parent.glob("*.py"):
            ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))

    def test_imports_the_standard_library_alone(self) -> None:
        ours = {path.stem for path in Path(sb.__file__).parent.glob("*.py")}
        for path in Path(sb.__file__).parent.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or ""] if not node.level else []
                    if node.level:
                        self.assertLessEqual({node.module} if node.module else {a.name for a in node.names}, ours)
                for name in names:
                    if hasattr(sys, "stdlib_module_names"):
                        self.assertIn(name.split(".")[0], sys.stdlib_module_names)


def _get() -> Any:
    from signalbox._call import Call

    return Call("GET", ("v1", "semaphores"))


if __name__ == "__main__":
    unittest.main()
