"""Describe an error that the code of a module raised, for the person who is to mend that code."""

from __future__ import annotations

import sys
from contextlib import suppress
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import AmplifierError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

E = TypeVar("E", bound=Exception)

_NOT_OF_MODULES = frozenset({*sys.stdlib_module_names, "amplifier_core", "amplifier_foundation", "pluggy"})
_FOR_PEOPLE = (ValueError, RuntimeError, OSError)
"""Errors of a loop whose texts say what is wrong with a session, and not with the loop."""


def describe_raised(error: BaseException, module: Any = None) -> str:
    """Return an error in one line: its class, its text, and `(FILE:LINE)`, as `find_place` finds it.

    An `AmplifierError` is its own text: it was written for people.
    """
    if isinstance(error, AmplifierError) and is_readable(error) and str(error):
        return str(error)
    return describe_at(error, find_place(error, module))


def describe_at(error: BaseException, place: str) -> str:
    """Return the class and the text of an error, and its place, if it has one, in parentheses."""
    name = type(error).__name__
    said = str(error) if is_readable(error) else "its text cannot be read"
    if isinstance(error, SyntaxError) and place:
        said = error.msg  # its text ends with the place, but without the folder
    text = f"{name}: {said}" if said else name
    return f"{text} ({place})" if place else text


def is_readable(error: BaseException) -> bool:
    """Return whether an error has a text: its class is a module's, and may fail to say it."""
    try:
        str(error)
    except Exception:
        return False
    return True


def find_place(error: BaseException, module: Any = None) -> str:
    """Return `FILE:LINE`, where the code of a module raised an error, or called what did; `""` outside of it.

    Without a `module`, an object of it or its function, the first one counts that was called. A library that it calls
    is no part of it. Code with a syntax error was never called: its place is the line of the error.
    """
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return f"{error.filename}:{error.lineno}"
    calls = [*walk_tb(error.__traceback__)]
    if module is None:
        packages = (_package_of(frame) for frame, _ in calls)
        first = next((package for package in packages if package not in _NOT_OF_MODULES), None)
        places = [(frame, line) for frame, line in calls if _package_of(frame) == first]
    else:
        places = [(frame, line) for frame, line in calls if _is_of(frame, module)]
    return f"{places[-1][0].f_code.co_filename}:{places[-1][1]}" if places else ""


def note_origin(error: Exception, mounted: Mapping[str, Any]) -> None:
    """Keep with an error which module of a session raised it, and where in its code; see `find_origin`.

    `mounted` has the modules of the session by mount point. The last one in the calls counts, unless `blame` has told.
    """
    if isinstance(error, AmplifierError) or hasattr(error, "amplifier_origin"):
        return
    modules = [(f"provider '{name}'", provider) for name, provider in mounted["providers"].items()]
    modules += [("context manager", mounted["context"]), ("orchestrator", mounted["orchestrator"])]
    frames = [frame for frame, _ in walk_tb(error.__traceback__)][::-1]
    matches = ([(title, module) for title, module in modules if _is_of(frame, module)] for frame in frames)
    found = next(filter(None, matches), [])
    if len(found) > 1:  # several of one package: the one whose method was called last, if there is one
        calls = (_self_of(frame) for frame in frames)
        found = next(([each] for own in calls for each in found if each[1] is own), [("", found[0][1])])
    for title, module in found:
        if title != "orchestrator" or not (isinstance(error, _FOR_PEOPLE) or type(error) is LookupError):
            note_source(error, module, title)


def note_source(error: BaseException, module: Any, title: str) -> bool:
    """Keep the place of an error in a module's code, for `find_origin`; return whether it has one.

    `title` names the module. An `AmplifierError` is left as it is: it was written for people.
    """
    place = find_place(error, module)
    if place and not isinstance(error, AmplifierError):
        with suppress(AttributeError):  # a class with slots
            error.amplifier_origin = (title, place)  # type: ignore[attr-defined]  # ours
    return bool(place)


def blame(error: E, method: Any, title: str = "") -> E:
    """Return an error about what a module's method has answered, with the place of that method as its origin."""
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    error.amplifier_origin = (title, f"{code.co_filename}:{code.co_firstlineno}" if code else "")  # type: ignore[attr-defined]  # ours
    return error


def find_origin(error: BaseException) -> tuple[str, str]:
    """Return the module that raised an error, such as `provider 'x'`, and where in its code; two `""` if unknown."""
    origin: tuple[str, str] = getattr(error, "amplifier_origin", ("", ""))
    return origin


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_of(frame: FrameType, module: Any) -> bool:
    """Return whether a call is one of a module's methods, or in its package."""
    package, _, _ = str(getattr(module, "__module__", "")).partition(".")
    return _self_of(frame) is module or _package_of(frame) == package


def _self_of(frame: FrameType) -> Any:
    """Return the first argument of a call."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
