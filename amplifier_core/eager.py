"""Run a coroutine up to its first wait at once: one that never waits needs no timer.

A timer costs as much as a small mount (4 µs on CPython 3.11), and cannot end code that does not wait anyway.
"""

from __future__ import annotations

from contextlib import suppress
from inspect import isawaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

T = TypeVar("T")


class Waiting(Generic[T]):
    """A coroutine that waits; to await it goes on, in the same task."""

    __slots__ = ("_awaited", "_coroutine", "is_given_up")

    is_given_up: Callable[[], bool]
    """Asked when something is raised where it waits: True closes the coroutine, which has ignored a cancellation."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited
        self.is_given_up = bool  # it returns False

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            while True:
                try:
                    sent = yield self._awaited
                except BaseException as error:
                    if self.is_given_up():
                        with suppress(RuntimeError):  # it waits again even so, and nobody goes on with it
                            self._coroutine.close()
                        raise
                    self._awaited = self._coroutine.throw(error)
                else:
                    self._awaited = self._coroutine.send(sent)
        except StopIteration as end:
            result: T = end.value
            return result


def start(work: Awaitable[T]) -> Waiting[T] | T:
    """Run `work` in the current task; return its result, or where it waits. Raises what it raises."""
    coroutine: Coroutine[Any, Any, T] = work if type(work) is CoroutineType else _await(work)
    try:
        return Waiting(coroutine, coroutine.send(None))
    except StopIteration as end:
        result: T = end.value
        return result


async def _await(work: Awaitable[T]) -> T:
    return await work


def is_awaitable(value: Any) -> bool:
    """Do as `inspect.isawaitable`, at once for the usual coroutine."""
    return type(value) is CoroutineType or isawaitable(value)
