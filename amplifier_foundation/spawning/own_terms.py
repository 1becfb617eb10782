"""Resume a stored session on its own terms.

An agent's session has the instruction, the tools and the providers of its agent, and the terms of its making. A person
may resume or fork it without the session above it. The plan is then made anew from the records: the plan of the session
at the top, then the plan of each agent below it, as `AgentSpawner` made them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import SessionNotFound, UnknownName

from ..bundle.capability_layers import INHERITED
from ..bundle.preferences import KEY as PREFERENCES
from ..bundle.preferences import ProviderPreference, apply_provider_preferences
from ..sessions.records import agent_of
from .agent_plans import agent_bundle, with_orchestrator_config
from .agents import TERMS, Terms
from .inheritance import child_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.storage import SessionRecord, SessionStore

    from ..bundle.model import PreparedBundle


class OwnTerms(NamedTuple):
    """The bundle, the plan and further capabilities to make a session from."""

    prepared: PreparedBundle
    config: dict[str, Any] | None = None
    """The plan; None: the bundle's."""
    capabilities: Mapping[str, Any] = {}


async def own_terms(prepared: PreparedBundle, store: SessionStore, record: SessionRecord) -> OwnTerms:
    """Return the bundle and the plan to resume a session with; `prepared` is the bundle of its record.

    With another bundle, the session is that bundle's from then on. Raises `UnknownName` for an agent without an entry
    in the bundle.
    """
    source = str(prepared.bundle.source_path or "")
    if not agent_of(record) or record.bundle_source != source:
        guards = [entry for entry in record.config.get("hooks") or () if entry.get(INHERITED)]
        above = {**record.config, "hooks": guards}
        plan = child_config(prepared.mount_plan, above, providers=True, tools=False, hooks=True)
        return OwnTerms(prepared, plan)
    line = await _read_line(store, record)
    top = line[0]
    plan = dict(prepared.mount_plan if top.bundle_source == source and not agent_of(top) else top.config)
    for each in line:
        if agent_of(each) and each.bundle_source == source:
            prepared = _find_agent(prepared, each)
            plan = _plan_of(prepared, plan, each)
        elif each is not top:
            plan = dict(each.config)
    forks = sum(
        1 for above, each in pairwise(line) if (each.fork_of, agent_of(each)) == (above.session_id, agent_of(above))
    )
    depth = sum(1 for each in line if agent_of(each)) - forks
    terms = Terms.from_dict(record.metadata.get(TERMS) or {})
    known = {"self_delegation_depth": terms.self_delegation_depth, "session.depth": depth}
    return OwnTerms(prepared, plan, known)


async def _read_line(store: SessionStore, record: SessionRecord) -> list[SessionRecord]:
    """Return the records from the session at the top, or the first without a stored parent, down to `record`."""
    line, known = [record], {record.session_id}
    while agent_of(line[0]) and line[0].parent_id and line[0].parent_id not in known:
        try:
            above = await store.get(line[0].parent_id)
        except SessionNotFound:
            break
        known.add(above.session_id)
        line.insert(0, above)
    return line


def _find_agent(prepared: PreparedBundle, record: SessionRecord) -> PreparedBundle:
    """Return the bundle of a session's agent; of a fork, of `self` and of a bundle of its own it is `prepared`."""
    name, agents = agent_of(record), prepared.bundle.agents
    if name in agents:
        return agent_bundle(prepared, name, agents[name])
    if record.bundle == prepared.bundle.name:
        return prepared
    raise UnknownName("agent", name, agents)


def _plan_of(prepared: PreparedBundle, above: Mapping[str, Any], record: SessionRecord) -> dict[str, Any]:
    """Return the plan of an agent's session: its own modules, and the inherited ones of the plan above it.

    The record names the inherited modules. Their configs come from the plan, with the secrets: records hold none.
    """
    terms, recorded = Terms.from_dict(record.metadata.get(TERMS) or {}), record.config
    tools, hooks = ([entry.get("module") for entry in recorded.get(section) or ()] for section in ("tools", "hooks"))
    plan = child_config(prepared.mount_plan, above, providers=True, tools=tools, hooks=hooks)
    plan = with_orchestrator_config(plan, terms.orchestrator_config)
    chosen = next(iter(recorded.get("providers") or ()), None)
    if not terms.provider_preferences or chosen is None:
        return plan
    name = str(chosen.get("instance_id") or chosen.get("module"))
    wanted = [ProviderPreference.of(each) for each in terms.provider_preferences]
    config = next((each.config for each in wanted if name.endswith(each.provider)), {})
    model = (chosen.get("config") or {}).get("default_model")
    plan = apply_provider_preferences(plan, [ProviderPreference(name, model, config)])
    plan["session"][PREFERENCES] = (recorded.get("session") or {}).get(PREFERENCES)
    return plan
