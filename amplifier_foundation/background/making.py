"""Make a trigger as a bundle declares it: one that a plugin registers, or a module that mounts one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.errors import AmplifierError, TriggerConfigError, UnknownName

if TYPE_CHECKING:
    from amplifier_core.loader import ModuleLoader
    from amplifier_core.plugins import Plugins
    from amplifier_core.triggers import TriggerContext, TriggerSource

    from .config import TriggerConfig

EVENT_ROUTER = "event_router"
"""The capability by which a trigger that is mounted finds the events of sessions."""


async def make_trigger(
    declared: TriggerConfig, context: TriggerContext, plugins: Plugins, loader: ModuleLoader | None = None
) -> TriggerSource:
    """Return the trigger, bound to its context and configured.

    A module of the declared name, found as other modules are, mounts its trigger at `trigger`, and configures it
    itself. Raises `UnknownName` and `TriggerConfigError`.
    """
    module = declared.module
    registered = module in plugins.triggers
    try:
        trigger = plugins.triggers.get(module)() if registered else await _mounted(declared, context, plugins, loader)
        bind = getattr(trigger, "bind", None)
        if bind is not None:
            bind(context)
        if registered or bind is not None:
            trigger.configure(declared.config)
    except AmplifierError:
        raise
    except Exception as error:
        raise TriggerConfigError(module, "", f"{type(error).__name__}: {error}") from error
    return trigger


async def _mounted(
    declared: TriggerConfig, context: TriggerContext, plugins: Plugins, loader: ModuleLoader | None
) -> TriggerSource:
    from amplifier_core.loader import ModuleLoader

    coordinator = ModuleCoordinator()
    coordinator.register_capability("session.working_dir", str(context.working_dir))
    coordinator.register_capability(EVENT_ROUTER, context.events)
    try:
        mount = await (loader or ModuleLoader()).load(declared.module, dict(declared.config), None, coordinator)
    except UnknownName:
        plugins.triggers.get(declared.module)  # which says what there is
        raise
    await mount(coordinator)
    triggers: list[TriggerSource] = list(coordinator.get("triggers").values())
    if len(triggers) != 1:
        raise TriggerConfigError(declared.module, "", f"the module mounts {len(triggers)} triggers, not one")
    return triggers[0]
