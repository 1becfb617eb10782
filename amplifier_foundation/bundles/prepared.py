"""A bundle ready to make sessions."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .paths import is_path
from .resolver import BundleModuleResolver
from .sources import module_entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.display import DisplaySystem
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.transcript import Transcript

    from .model import Bundle

DEFAULT_SESSION = {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}}
"""What a session runs on whose bundle names no orchestrator or context."""


@dataclass(frozen=True, slots=True)
class PreparedBundle:
    """A bundle with its mount plan and what finds its modules.

    The mount plan says what the bundle says: `DEFAULT_SESSION` is filled in when a session is made, so that a spawned
    one can take its parent's orchestrator and context before.
    """

    mount_plan: dict[str, Any]
    resolver: Any
    bundle: Bundle

    @classmethod
    def of(cls, bundle: Bundle, resolver: Any = None) -> PreparedBundle:
        """Return `bundle` prepared; without `resolver`, its modules are found by a `BundleModuleResolver`."""
        plan = bundle.to_mount_plan()
        _leave_out_remote_sources(plan)
        return cls(plan, resolver or BundleModuleResolver.of(bundle), bundle)

    async def create_session(
        self,
        session_id: str | None = None,
        parent_id: str | None = None,
        approval_system: ApprovalSystem | None = None,
        display_system: DisplaySystem | None = None,
        session_cwd: Path | str | None = None,
        is_resumed: bool = False,
        *,
        config: Mapping[str, Any] | None = None,
        transcript: Transcript | None = None,
        plugins: Plugins | None = None,
        capabilities: Mapping[str, Any] | None = None,
        parent: AmplifierSession | None = None,
    ) -> AmplifierSession:
        """Return a new session, initialised, that works in `session_cwd` (default: the current folder).

        `config` stands in for the mount plan, and is the session's from then on. `capabilities` are there before the
        modules are mounted. What the bundle has no code for, and mentions that lead nowhere in it, are looked for where
        its `parent` looks. A session that cannot be set up is cleaned up before the error is raised.
        """
        from amplifier_core.session import AmplifierSession

        session = AmplifierSession(
            with_default_session(deepcopy(self.mount_plan) if config is None else config),
            loader=parent.loader.another() if parent is not None and hasattr(parent.loader, "another") else None,
            session_id=session_id,
            parent_id=parent_id,
            approval_system=approval_system,
            display_system=display_system,
            is_resumed=is_resumed,
            transcript=transcript,
            plugins=plugins,
        )
        try:
            await self._set_up(session, session_cwd, capabilities or {}, parent)
        except BaseException:
            await session.cleanup()
            raise
        return session

    async def _set_up(
        self,
        session: AmplifierSession,
        cwd: Path | str | None,
        capabilities: Mapping[str, Any],
        parent: AmplifierSession | None,
    ) -> None:
        from .prompt import mention_resolver

        working_dir = _absolute(cwd)
        coordinator = session.coordinator
        modules, mentions = _layered(parent, self.resolver, mention_resolver(self.bundle, working_dir))
        await coordinator.mount("module-source-resolver", modules)
        known = {"session.working_dir": str(working_dir), "mention_resolver": mentions, **capabilities}
        for name, value in known.items():
            coordinator.register_capability(name, value)
        await session.initialize()
        await _give_system_prompt(session, self.bundle, working_dir)


def _absolute(cwd: Path | str | None) -> Path:
    path = Path(cwd or ".")
    return path if path.is_absolute() else path.expanduser().absolute()


def _layered(parent: AmplifierSession | None, modules: Any, mentions: Any) -> tuple[Any, Any]:
    """Return what finds modules and mentioned files: the bundle's own, then the parent's."""
    if parent is None:
        return modules, mentions
    from ..spawning.layers import LayeredMentions, LayeredResolver, layered

    return (
        layered(modules, parent.coordinator.get("module-source-resolver"), LayeredResolver),
        layered(mentions, parent.coordinator.get_capability("mention_resolver"), LayeredMentions),
    )


def with_default_session(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mount plan in which orchestrator and context are named; the other parts are those of `plan`."""
    default = {name: dict(spec) for name, spec in DEFAULT_SESSION.items()}
    return {**plan, "session": {**default, **(plan.get("session") or {})}}


def _leave_out_remote_sources(plan: dict[str, Any]) -> None:
    """Have modules found by name whose code would have to be fetched."""
    session = plan.get("session", {})
    holders = [(session[name], "source") for name in DEFAULT_SESSION if isinstance(session.get(name), dict)]
    holders += [(session, f"{name}_source") for name in DEFAULT_SESSION]
    holders += [(entry, "source") for _, _, entry in module_entries(plan)]
    for holder, key in holders:
        if isinstance(holder.get(key), str) and not is_path(holder[key]):
            del holder[key]


async def _give_system_prompt(session: AmplifierSession, bundle: Bundle, working_dir: Path) -> None:
    """Make the bundle's instruction what the model is told first, in each request anew where the context can."""
    if not bundle.instruction and not bundle.context:
        return
    from .prompt import RESOLVED, SystemPrompt

    coordinator = session.coordinator
    context = coordinator.get("context")
    prompt = SystemPrompt(bundle, working_dir, lambda data: coordinator.hooks.emit(RESOLVED, data))
    if hasattr(context, "set_system_prompt_factory"):
        await context.set_system_prompt_factory(prompt)
    else:
        await context.add_message({"role": "system", "content": await prompt()})
