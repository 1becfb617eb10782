"""Deprecate a name: it works on for a minor version, and says once a process what to use instead."""

from __future__ import annotations

from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar, cast
from warnings import warn

if TYPE_CHECKING:
    from collections.abc import Callable

Named = TypeVar("Named", bound="Callable[..., Any]")

__all__ = ["deprecated", "warn_deprecated"]

_told: set[str] = set()
"""The names that a warning of this process was about."""


def deprecated(instead: str, *, since: str, ends: str) -> Callable[[Named], Named]:
    """Mark a function, a method or a class as deprecated: its first call gives a `DeprecationWarning` with its place.

    `instead` is what to use, as it is written. `since` is the version of the first warning, `ends` the one without the
    name; a minor version lies between them.
    """

    def mark(named: Named) -> Named:
        name = f"{named.__module__}.{named.__qualname__}"
        if isinstance(named, type):
            named.__init__ = wrap(named.__init__, name)  # type: ignore[misc]
            return named
        return cast("Named", wrap(named, name))

    def wrap(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            warn_deprecated(name, instead, since=since, ends=ends)
            return function(*args, **kwargs)

        @wraps(function)
        async def call_awaited(*args: Any, **kwargs: Any) -> Any:
            warn_deprecated(name, instead, since=since, ends=ends)
            return await function(*args, **kwargs)

        return call_awaited if iscoroutinefunction(function) else call

    return mark


def warn_deprecated(name: str, instead: str, *, since: str, ends: str) -> None:
    """Warn about a name, once a process, at the place of the caller's caller: for parameters, keys and attributes.

    `name` is the deprecated one in full; the other parameters are those of `deprecated`.
    """
    if name not in _told:
        _told.add(name)
        warn(
            f"{name} is deprecated since {since}, and ends with {ends}. Use {instead}", DeprecationWarning, stacklevel=3
        )
