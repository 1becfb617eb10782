"""Exit codes: what each means, and which error ends with which."""

from __future__ import annotations

import errno

from amplifier_core import errors

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
    WAITING: "waiting for an approval",
    USAGE: "usage or validation",
    NOT_FOUND: "not found",
    CONFLICT: "conflict",
    BUDGET: "budget spent",
    TRY_AGAIN: "try again (disk full, locked)",
    INTERRUPTED: "interrupted (SIGINT)",
    TERMINATED: "terminated (SIGTERM)",
}

_BY_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (errors.StoreUnavailable, TRY_AGAIN),
    (errors.SessionNotFound, NOT_FOUND),
    (errors.BundleNotFoundError, NOT_FOUND),
    (errors.UnknownName, NOT_FOUND),
    (errors.SessionConflict, CONFLICT),
    (errors.SessionExists, CONFLICT),
    (errors.StaleEpoch, CONFLICT),
    (errors.DeliveryNotFound, NOT_FOUND),
    (errors.DeliveryConflict, CONFLICT),
    (errors.InvalidSessionId, USAGE),
    (errors.BundleError, USAGE),
    (errors.TriggerConfigError, USAGE),
    (errors.NameTaken, USAGE),
    (LookupError, NOT_FOUND),
    (ValueError, USAGE),
)
"""The first that fits counts; the last two are for errors that packages derive from the tree."""


def exit_code(error: BaseException) -> int:
    """Return the code that a command ends with for `error`."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TRY_AGAIN
    if not isinstance(error, errors.AmplifierError):
        return FAILED
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), FAILED)
