"""Describe an error that the code of a module raised, for the person who is to mend that code."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from .errors import AmplifierError

if TYPE_CHECKING:
    from types import FrameType

_NOT_OF_MODULES = frozenset({*sys.stdlib_module_names, "amplifier_core", "amplifier_foundation"})


def describe_raised(error: BaseException) -> str:
    """Return an error in one line: its class, its text, and `(FILE:LINE)`, the last place in the code of the module.

    A library that the module calls is no part of it. An `AmplifierError` is its own text: it was written for people.
    """
    if isinstance(error, AmplifierError) and str(error):
        return str(error)
    name = type(error).__name__
    text = f"{name}: {error}" if str(error) else name
    place = find_place(error)
    return f"{text} ({place})" if place else text


def find_place(error: BaseException) -> str:
    """Return `FILE:LINE`, where the code of a module raised an error, or called what did; `""` outside of modules."""
    package, found = "", ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        owner = _package_of(frame)
        if owner == package or (not package and owner not in _NOT_OF_MODULES):
            package, found = owner, f"{frame.f_code.co_filename}:{line}"
    return found


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
