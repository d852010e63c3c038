"""HTTP/1.1 on sockets that block no thread: the transport of all calls."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple, TypeVar

from ._credentials import Credentials
from ._nodes import Node
from ._time import in_loop

T = TypeVar("T")
_Found = List[Tuple[Any, ...]]

# The first call of getaddrinfo imports this codec. A child that was forked during that import would wait for the import lock for ever.
"node".encode("idna")

_CONNECT = 3.0  # seconds to find a node's addresses and to connect to one of them, with TLS
_IDLE = 45.0  # seconds that a connection may be idle; nodes close idle connections after 60 or more
_LONGEST_HEAD, _LONGEST_BODY = 1 << 16, 1 << 28


class NotSent(OSError):
    """The attempt failed before the request was sent."""


class Response(NamedTuple):
    """A complete HTTP reply."""

    status: int
    headers: Mapping[str, str]  # the keys are in lower case
    body: bytes
    keep: bool  # the connection can be used for another request


class Pool:
    """The connections of a client. Only the client's loop may use it."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._idle: Dict[int, List[Exchange]] = {}
        self.sockets: Set[socket.socket] = set()  #: all open sockets
        self.lookups: Dict[Tuple[str, int], asyncio.Future[_Found]] = {}  #: names that are being looked up, each in a thread

    def take(self, node: Node) -> Exchange:
        """Returns a connection that no request uses."""
        context = self._credentials.context() if node.https else None
        idle = self._idle.get(id(node), [])
        while idle:
            exchange = idle.pop()
            if exchange.context is context and not exchange.over and time.monotonic() - exchange.since < _IDLE:
                return exchange
            exchange.end()
        return Exchange(node, context, self)

    def give(self, exchange: Exchange) -> None:
        """Keeps a connection for the next request."""
        exchange.used, exchange.since = True, time.monotonic()
        self._idle.setdefault(id(exchange.node), []).append(exchange)

    def close(self) -> None:
        """Closes all sockets of this process. In a child it closes only the copies: the parent's connections stay open, because no shutdown is sent."""
        for sock in self.sockets:
            sock.close()
        self.sockets.clear()
        self._idle.clear()
        self.lookups.clear()


class Exchange:
    """One connection, while a request uses it."""

    def __init__(self, node: Node, context: Optional[ssl.SSLContext], pool: Pool) -> None:
        self.node, self.context, self.used, self.over = node, context, False, False
        self.since = time.monotonic()
        self._pool, self._loop = pool, asyncio.get_running_loop()
        self._sock: Any = None
        self._waiting: Optional[asyncio.Future[None]] = None
        self._buffer = bytearray()

    async def send(self, method: str, target: str, body: Optional[bytes], headers: Mapping[str, str], end: float) -> Response:
        """Sends a request and returns its reply. It connects first if necessary."""
        if self._sock is None:
            until = min(end, time.monotonic() + _CONNECT)
            timer = self._loop.call_at(until, self.cut, "it did not accept the connection in time")
            try:
                await self._connect(until)
            except OSError as e:
                raise NotSent(f"{self.node}: {e}") from e
            finally:
                timer.cancel()
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.node.authority}", *(f"{name}: {value}" for name, value in headers.items())]
        if body is not None or method != "GET":
            lines.append(f"Content-Length: {len(body or b'')}")
        data = memoryview("\r\n".join(lines + ["", ""]).encode("latin-1") + (body or b""))
        while data:
            sent = await self._io(lambda: int(self._sock.send(data)), True)
            data = data[sent:]
        return await self._receive()

    def cut(self, why: str = "the call was ended") -> None:
        """Makes the request fail."""
        self.over = True
        self._fail(ConnectionAbortedError(why))

    def end(self) -> None:
        """Closes the connection."""
        self.over = True
        self._close()

    # Connections

    async def _connect(self, end: float) -> None:
        found = await self._resolve()
        for i, (family, kind, protocol, _, address) in enumerate(found):
            # Each address gets an equal part of the time left.
            timer = self._loop.call_later((end - time.monotonic()) / (len(found) - i), self._fail, TimeoutError("it did not accept the connection in time"))
            try:
                await self._connect_to(socket.socket(family, kind, protocol), address)
                break
            except OSError:
                self._close()
                if self.over or i == len(found) - 1:
                    raise
            finally:
                timer.cancel()
        if self.context is not None:
            plain = self._sock
            self._sock = self.context.wrap_socket(plain, server_hostname=self.node.name, do_handshake_on_connect=False)
            self._pool.sockets.discard(plain)
            self._pool.sockets.add(self._sock)
            await self._io(self._sock.do_handshake, False)

    async def _connect_to(self, sock: socket.socket, address: Any) -> None:
        self._sock = sock
        self._pool.sockets.add(sock)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.connect(address)
        except (BlockingIOError, InterruptedError):
            await self._ready(True)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))

    async def _resolve(self) -> _Found:
        host, port = self.node.host, self.node.port
        try:
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        except OSError:
            pass
        if (host, port) not in self._pool.lookups:  # a name server that is slow to reply costs one thread, not one for each attempt
            started = self._pool.lookups[host, port] = look_up(host, port)
            started.add_done_callback(lambda _: self._pool.lookups.pop((host, port), None))
        lookup = self._pool.lookups[host, port]
        await self._wait(lambda wake: lookup.add_done_callback(lambda _: wake()))
        return lookup.result()

    def _close(self) -> None:
        if self._sock is not None:
            self._pool.sockets.discard(self._sock)
            self._sock.close()
            self._sock = None

    # Waiting

    async def _io(self, operation: Callable[[], T], writing: bool) -> T:
        """Runs an operation on the socket, and retries it until it does not block."""
        while True:
            if self.over:
                raise ConnectionAbortedError("the call was ended")
            try:
                return operation()
            except BlockingIOError:
                await self._ready(writing)
            except ssl.SSLWantReadError:
                await self._ready(False)
            except ssl.SSLWantWriteError:
                await self._ready(True)

    async def _ready(self, writing: bool) -> None:
        loop, number = self._loop, self._sock.fileno()
        try:
            await self._wait(lambda wake: (loop.add_writer if writing else loop.add_reader)(number, wake))
        finally:
            (loop.remove_writer if writing else loop.remove_reader)(number)

    async def _wait(self, start: Callable[[Callable[[], None]], Any]) -> None:
        """Gives start a function, and waits until that function or ``cut`` is called."""
        if self.over:
            raise ConnectionAbortedError("the call was ended")
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting = waiting
        start(lambda: None if waiting.done() else waiting.set_result(None))
        try:
            await waiting
        finally:
            self._waiting = None

    def _fail(self, error: OSError) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    # Replies

    async def _receive(self) -> Response:
        status = 100
        while status < 200:
            head = (await self._through(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            first = head[0].split(" ", 2)
            if len(first) < 2 or not first[0].startswith("HTTP/1.") or not (first[1].isascii() and first[1].isdigit() and len(first[1]) == 3):
                raise OSError("the reply is not of HTTP/1.1")
            status = int(first[1])
        headers = {}
        for line in head[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        keep = first[0] != "HTTP/1.0" and "close" not in headers.get("connection", "").lower()
        if status in (204, 304):
            body = b""
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            body = await self._chunks()
        elif "content-length" in headers:
            body = await self._exactly(_size(headers["content-length"], 10, 0))
        else:
            body, keep = await self._rest(), False
        return Response(status, headers, body, keep and not self._buffer)

    async def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            size = _size((await self._through(b"\r\n")).split(b";")[0].decode("latin-1").strip(), 16, len(body))
            if size == 0:
                while await self._through(b"\r\n"):  # trailers
                    pass
                return bytes(body)
            body += await self._exactly(size)
            await self._exactly(2)

    async def _through(self, mark: bytes) -> bytes:
        while True:
            at = self._buffer.find(mark)
            if at >= 0:
                found = bytes(self._buffer[:at])
                del self._buffer[: at + len(mark)]
                return found
            if len(self._buffer) > _LONGEST_HEAD:
                raise OSError("the reply has too long a head")
            await self._more()

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._more()
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    async def _rest(self) -> bytes:
        try:
            while len(self._buffer) < _LONGEST_BODY:
                await self._more()
        except EOFError:
            pass
        return await self._exactly(len(self._buffer))

    async def _more(self) -> None:
        data = await self._io(lambda: bytes(self._sock.recv(1 << 16)), False)
        if not data:
            raise Ended("the node has closed the connection")
        self._buffer += data


class Ended(ConnectionResetError, EOFError):
    """The other side has closed the connection."""


def _size(text: str, base: int, before: int) -> int:
    try:
        size = int(text, base) if text.isalnum() else -1
    except ValueError:
        size = -1
    if size < 0 or before + size > _LONGEST_BODY:
        raise OSError(f"the reply's length can't be used: {text[:20]!r}")
    return size


def look_up(host: str, port: int) -> asyncio.Future[_Found]:
    """Resolves a name in a thread, because the standard library can only block on it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Found] = loop.create_future()

    def look() -> None:
        found: _Found = []
        error: Optional[OSError] = None
        try:
            found = list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as e:
            error = OSError(f"the name {host} has no address: {e}")
        in_loop(loop, lambda: future.set_exception(error) if error is not None else future.set_result(found))()

    future.add_done_callback(lambda f: f.exception())  # avoids a warning if no attempt reads the error
    try:
        threading.Thread(target=look, name="signalbox-name", daemon=True).start()
    except RuntimeError:  # no thread can be started
        look()
    return future
