"""Find the module of a session whose code raised an error, for the person who is to mend that module."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .errors import AmplifierError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

_FOR_PEOPLE = (ValueError, RuntimeError, OSError)
"""Errors of a loop whose texts say what is wrong with a session, and not with the loop."""


def note_origin(error: Exception, mounted: Mapping[str, Any]) -> None:
    """Keep with an error which module of a session raised it, and `FILE:LINE` in its code; see `find_origin`.

    `mounted` has the modules of the session by mount point. The last one in the calls counts; a library that it calls
    is no part of it.
    """
    if isinstance(error, AmplifierError):
        return
    modules = [(f"provider '{name}'", provider) for name, provider in mounted["providers"].items()]
    modules += [("context manager", mounted["context"]), ("orchestrator", mounted["orchestrator"])]
    for frame, line in _list_calls(error):
        title = next((title for title, module in modules if _is_of(frame, module)), "")
        if title == "orchestrator" and (isinstance(error, _FOR_PEOPLE) or type(error) is LookupError):
            return
        if title:
            with suppress(AttributeError):  # a class with slots
                error.amplifier_origin = (title, _name_place(frame, line))  # type: ignore[attr-defined]
            return


def find_origin(error: BaseException) -> tuple[str, str]:
    """Return the module that raised an error, such as `provider 'x'`, and where in its code; two `""` if unknown."""
    origin: tuple[str, str] = getattr(error, "amplifier_origin", ("", ""))
    return origin


def describe_at(error: BaseException, handler: Any) -> str:
    """Return the class and the text of an error, and `(FILE:LINE)`, where it left the code of the handler's package."""
    place = next((_name_place(frame, line) for frame, line in _list_calls(error) if _is_of(frame, handler)), "")
    return f"{type(error).__name__}: {error}" + (f" ({place})" if place else "")


def _list_calls(error: BaseException) -> list[tuple[FrameType, int]]:
    """Return the calls that an error came through, the innermost first."""
    from traceback import walk_tb

    return list(walk_tb(error.__traceback__))[::-1]


def _name_place(frame: FrameType, line: int) -> str:
    return f"{frame.f_code.co_filename}:{line}"


def _is_of(frame: FrameType, module: Any) -> bool:
    """Return whether a call is one of a module's methods, or in its package."""
    code = frame.f_code
    own = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    package, _, _ = str(getattr(module, "__module__", "")).partition(".")
    return own is module or str(frame.f_globals.get("__name__", "")).partition(".")[0] == package
