"""Tell what an error means for its task: whether another attempt may help, and which error ends the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..background.mistakes import is_mistake
from .errors import FAILED, TIMEOUT, FlowError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .tasks import Task


def explain(error: Exception, task: Task) -> FlowError:
    """Return an error as that of a task. What can only fail again is not retried: a wrong key, a spent budget."""
    from amplifier_core.errors import BudgetExceeded, SpawnRefused, SpawnTimeout

    from ..sessions.failures import describe_failure, find_provider_error

    if isinstance(error, FlowError):
        return FlowError(error.code, error.reason, error.task or task.id, error.source, is_retryable=error.is_retryable)
    if isinstance(error, SpawnTimeout):
        return FlowError(TIMEOUT, str(error), task.id, is_retryable=True)
    problem = find_provider_error(error)
    if problem is not None:
        return FlowError(FAILED, describe_failure(error), task.id, is_retryable=problem.retryable)
    is_final = is_mistake(error) or isinstance(error, BudgetExceeded | SpawnRefused)
    return FlowError(FAILED, describe_failure(error), task.id, is_retryable=not is_final)


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a task in a group; without one, what else is in it."""
    errors = list(_leaves(group))
    return next((each for each in errors if isinstance(each, FlowError)), errors[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
