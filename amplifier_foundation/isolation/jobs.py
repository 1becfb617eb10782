"""Hand a spawn over to another process, and take back what came of it."""

from __future__ import annotations

import pickle
from dataclasses import field
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionProcessEnded
from amplifier_core.frozen import slotted

from ..spawning.child_session import has_levels
from ..spawning.family import TREE
from .limits import ProcessLimits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.hook_data import SpawnRequest
    from amplifier_core.permissions import Policy
    from amplifier_core.triggers import TriggerEvent

    from ..bundle.prepared import PreparedBundle
    from ..spawning.budget import Limits
    from ..spawning.child import Spawn
    from ..spawning.family import Tree


@slotted
class Above:
    """What a child needs to know of the session that made it."""

    config: dict[str, Any]
    resolver: Any = None
    """Finds modules that the child inherits."""
    mentions: Any = None
    policy: Policy | None = None
    remembers: bool = False
    """Whether an answer can be kept as a rule."""
    folder: str = ""
    refusal: str = ""
    untrusted: str = ""
    acts: bool = False


@slotted
class Job:
    """One session for another process, with everything about it that is plain data; it crosses as a pickle.

    Only a parent sends one, so the child may read it: the parent decides what runs there anyway.
    """

    request: SpawnRequest
    prepared: PreparedBundle | None = None
    """None: the modules in the plan of the request are installed."""
    above: Above | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    turns: int = 0
    begun: int = 0
    recorded: int = 0
    resumed: bool = False
    stopping: bool = False
    accepts_unfinished: bool = False
    needs_answer: bool = False
    acts: bool = False
    unattended: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    project: str = ""
    held: Mapping[str, Any] = field(default_factory=dict)
    cause: TriggerEvent | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    spawn_limits: Mapping[str, Any] = field(default_factory=dict)
    spawned: int = 0
    accounts: Sequence[str] = ()
    budgets: Sequence[tuple[Limits, str]] = ()
    has: frozenset[str] = frozenset()
    """Of `store`, `documents`, `router`, `plugins`, `approvals`, `holds`, `tells_who`, `display`, `nests`."""
    listened: frozenset[str] = frozenset()
    """The names of the hook events that the parent listens to."""
    limits: ProcessLimits = field(default_factory=ProcessLimits)

    def pack(self) -> bytes:
        """Return the job as bytes. Raises `SessionProcessEnded`."""
        try:
            return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            reason = f"did not begin: its plan holds something that cannot go to another process: {error}"
            raise SessionProcessEnded(self.request.session_id, reason) from error


def make_job(spawn: Spawn, tree: Tree, listened: frozenset[str]) -> Job:
    """Return the job of a prepared spawn, a session of `tree`."""
    return Job(
        request=spawn.request,
        prepared=spawn.prepared,
        above=_describe_parent(spawn),
        messages=list(spawn.transcript),
        turns=spawn.turns,
        begun=spawn.begun,
        recorded=spawn.recorded,
        resumed=spawn.resumed,
        stopping=spawn.stopping,
        accepts_unfinished=spawn.accepts_unfinished,
        needs_answer=spawn.needs_answer,
        acts=spawn.acts,
        unattended=spawn.unattended,
        metadata=dict(spawn.metadata),
        project=spawn.project,
        held=dict(spawn.held),
        cause=spawn.cause,
        capabilities={name: value for name, value in spawn.capabilities.items() if name != TREE},
        spawn_limits=dict(tree.limits),
        spawned=tree.spawned,
        accounts=tuple(tree.accounts),
        budgets=tuple((each.limits, each.scope) for each in tree.budgets),
        has=_find_services(spawn),
        listened=listened,
        limits=ProcessLimits.of(spawn.request.config),
    )


def _find_services(spawn: Spawn) -> frozenset[str]:
    outer = spawn.asked
    display = spawn.parent.coordinator.display_system
    has = {
        "store": spawn.store is not None,
        "documents": hasattr(spawn.store, "write_documents"),
        "router": spawn.router is not None,
        "plugins": spawn.plugins is not None,
        "approvals": outer is not None,
        "holds": all(hasattr(outer, name) for name in ("answer_call", "find", "keep")),
        "tells_who": bool(getattr(outer, "tells_who", False)),
        "display": display is not None,
        "nests": has_levels(display),
    }
    return frozenset(name for name, there in has.items() if there)


def _describe_parent(spawn: Spawn) -> Above:
    from amplifier_core.permissions import Policy

    coordinator, gate = spawn.parent.coordinator, spawn.parent.coordinator.permissions
    above = Above(
        dict(spawn.parent.config),
        coordinator.get("module-source-resolver"),
        coordinator.get_capability("mention_resolver"),
    )
    if gate is not None:
        above.policy, above.remembers = Policy(gate.policy.layers), gate.policy.remember is not None
        above.folder, above.refusal, above.untrusted, above.acts = gate.folder, gate.refusal, gate.untrusted, gate.acts
    return above
