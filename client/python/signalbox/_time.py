"""The clock of leases, and cancellation."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from ._errors import Canceled, Closed, SignalboxError


def _clock() -> Callable[[], float]:
    """Returns a clock that goes on while the machine sleeps, as cluster time does. ``time.monotonic`` of Linux and macOS stands still."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None and sys.platform == "darwin":
        clock = time.CLOCK_MONOTONIC
    try:
        time.clock_gettime(clock)  # type: ignore[arg-type]
    except (AttributeError, TypeError, OSError):
        return time.monotonic
    return lambda: time.clock_gettime(clock)  # type: ignore[arg-type]


#: The clock by which leases end, in seconds. Time-outs of requests and sockets are by ``time.monotonic``.
now: Callable[[], float] = _clock()


def monotonic_of(moment: float) -> float:
    """Converts a time of ``now`` into a time of ``time.monotonic``. The result is valid until the machine sleeps."""
    monotonic = time.monotonic()  # read first: a pause between the readings makes the moment earlier, not later
    return monotonic + moment - now()


class Unpicklable:
    """Forbids copies and pickles, because the cluster could not tell a copy in another process from the original."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"{type(self).__name__} can't be copied or pickled: make a client in each process")


class Cancel(Unpicklable):
    """Ends calls that wait, from another thread::

        cancel = Cancel()
        threading.Timer(5, cancel.cancel).start()
        client.lease("db", cancel=cancel)  # raises Canceled

    Safe for concurrent use. One Cancel may end any number of calls.
    """

    # There is no lock, because a child process could inherit it locked, and a finalizer could run in the thread that has locked it. The thread that
    # removes a callback from the dictionary calls it.

    def __init__(self) -> None:
        self._canceled = False
        self._callbacks: Dict[int, Callable[[], None]] = {}
        self._ids = itertools.count()

    def cancel(self) -> None:
        """Ends all calls that were given this object, and all later calls with it."""
        self._canceled = True
        while self._callbacks:
            try:
                callback = self._callbacks.popitem()[1]
            except KeyError:  # another thread has taken the last callback
                return
            callback()

    @property
    def canceled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._canceled

    def _error(self) -> SignalboxError:
        """Returns the error of a call that this object has ended."""
        return Canceled("the call was canceled")

    def wait(self, seconds: Optional[float]) -> bool:
        """Blocks for this many seconds, or until ``cancel`` is called, and returns whether ``cancel`` was called."""
        if self._canceled or seconds is not None and seconds <= 0:
            return self._canceled
        event = threading.Event()
        with self.notify(event.set):
            event.wait(seconds if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        return self._canceled

    async def pause(self, seconds: Optional[float]) -> bool:
        """Does in a coroutine what ``wait`` does in a thread."""
        if self._canceled or seconds is not None and seconds <= 0:
            return self._canceled
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        timer = None if seconds is None else loop.call_later(min(seconds, 86400.0), wake)  # a longer pause ends early, and its caller repeats it
        try:
            with self.notify(in_loop(loop, wake)):
                await future
        finally:
            if timer is not None:
                timer.cancel()
        return self._canceled

    @contextmanager
    def notify(self, callback: Callable[[], None]) -> Iterator[None]:
        """Makes ``cancel`` call the function, within a with-block. If ``cancel`` was called before, it calls the function at once."""
        undo = self.add(callback)
        try:
            yield
        finally:
            undo()

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Makes ``cancel`` call the function, or calls it at once if ``cancel`` was called before. Returns a function that undoes this."""
        number = next(self._ids)
        self._callbacks[number] = callback
        if self._canceled and self._callbacks.pop(number, None) is not None:
            callback()
        return lambda: void(self._callbacks.pop(number, None))


def void(_: object) -> None:
    """Ignores its argument and returns None."""


def in_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> Callable[[], None]:
    """Returns a function that runs the given function in a loop. Any thread may call it. It has no effect once the loop is closed."""

    def call() -> None:
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass

    return call


class Closing(Cancel):
    """The close of a client. Its calls raise ``Closed``."""

    def _error(self) -> SignalboxError:
        return Closed("the client was closed")


class _Either(Cancel):
    """A Cancel that also ends with its parents. The error is the error of the first parent that has ended, because it says why the call ended."""

    def __init__(self, parents: Tuple[Cancel, ...]) -> None:
        super().__init__()
        self._parents = parents

    def _error(self) -> SignalboxError:
        return next((parent._error() for parent in self._parents if parent.canceled), super()._error())


@contextmanager
def either(*parents: Optional[Cancel]) -> Iterator[Cancel]:
    """Makes a Cancel that also ends with its parents."""
    both = _Either(tuple(parent for parent in parents if parent is not None))
    undo = [parent.add(both.cancel) for parent in both._parents]
    try:
        yield both
    finally:
        for function in undo:
            function()
