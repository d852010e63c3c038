"""The client for asyncio. Each client has a thread for its calls and renewals, so that leases are renewed even while the event loop is blocked.

A task that is cancelled while it waits withdraws its request. If permits were granted at that moment, they are given back.
"""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType
from typing import Any, Awaitable, Callable, Generator, Generic, List, Optional, Type, TypeVar

from . import _values as values
from ._call import Call, Reply
from ._client import Client, Group, LostHold, Operations, Semaphore
from ._decorator import limited
from ._errors import Lost, SignalboxError
from ._reactor import Reactor, Work
from ._session import Lease, Session
from ._time import Cancel, Unpicklable
from ._values import Wants

T = TypeVar("T")
R = TypeVar("R", bound="_Held")
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class _Held(Unpicklable):
    """A lease or session, for asyncio."""

    def __init__(self, held: Any) -> None:
        self._held = held
        self.lost: threading.Event = held.lost  #: set once the lease or session is over; see ``wait_lost``

    @property
    def error(self) -> Optional[SignalboxError]:
        """None while the lease or session lives, and then the reason for its end: ``Lost`` or ``Closed``."""
        error: Optional[SignalboxError] = self._held.error
        return error

    @property
    def deadline(self) -> float:
        """See ``Lease.deadline``."""
        return float(self._held.deadline)

    def check(self) -> None:
        """Raises ``error`` if the lease or session is over."""
        self._held.check()

    async def wait_lost(self) -> SignalboxError:
        """Waits until the lease or session is over, and returns ``error``."""
        while self.error is None:
            await self._held._over.pause(None)
        return self.error

    async def _end(self, timeout: float = 5.0) -> bool:
        timeout, lost = values.seconds("timeout", timeout), self.error
        if isinstance(lost, Lost):
            raise lost
        return bool(await self._begin_end().pause(timeout))

    def _begin_end(self) -> Cancel:
        done: Cancel = self._held._begin_release() if isinstance(self._held, Lease) else self._held.begin_close()
        return done


class AsyncLease(_Held):
    """Permits held by a session, see ``Lease``; an async context manager that releases them."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self.semaphore, self.group, self.session, self.count, self.token = lease.semaphore, lease.group, lease.session, lease.count, lease.token
        self.slots, self.spent = lease.slots, lease.spent

    async def settle(self, count: int) -> bool:
        """As in ``Lease``."""
        settled = bool(await self._held._session._calls.reactor.run_async(self._held._to_settle(count)))
        self.count = self._held.count
        return settled

    async def release(self, timeout: float = 5.0) -> bool:
        """As in ``Lease``."""
        return await self._end(timeout)


class AsyncSession(_Held):
    """A session, see ``Session``; an async context manager that closes it."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.id = session.id

    def acquire(self, name: str, **options: Any) -> _Pending[AsyncLease]:
        """As in ``Session``, to be awaited or used in ``async with``."""
        return _Pending(self._reactor, self._held._to_acquire(name, **options), AsyncLease)

    async def acquire_all(self, wants: Wants, **options: Any) -> List[AsyncLease]:
        """As in ``Session``."""
        return [AsyncLease(lease) for lease in await self._reactor.run_async(self._held._to_acquire_all(wants, **options))]

    def acquire_any(self, wants: Wants, **options: Any) -> _Pending[AsyncLease]:
        """As in ``Session``, to be awaited or used in ``async with``."""
        return _Pending(self._reactor, self._held._to_acquire_any(wants, **options), AsyncLease)

    @property
    def _reactor(self) -> Reactor:
        reactor: Reactor = self._held._calls.reactor
        return reactor

    async def close(self, timeout: float = 5.0) -> bool:
        """As in ``Session``."""
        return await self._end(timeout)


class _Pending(Generic[R]):
    """A lease or session that is not granted yet: ``await`` returns it, and ``async with`` also ends it."""

    def __init__(self, reactor: Reactor, work: Work[Any], kind: Callable[[Any], R]) -> None:
        self._reactor, self._work, self._kind = reactor, work, kind
        self._got: Optional[R] = None

    def __await__(self) -> Generator[Any, None, R]:
        return self._kind((yield from self._reactor.run_async(self._work).__await__()))

    async def __aenter__(self) -> R:
        self._got = await self
        return self._got

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        assert self._got is not None
        try:
            await self._got._end()
        except Lost:
            if error is None:
                raise


class _Operations(Operations):
    """The operations of ``Operations``, each returning an awaitable."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def _send(self, call: Call, decode: Callable[[Reply], Any]) -> Any:
        return self._client._calls.reactor.run_async(self._client._to_send(call, decode))


async def _all(read: Callable[[str], Any]) -> List[Any]:
    found: List[Any] = []
    cursor: Optional[str] = ""
    while cursor is not None:
        page, cursor = await read(cursor)
        found += page
    return found


class AsyncClient(Unpicklable):
    """``Client`` for asyncio, with the same options; its plain calls (``up``, ``down``, ``put``, ``get`` …) are coroutines of the same names.

    ::

        async with AsyncClient(["http://n1:8701"]) as client:
            async with client.lease("db", wait=30) as lease:
                ...
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.sync = Client(*args, **options)  #: the blocking client that makes the calls
        self._operations = _Operations(self.sync)

    def _run(self, work: Work[T]) -> Awaitable[T]:
        return self.sync._calls.reactor.run_async(work)

    def lease(self, name: str, **options: Any) -> _Pending[AsyncLease]:
        """As in ``Client``, to be awaited or used in ``async with``."""
        return _Pending(self.sync._calls.reactor, self.sync._to_lease(name, **options), AsyncLease)

    def session(self, **options: Any) -> _Pending[AsyncSession]:
        """As in ``Client``, to be awaited or used in ``async with``."""
        return _Pending(self.sync._calls.reactor, self.sync._to_open(**options), AsyncSession)

    async def down(self, name: str, count: int = 1, **options: Any) -> int:
        """As in ``Client``. Permits that are granted to a cancelled task are given back with ``up``, or come back by their window."""
        return await self._run(self.sync._to_down(name, count, **options))

    def limited(self, name: str, **options: Any) -> Callable[[F], F]:
        """As in ``Client``, for coroutine functions."""
        return limited(None, lambda: self.lease(name, **options))

    async def list(self, prefix: str = "") -> List[Semaphore]:
        """All semaphores whose names begin with the prefix."""
        return await _all(lambda cursor: self._operations.page(prefix, cursor))

    async def groups(self, name: str, *, waiting: bool = False) -> List[Group]:
        """All groups, as in ``Client``."""
        return await _all(lambda cursor: self._operations.group_page(name, cursor, waiting=waiting))

    async def lost_holds(self, name: str) -> List[LostHold]:
        """All lost holds, as in ``Client``."""
        return await _all(lambda cursor: self._operations.lost_page(name, cursor))

    async def close(self, timeout: float = 5.0) -> bool:
        """See ``Client.close``."""
        timeout = values.seconds("timeout", timeout)
        self.sync._closing.cancel()
        until = time.monotonic() + timeout
        confirmed = [await event.pause(until - time.monotonic()) for event in self.sync._calls.begin_end()]
        self.sync._calls.retire()
        return all(confirmed)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in (
            "create", "put", "pause", "resume", "get", "page", "delete", "up", "set_value", "group", "group_page", "set_group_limit", "clear_group_limit",
            "lost_page", "free_lost", "revoke", "revoke_session", "end_session",
        ):  # fmt: skip
            raise AttributeError(name)
        method: Callable[..., Awaitable[Any]] = getattr(self._operations, name)
        return method

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()
