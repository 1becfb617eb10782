"""Check templates and conditions against the names in the events of their triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.conditions import Condition, facts_of
from amplifier_core.triggers import TriggerEvent, TriggerType

from ..documents.problems import Problem, did_you_mean, error_at, warning_at
from .names import place_of
from .origins import origin
from .templates import ALWAYS, check_template, names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_core.plugins import Plugins

    from ..documents.positions import KeyPath, Place
    from .background_config import BackgroundSessionConfig
    from .model import Bundle

FACTS = frozenset(facts_of(TriggerEvent(TriggerType.CUSTOM, "")))
"""The names in a condition, besides those in `data`."""


def check_event_names(bundle: Bundle, plugins: Plugins) -> Iterator[Problem]:
    """Yield an error for each name in a template, key or condition without a trigger for it.

    Triggers without `event_names` accept every name, and so does a background session woken by hand. A lone brace is a
    warning: it stays as it is.
    """
    for index, config in enumerate(bundle.background_sessions):
        known = [_names_of(plugins, declared.module) for declared in config.triggers]
        whole: KeyPath = ("background_sessions", index)
        for path, template in _templates(config):
            place = origin(bundle, (*whole, *path)) or place_of(bundle, "background_sessions", config.name)
            yield from _check_braces(template, place)
            for name in names_in(template):
                yield from _check(name, _providers(config, known, path), place, ALWAYS)
        for dotted in Condition.parse(config.condition).paths() if config.condition else ():
            place = origin(bundle, (*whole, "if")) or place_of(bundle, "background_sessions", config.name)
            first, _, rest = dotted.partition(".")
            if first == "data" and rest:
                yield from _check(rest.partition(".")[0], known, place, frozenset())
            elif first not in FACTS:
                in_data = any(names is None or first in names for names in known)
                hint = f"; did you mean 'data.{first}'?" if in_data else did_you_mean(first, FACTS)
                message = f"unknown name '{first}'{hint or '; known here: ' + ', '.join(sorted(FACTS))}"
                yield error_at(place, "AMP116", message)


def _names_of(plugins: Plugins, module: str) -> frozenset[str] | None:
    """Return the names in a trigger's events; None for a trigger that does not tell them, or is not installed."""
    if module not in plugins.triggers:
        return None
    names = getattr(plugins.triggers.get(module), "event_names", None)
    return frozenset(names()) if callable(names) else None


def _templates(config: BackgroundSessionConfig) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path and text of each template of a background session."""
    declared: list[tuple[KeyPath, Any]] = [
        (("instruction_template",), config.instruction_template),
        (("key",), config.key),
        (("debounce", "key"), config.debounce and config.debounce.key),
        (("worktree", "branch"), config.worktree and config.worktree.branch),
    ]
    declared += [
        (("triggers", at, "instruction_template"), each.instruction_template) for at, each in enumerate(config.triggers)
    ]
    yield from ((path, template) for path, template in declared if template)


def _providers(
    config: BackgroundSessionConfig, known: list[frozenset[str] | None], path: KeyPath
) -> list[frozenset[str] | None]:
    """Return the names of the triggers with this template: its own trigger, or those without one of their own."""
    if path[0] == "triggers":
        return [known[int(path[1])]]
    if path == ("instruction_template",):
        pairs = zip(config.triggers, known, strict=True)
        return [names for declared, names in pairs if declared.instruction_template is None]
    return known


def _check(
    name: str, providers: Iterable[frozenset[str] | None], place: Place, always: frozenset[str]
) -> Iterator[Problem]:
    providers = list(providers)
    if not providers or None in providers or name in always or any(name in (names or ()) for names in providers):
        return
    names = sorted(always.union(*(names or () for names in providers)))
    hint = did_you_mean(name, names) or f"; known here: {', '.join(names)}"
    yield error_at(place, "AMP116", f"no trigger provides '{name}'{hint}")


def _check_braces(template: str, place: Place) -> Iterator[Problem]:
    try:
        check_template(template)
    except ValueError:
        message = "a brace without a name stays as it is; write a name, as in {file_path}, or double the brace"
        yield warning_at(place, "AMP116", message)
