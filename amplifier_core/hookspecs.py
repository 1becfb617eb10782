"""Specify the doors of the process: every hook of a plugin.

A hook's first word tells its caller and its power. `register_` hooks are called once at start and offer things by name.
`before_` hooks are awaited before something happens and may refuse it by raising; after five minutes they have failed.
`after_` hooks are awaited when it has happened; an exception of theirs is reported with the plugin's name and changes
nothing, and after a minute they are given up. The log names a plugin that takes more than 5 seconds. An exit, or a
`CancelledError` that nobody has asked for, is a failure of the hook.

    from amplifier_core.hookspecs import hookimpl

    @hookimpl
    def amplifier_register_trigger(register):
        register("trigger-heartbeat", HeartbeatTrigger)

Plugins are found through the entry-point group `amplifier`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from .hook_data import ForkRequest, ForkResult, Runner, SpawnOutcome, SpawnRequest
    from .storage import Delivery, SessionStorage, SessionStore
    from .triggers import TriggerEvent, TriggerSource

    TriggerFactory: TypeAlias = Callable[[], TriggerSource]
    StorageFactory: TypeAlias = Callable[[Mapping[str, Any]], SessionStore | SessionStorage]
    RunnerFactory: TypeAlias = Callable[[], Runner]

GROUP = "amplifier"

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)

Factory_contra = TypeVar("Factory_contra", contravariant=True)


class Register(Protocol[Factory_contra]):
    """Offers one thing under its name in bundles."""

    def __call__(self, name: str, factory: Factory_contra) -> None: ...


@hookspec
def amplifier_register_trigger(register: Register[TriggerFactory]) -> None:
    """Offer triggers: `register("trigger-timer", TimerTrigger)`; the factory is called without arguments.

    A name taken by another plugin is an error with the names of both distributions.
    """


@hookspec
def amplifier_register_storage(register: Register[StorageFactory]) -> None:
    """Offer storages: `register("storage-sqlite", open_sqlite)`; the factory is called with its configuration.

    That is a dict: `config` of the settings' `storage: {name, config}`, and `folder`, the path of the data folder,
    unless the config says a `folder` or a `path`.
    """


@hookspec
def amplifier_register_runner(register: Register[RunnerFactory]) -> None:
    """Offer runners: `register("runner-subprocess", SubprocessRunner)`; a runner executes a spawned session."""


@hookspec
async def amplifier_before_fork(request: ForkRequest) -> None:
    """Allow a fork by returning, refuse it by raising `ForkRefused`: for now, until a time, or for good."""


@hookspec
async def amplifier_after_fork(result: ForkResult) -> None:
    """See a finished fork."""


@hookspec
async def amplifier_before_spawn(request: SpawnRequest) -> None:
    """Allow a session to make a session by returning, refuse it by raising `SpawnRefused`: limits, budgets, hours.

        raise SpawnRefused(request.parent_id, "quiet hours", not_before=tomorrow_at_seven)

    A refused delivery of a background session is postponed: by default as its queue retries, with `not_before` to that
    time at least. With `final=True` it is skipped for good. The reason is recorded in each case.
    """


@hookspec
async def amplifier_after_spawn(result: SpawnOutcome) -> None:
    """See the end of a spawned session."""


@hookspec
async def amplifier_before_trigger(event: TriggerEvent) -> None:
    """Let an event through by returning, skip it by raising `TriggerError`; the reason is recorded with the event.

    Each new event for a background session is asked for, also one fired by hand; a further attempt at one is not.
    """


@hookspec
async def amplifier_after_trigger(delivery: Delivery) -> None:
    """See the end of a delivery: `delivery.state` is done or dead, `delivery.session_id` names its session."""
