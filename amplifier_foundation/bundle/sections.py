"""Define the sections of a bundle: one row each, with its schema and its rules.

To add a section, add a row here, a field of the same name to `Bundle`, and a model to `schema` where it needs one.
Validation, building, merging, mount plans, `bundle show` and the JSON Schema follow from the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.frozen import frozen

from .merge import (
    join_module_lists,
    merge_background_sessions,
    merge_deep,
    merge_keys,
    merge_permissions,
    merge_sessions,
    merge_workflows,
    override_list,
    override_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..documents.positions import KeyPath


def _keep(value: Any) -> Any:
    return value


class ModuleKind(NamedTuple):
    """A kind of module: its name in messages, and the prefixes of its modules."""

    name: str
    prefixes: tuple[str, ...]


@frozen
class Section:
    """One section of a bundle."""

    name: str
    """Its key in the front matter, and its field of `Bundle`."""
    schema: str
    """Its type in the names of `schema`: as text, because this table works without pydantic."""
    merge: Callable[[Sequence[Any]], Any]
    """Return the values of several bundles merged; a later one wins, and none is shared."""
    build: Callable[[Any], Any] = _keep
    """Return the field's value for validated front matter; None is an empty section.

    `build_bundle` itself builds files (`context`), background sessions and the instruction.
    """
    dump: Callable[[Any], Any] = _keep
    """Return the front matter for a field's value."""
    modules: ModuleKind | None = None
    """The kind of modules, for a list of modules."""
    is_mounted: bool = False
    """Whether it is a part of the mount plan."""
    is_shown: bool = True
    """Whether `bundle show` lists its values."""
    description: str | None = None
    """Its description in the JSON Schema, unless its model has one."""


def _build_mapping(section: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (section or {}).items() if value is not None}


def _build_agents(section: Mapping[str, Any] | None) -> dict[str, Any]:
    inline = {name: plan for name, plan in (section or {}).items() if name != "include"}
    return {name: {"name": name} for name in (section or {}).get("include") or ()} | inline


def _modules(name: str, kind: str, *prefixes: str, entry: str = "ModuleEntry") -> Section:
    return Section(
        name,
        f"list[{entry}]",
        join_module_lists,
        build=lambda entries: [_build_mapping(entry) for entry in entries or ()],
        modules=ModuleKind(kind, prefixes),
        is_mounted=True,
    )


SECTIONS = (
    Section(
        "includes",
        "list[Included]",
        override_list,
        build=lambda items: [item if isinstance(item, str) else item["bundle"] for item in items or ()],
        is_shown=False,
    ),
    Section("session", "SessionSection", merge_sessions, build=_build_mapping, is_mounted=True),
    _modules("providers", "provider", "provider-", entry="ProviderEntry"),
    _modules("tools", "tool", "tool-", entry="ToolEntry"),
    _modules("hooks", "hook", "hooks-", "hook-"),
    Section("agents", "AgentsSection", merge_keys, build=_build_agents, is_mounted=True),
    Section(
        "spawn",
        "SpawnSection",
        merge_deep,
        build=lambda section: dict(section or {}),  # a null stays: it resets the value of an included bundle
        is_mounted=True,
    ),
    Section("budget", "BudgetConfig", merge_deep, build=_build_mapping),
    Section("permissions", "PermissionsSection", merge_permissions, build=_build_mapping),
    Section(
        "context",
        "ContextSection",
        merge_keys,
        dump=lambda files: {name: str(path) for name, path in files.items()},
    ),
    Section(
        "background_sessions",
        "list[BackgroundSessionConfig]",
        merge_background_sessions,
        dump=lambda configs: [each.model_dump(exclude_unset=True, by_alias=True) for each in configs],
    ),
    Section(
        "instruction",
        "str",
        override_value,
        is_shown=False,
        description="The instruction of a bundle without a body.",
    ),
    Section(
        "workflows",
        "dict[str, Any]",
        merge_workflows,
        is_shown=False,
        description="Workflows by name: tasks of agents in order, side by side and in loops.",
    ),
)

WORKFLOW_RUNNER = "runner-workflow"
"""The runner of sessions that are runs of workflows; it knows the section `workflows`."""
PROMPT_TOOL = "tool-skills"
"""The tool for skills and commands; without it, those of a bundle are not looked at."""
FOREMAN = "orchestrator-foreman"
"""The orchestrator whose pools of workers are background sessions."""
FIELD_SPELLING: KeyPath = ("session", "orchestrator", "config", "background_sessions")
"""The path of background sessions in bundles of other programs."""
MODULE_LISTS = tuple(each.name for each in SECTIONS if each.modules)
"""The sections with lists of modules."""
DEFAULT_SESSION = {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}}
"""The orchestrator and context of a session without its own."""
DEFAULT_PROCESSES, DEFAULT_OUTPUT = 256, 64 * 1024 * 1024
"""Limits of a session with a process of its own: processes below it, and bytes that it prints."""
KINDS = {
    **{each.name: each.modules for each in SECTIONS if each.modules},
    "orchestrator": ModuleKind("orchestrator", ("loop-", "orchestrator-")),
    "context": ModuleKind("context", ("context-",)),
}
"""The kind of modules by section, or by key of the session section."""
