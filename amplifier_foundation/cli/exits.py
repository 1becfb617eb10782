"""Define the exit codes, their meanings, and the code of each error."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path

from amplifier_core import descriptors, errors, processes

from ..paths import data_home, is_closed, unusable_error

OK = 0
FAILED = 1
CANCELLED = 2
WAITING = 3
USAGE = 4
NOT_FOUND = 5
CONFLICT = 6
BUDGET = 7
UNREPORTED = 74
TRY_AGAIN = 75
INTERRUPTED = 130
TERMINATED = 143

BY_SIGNAL = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}
"""The codes of a service that a signal ends."""
MEANINGS: dict[int, str] = {
    OK: "ok",
    FAILED: "failed",
    CANCELLED: "cancelled",
    WAITING: "waiting for an approval, or for trust",
    USAGE: "usage or validation",
    NOT_FOUND: "not found",
    CONFLICT: "conflict",
    BUDGET: "budget spent",
    UNREPORTED: "done, but the output could not be written: not to be repeated",
    TRY_AGAIN: "try again (disk full, locked, provider out)",
    INTERRUPTED: "interrupted (SIGINT)",
    TERMINATED: "terminated (SIGTERM)",
}

REPEATABLE = frozenset(
    (
        *("acp", "check", "completion", "cost", "dashboard", "dead", "diff", "docs", "doctor", "explain", "export"),
        *("get", "graph", "info", "list", "logs", "models", "ps", "schema", "search", "serve", "show", "simulate"),
        *("status", "test", "tree", "validate", "watch", "why"),
    )
)
"""The last words of amplifier's own commands that may be repeated: they change nothing, or serve by their output.

One of them ends with `TRY_AGAIN` when its output cannot be written. Any other one does its work all the same, and ends
with `UNREPORTED` if that is all that went wrong.
"""
READING = frozenset(("--dry-run", "--help", "--list", "--print", "-h"))
"""The options with which any of amplifier's own commands only reads, and may be repeated."""

_BY_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (errors.StoreUnavailable, TRY_AGAIN),
    (errors.SessionNotFound, NOT_FOUND),
    (errors.BundleNotFoundError, NOT_FOUND),
    (errors.UnknownName, NOT_FOUND),
    (errors.BudgetExceeded, BUDGET),
    (errors.SessionConflict, CONFLICT),
    (errors.SessionExists, CONFLICT),
    (errors.StaleEpoch, CONFLICT),
    (errors.StoreConflict, CONFLICT),
    (errors.BackupNotFound, NOT_FOUND),
    (errors.DeliveryNotFound, NOT_FOUND),
    (errors.DeliveryConflict, CONFLICT),
    (errors.DocumentConflict, CONFLICT),
    (FileExistsError, CONFLICT),
    (errors.InvalidSessionId, USAGE),
    (errors.BundleError, USAGE),
    (errors.TriggerConfigError, USAGE),
    (errors.NameTaken, USAGE),
    (LookupError, NOT_FOUND),
    (ValueError, USAGE),
)
"""The first match counts; the last two are for errors of packages."""


_WAITING_FOR_TRUST = (("trust", "NotTrusted"), ("session_mark", "WithinSession"))
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that fails with `error`."""
    if find_full(error) is not None or any(explain_limit(each) for each in (error, error.__cause__) if each):
        return TRY_AGAIN
    if (closed := find_closed(error)) is not None and closed.errno == errno.EROFS:
        return TRY_AGAIN  # a file system that was mounted again by mistake, or too late
    if closed is not None or (isinstance(error, errors.StoreUnavailable) and error.needs_person):
        return USAGE
    if is_of_provider(error):
        from ..sessions.failures import find_provider_error

        problem = find_provider_error(error)
        return TRY_AGAIN if problem is not None and problem.retryable else FAILED
    for module, name in _WAITING_FOR_TRUST:
        loaded = sys.modules.get(f"amplifier_foundation.security.{module}")
        if loaded is not None and isinstance(error, getattr(loaded, name)):
            return WAITING
    if not isinstance(error, errors.AmplifierError):
        return FAILED
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), FAILED)


def find_full(error: BaseException) -> OSError | None:
    """Return the error for lack of room to write something: this one, or its cause."""
    both = (error, error.__cause__)
    return next((one for one in both if isinstance(one, OSError) and one.errno in _FULL), None)


def find_closed(error: BaseException) -> OSError | None:
    """Return the error for a file closed to this user: this one, or the cause of one of the store."""
    both = (error, error.__cause__ if isinstance(error, errors.StoreError) else None)
    return next((one for one in both if isinstance(one, OSError) and is_closed(one) and _file_of(one)), None)


def _file_of(error: OSError) -> str:
    return "" if not error.filename or isinstance(error.filename, int) else os.fsdecode(error.filename)


def explain_system(error: BaseException) -> str | None:
    """Return the text for a refusal of the system, with its remedy; None for another error."""
    if (limit := explain_limit(error)) is not None:
        return limit
    if not isinstance(error, OSError) or isinstance(error, errors.AmplifierError) or not (remedy := find_remedy(error)):
        return None
    if find_closed(error) is None:
        return f"{_file_of(error) or 'a file'} cannot be written ({error.strerror}). {remedy}"
    if (path := Path(_file_of(error))).is_relative_to(data_home()):
        return str(unusable_error(path, error))
    closed = next((each for each in reversed(path.parents) if not os.access(each, os.X_OK)), path)
    return f"{closed} cannot be used ({error.strerror}). {remedy}"


def find_remedy(error: BaseException) -> str:
    """Return the remedy for a full disk, or for a file closed to this user; an empty text for another error."""
    if not isinstance(error, OSError):
        return ""
    if error.errno == errno.EFBIG:
        return "Raise the limit of the size of files: ulimit -f"
    if error.errno in _FULL:
        return "Free some space and try again"
    return "Make it readable and writable, or choose another place" if find_closed(error) is not None else ""


def explain_limit(error: BaseException) -> str | None:
    """Return the text for an error that says that the system gives this process no more; None for another one."""
    if isinstance(error, MemoryError):
        return "there is too little memory. Free some, or raise the limit: ulimit -v"
    if processes.lacks_processes(error):
        return processes.NO_PROCESS
    if isinstance(error, OSError) and error.errno in descriptors.EXHAUSTED:
        return f"{error.strerror}. Raise the limit: ulimit -n"
    return None


def is_of_provider(error: BaseException) -> bool:
    """Return whether a provider's error ended the command; no error of a model is imported for another one."""
    from ..sessions.failures import find_provider_error

    return "amplifier_core.llm_errors" in sys.modules and find_provider_error(error) is not None
