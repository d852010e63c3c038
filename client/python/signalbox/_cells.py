"""Cells: several clusters that share the names of a service. docs/cells.md explains them."""

from __future__ import annotations

import asyncio
import heapq
import os
import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, Generic, Iterable, Iterator, List, Mapping, Optional, Tuple, Type, TypeVar

from . import _values as values
from ._client import Client, Semaphore
from ._errors import Closed, Lost
from ._session import Block, Session
from .aio import AsyncClient, AsyncSession

C = TypeVar("C")
_HIGHEST = 62  # number of a cell
_IDS = 2**47  # session ids of a cell: its number is the top 6 of the 53 bits of an id


class _Map(Generic[C]):
    """The clients of the cells, by number, and the rule that decides to which cell a name belongs."""

    def __init__(self, file: Mapping[str, Any], make: Callable[..., C], options: Mapping[str, Any]) -> None:
        self._clients: Dict[int, C] = {}
        prefixes: Dict[str, int] = {}
        cells: Dict[int, List[str]] = {}
        for number, names, nodes in _read(file):
            if number in cells:
                raise ValueError(f"two cells have the number {number}")
            for prefix in names:
                if prefix in prefixes:
                    raise ValueError(f"the prefix {prefix!r} is there twice: in cell {prefixes[prefix]} and in cell {number}")
                prefixes[prefix] = number
            cells[number] = nodes
        if "" not in prefixes:
            raise ValueError('no cell has the prefix "", which stands for all names without another prefix')
        self._prefixes = sorted(prefixes.items(), key=lambda prefix: -len(prefix[0]))
        for number, nodes in sorted(cells.items()):
            headers = {**(options.get("headers") or {}), "X-Signalbox-Cell": str(number)}  # nodes of another cell refuse them
            self._clients[number] = make(nodes, **{**options, "headers": headers})

    def _number(self, name: str) -> int:
        return next(number for prefix, number in self._prefixes if values.semaphore(name).startswith(prefix))

    def of(self, name: str) -> C:
        """Returns the client of the cell to which a name belongs. It sends no request."""
        return self._clients[self._number(name)]

    def of_session(self, session: str) -> Optional[C]:
        """Returns the client of the cell whose number is in a session's id. Returns None for an id without a number, for example if a client chose it."""
        if len(self._clients) == 1:
            return next(iter(self._clients.values()))
        known = values.text("session", session).isascii() and session.isdigit() and len(session) <= 20
        return self._clients.get(int(session) // _IDS) if known else None

    def numbered(self, number: int) -> C:
        """Returns the client of the cell with this number, for calls about a whole cell. Raises KeyError if there is no such cell."""
        return self._clients[number]


def _read(file: Mapping[str, Any]) -> Iterator[Tuple[int, List[str], List[str]]]:
    """Yields number, prefixes and nodes of each cell of the file."""
    if not isinstance(file, Mapping):
        raise TypeError(f"file is what tomllib.load reads from the file of cells, not {type(file).__name__}")
    listed = file.get("cell")
    if not isinstance(listed, list) or not listed or set(file) != {"cell"}:
        raise ValueError("the file has a list of [[cell]], and nothing else")
    for cell in listed:
        if not isinstance(cell, Mapping) or set(cell) != {"number", "prefix", "nodes"}:
            raise ValueError("a cell has number, prefix and nodes")
        number = values.whole("number", cell["number"])
        if number > _HIGHEST:
            raise ValueError(f"a cell has the number {number}: it is 1 to {_HIGHEST}")
        for name in ("prefix", "nodes"):
            if not isinstance(cell[name], list) or not cell[name]:
                raise ValueError(f"{name} of cell {number} is a list of texts")
        yield number, [values.text("prefix", text) for text in cell["prefix"]], [values.text("nodes", text) for text in cell["nodes"]]


class Cells(_Map[Client]):
    """A client for each cell; safe for concurrent use. A context manager that closes them.

    file: what ``tomllib.load`` (before Python 3.11: ``tomli``) reads from the file of cells. options: the options of ``Client``, for all clients. ::

        with open("cells.toml", "rb") as file, Cells(tomllib.load(file), token_file="token") as cells:
            with cells.of("eu/db").lease("eu/db") as lease:
                ...

    A call goes to the client for its name, so no call can have names of two cells. Each client keeps the promises of ``Client`` within its cell.
    """

    def __init__(self, file: Mapping[str, Any], **options: Any) -> None:
        super().__init__(file, Client, options)

    def list(self, prefix: str = "") -> Iterator[Semaphore]:
        """Yields the semaphores of all cells whose names begin with the prefix, sorted by name.

        It leaves out a semaphore in a cell to which its name does not belong, for example while a prefix moves to another cell.
        """
        return iter(heapq.merge(*(self._part(number, prefix) for number in self._clients), key=lambda semaphore: semaphore.name))

    def _part(self, number: int, prefix: str) -> Iterator[Semaphore]:
        return (s for s in self._clients[number].list(prefix) if self._number(s.name) == number)

    def sessions(self, **options: Any) -> CellSessions:
        """Returns sessions, one in each cell that is used. The options are those of ``Client.session``."""
        return CellSessions(self, options)

    def close(self, timeout: float = 5.0) -> bool:
        """Closes all clients, as ``Client.close`` does."""
        until = time.monotonic() + values.seconds("timeout", timeout)
        for client in self._clients.values():  # all at a time
            client._closing.cancel()
            client._calls.begin_end()
        return all([client.close(max(0.0, until - time.monotonic())) for client in self._clients.values()])

    def __enter__(self) -> Cells:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


class CellSessions(Block):
    """A session in each cell that was used; safe for concurrent use. A context manager that closes them."""

    def __init__(self, cells: Cells, options: Mapping[str, Any]) -> None:
        self._cells, self._options = cells, options
        self._begin()

    def _begin(self) -> None:
        self._pid, self._closed = os.getpid(), False
        self._turns = {number: threading.Lock() for number in self._cells._clients}
        self._opened: Dict[int, Session] = {}

    def of(self, name: str) -> Session:
        """Returns the session in the cell to which a name belongs. The first call for a cell opens the session. A lost session is not replaced: its calls raise
        ``Lost``.

        A child process has its own sessions.
        """
        if self._pid != os.getpid():
            self._begin()
        number = self._cells._number(name)
        with self._turns[number]:
            if number not in self._opened and not self._closed:
                self._opened[number] = self._cells._clients[number].session(**self._options)
            if self._closed:
                if number in self._opened:  # opened while ``close`` ended the other sessions
                    self._opened[number].begin_close()
                raise Closed("the sessions were closed")
            return self._opened[number]

    def close(self, timeout: float = 5.0) -> bool:
        """Ends all sessions, as ``Session.close`` does, and returns whether nodes confirmed it within timeout. Raises ``Lost`` if a session was lost before."""
        until = time.monotonic() + values.seconds("timeout", timeout)
        if self._pid != os.getpid():
            return True
        self._closed = True
        opened = list(self._opened.values())
        lost = _lost(opened)
        ended = [(session, session.begin_close()) for session in opened]
        confirmed = all([session._calls.reactor.wait(event, until - time.monotonic()) for session, event in ended])
        if lost is not None:
            raise lost
        return confirmed

    def __enter__(self) -> CellSessions:
        return self

    def _end_block(self) -> None:
        self.close()


def _lost(sessions: Iterable[Any]) -> Optional[Lost]:
    return next((session.error for session in sessions if isinstance(session.error, Lost)), None)


class AsyncCells(_Map[AsyncClient]):
    """``Cells`` for asyncio, with the same options."""

    def __init__(self, file: Mapping[str, Any], **options: Any) -> None:
        super().__init__(file, AsyncClient, options)

    async def list(self, prefix: str = "") -> List[Semaphore]:
        """As in ``Cells``."""
        found = await asyncio.gather(*(client.list(prefix) for client in self._clients.values()))
        return sorted((s for number, part in zip(self._clients, found) for s in part if self._number(s.name) == number), key=lambda s: s.name)

    def sessions(self, **options: Any) -> AsyncCellSessions:
        """As in ``Cells``."""
        return AsyncCellSessions(self, options)

    async def close(self, timeout: float = 5.0) -> bool:
        """Closes all clients at the same time."""
        return all(await asyncio.gather(*(client.close(timeout) for client in self._clients.values())))

    async def __aenter__(self) -> AsyncCells:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()


class AsyncCellSessions:
    """A session in each cell that was used; an async context manager that closes them."""

    def __init__(self, cells: AsyncCells, options: Mapping[str, Any]) -> None:
        self._cells, self._options, self._closed = cells, options, False
        self._opening: Dict[int, asyncio.Task[AsyncSession]] = {}

    async def of(self, name: str) -> AsyncSession:
        """As in ``CellSessions``."""
        if self._closed:
            raise Closed("the sessions were closed")
        number = self._cells._number(name)
        task = self._opening.get(number)
        if task is None or task.done() and (task.cancelled() or task.exception() is not None):
            task = self._opening[number] = asyncio.ensure_future(self._open(number))
        return await asyncio.shield(task)  # if a caller is cancelled, other callers still get the session

    async def _open(self, number: int) -> AsyncSession:
        return await self._cells._clients[number].session(**self._options)

    async def close(self, timeout: float = 5.0) -> bool:
        """As in ``CellSessions``."""
        timeout, self._closed = values.seconds("timeout", timeout), True
        opened = [session for session in await asyncio.gather(*self._opening.values(), return_exceptions=True) if isinstance(session, AsyncSession)]
        lost = _lost(opened)
        confirmed = all(await asyncio.gather(*(session._begin_end().pause(timeout) for session in opened)))
        if lost is not None:
            raise lost
        return confirmed

    async def __aenter__(self) -> AsyncCellSessions:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            await self.close()
        except Lost:
            if error is None:
                raise
