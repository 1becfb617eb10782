"""Define the exit codes, their meanings, and the code of each error."""

from __future__ import annotations

import errno
import os
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
TRY_AGAIN = 75
INTERRUPTED = 130
TERMINATED = 143

MEANINGS: dict[int, str] = {
    OK: "ok",
    FAILED: "failed",
    CANCELLED: "cancelled",
    WAITING: "waiting for an approval, or for trust",
    USAGE: "usage or validation",
    NOT_FOUND: "not found",
    CONFLICT: "conflict",
    BUDGET: "budget spent",
    TRY_AGAIN: "try again (disk full, locked, provider out)",
    INTERRUPTED: "interrupted (SIGINT)",
    TERMINATED: "terminated (SIGTERM)",
}

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


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that fails with `error`."""
    if (denied := find_denied(error)) is not None:
        return exit_code(denied)
    if find_full_disk(error) is not None or explain_limit(error) is not None:
        return TRY_AGAIN
    if isinstance(error, errors.StoreUnavailable) and error.needs_person:
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


def find_full_disk(error: BaseException) -> OSError | None:
    """Return the error, or its cause, that says that there was no room to write something."""
    both = (error, error.__cause__)
    return next((one for one in both if isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT)), None)


def find_denied(error: BaseException) -> errors.StoreUnavailable | None:
    """Return the error to tell for one that says that the data folder, or a file in it, is closed to this user."""
    if not isinstance(error, OSError) or not is_closed(error) or isinstance(error, errors.AmplifierError):
        return None
    if not error.filename or isinstance(error.filename, int):  # a descriptor has no path
        return None
    path = Path(os.fsdecode(error.filename))
    return unusable_error(path, error) if path.is_relative_to(data_home()) else None


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
