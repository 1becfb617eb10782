"""Check the workflows of a bundle, as their runner says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..documents.problems import Problem, error_at, warning_at
from .names import place_of
from .origins import leaves, origin
from .sections import WORKFLOW_RUNNER
from .workflow_inputs import CONDITIONS, check_workflow_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_core.plugins import Plugins

    from ..documents.positions import KeyPath, Place
    from .model import Bundle

_AT_FAULT = (*CONDITIONS, "for_each", "agent")
"""The keys of a step whose value is the text of an error about it."""


def check_workflows(bundle: Bundle, plugins: Plugins) -> Iterator[Problem]:
    """Yield what is wrong with the workflows of a bundle, one problem for each, as their runner says.

    A workflow that cannot run is an error where a background session needs it: that would not start. An unknown agent
    is a warning: the runs that need it are refused, and nothing else is.
    """
    if WORKFLOW_RUNNER not in plugins.runners:
        return
    runner: Any = plugins.runners.get(WORKFLOW_RUNNER)()
    names = [str(name) for name in bundle.workflows] if isinstance(bundle.workflows, dict) else []
    wanted: dict[KeyPath, str] = {("workflows", name): name for name in names}
    needed = set()
    for index, config in enumerate(bundle.background_sessions):
        if config.workflow is not None and config.bundle is None:
            needed.add(config.workflow)
            if config.workflow not in names:
                wanted["background_sessions", index, "workflow"] = config.workflow
    for path, name in wanted.items():
        problem_at = error_at if name in needed else warning_at
        try:
            runner.check(bundle, name)
            problem_at = warning_at
            runner.check_agents(bundle, name, plugins)
        except ValueError as error:
            spot = _place_in_workflow(bundle, name, error) or origin(bundle, path) or place_of(bundle, "workflows")
            yield problem_at(spot, "AMP120", str(error))
    yield from check_workflow_inputs(bundle)


def _place_in_workflow(bundle: Bundle, name: str, error: ValueError) -> Place | None:
    """Return the place of the value, the condition, the name or the task that an error of a workflow names."""
    named = re.search(r"workflows(?:\.[\w-]+|\[\d+\])+", str(error))
    if named:
        parts = re.findall(r"[\w-]+", named[0])
        at = tuple(int(part) if part.isdigit() else part for part in parts)
        return origin(bundle, at, key=isinstance(at[-1], str))
    text, task = getattr(error, "text", ""), getattr(error, "task", "")
    own = [each for each in leaves({"workflows": bundle.workflows}, ()) if each[0][:2] == ("workflows", name)]
    found = [path for path, value in own if text and value == text and path[-1] in _AT_FAULT]
    found += [path for path, value in own if task and value == task and path[-1] in ("id", "approval")]
    return origin(bundle, found[0]) if found else None
