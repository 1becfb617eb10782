"""Compose the bundles and plans of agents' sessions."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ..bundle.model import Bundle
from ..bundle.preferences import KEY as PREFERENCES
from ..bundle.preferences import find_first
from ..bundle.prepared import PreparedBundle
from ..documents.dicts import deep_merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .inheritance import Inherit


def agent_bundle(prepared: PreparedBundle, name: str, overlay: Mapping[str, Any]) -> PreparedBundle:
    """Return the bundle of an entry of `agents`: its own sections, with the files of the outer bundle."""
    outer = prepared.bundle
    plan = deepcopy(dict(overlay))
    wanted = plan.get("agents")
    agents: dict[str, Any] = dict(wanted) if isinstance(wanted, dict) else {}
    if wanted == "all" or isinstance(wanted, list):
        names = outer.agents if wanted == "all" else wanted
        agents = {each: deepcopy(outer.agents[each]) for each in names if each in outer.agents}
    own = {PREFERENCES: plan[PREFERENCES]} if plan.get(PREFERENCES) else {}
    bundle = Bundle(
        name=name.rpartition(":")[2],
        description=str(plan.get("description") or ""),
        session={**(plan.get("session") or {}), **own},
        providers=list(plan.get("providers") or ()),
        tools=list(plan.get("tools") or ()),
        hooks=list(plan.get("hooks") or ()),
        spawn=plan.get("spawn") or {},
        agents=agents,
        instruction=plan.get("instruction"),
        base_path=outer.base_path,
        source_base_paths=dict(outer.source_base_paths),
        local_sources=outer.local_sources,
        source_path=outer.source_path,
        digest=outer.digest,
        guard=outer.guard,
    )
    return PreparedBundle.of(bundle)


def with_orchestrator_config(plan: dict[str, Any], config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge a config into that of a plan's orchestrator, in place; return the plan."""
    if config:
        spec = plan["session"].get("orchestrator")
        spec = {"module": spec} if isinstance(spec, str) else dict(spec or {})
        plan["session"]["orchestrator"] = deep_merge(spec, {"config": dict(config)})
    return plan


def choose_modules(
    entries: Sequence[Mapping[str, Any]],
    wanted: Mapping[str, Sequence[str]] | None,
    section: Mapping[str, Any],
    kind: str,
) -> Inherit:
    """Return the modules that a child inherits: the listed ones, or all without the excluded ones."""
    wanted = wanted or {}
    listed = wanted.get(f"inherit_{kind}", section.get(f"inherit_{kind}", section.get(kind)))
    if isinstance(listed, (list, tuple)):
        return [str(each.get("module") if isinstance(each, dict) else each) for each in listed]
    excluded = {*(section.get(f"exclude_{kind}") or ()), *(wanted.get(f"exclude_{kind}") or ())}
    return [str(entry.get("module")) for entry in entries if entry.get("module") not in excluded]


def first_provider(plan: Mapping[str, Any]) -> str:
    """Return the name of the provider that answers in a plan; '' when it has none."""
    entry = find_first(plan) or {}
    return str(entry.get("instance_id") or entry.get("module") or "")
