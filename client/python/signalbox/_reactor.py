"""One thread for each client, with an event loop in which all its calls and renewals run.

Callers block in their own threads, or await in their own loops, so that leases and asyncio waits need no further threads. If the thread can't start, a call
fails before it has sent a request. The thread is a daemon, ends after a second without work, and starts again with the next call.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Callable, Coroutine, Dict, Generic, Optional, TypeVar

from ._errors import SignalboxError
from ._time import Cancel, in_loop

T = TypeVar("T")

_LINGER = 1.0  # seconds without a task, after which the thread ends
GRACE = 2.0  #: seconds that a call may use, after its deadline or cancellation, to withdraw its request


class _Loop(asyncio.SelectorEventLoop):
    """An event loop on poll, not epoll. After a fork the child would share the parent's epoll instance, and could change which sockets the parent polls."""

    def __init__(self) -> None:
        super().__init__(getattr(selectors, "PollSelector", selectors.SelectSelector)())
        self.pid = os.getpid()

    def is_running(self) -> bool:
        return super().is_running() and self.pid == os.getpid()  # a forked child inherits the loop without its thread


@dataclass
class Work(Generic[T]):
    """A call that has not begun."""

    start: Callable[[], Coroutine[Any, Any, T]]
    cancel: Cancel  #: makes the call withdraw its request and end
    undo: Optional[Callable[[T], Any]] = None  #: starts to undo a result that no caller waits for any more; may run in any thread
    renewed: bool = True  #: the result is a lease or session that a thread must renew


class Reactor:
    """Runs coroutines in its thread. All methods are safe for any thread, except ``spawn``, which only the reactor's thread may call."""

    def __init__(self, on_close: Callable[[], None]) -> None:
        self._on_close = on_close  # closes the sockets of the loop
        self._lock = threading.RLock()  # re-entrant, because a finalizer may release a lease in a thread that holds this lock
        self._loop: Optional[_Loop] = None
        self._thread: Optional[threading.Thread] = None
        self._work: Dict[Coroutine[Any, Any, Any], Optional[asyncio.Task[Any]]] = {}  # unfinished work, with its task once it has started; guarded by the lock
        self._retired = False  # close the loop when the thread ends
        self._lent = False  # a caller runs the loop in its own thread, for one call

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts coroutines in the order of the calls. Raises SignalboxError, before the coroutine has run, if the thread can't start."""
        future: Future[T] = Future()

        def start() -> None:
            self._start(work, future)

        try:
            if sys.is_finalizing():
                raise RuntimeError("the interpreter is shutting down")
            with self._lock:
                if self._lent:
                    raise RuntimeError("there is no thread to be had")
                loop = self._ensure()
                self._work[work] = None
                loop.call_soon_threadsafe(start)
        except RuntimeError as e:
            work.close()
            raise SignalboxError(f"the client can't start its thread, nothing was sent: {e}") from e
        return future

    def spawn(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine from a coroutine of this loop."""
        future: Future[T] = Future()
        self._start(work, future)
        return future

    def _start(self, work: Coroutine[Any, Any, T], future: Future[T]) -> None:
        assert self._loop is not None
        task = self._work[work] = self._loop.create_task(work)

        def done(task: asyncio.Task[T]) -> None:
            error = task.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())
            with self._lock:
                del self._work[work]
                if not self._work and self._loop is not None:
                    self._loop.call_later(0.0 if self._retired or self._lent else _LINGER, self._rest)

        task.add_done_callback(done)

    def _ensure(self) -> _Loop:
        """Returns the loop, and starts its thread if necessary. The caller has the lock."""
        if self._loop is None:
            self._loop = _Loop()
        if self._thread is None:
            thread = threading.Thread(target=self._run, args=(self._loop,), name="signalbox", daemon=True)
            if self._thread is None:  # a finalizer may have started a thread meanwhile
                self._thread = thread
                try:
                    thread.start()
                except RuntimeError:
                    self._thread = None
                    raise
        return self._loop

    def _run(self, loop: _Loop) -> None:
        while loop.is_running():  # the previous thread is just leaving the loop
            time.sleep(0.001)
        loop.run_forever()
        with self._lock:
            if self._retired and self._thread is None and self._loop is loop:
                self._close()

    def _rest(self) -> None:
        """Lets the thread end, if there is no work."""
        with self._lock:
            if not self._work and self._loop is not None and self._thread is not None and self._loop.is_running():
                self._thread = None
                self._loop.stop()

    def retire(self) -> None:
        """Closes the loop, and all connections, once there is no work."""
        with self._lock:
            self._retired = True
            if self._thread is not None and self._loop is not None:
                in_loop(self._loop, self._rest)()
            elif self._loop is not None and not self._loop.is_running():
                self._close()

    def exit(self, seconds: float) -> None:
        """Does what ``retire`` does, and waits up to timeout seconds until the thread has ended."""
        thread = self._thread
        self.retire()
        if thread is not None and not self.inside():
            thread.join(max(0.0, seconds))

    def _close(self) -> None:
        loop, self._loop = self._loop, None
        self._on_close()
        if loop is not None:
            loop.close()

    def abandon(self) -> None:
        """Drops all work in a child process, because a fork does not copy the thread that ran it."""
        self._lock = threading.RLock()
        left, self._work, self._thread = list(self._work.items()), {}, None
        self._lent = False
        self._close()
        for work, task in left:
            if task is not None:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            try:
                work.close()
            except Exception:  # the coroutine was running during the fork, or refused to close
                pass

    def inside(self) -> bool:
        """Whether the caller runs in the reactor's thread, where a wait for the reactor would never end. For example, a finalizer may run there."""
        return self._thread is threading.current_thread()

    def wait(self, event: Cancel, seconds: float) -> bool:
        """Blocks until the event has come, and returns whether it came. It does not block if the thread can't cause the event any more."""
        return event.canceled if sys.is_finalizing() or self.inside() else event.wait(seconds)

    def run(self, work: Work[T]) -> T:
        """Blocks until the call ends. An exception in the caller's thread, for example by Ctrl-C, cancels the call, which may then withdraw its request."""
        if self.inside():
            raise RuntimeError("a finalizer that happens to run in the client's own thread can't wait for a call")
        try:
            future = self.submit(work.start())
        except SignalboxError:
            if work.renewed or sys.is_finalizing() or asyncio._get_running_loop() is not None:
                raise
            future = self._run_here(work)
        try:
            return future.result()
        except BaseException as e:
            if not future.done() or future.exception() is not e:
                over = Cancel()
                future.add_done_callback(lambda _: over.cancel())
                _leave(work, future)
                over.wait(GRACE)
            raise
        finally:
            del future  # breaks the reference cycle of future, error, traceback and this frame

    def _run_here(self, work: Work[T]) -> Future[T]:
        """Runs a call in the caller's thread, because functions of atexit can't start threads."""
        with self._lock:
            if self._thread is not None:  # another caller has started a thread, or runs the loop in its own thread
                return self.submit(work.start())
            loop = self._loop = self._loop or _Loop()
            self._thread, self._lent = threading.current_thread(), True
        future: Future[T] = Future()
        try:
            self._start(work.start(), future)
            self._run(loop)
        finally:
            self._thread, self._lent = None, False
        return future

    async def run_async(self, work: Work[T]) -> T:
        """Awaits the end of a call from another loop. Unlike ``run``, it does not wait until a cancelled call has withdrawn its request."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        future = self.submit(work.start())
        wake = in_loop(loop, lambda: None if over.done() else over.set_result(None))
        future.add_done_callback(lambda _: wake())
        try:
            await over
        except BaseException:
            _leave(work, future)
            raise
        try:
            return future.result()
        finally:
            del future


def _leave(work: Work[T], future: Future[T]) -> None:
    """Cancels a call whose caller has stopped waiting, and undoes its result."""

    def give_back(future: Future[T]) -> None:
        if work.undo is not None and future.exception() is None:
            try:
                work.undo(future.result())
            except SignalboxError:  # the interpreter is shutting down
                pass

    work.cancel.cancel()
    future.add_done_callback(give_back)
