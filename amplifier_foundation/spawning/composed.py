"""Spawn as published programs do by `PreparedBundle.spawn`: a bundle composed with the prepared one, in one call."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplifier_core.transcript import Transcript

from ..bundle.preferences import prefer_providers_with_resolution
from ..sessions.history import turn_starts
from ..spawn import describe_result, spawn_prepared
from .agent_plans import with_orchestrator_config
from .child import Spawn, spawn_request
from .inheritance import child_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from amplifier_core.session import AmplifierSession
    from amplifier_core.transcript import Message

    from ..bundle.model import Bundle, PreparedBundle


async def spawn_composed(
    prepared: PreparedBundle,
    child_bundle: Bundle,
    instruction: str,
    *,
    compose: bool = True,
    parent_session: AmplifierSession | None = None,
    session_id: str | None = None,
    orchestrator_config: Mapping[str, Any] | None = None,
    parent_messages: Sequence[Message] | None = None,
    session_cwd: Path | str | None = None,
    provider_preferences: Sequence[Any] | None = None,
    self_delegation_depth: int = 0,
) -> dict[str, Any]:
    """Run `instruction` in a session of `child_bundle`.

    Returns `output`, `session_id`, `status`, `turn_count` and `metadata` (`usage`, `duration` in seconds). With
    `compose`, the child has the sections of `prepared` too, its own over them. Without a `parent_session`, a session of
    `prepared` stands in for it. `parent_messages` are the beginning of the child's history. The session works in
    `session_cwd`, else in its parent's folder. Raises the errors of `spawn_bundle`.
    """
    if parent_session is None:
        async with await prepared.create_session(
            session_cwd=session_cwd, config=deepcopy(prepared.mount_plan)
        ) as parent_session:
            return await spawn_composed(
                prepared,
                child_bundle,
                instruction,
                compose=compose,
                parent_session=parent_session,
                session_id=session_id,
                orchestrator_config=orchestrator_config,
                parent_messages=parent_messages,
                provider_preferences=provider_preferences,
                self_delegation_depth=self_delegation_depth,
            )
    child = await (prepared.bundle.compose(child_bundle) if compose else child_bundle).prepare()
    config = child_config(child.mount_plan, parent_session.config, providers=True, tools=False, hooks=False)
    config = with_orchestrator_config(config, orchestrator_config)
    if provider_preferences:
        coordinator = parent_session.coordinator
        config = await prefer_providers_with_resolution(config, provider_preferences, coordinator)
    request = spawn_request(parent_session, child, instruction, config, session_id, child_bundle.name)
    spawn = Spawn(
        prepared=child,
        request=replace(request, working_dir=str(session_cwd)) if session_cwd is not None else request,
        parent=parent_session,
        project=str(session_cwd or ""),
        transcript=Transcript(parent_messages or ()),
        turns=len(turn_starts(parent_messages or ())),
        plugins=parent_session.plugins,
        capabilities={"self_delegation_depth": self_delegation_depth},
    )
    return describe_result(await spawn_prepared(spawn))
