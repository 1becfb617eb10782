"""Find the inputs that a workflow names, and those that nobody gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.conditions import Condition, ConditionError

from ..documents.problems import Problem, did_you_mean, warning_at
from .names import place_of
from .origins import origin
from .templates import paths_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents.positions import KeyPath
    from .model import Bundle

TEMPLATES = ("prompt", "question", "needs_approval")
CONDITIONS = ("until", "if", "skip_if")
DATA = frozenset({"value", "input", "output_schema"})
"""Keys with data: what looks like a key of a step in it is none."""


def check_workflow_inputs(bundle: Bundle) -> Iterator[Problem]:
    """Yield a warning for each input that a workflow names and does not declare.

    The workflows of background sessions have the names of their events as inputs.
    """
    woken = {config.workflow for config in bundle.background_sessions}
    for name, section in (bundle.workflows if isinstance(bundle.workflows, dict) else {}).items():
        declared = section.get("input") or {} if isinstance(section, dict) else {}
        for path, given in inputs_in(section) if name not in woken and isinstance(declared, dict) else ():
            if given and given not in declared:
                spot = origin(bundle, ("workflows", name, *path)) or place_of(bundle, "workflows")
                hint = did_you_mean(given, declared) or f"; without -i {given}=VALUE it is empty"
                yield warning_at(spot, "AMP120", f"the workflow '{name}' declares no input '{given}'{hint}")


def inputs_in(section: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path of each text in a workflow that names an input, and the name; `` for all of them at once."""
    if isinstance(section, dict):
        for key, value in section.items():
            if key not in DATA:
                yield from inputs_in(value, (*path, key))
    elif isinstance(section, list):
        for number, value in enumerate(section):
            yield from inputs_in(value, (*path, number))
    elif isinstance(section, str) and path:
        for dotted in _paths_of(path[-1], section):
            first, _, rest = dotted.partition(".")
            if first == "input":
                yield path, rest.partition(".")[0]


def _paths_of(key: object, text: str) -> list[str]:
    if key in TEMPLATES:
        return paths_in(text)
    if key == "for_each":
        return [text]
    try:
        return [*Condition.parse(text).paths()] if key in CONDITIONS else []
    except ConditionError:
        return []
