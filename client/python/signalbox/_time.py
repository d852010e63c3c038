"""Cancellation, and callbacks at moments of the monotonic clock."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, List, Optional, Tuple


class Cancel:
    """Ends calls that wait, from another thread::

        cancel = Cancel()
        threading.Timer(5, cancel.cancel).start()
        client.lease("db", cancel=cancel)  # raises Canceled

    Safe for concurrent use; one may end any number of calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._callbacks: Dict[int, Callable[[], None]] = {}
        self._ids = itertools.count()

    def cancel(self) -> None:
        """Ends all calls that were given this object, and all later ones."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = list(self._callbacks.values()), {}
        for callback in callbacks:
            callback()

    @property
    def canceled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._event.is_set()

    def wait(self, seconds: Optional[float]) -> bool:
        """Blocks for that long, or until ``cancel`` is called, and returns whether it was."""
        if seconds is not None and seconds <= 0:
            return self._event.is_set()
        return self._event.wait(seconds if seconds is None else min(seconds, threading.TIMEOUT_MAX))

    @contextmanager
    def notify(self, callback: Callable[[], None]) -> Iterator[None]:
        """Calls back once ``cancel`` is called within the block, at once if it was called before."""
        undo = self.add(callback)
        try:
            yield
        finally:
            undo()

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back once ``cancel`` is called, at once if it was, and returns the function that undoes it."""
        with self._lock:
            late, number = self._event.is_set(), next(self._ids)
            if not late:
                self._callbacks[number] = callback
        if late:
            callback()

        def undo() -> None:
            with self._lock:
                self._callbacks.pop(number, None)

        return undo


@contextmanager
def either(*parents: Optional[Cancel]) -> Iterator[Cancel]:
    """Makes a Cancel that also ends with its parents."""
    both = Cancel()
    undo = [parent.add(both.cancel) for parent in parents if parent is not None]
    try:
        yield both
    finally:
        for each in undo:
            each()


class Alarm:
    """Calls functions back at moments of the monotonic clock, in a thread of its own that ends when there are none.

    The functions must not block.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: List[Tuple[float, int, Callable[[], None]]] = []
        self._undone: Dict[int, bool] = {}
        self._ids = itertools.count()
        self._running = False

    def at(self, moment: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back at a moment, and returns the function that undoes it."""
        with self._changed:
            number = next(self._ids)
            self._undone[number] = False
            heapq.heappush(self._heap, (moment, number, callback))
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="signalbox-alarm", daemon=True).start()
            elif self._heap[0][1] == number:
                self._changed.notify()

        def undo() -> None:
            with self._changed:
                if number in self._undone:
                    self._undone[number] = True

        return undo

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._heap and self._undone[self._heap[0][1]]:
                    del self._undone[heapq.heappop(self._heap)[1]]
                if not self._heap:
                    self._changed.wait(1.0)  # a call after the other needs no new thread
                    if not self._heap:
                        self._running = False
                        return
                    continue
                moment, number, callback = self._heap[0]
                left = moment - time.monotonic()
                if left > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                    continue
                heapq.heappop(self._heap)
                del self._undone[number]
            callback()
