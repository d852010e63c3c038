"""Tests of programs that fork, make processes, and end."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import ssl
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from typing import Any, List, Tuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import signalbox as sb  # noqa: E402
from test_client import Node  # noqa: E402

_HEAD = """
import asyncio, atexit, multiprocessing, os, signal, sys, threading, time
import signalbox as sb
address = sys.argv[1]
client = sb.Client([address], give_up_after=5)

def reap(child):
    status = os.waitpid(child, 0)[1]
    if status != 0:
        sys.exit(f"a child has ended with {status}")
"""


class TestProcess(unittest.TestCase):
    def setUp(self) -> None:
        self.node = Node()
        self.addCleanup(self.node.close)

    def program(self, code: str, status: int = 0, stderr: str = "", longest: float = 5.0) -> str:
        """Runs a program, which ends in time and complains of nothing."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "program.py")
            path.write_text(_HEAD + textwrap.dedent(code))
            began = time.monotonic()
            # From 3.12 a process with threads is warned at each fork.
            done = subprocess.run(
                [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", str(path), self.node.address],
                env={**os.environ, "PYTHONPATH": str(Path(sb.__file__).parents[1])}, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr[-2000:]), (status, stderr))
        self.assertLess(time.monotonic() - began, longest)
        return done.stdout

    def ports(self, name: str) -> List[int]:
        return [port for path, port in self.node.ports if f"/semaphores/{name}/" in path]

    def ended(self) -> List[str]:
        return [path for method, path, _ in self.node.requests if method == "DELETE"]

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_fork(self) -> None:
        """The child opens its own connections, and loses what it inherits without a word, however it ends; nothing changes for the parent."""
        for leave in ("os._exit(0)", "sys.exit(0)", "client.close(); os._exit(0)"):
            with self.subTest(leave):
                self.node.requests.clear(), self.node.ports.clear()
                self.node.sessions = 0
                self.program(f"""
                    session = client.session(ttl=2)
                    other = client.session(ttl=2)
                    quiet = sb.Client([address])  # has one connection, which it needs again
                    quiet.up("before")
                    with client.lease("db", ttl=2) as lease:
                        child = os.fork()
                        if child == 0:
                            for held in (lease, session, other):
                                assert held.lost.is_set() and held.lost.wait(0) and isinstance(held.error, sb.Lost), held
                            for end in (lease.release, session.close):
                                try:
                                    end()
                                    os._exit(1)
                                except sb.Lost:
                                    pass
                            client.up("child")
                            quiet.up("child")
                            {leave}
                        reap(child)
                        began = time.monotonic()
                        for _ in range(8):
                            quiet.up("after")
                        assert time.monotonic() - began < 4, "nothing wakes the client's thread"
                        before, late = lease.deadline, time.monotonic() + 5
                        while lease.deadline < before + 0.5 and time.monotonic() < late:
                            time.sleep(0.01)
                        assert time.monotonic() < late, "the parent's lease is not renewed"
                        assert not lease.lost.is_set() and not session.lost.is_set()
                    other.close()
                    os._exit(0)
                """, longest=10)
                self.assertFalse(set(self.ports("child")) & {port for path, port in self.node.ports if "/child/" not in path}, "a shared connection")
                self.assertEqual(set(self.ports("after")), set(self.ports("before")), "the parent has lost its connection")
                self.assertEqual(self.ended(), ["/v1/sessions/700", "/v1/sessions/70"])

    @unittest.skipUnless(hasattr(os, "fork") and shutil.which("openssl"), "no fork, or no openssl to make a certificate")
    def test_fork_with_tls(self) -> None:
        """A child's end says nothing on its parent's connection of TLS, and a child has a connection of TLS too."""
        with tempfile.TemporaryDirectory() as folder:
            cert, key = f"{folder}/cert.pem", f"{folder}/key.pem"
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1",
                 "-keyout", key, "-out", cert], check=True, capture_output=True,
            )  # fmt: skip
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert, key)
            self.node = Node(context)
            self.addCleanup(self.node.close)
            self.program(f"""
                client = sb.Client(address, ca={cert!r})
                client.up("before")
                child = os.fork()
                if child == 0:
                    client.up("child")
                    sys.exit(0)
                reap(child)
                client.up("after")
            """)
        self.assertEqual(self.ports("after"), self.ports("before"))
        self.assertNotEqual(self.ports("child"), self.ports("before"))

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_fork_under_load(self) -> None:
        """A fork at any moment of the client's thread, from a thread, leaves no lock behind; children of children too."""
        self.program(
            """
            busy = True

            def call():
                while busy:
                    with client.lease("db"):
                        client.up("parent")

            threads = [threading.Thread(target=call) for _ in range(3)]

            def fork():
                for i in range(12):
                    child = os.fork()
                    if child == 0:
                        client.up("child")
                        if i == 5 and os.fork() == 0:
                            client.up("grandchild")
                        os._exit(0)
                    reap(child)

            threads.append(threading.Thread(target=fork))
            for thread in threads:
                thread.start()
            threads.pop().join()
            busy = False
            for thread in threads:
                thread.join()
            """,
            longest=20,
        )
        self.assertEqual((len(self.ports("child")), len(set(self.ports("child")) & set(self.ports("parent")))), (12, 0))

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_fork_and_tasks(self) -> None:
        """A client of asyncio goes on in a child, with another loop there; the parent's wait goes on too."""
        self.program("""
            later = sb.AsyncClient([address])

            async def main():
                lease = await later.lease("db")
                wait = asyncio.ensure_future(lease.wait_lost())
                await asyncio.sleep(0)
                child = os.fork()
                if child == 0:
                    asyncio.events._set_running_loop(None)
                    assert lease.lost.is_set()
                    asyncio.run(later.sync and up())
                    os._exit(0)
                reap(child)
                assert not wait.done()
                await lease.release()
                assert isinstance(await wait, sb.Closed)

            async def up():
                assert await later.up("child") == 1

            asyncio.run(main())
        """)
        self.assertEqual(len(self.ports("child")), 1)

    @unittest.skipUnless(sys.platform == "linux", "no fork without handlers")
    def test_process_id(self) -> None:
        """A fork that calls no handlers is noticed by the process id."""
        self.program("""
            lease = client.lease("db")
            client.up("parent")
            import ctypes
            child = ctypes.PyDLL(None).fork()
            if child == 0:
                assert lease.lost.is_set() and lease.lost.wait(0)
                client.up("child")
                os._exit(0)
            reap(child)
            assert not lease.lost.is_set()
            os._exit(0)
        """)
        self.assertEqual((len(self.ports("child")), self.ended()), (1, []))
        self.assertFalse(set(self.ports("child")) & set(self.ports("parent")))

    def test_multiprocessing(self) -> None:
        """A client that was made at import time serves every process, whichever way it was made."""
        for method in ("fork", "spawn", "forkserver") if hasattr(os, "fork") else ("spawn",):
            with self.subTest(method):
                self.node.ports.clear()
                self.program(
                    f"""
                    def job(n):
                        with client.lease("child"):
                            return client.up("child") + n

                    if __name__ == "__main__":
                        client.up("parent")
                        held = client.lease("db")
                        with multiprocessing.get_context("{method}").Pool(2) as pool:
                            assert pool.map(job, range(4)) == [1, 2, 3, 4]
                            pool.close()
                            pool.join()
                        assert not held.lost.is_set()
                    """,
                    longest=20,
                )
                self.assertFalse(set(self.ports("child")) & set(self.ports("parent")))
                self.assertGreaterEqual(len(self.ports("child")), 8)

    def test_no_copies(self) -> None:
        client, later = sb.Client([self.node.address]), sb.AsyncClient([self.node.address])
        self.addCleanup(client.close)
        for value in (client, later, client.lease("db"), client.session(), sb.Cancel(), sb.AsyncLease(client.lease("db"))):
            for make in (pickle.dumps, copy.copy, copy.deepcopy):
                with self.subTest(value), self.assertRaisesRegex(TypeError, "make a client in each process"):
                    make(value)

    def test_exit(self) -> None:
        """A program ends at once and quietly, whatever it holds, and what it holds is released."""
        hold = "lease = client.lease('db')\n"
        programs: Tuple[Tuple[str, int], ...] = (
            (hold, 0),
            (hold + "sys.exit(3)", 3),
            (hold + "atexit.register(lease.release)", 0),
            ("with client.lease('db'): sys.exit(4)", 4),
            ("session = client.session()", 0),
            ("class K:\n  def __init__(self): self.lease = client.lease('db')\n  def __del__(self): self.lease.release()\nk = K()", 0),
            ("class K:\n  def __del__(self): client.close()\nk = K()\n" + hold, 0),
            ("def g():\n  with client.lease('db'):\n    yield\nsuspended = g()\nnext(suspended)", 0),
            ("def f():\n  with client.lease('db'): time.sleep(0.3)\nthreading.Thread(target=f).start()", 0),
            (hold + "threading.Thread(target=lambda: client.lease('db'), daemon=True).start()", 0),
            ("from concurrent.futures import ThreadPoolExecutor\ndef f():\n  with client.lease('db'): time.sleep(0.3)\nThreadPoolExecutor(2).submit(f)", 0),
            ("later = sb.AsyncClient([address])\nasync def main(): return await later.lease('db')\nlease = asyncio.run(main())", 0),
            ("later = sb.AsyncClient([address])\nasync def g():\n  async with later.lease('db'):\n    yield\n"
             "async def main():\n  async for _ in g(): return\nasyncio.run(main())", 0),
        )  # fmt: skip
        for code, status in programs:
            if (3, 12) <= sys.version_info < (3, 12, 2) and "Thread" in code:
                continue  # these start no threads once the main thread has ended
            with self.subTest(code):
                self.node.requests.clear()
                self.program("\n" + code, status)
                self.assertTrue(self.ended())

    def test_calls_at_exit(self) -> None:
        self.program("atexit.register(client.up, 'last')")
        self.assertEqual(len(self.ports("last")), 1)

    def test_exit_without_a_node(self) -> None:
        """What can't be released within a moment is left to its ttl."""
        self.addCleanup(setattr, self.node, "deaf", False)
        for at_exit in ("", "lease.release(); "):
            with self.subTest(at_exit):
                self.node.deaf = False
                code = f"""
                    class K:
                        def __del__(self): {at_exit or "pass"}
                    lease, k = client.lease("db"), K()
                    print("held", flush=True)
                    sys.stdin.readline()
                """
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder, "program.py")
                    path.write_text(_HEAD + textwrap.dedent(code))
                    with subprocess.Popen(
                        [sys.executable, str(path), self.node.address], env={**os.environ, "PYTHONPATH": str(Path(sb.__file__).parents[1])},
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    ) as process:  # fmt: skip
                        assert process.stdout is not None
                        process.stdout.readline()
                        self.node.deaf, began = True, time.monotonic()
                        self.assertEqual((process.communicate("\n", 30)[1], process.returncode), ("", 0))
                        self.assertLess(time.monotonic() - began, 4)

    @unittest.skipUnless(hasattr(os, "fork"), "no signals")
    def test_interrupted_call(self) -> None:
        """Ctrl-C ends a call at once, and what it was granted at that moment is given back."""
        asked: List[Any] = []

        def granted() -> bool:
            asked.append(1)
            return not self.node.closed.wait(0.7)

        self.node.granted = granted
        self.program("""
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                client.lease("db")
                os._exit(1)
            except KeyboardInterrupt:
                os._exit(0)
        """)
        self.assertTrue(self.ended())


if __name__ == "__main__":
    unittest.main()
