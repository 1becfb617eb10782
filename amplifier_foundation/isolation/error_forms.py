"""Write an error as JSON, and read it in another process as an error of the same class.

Only built-in errors and those of the kernel have their class there. Another one becomes an error with its name alone:
no code of a module runs in a process that did not mount it. Reading calls no `__init__`.
"""

from __future__ import annotations

import builtins
import re
from datetime import datetime
from decimal import Decimal, InvalidOperation
from importlib import import_module
from math import isfinite
from typing import Any

from ..sessions.failures import causes_of

HOMES = ("builtins", "amplifier_core.errors", "amplifier_core.llm_errors")
_NOT_CARRIED = (ExceptionGroup, StopIteration)
"""Errors without a text, and those that no future takes."""
LONGEST = 10_000
"""Characters of an error's text."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")


def write_error(error: BaseException) -> dict[str, Any]:
    """Return an error and its causes for JSON, with secrets redacted."""
    from amplifier_core.utils.secrets import redact_text

    errors = list(causes_of(error))
    written: dict[str, Any] | None = None
    for each in reversed(errors):
        kind = type(each)
        written = {
            "name": kind.__name__,
            "home": kind.__module__ if kind.__module__ in HOMES else "",
            "text": redact_text(str(each)[:LONGEST]),
            "state": {name: _write(value) for name, value in vars(each).items() if _is_plain(value)},
            "cause": written,
        }
    assert written is not None  # there is at least the error itself
    return written


def read_error(written: Any, depth: int = 0) -> Exception:
    """Return the error in the output of `write_error`; anything else is a `RuntimeError`."""
    if not isinstance(written, dict) or depth > 20:
        return RuntimeError("an error that cannot be read")
    text, state = str(written.get("text"))[:LONGEST], written.get("state")
    kind = _find_class(str(written.get("home")), str(written.get("name")))
    error = kind.__new__(kind)
    error.args = (text,)
    for name, value in state.items() if isinstance(state, dict) else ():
        if _NAME.fullmatch(str(name)) and not name.startswith("__"):
            error.__dict__[name] = _read(value)
    if written.get("cause") is not None:
        error.__cause__ = read_error(written["cause"], depth + 1)
    return error


def _find_class(home: str, name: str) -> type[Exception]:
    if home in HOMES:
        found = getattr(builtins if home == "builtins" else import_module(home), name, None)
        if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, _NOT_CARRIED):
            return found
    if not _NAME.fullmatch(name):
        name = "RuntimeError"
    return type(name, (RuntimeError,), {"__module__": __name__})


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, float):
        return isfinite(value)
    return value is None or isinstance(value, (str, int, Decimal, datetime))


def _write(value: Any) -> Any:
    from amplifier_core.utils.secrets import redact_text

    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime):
        return {"time": value.isoformat()}
    return [_write(each) for each in value] if isinstance(value, (list, tuple)) else value


def _read(value: Any) -> Any:
    try:
        if isinstance(value, dict) and "decimal" in value:
            return Decimal(str(value["decimal"]))
        if isinstance(value, dict) and "time" in value:
            return datetime.fromisoformat(str(value["time"]))
    except (ValueError, InvalidOperation):
        return None
    return tuple(map(_read, value)) if isinstance(value, list) else value
