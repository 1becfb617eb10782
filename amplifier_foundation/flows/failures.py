"""Tell what an error means for its task: whether another attempt may help, and which error ends the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..background.mistakes import is_mistake
from .errors import FAILED, TIMEOUT, FlowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .tasks import Inputs


def call(function: Callable[[Inputs], Any], inputs: Inputs, where: str, task: str = "") -> Any:
    """Return what a function of a workflow makes of the inputs. Raises `FlowError` in place of any error of it."""
    try:
        return function(inputs)
    except Exception as error:
        found = explain(error, task)
        message = f"{where}: {found.reason}"
        raise FlowError(found.code, message, found.task, found.source, is_retryable=found.is_retryable) from error


def explain(error: Exception, task: str) -> FlowError:
    """Return an error as that of a task. What can only fail again is not retried: a wrong key, a spent budget."""
    from amplifier_core.errors import BudgetExceeded, RefusalError, SpawnTimeout

    from ..sessions.failures import describe_failure, find_provider_error

    if isinstance(error, FlowError):
        return FlowError(error.code, error.reason, error.task or task, error.source, is_retryable=error.is_retryable)
    if isinstance(error, SpawnTimeout):
        return FlowError(TIMEOUT, str(error), task, is_retryable=True)
    problem = find_provider_error(error)
    if problem is not None:
        return FlowError(FAILED, describe_failure(error), task, is_retryable=problem.retryable)
    is_final = is_mistake(error) or isinstance(error, BudgetExceeded | RefusalError)
    return FlowError(FAILED, describe_failure(error), task, is_retryable=not is_final)


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
