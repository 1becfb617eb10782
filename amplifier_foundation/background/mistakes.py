"""Tell mistakes, outages of providers and a machine at its limits from failures of the work itself."""

from __future__ import annotations

from amplifier_core.descriptors import EXHAUSTED
from amplifier_core.errors import AnswerUnfinished, BundleError, NameTaken, TriggerError, UnknownName
from amplifier_core.loader import ModuleValidationError
from amplifier_core.processes import REMEDY, lacks_processes

from ..sessions.failures import causes_of, find_provider_error
from ..sessions.once import EffectsUncertain

MISTAKES = (
    AnswerUnfinished,
    BundleError,
    EffectsUncertain,
    ModuleValidationError,
    NameTaken,
    TriggerError,
    UnknownName,
)
"""Errors about names, bundles, templates and modules, unfinished answers, and tool calls that wait for a person's
decision."""
BROKEN_OFF = "broken_off"
"""The reason of an unfinished answer whose service failed in its midst: the next one may be whole."""
NO_PROVIDER = "No providers mounted"
"""The words of a session without a provider, in whatever process it ran."""


def is_mistake(error: BaseException | None) -> bool:
    """Return whether another attempt would fail the same way: a person has to change something first.

    For a required module, the session raises a `RuntimeError` from the module's error. A provider says of its errors
    whether they are `retryable`. A workflow has made the attempts of its tasks itself: its errors are final.
    """
    if error is None:
        return False
    refusal, causes = find_provider_error(error), (error, error.__cause__)
    return (
        any(isinstance(each, MISTAKES) and getattr(each, "finish_reason", "") != BROKEN_OFF for each in causes)
        or NO_PROVIDER in str(error)
        or (refusal is not None and not refusal.retryable)
        or (refusal is None and getattr(error, "is_final", False))
    )


def is_exhausted(error: BaseException | None) -> bool:
    """Return whether no file descriptor was free, for this process or the machine."""
    return any(isinstance(each, OSError) and each.errno in EXHAUSTED for each in causes_of(error, handled=True))


def find_lack(error: BaseException | None) -> str:
    """Return the remedy where the machine has no free file descriptor, or starts no thread or process; else ""."""
    if is_exhausted(error):
        return "Raise the limit: ulimit -n"
    return REMEDY if any(lacks_processes(each) for each in causes_of(error, handled=True)) else ""
