"""Make a trigger as a bundle declares it, by a plugin, a module or the program's own loader; stop it."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from amplifier_core.cancellation import own_failure
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.eager import Waiting, is_awaitable, start
from amplifier_core.errors import AmplifierError, TriggerConfigError, TriggerError, UnknownName
from amplifier_core.mounting import MOUNT_TIME_LIMIT
from amplifier_core.raised import describe_raised
from amplifier_core.time_limits import finish
from amplifier_core.utils.secrets import redact_text

from ..bundle.trigger_check import make_registered
from ..sessions.presence import this_host
from .hosts.sharing import alone
from .keys import key_on_host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from amplifier_core.loader import ModuleLoader
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerSource

    from ..bundle.background_config import TriggerConfig

    TriggerLoader: TypeAlias = Callable[[dict[str, Any]], TriggerSource]

logger = logging.getLogger(__name__)

STOP_TIME_LIMIT = 5.0
"""Seconds a trigger's `stop` may take."""
EVENT_ROUTER = "event_router"
"""The capability of a mounted trigger for the events of sessions."""


async def make_trigger(
    declared: TriggerConfig,
    context: TriggerContext,
    plugins: Plugins,
    loader: ModuleLoader | None = None,
    trigger_loader: TriggerLoader | None = None,
) -> TriggerSource:
    """Return the trigger, bound to its context and configured.

    Raises `UnknownName`, `TriggerConfigError`, and `TriggerError` where a registered trigger cannot be made.

    `trigger_loader` gets the declaration (`module`, `config`) and returns an unconfigured trigger. Without it, a
    registered trigger of the declared name is made, else a module of that name mounts one and configures it itself.
    A trigger with `set_event_router` gets the router.
    """
    module = declared.module
    is_plain = trigger_loader is not None or module in plugins.triggers
    try:
        if trigger_loader is not None:
            trigger = trigger_loader({"module": module, "config": dict(declared.config)})
        elif is_plain:
            trigger = make_registered(module, plugins)
        else:
            trigger = await _mount_trigger(declared, context, plugins, loader)
        bind = getattr(trigger, "bind", None)
        if bind is not None:
            bind(context)
        if is_plain or bind is not None:
            trigger.configure(declared.config)
        if hasattr(trigger, "set_event_router"):
            trigger.set_event_router(context.events)
    except AmplifierError:
        raise
    except BaseException as raised:
        error = own_failure(raised)
        text = f"ValueError: {error}" if type(error) is ValueError else describe_raised(error)
        raise TriggerConfigError(module, "", text) from error
    return trigger


@asynccontextmanager
async def open_stream(trigger: TriggerSource, module: str) -> AsyncIterator[AsyncIterator[TriggerEvent]]:
    """Yield the events of a trigger's watch, and close it with the block; other iterators than generators need not be.

    A group of tasks in a generator passes the exit on that closes it. Raises `TriggerError` for a `watch` that is no
    asynchronous generator.
    """
    stream: Any = trigger.watch()
    if not hasattr(stream, "__aiter__"):
        if isinstance(stream, CoroutineType):
            stream.close()
        kind = type(stream).__name__
        raise TriggerError(module, f"its watch returns {kind}: write `async def watch` with a yield in it")
    stream = aiter(stream)
    try:
        yield stream
    finally:
        if (aclose := getattr(stream, "aclose", None)) is not None:
            try:
                await aclose()
            except BaseExceptionGroup as group:
                if (errors := group.split(GeneratorExit)[1]) is not None:
                    raise errors from None


def url_of(trigger: TriggerSource) -> str:
    """Return the URL of a trigger that people are to call, without secrets; '' for none."""
    url = getattr(trigger, "url", "")
    return redact_text(url) if isinstance(url, str) else ""


def is_local(declared: TriggerConfig, plugins: Plugins) -> bool:
    """Return whether a trigger watches what belongs to one host: the class of a registered trigger says `local`."""
    return declared.module in plugins.triggers and bool(getattr(plugins.triggers.get(declared.module), "local", False))


async def take_over_state(store: DurableStore, project: str, name: str, key: str) -> dict[str, Any]:
    """Return the state of a local trigger that a copy of the store has brought, and store it under `key`.

    The key has the host on a shared store alone. Of several hosts, the first one takes the state.
    """
    former = key_on_host(name, this_host()) if key == name else name
    place = getattr(store, "shared_name", str)(project)  # its folder may have another path on another host
    async with alone(store, f"state of {name} in {place}"):
        if state := await store.trigger_state(project, former):
            await store.save_trigger_state(project, key, state)
            await store.save_trigger_state(project, former, {})
        return state


async def _mount_trigger(
    declared: TriggerConfig, context: TriggerContext, plugins: Plugins, loader: ModuleLoader | None
) -> TriggerSource:
    from amplifier_core.loader import ModuleLoader

    coordinator = ModuleCoordinator()
    coordinator.register_capability("session.working_dir", str(context.working_dir))
    coordinator.register_capability(EVENT_ROUTER, context.events)
    try:
        mount = await (loader or ModuleLoader()).load(declared.module, dict(declared.config), None, coordinator)
    except UnknownName:
        plugins.triggers.get(declared.module)  # raises the error that lists the registered triggers
        raise
    if isinstance(mounting := start(mount(coordinator)), Waiting):
        try:
            await finish(mounting, MOUNT_TIME_LIMIT, "its mount", f"trigger {context.name}")
        except TimeoutError as error:
            raise TriggerError(declared.module, str(error)) from error
    triggers: list[TriggerSource] = list(coordinator.get("triggers").values())
    if len(triggers) != 1:
        raise TriggerConfigError(declared.module, "", f"the module mounts {len(triggers)} triggers, not one")
    return triggers[0]


def call_method(trigger: TriggerSource, name: str) -> Awaitable[object]:
    """Call an `async def` method of a trigger. Raises `TypeError` for a plain function."""
    work = getattr(trigger, name)()
    if not is_awaitable(work):
        raise TypeError(f"its {name} returns {type(work).__name__}: write `async def {name}`")
    return cast("Awaitable[object]", work)


async def stop_trigger(trigger: TriggerSource, name: str) -> bool:
    """Stop a trigger, if it has a `stop`; a failing or hanging one is logged by its name. Return whether it stopped."""
    if not hasattr(trigger, "stop"):
        return True
    try:
        if isinstance(stopping := start(call_method(trigger, "stop")), Waiting):
            await finish(stopping, STOP_TIME_LIMIT, "its stop", f"trigger {name}")
    except BaseException as raised:
        error = own_failure(raised)
        text = str(error) if isinstance(error, TimeoutError) else describe_raised(error)
        logger.warning("trigger %s did not stop: %s", name, text)
        return False
    return True
