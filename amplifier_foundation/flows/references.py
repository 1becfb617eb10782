"""Check what a workflow names outside of itself: the agents and the runners of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from amplifier_core.errors import UnknownName

from ..spawning.agents import check_agent
from ..spawning.runners import find_runner
from .errors import INVALID, FlowError
from .graph import tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.plugins import Plugins

    from ..bundle.model import Bundle
    from .tasks import Workflow


def check_references(workflow: Workflow, bundle: Bundle, plugins: Plugins | None) -> None:
    """Raise `FlowError` for a task with an agent that the bundle does not know, or a runner that is not installed."""
    check_agents(workflow, bundle, plugins)
    _find_each(workflow, "runner", lambda name: find_runner(plugins, name))


def check_agents(workflow: Workflow, bundle: Bundle, plugins: Plugins | None) -> None:
    """Raise `FlowError` for a task with an agent that the bundle does not know."""
    _find_each(workflow, "agent", lambda name: check_agent(name, bundle, plugins))


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
