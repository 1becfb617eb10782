"""Make sessions of a bundle."""

from __future__ import annotations

from copy import deepcopy
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import amplifier_core
from amplifier_core.frozen import frozen

from .. import mentions
from ..documents.dicts import at_path
from ..documents.local_paths import is_path
from .capability_layers import INHERITED, LayeredMentions, LayeredResolver, add_layer
from .lifecycle import emit_failed, emit_ready
from .module_resolver import BundleModuleResolver
from .preferences import KEY as PREFERENCES
from .preferences import apply_provider_preferences
from .prompt import RESOLVED, SystemPrompt, mention_resolver
from .sections import DEFAULT_SESSION, FIELD_SPELLING
from .sources import module_entries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.display import DisplaySystem
    from amplifier_core.loader import ModuleLoader
    from amplifier_core.permissions import PermissionGate, Policy
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.transcript import Transcript

    from .model import Bundle


INSTRUCTION = "instruction_of"
"""The member of a message's metadata with the name of the bundle whose instruction it is."""
BUNDLE_FOLDERS = "bundle.folders"
"""The capability with the folders of a session's bundles, the winning one first.

True for a folder whose files count as they were trusted alone.
"""

spawners: list[Callable[..., Awaitable[dict[str, Any]]]] = []
"""The function that `PreparedBundle.spawn` calls; `amplifier_foundation.spawn`, which stands above, adds it."""


@frozen
class PreparedBundle:
    """A bundle with its mount plan and the resolver of its modules.

    The mount plan has only the bundle's own values: `DEFAULT_SESSION` is filled in for each new session, after a
    spawned one has inherited its parent's orchestrator and context.
    """

    mount_plan: dict[str, Any]
    resolver: Any
    bundle: Bundle

    @classmethod
    def of(cls, bundle: Bundle, resolver: Any = None) -> PreparedBundle:
        """Return `bundle` prepared; the default `resolver` is a `BundleModuleResolver`."""
        plan = bundle.to_mount_plan()
        session = plan.get("session", {})
        holders = [(session[name], "source") for name in DEFAULT_SESSION if isinstance(session.get(name), dict)]
        holders += [(session, f"{name}_source") for name in DEFAULT_SESSION]
        holders += [(entry, "source") for _, _, entry in module_entries(plan)]
        for holder, key in holders:  # a module with remote code is found by name, as an installed one
            if isinstance(holder.get(key), str) and not is_path(holder[key]):
                del holder[key]
        return cls(plan, resolver or BundleModuleResolver.of(bundle), bundle)

    def hosting_plan(self) -> dict[str, Any]:
        """Return a copy of the mount plan with the declared background sessions, under `background_sessions`.

        An orchestrator that runs them itself reads them there, or in its own config when the bundle has them there. So
        this is the plan of a session that nobody else runs them for; those below it have the mount plan. Those that run
        this bundle have its path.
        """
        plan, path = deepcopy(self.mount_plan), self.bundle.source_path
        declared = [each.model_dump(exclude_unset=True, by_alias=True) for each in self.bundle.background_sessions]
        if path is not None:
            declared = [each if each.get("bundle") else {**each, "bundle": str(path)} for each in declared]
        if declared:
            plan["background_sessions"] = declared
            layers = [each.positions for each in (self.bundle, *self.bundle.layers)]
            orchestrator = at_path(plan, FIELD_SPELLING[:2])
            is_in_config = any(each is not None and FIELD_SPELLING in each.values for each in layers)
            if is_in_config and isinstance(orchestrator, dict):
                orchestrator["config"] = {
                    **(orchestrator.get("config") or {}),
                    "background_sessions": deepcopy(declared),
                }
        return plan

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
        permissions: Policy | None = None,
    ) -> AmplifierSession:
        """Return a new initialised session working in `session_cwd` (default: the current folder).

        `config` replaces the mount plan and becomes the session's; without it, and without a `parent`, the session has
        the `hosting_plan`. `capabilities` are registered before the modules are mounted. Modules without code in the
        bundle, and mentions without a file in it, are resolved by the `parent`. Its tool calls are held to the policy
        of the `parent`, else to `permissions`, and to the bundle's own rules. A program that loads a bundle has decided
        that its code may run: nobody is asked. The code of a bundle loaded by `security.load_trusted` is checked when
        it is imported, with `NotTrusted`. The session's hooks receive `bundle:loaded` and `bundle:prepared`. If the
        set-up fails, they receive `bundle:failed`, and the session is cleaned up before the error is raised:
        `RuntimeError`, for example, without an orchestrator or a context.
        """
        if config is None:
            config = deepcopy(self.mount_plan) if parent is not None else self.hosting_plan()
        plan = with_default_session(config)
        if plan["session"].get(PREFERENCES):
            plan = apply_provider_preferences(plan, plan["session"][PREFERENCES])
        working_dir = _make_absolute(session_cwd)
        session = amplifier_core.AmplifierSession(  # imported with the first session
            plan,
            loader=_make_loader(parent),
            session_id=session_id,
            parent_id=parent_id,
            approval_system=approval_system,
            display_system=display_system,
            is_resumed=is_resumed,
            transcript=transcript,
            plugins=plugins,
            permissions=self._make_gate(parent, permissions, working_dir),
        )
        try:
            await self._set_up(session, working_dir, capabilities or {}, parent)
        except BaseException as error:
            if isinstance(error, Exception):
                from amplifier_core.raised import note_origin  # rarely needed

                note_origin(error, session.coordinator.mount_points)
                await emit_failed(session, self.bundle.name, error)
            await session.cleanup()
            raise
        return session

    def _make_gate(
        self, parent: AmplifierSession | None, permissions: Policy | None, working_dir: Path
    ) -> PermissionGate | None:
        """Return the gate of a session; None when nobody has rules for it."""
        outer = parent.coordinator.permissions if parent is not None else None
        policy = outer.policy if outer is not None else permissions
        if not self.bundle.permissions and policy is None:
            return None
        from amplifier_core.permissions import PermissionGate, Policy

        from .permissions import bundle_layer

        layer = bundle_layer(self.bundle)
        policy = policy or Policy()
        return PermissionGate(policy.below(layer) if layer is not None else policy, working_dir)

    async def spawn(self, child_bundle: Bundle, instruction: str, **options: Any) -> dict[str, Any]:
        """Run `instruction` in a session of `child_bundle`, as `spawn_composed` describes."""
        if not spawners:
            import_module("amplifier_foundation").spawn_bundle  # noqa: B018 - the name is loaded with what it stands in
        [spawner] = spawners
        return await spawner(self, child_bundle, instruction, **options)

    async def _set_up(
        self,
        session: AmplifierSession,
        working_dir: Path,
        capabilities: Mapping[str, Any],
        parent: AmplifierSession | None,
    ) -> None:
        coordinator, modules = session.coordinator, self.resolver
        mentioned: Any = mention_resolver(self.bundle, working_dir)
        if parent is not None:
            outer = parent.coordinator
            inherited = [str(each["module"]) for each in session.config.get("hooks") or () if each.get(INHERITED)]
            layered = partial(LayeredResolver, inherited=inherited)
            modules = add_layer(modules, outer.get("module-source-resolver"), layered)
            mentioned = add_layer(mentioned, outer.get_capability("mention_resolver"), LayeredMentions)
        await coordinator.mount("module-source-resolver", modules)
        known: dict[str, Any] = {
            "session.working_dir": str(working_dir),
            "mention_resolver": mentioned,
            "mention_deduplicator": mentions.ContentDeduplicator(),  # a child reads what its parent was told already
            BUNDLE_FOLDERS: self._list_folders(parent),
            **capabilities,
        }
        coordinator.register_capabilities(known)
        await session.initialize()
        _require_mounted(session)
        if session.config["session"].get(PREFERENCES):
            from .fallback import add_fallback

            add_fallback(session)
        await self._set_system_prompt(session, working_dir)
        await emit_ready(session, self.bundle)

    def _list_folders(self, parent: AmplifierSession | None) -> dict[str, bool]:
        """Return the folders of the bundle and of the bundles above it, and whether their files must be trusted."""
        bundle, guard = self.bundle, self.bundle.guard
        paths = [str(each.base_path) for each in (*reversed(bundle.layers), bundle) if each.base_path is not None]
        found = dict.fromkeys(paths, False) if guard is None else {path: guard.checks_texts(path) for path in paths}
        above = parent.coordinator.get_capability(BUNDLE_FOLDERS) if parent is not None else None
        return {**found, **above, **found} if above else found  # in this order; the bundle's own values count

    async def _set_system_prompt(self, session: AmplifierSession, working_dir: Path) -> None:
        """Make the bundle's instruction the system prompt, built for each request where the context supports it.

        Any other context has it as a message with a mark: in a resumed history, it replaces the one of before.
        """
        if not self.bundle.instruction and not self.bundle.context:
            return
        coordinator = session.coordinator
        context = coordinator.get("context")
        prompt = SystemPrompt(self.bundle, working_dir, lambda data: coordinator.hooks.emit(RESOLVED, data))
        if hasattr(context, "set_system_prompt_factory"):
            await context.set_system_prompt_factory(prompt)
            return
        mark = {INSTRUCTION: self.bundle.name}
        message = {"role": "system", "content": await prompt(), "metadata": mark}
        history = list(await session.history())
        if any((each.get("role"), each.get("content")) == ("system", message["content"]) for each in history):
            return
        about = [each.get("metadata") for each in history]
        before = [at for at, each in enumerate(about) if isinstance(each, dict) and mark.items() <= each.items()]
        if before:
            history[before[-1]] = {**history[before[-1]], **message}
            await context.set_messages(history)
        else:
            await context.add_message(message)


def _require_mounted(session: AmplifierSession) -> None:
    """Raise `RuntimeError` for an orchestrator or a context whose module has mounted nothing."""
    for name, title in (("orchestrator", "orchestrator"), ("context", "context manager")):
        if session.coordinator.get(name) is None:
            spec = session.config["session"][name]
            module = spec["module"] if isinstance(spec, dict) else spec
            raise RuntimeError(f"Cannot initialize without {title}: module '{module}' has mounted none")


def _make_loader(parent: AmplifierSession | None) -> ModuleLoader:
    """Return a loader that knows the installed modules of the parent's."""
    known, (kind, own_kind) = parent.loader if parent is not None else None, _loader_classes()
    return known.another(own_kind) if isinstance(known, kind) else own_kind()


@cache
def _loader_classes() -> tuple[type[ModuleLoader], type[ModuleLoader]]:
    from amplifier_core.loader import ModuleLoader

    from .module_loader import BundleModuleLoader

    return ModuleLoader, BundleModuleLoader


def _make_absolute(cwd: Path | str | None) -> Path:
    path = _path_of(cwd) if isinstance(cwd, str) and cwd else Path(cwd or ".")
    return path if path.is_absolute() else path.expanduser().absolute()


_path_of = lru_cache(maxsize=64)(Path)
"""To take a path apart takes 6 µs."""


def with_default_session(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mount plan with orchestrator and context; the other parts are shared with `plan`."""
    default = {name: dict(spec) for name, spec in DEFAULT_SESSION.items()}
    return {**plan, "session": {**default, **(plan.get("session") or {})}}
