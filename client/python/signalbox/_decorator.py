"""Decorators that hold a lease for the whole body of a function."""

from __future__ import annotations

import functools
import inspect
from typing import Any, AsyncContextManager, Callable, ContextManager, Optional, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def limited(lease: Optional[Callable[[], ContextManager[Any]]], lease_async: Optional[Callable[[], AsyncContextManager[Any]]]) -> Callable[[F], F]:
    """Returns the decorator of ``Client`` (lease) or ``AsyncClient`` (lease_async). It raises TypeError for functions whose body can't run under the lease."""

    def decorate(function: F) -> F:
        if not callable(function) or isinstance(function, (type, staticmethod, classmethod)):
            raise TypeError(f"limited decorates functions, not {function!r}: put it below @staticmethod and @classmethod, and on the methods of a class")
        if _matches(inspect.isasyncgenfunction, function):
            raise TypeError(f"{function!r} is an asynchronous generator, for which no lease can be held: use `async with client.lease(…)` in its body")
        coroutine, generator = _matches(inspect.iscoroutinefunction, function), _matches(inspect.isgeneratorfunction, function)
        if lease is None and not coroutine:
            raise TypeError(f"{function!r} is no coroutine function: use the limited of Client")
        if lease_async is None and coroutine:
            raise TypeError(f"{function!r} is a coroutine function: use the limited of AsyncClient")

        def call(*args: Any, **kwargs: Any) -> Any:
            assert lease is not None
            with lease():
                return _checked(function(*args, **kwargs))

        def generate(*args: Any, **kwargs: Any) -> Any:
            assert lease is not None
            with lease():
                return (yield from function(*args, **kwargs))

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            assert lease_async is not None
            async with lease_async():
                return _checked(await function(*args, **kwargs))

        wrapper: Any = call_async if coroutine else generate if generator else call
        return functools.wraps(function)(wrapper)  # type: ignore[no-any-return]

    return decorate


def _matches(kind: Callable[[Any], bool], function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or kind(getattr(type(function), "__call__", None))


def _checked(result: Any) -> Any:
    """Raises TypeError for a coroutine or generator as the result, because its body would run after the lease has ended."""
    body = getattr(result, "gen", result)  # a function under contextlib.contextmanager returns an object that has the generator
    if inspect.isawaitable(result) or inspect.isgenerator(body) or inspect.isasyncgen(body):
        if hasattr(body, "close"):
            body.close()
        raise TypeError(f"the function has returned {result!r}, whose body would run without the lease")
    return result
