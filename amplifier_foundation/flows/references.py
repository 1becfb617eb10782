"""Check what a workflow names outside of itself: the agents and the runners of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import UnknownName

from ..spawning.agents import check_agent
from ..spawning.runners import find_runner
from .errors import INVALID, FlowError
from .graph import tasks_of

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins

    from ..bundle.model import Bundle
    from .tasks import Workflow


def check_references(workflow: Workflow, bundle: Bundle, plugins: Plugins | None) -> None:
    """Raise `FlowError` for a task with an agent that the bundle does not know, or a runner that is not installed."""
    known: set[tuple[str | None, str | None]] = set()
    for task in tasks_of(workflow.step):
        if (task.agent, task.runner) in known:
            continue
        known.add((task.agent, task.runner))
        try:
            if task.agent is not None:
                check_agent(task.agent, bundle, plugins)
            if task.runner is not None:
                find_runner(plugins, task.runner)
        except UnknownName as error:
            raise FlowError(INVALID, str(error), task.id, text=error.name) from None
