"""State the rules of a contract, and report a broken rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    Check = Callable[[Any], Awaitable[None]]


def require(kept: bool, rule: str) -> None:
    """Raise `AssertionError` with the rule when it is not kept."""
    if not kept:
        raise AssertionError(rule)


async def refuses(attempt: Awaitable[object], error: type[Exception], what: str) -> None:
    """Raise `AssertionError` unless awaiting `attempt` raises `error`."""
    try:
        await attempt
    except error:
        return
    except Exception as other:
        raise AssertionError(f"{what} must raise {error.__name__}, not {type(other).__name__}: {other}") from other
    raise AssertionError(f"{what} must raise {error.__name__}")


def collect_checks(names: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return the checks of a module, in the order of their numbers."""
    return tuple(names[name] for name in sorted(names) if name[:6] == "check_" and name[6].isdigit())
