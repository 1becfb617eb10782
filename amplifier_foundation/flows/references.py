"""Check what a workflow names outside of itself: agents, runners, and the inputs whose items it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.errors import UnknownName

from ..documents.dicts import at_path
from ..spawning.agents import check_agent
from ..spawning.runners import find_runner
from .errors import INVALID, FlowError
from .graph import tasks_of
from .tasks import ForEach, Loop, Parallel, Sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from amplifier_core.plugins import Plugins

    from ..bundle.model import Bundle
    from .tasks import Step, Workflow


def check_references(workflow: Workflow, bundle: Bundle, plugins: Plugins | None, input: Mapping[str, Any]) -> None:
    """Check a workflow before a run with these inputs.

    Raises `FlowError` for a task with an agent that the bundle does not know or a runner that is not installed, and for
    an input that is no list where the run takes its items. In a branch, the run may never come to that.
    """
    check_agents(workflow, bundle, plugins)
    for each in _each_of(workflow.step):
        first, *path = each.items.split(".") if isinstance(each.items, str) else [""]
        found = at_path(input, path)
        if first == "input" and path and not isinstance(found, list | tuple):
            from ..documents.validation import describe_kind

            remedy = f"Give the input '{path[0]}' as JSON" + (f": -i '{path[0]}=[1, 2, 3]'" if len(path) == 1 else "")
            raise FlowError(INVALID, f"for_each: {each.items}: it must be a list, not {describe_kind(found)}. {remedy}")
    _find_each(workflow, "runner", lambda name: find_runner(plugins, name))


def check_agents(workflow: Workflow, bundle: Bundle, plugins: Plugins | None) -> None:
    """Raise `FlowError` for a task with an agent that the bundle does not know."""
    _find_each(workflow, "agent", lambda name: check_agent(name, bundle, plugins))


def _each_of(step: Step) -> Iterator[ForEach]:
    """Yield the steps for items that every run comes to."""
    if isinstance(step, ForEach):
        yield step
    elif isinstance(step, Loop):
        yield from _each_of(step.body)
    elif isinstance(step, Sequence | Parallel):
        for each in step.steps:
            yield from _each_of(each)


def _find_each(workflow: Workflow, key: Literal["agent", "runner"], find: Callable[[str], object]) -> None:
    """Find each name under a key of the tasks. Raises `FlowError` for the first task with an unknown one."""
    known: set[str] = set()
    for task in tasks_of(workflow.step):
        name: str | None = getattr(task, key)
        if name is None or name in known:
            continue
        known.add(name)
        try:
            find(name)
        except UnknownName as error:
            raise FlowError(INVALID, str(error), task.id, text=error.name) from None
