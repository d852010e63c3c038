"""The client for asyncio. Every call runs in a thread, and leases are renewed in threads, so that an event loop that stands still loses none.

A task that is cancelled while it waits withdraws its request; permits that were granted at that very moment are given back.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from types import TracebackType
from typing import Any, Awaitable, Callable, Generator, Generic, List, Optional, Type, TypeVar, cast

from ._client import Client
from ._errors import Lost, SignalboxError
from ._session import Lease, Session, Wants
from ._time import Cancel

T = TypeVar("T")
R = TypeVar("R", bound="_Held")
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


async def _in_thread(call: Callable[[], T], cancel: Optional[Cancel] = None, undo: Optional[Callable[[T], Any]] = None) -> T:
    """Runs a call in a thread of its own: a pool could be full of calls that wait for a release which then found no thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    left = threading.Event()  # the task no longer waits
    lock = threading.Lock()

    def settle(result: Optional[T], error: Optional[BaseException]) -> None:
        if future.done():  # cancelled a moment ago
            give_back(result, error)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def give_back(result: Optional[T], error: Optional[BaseException]) -> None:
        if undo is not None and error is None:
            call = functools.partial(undo, cast(T, result))
            threading.Thread(target=_quietly, args=(call,), name="signalbox-undo", daemon=True).start()

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as e:
            error = e
        with lock:
            if not left.is_set():
                try:
                    loop.call_soon_threadsafe(settle, result, error)
                    return
                except RuntimeError:  # the loop is closed
                    pass
        give_back(result, error)

    threading.Thread(target=run, name="signalbox-call", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        with lock:
            left.set()
        if cancel is not None:
            cancel.cancel()
        # A result that has arrived is undone here, a later one by the thread.
        if future.done() and not future.cancelled():
            give_back(future.result() if future.exception() is None else None, future.exception())
        raise


def _quietly(call: Callable[[], Any]) -> None:
    try:
        call()
    except (SignalboxError, OSError):
        pass


class _Held:
    """A lease or session, for asyncio."""

    def __init__(self, held: Any) -> None:
        self._held = held
        self.lost: threading.Event = held.lost  #: set once it is over; see ``wait_lost``

    @property
    def error(self) -> Optional[SignalboxError]:
        """None while it lives, and then the reason for its end: ``Lost`` or ``Closed``."""
        error: Optional[SignalboxError] = self._held.error
        return error

    @property
    def deadline(self) -> float:
        """Until when it lives for certain, by ``time.monotonic()``, if no further renewal succeeds."""
        return float(self._held.deadline)

    def check(self) -> None:
        """Raises the reason if it is over."""
        self._held.check()

    async def wait_lost(self) -> SignalboxError:
        """Waits until it is over, and returns the reason."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(over.set)
            except RuntimeError:  # the loop is closed
                pass

        undo = self._held._over.add(wake)
        try:
            await over.wait()
        finally:
            undo()
        error = self.error
        assert error is not None
        return error

    def _end_now(self) -> bool:
        return bool(self._held.release() if isinstance(self._held, Lease) else self._held.close())

    async def _end(self) -> bool:
        return await _in_thread(self._end_now)


class AsyncLease(_Held):
    """Permits held by a session, see ``Lease``; an async context manager that releases them."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self.semaphore, self.session, self.count, self.token = lease.semaphore, lease.session, lease.count, lease.token

    async def release(self) -> bool:
        """As that of ``Lease``."""
        return await self._end()


class AsyncSession(_Held):
    """A session, see ``Session``; an async context manager that closes it."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.id = session.id

    def acquire(self, name: str, **options: Any) -> _Pending[AsyncLease]:
        """As that of ``Session``, to be awaited or used in ``async with``."""
        cancel = Cancel()
        return _Pending(lambda: AsyncLease(self._held.acquire(name, cancel=cancel, **options)), cancel)

    async def acquire_all(self, wants: Wants, *, wait: Optional[float] = None) -> List[AsyncLease]:
        """As that of ``Session``."""
        cancel = Cancel()

        def call() -> List[Lease]:
            leases: List[Lease] = self._held.acquire_all(wants, wait=wait, cancel=cancel)
            return leases

        def undo(got: List[Lease]) -> None:
            for lease in got:
                lease.release()

        leases = await _in_thread(call, cancel, undo)
        return [AsyncLease(lease) for lease in leases]

    def acquire_any(self, wants: Wants, *, wait: Optional[float] = None) -> _Pending[AsyncLease]:
        """As that of ``Session``, to be awaited or used in ``async with``."""
        cancel = Cancel()
        return _Pending(lambda: AsyncLease(self._held.acquire_any(wants, wait=wait, cancel=cancel)), cancel)

    async def close(self) -> bool:
        """As that of ``Session``."""
        return await self._end()


class _Pending(Generic[R]):
    """A lease or session to come: awaited it is had, and in ``async with`` it is ended too."""

    def __init__(self, call: Callable[[], R], cancel: Cancel) -> None:
        self._call, self._cancel = call, cancel
        self._got: Optional[R] = None

    def __await__(self) -> Generator[Any, None, R]:
        def undo(got: R) -> None:
            got._end_now()

        return _in_thread(self._call, self._cancel, undo).__await__()

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


class AsyncClient:
    """``Client`` for asyncio, with the same options; its plain calls (``up``, ``down``, ``put``, ``get`` …) are coroutines of the same names.

    ::

        async with AsyncClient(["http://n1:8701"]) as client:
            async with client.lease("db", wait=30) as lease:
                ...
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.sync = Client(*args, **options)  #: the client that it uses

    def lease(self, name: str, **options: Any) -> _Pending[AsyncLease]:
        """As that of ``Client``, to be awaited or used in ``async with``."""
        cancel = Cancel()
        return _Pending(lambda: AsyncLease(self.sync.lease(name, cancel=cancel, **options)), cancel)

    def session(self, **options: Any) -> _Pending[AsyncSession]:
        """As that of ``Client``, to be awaited or used in ``async with``."""
        return _Pending(lambda: AsyncSession(self.sync.session(**options)), Cancel())

    async def down(self, name: str, count: int = 1, **options: Any) -> int:
        """As that of ``Client``; permits that are granted to a task that was cancelled go back by an ``up``."""
        cancel = Cancel()
        return await _in_thread(lambda: self.sync.down(name, count, cancel=cancel, **options), cancel, lambda taken: self.sync.up(name, taken))

    def limited(self, name: str, **options: Any) -> Callable[[F], F]:
        """As that of ``Client``, for coroutine functions."""

        def decorate(function: F) -> F:
            @functools.wraps(function)
            async def limited(*args: Any, **kwargs: Any) -> Any:
                async with self.lease(name, **options):
                    return await function(*args, **kwargs)

            return limited  # type: ignore[return-value]

        return decorate

    async def list(self, prefix: str = "") -> Any:
        """All semaphores whose names begin with the prefix."""
        return await _in_thread(lambda: list(self.sync.list(prefix)))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in ("create", "put", "get", "delete", "up", "set_value", "revoke", "revoke_session", "end_session", "close"):
            raise AttributeError(name)
        method = getattr(self.sync, name)

        @functools.wraps(method)
        async def call(*args: Any, **options: Any) -> Any:
            return await _in_thread(lambda: method(*args, **options))

        return call

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()
