"""The base of tests against a node of the program that SIGNALBOX names; ``make python`` builds it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import signalbox as sb  # noqa: E402

logging.getLogger("signalbox").addHandler(logging.NullHandler())
logging.getLogger("signalbox").propagate = False

_PROGRAM = os.environ.get("SIGNALBOX", "")


def free_ports(count: int) -> List[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


@unittest.skipUnless(_PROGRAM, "SIGNALBOX names no program")
class NodeTest(unittest.TestCase):
    options: Tuple[str, ...] = ()  # of the node
    address: str
    file: str  # of tokens
    tokens: Dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        file = str(Path(folder.name, "tokens.toml"))
        cls.tokens = {}
        for name in ("alice", "bob"):
            out = subprocess.run([_PROGRAM, "token", "new", name, "--scope", "admin"], check=True, capture_output=True, text=True).stdout
            cls.tokens[name], block = out.split("\n", 1)
            with open(file, "a", encoding="utf-8") as blocks:
                blocks.write(block)
        cls.file = file
        cls.address = cls.start_node(*cls.options)

    @classmethod
    def start_node(cls, *options: str) -> str:
        """Starts a node with the tokens, and returns its address once it works."""
        log = tempfile.TemporaryFile("w+", encoding="utf-8")
        cls.addClassCleanup(log.close)
        http, peer = free_ports(2)
        node = subprocess.Popen(
            [_PROGRAM, "serve", "--ephemeral", "--http", f"127.0.0.1:{http}", "--peer", f"127.0.0.1:{peer}", "--tokens", cls.file, *options],
            stdout=log, stderr=log,
        )  # fmt: skip
        cls.addClassCleanup(node.wait)
        cls.addClassCleanup(node.kill)
        address = f"http://127.0.0.1:{http}"
        with sb.Client(address, token=cls.tokens["alice"], give_up_after=0) as client:
            while True:
                try:
                    client.page()
                    return address
                except sb.Unreachable:
                    if node.poll() is not None:
                        log.seek(0)
                        raise RuntimeError(log.read())

    def setUp(self) -> None:
        self.pool = ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)
        self.client = self.client_of("alice")
        self.name = self.id().rsplit(".", 1)[1]  # of the semaphore

    def client_of(self, name: str) -> sb.Client:
        client = sb.Client(self.address, token=self.tokens[name])
        self.addCleanup(client.close, 5)
        return client

    def wait(self, count: int, call: Callable[..., Any], *args: Any, **options: Any) -> "Future[Any]":
        """Begins a call that waits in line, as the request of that number."""
        future = self.pool.submit(call, *args, **options)
        self.await_waiters(count)
        return future

    def await_waiters(self, count: int) -> None:
        late = time.monotonic() + 20
        while self.client.get(self.name).waiter_count != count:
            self.assertLess(time.monotonic(), late, "the requests do not wait")
