"""Load the plugins of this process, list them, and call their hooks.

Entry points are loaded one by one: a failing one becomes a row with the cause, and the rest go on.
"""

from __future__ import annotations

import inspect
import logging
import os
import time
from copy import copy
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import pluggy

from . import hookspecs
from .eager import Waiting, start
from .entry_points import find_entry_points
from .errors import AmplifierError, NameTaken, PluginError, PluginLoadFailed, PluginRefused, UnknownName
from .frozen import slotted
from .plugin_guard import Guard
from .plugin_manager import HookManager
from .plugin_marks import LoadingMarks

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from .entry_points import EntryPoint
    from .hook_data import ForkRequest, ForkResult, SpawnOutcome, SpawnRequest
    from .hookspecs import RunnerFactory, StorageFactory, TriggerFactory
    from .storage import Delivery
    from .triggers import TriggerEvent

logger = logging.getLogger(__name__)

IMPORT_TIME_LIMIT = 10.0
"""The most seconds to import one plugin and have it register."""

SPECS_GROUP = f"{hookspecs.GROUP}.hookspecs"
"""Entry points of modules with further hook specifications."""
_LOADED, _BLOCKED = "AMPLIFIER_LOAD_PLUGINS", "AMPLIFIER_BLOCK_PLUGINS"
_OFFER = "amplifier_register_"

SLOW = "it took too long to load, and is skipped for ten minutes, or until it changes"

Factory = TypeVar("Factory")


@slotted
class PluginRow:
    """One installed plugin, and whether it works."""

    name: str
    dist: str
    version: str
    target: str
    status: Literal["loaded", "failed", "blocked"] = "loaded"
    error: str = ""
    offers: list[str] = field(default_factory=list)
    seconds: float = field(default=0.0, compare=False)
    """The time of its import and registration."""

    @property
    def owner(self) -> str:
        """The distribution and its version, for error messages."""
        return f"{self.dist} {self.version}".strip()


class Registry(Generic[Factory]):
    """The names of one kind, each with its factory and its distribution."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._offers: dict[str, list[tuple[Factory, str]]] = {}

    def add(self, name: str, factory: Factory, owner: str) -> None:
        """Record a factory. Raises `NameTaken`; the name is then unusable until one of the owners is gone."""
        offers = self._offers.setdefault(name, [])
        offers.append((factory, owner))
        if len(offers) > 1:
            raise NameTaken(self.kind, name, (offers[0][1], owner))

    def get(self, name: str) -> Factory:
        """Return the factory. Raises `UnknownName`, `NameTaken`."""
        offers = self._offers.get(name)
        if not offers:
            raise UnknownName(self.kind, name, self._offers)
        if len(offers) > 1:
            raise NameTaken(self.kind, name, (offers[0][1], offers[1][1]))
        return offers[0][0]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._offers))

    def __contains__(self, name: object) -> bool:
        return name in self._offers


class Plugins:
    """The plugins of one process: their offers by name, and their moment hooks.

    `register` adds a plugin object, as `load_plugins` does for every entry point. Nothing here is global: two instances
    do not know each other.
    """

    def __init__(self, extra_specs: Iterable[ModuleType] = ()) -> None:
        self._specs = (hookspecs, *extra_specs)
        self._manager = HookManager(self._specs)
        self.rows: list[PluginRow] = []
        self._registries: dict[str, Registry[Any]] = {
            name: Registry(name.removeprefix(_OFFER)) for name in vars(self._manager.hook) if name.startswith(_OFFER)
        }
        self.triggers: Registry[TriggerFactory] = self.registry_of("trigger")
        self.storages: Registry[StorageFactory] = self.registry_of("storage")
        self.runners: Registry[RunnerFactory] = self.registry_of("runner")
        self._owners: dict[str, str] = {}
        self._offers: dict[str, dict[str, list[str]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def without(self, name: str) -> Plugins:
        """Return the same plugins but one; a hook registered in one of the two later is no hook of the other."""
        rest = copy(self)
        rest._manager, rest.rows = HookManager(self._specs), [row for row in self.rows if row.name != name]
        rest._owners = {each: owner for each, owner in self._owners.items() if each != name}
        for each in rest._owners:
            rest._manager.register(self._manager.get_plugin(each), each)
        return rest

    def registry_of(self, kind: str) -> Registry[Any]:
        """Return the registry of `amplifier_register_<kind>`. Raises `KeyError` without such a hook."""
        return self._registries[f"{_OFFER}{kind}"]

    def offers_of(self, plugin: str) -> dict[str, list[str]]:
        """Return the registered names of a plugin by kind: `{"trigger": ["trigger-timer"]}`; {} for none."""
        return {kind: list(names) for kind, names in self._offers.get(plugin, {}).items() if names}

    def hooks_of(self, plugin: str) -> list[str]:
        """Return the names of the hooks that a registered plugin implements, sorted."""
        callers = self._manager.get_hookcallers(self._manager.get_plugin(plugin)) or ()
        return sorted(hook.name for hook in callers)

    def register(self, plugin: object, name: str = "", row: PluginRow | None = None) -> PluginRow:
        """Take one plugin: a module or object with `@hookimpl` functions.

        Raises `NameTaken` if its name, or a name that it offers, is registered already. Where it has the very name
        that it offers, the plugin of another distribution that offered it before fails instead, with a warning. Raises
        `PluginLoadFailed` for every other fault: an unknown hook, wrong arguments, or a hook that is async where its
        specification is not, or the reverse. A refused plugin is never called later.
        """
        name = name or getattr(plugin, "__name__", type(plugin).__name__)
        row = row or PluginRow(name, "this program", "", name)
        if name in self._owners:
            raise NameTaken("plugin", name, (self._owners[name], row.owner))
        try:
            self._take(plugin, name, row)
        except BaseException as error:
            if self._manager.has_plugin(name):
                self._manager.unregister(name=name)
            if isinstance(error, AmplifierError) or not isinstance(error, Exception):
                raise
            raise PluginLoadFailed(row.name, row.dist, row.version, _one_line(error)) from error
        self._owners[name] = row.owner
        if row not in self.rows:
            self.rows.append(row)
        return row

    def _take(self, plugin: object, name: str, row: PluginRow) -> None:
        misuse: str | None = "it is registered already under another name"
        if not self._manager.is_registered(plugin):
            try:
                self._manager.register(plugin, name)
                misuse = self._misuse(plugin)
            except pluggy.PluginValidationError as error:
                misuse = self._describe_signature(plugin) or _one_line(error)
        if misuse is not None:
            raise PluginLoadFailed(row.name, row.dist, row.version, misuse)
        for hook, implementation in self._implementations(plugin):
            registry = self._registries.get(hook.name)
            if registry is not None:
                implementation.function(register=self._registrar(registry, row))

    def _registrar(self, registry: Registry[Any], row: PluginRow) -> Any:
        def register(name: str, factory: object) -> None:
            if not isinstance(name, str) or not name or factory is None:
                raise ValueError(f"register({name!r}, {factory!r}): give a name and a factory")
            having = (each for each in self.rows if name in each.offers)
            other = next((each for each in having if name in self._offers[each.name].get(registry.kind, ())), row)
            if other.owner != row.owner and name == other.name:
                raise NameTaken(registry.kind, name, (other.owner, row.owner), first_counts=True)
            if other.owner != row.owner and name == row.name:
                del registry._offers[name]
                self._offers[other.name][registry.kind].remove(name)
                other.offers.remove(name)
                if self._owners.pop(other.name, None):
                    self._manager.unregister(name=other.name)
                _fail(other, NameTaken(registry.kind, name, (row.owner, other.owner), first_counts=True))
            registry.add(name, factory, row.owner)
            row.offers.append(name)
            self._offers.setdefault(row.name, {}).setdefault(registry.kind, []).append(name)

        return register

    def _implementations(self, plugin: object) -> Iterator[tuple[pluggy.HookCaller, pluggy.HookImpl]]:
        for hook in self._manager.get_hookcallers(plugin) or ():
            yield from ((hook, each) for each in hook.get_hookimpls() if each.plugin is plugin)

    def _misuse(self, plugin: object) -> str | None:
        """Return the fault in a plugin's hooks that pluggy does not refuse; None without one."""
        known = [name for name, hook in vars(self._manager.hook).items() if hook.spec is not None]
        for hook, implementation in self._implementations(plugin):
            if hook.spec is None:
                from difflib import get_close_matches  # rarely needed, and not free

                close = get_close_matches(hook.name, known, n=1)
                return f"no hook '{hook.name}'" + (f" (did you mean '{close[0]}'?)" if close else "")
            if implementation.wrapper or implementation.hookwrapper:
                return f"{hook.name} must not be a wrapper"
            is_async = inspect.iscoroutinefunction(implementation.function)
            if is_async != inspect.iscoroutinefunction(hook.spec.function):
                return f"{hook.name} must {'not ' if is_async else ''}be declared 'async def'"
        for name in known:
            if hasattr(plugin, name) and self._manager.parse_hookimpl_opts(plugin, name) is None:
                return f"{name} is not marked with @hookimpl"
        return None

    def _describe_signature(self, plugin: object) -> str | None:
        """Return the fault in the parameters of a plugin's hooks that pluggy refuses."""
        for name, hook in vars(self._manager.hook).items():
            implementation = getattr(plugin, name, None)
            if hook.spec is not None and callable(implementation):
                taken, offered = inspect.signature(implementation).parameters, hook.spec.argnames
                if unknown := sorted(set(taken) - set(offered)):
                    return f"{name} takes '{unknown[0]}', and gets ({', '.join(offered)}) by name"
        return None

    def bound_to(self, loop: asyncio.AbstractEventLoop) -> Plugins:
        """Return the same plugins for another thread: their async hooks run in `loop`, and the caller waits."""
        bound = copy(self)
        bound._loop = loop
        return bound

    async def _await_each(self, hook: str, argument: str, value: object, *, observing: bool) -> None:
        if not (implementations := getattr(self._manager.hook, hook).get_hookimpls()):
            return
        import asyncio  # not at import: a command without a loop needs no loop of plugins

        loop = asyncio._get_running_loop()
        if self._loop is not None and loop is not self._loop:
            asking = self._await_each(hook, argument, value, observing=observing)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._loop))
            return
        task = asyncio.current_task() if loop is not None else None
        before = task.cancelling() if task is not None else 0
        for implementation in reversed(implementations):
            arguments = {argument: value} if argument in implementation.argnames else {}
            try:
                outcome = start(implementation.function(**arguments))
                if isinstance(outcome, Waiting):  # a hook that never waits needs no timer
                    from .awaited_hooks import finish_hook  # it needs asyncio

                    await finish_hook(outcome, implementation.plugin_name, hook, observing=observing)
            except BaseException as raised:
                from .awaited_hooks import handle_failure

                await handle_failure(raised, before, implementation.plugin_name, hook, observing=observing)

    async def before_fork(self, request: ForkRequest) -> None:
        """Ask every plugin. Raises `ForkRefused`."""
        await self._await_each("amplifier_before_fork", "request", request, observing=False)

    async def after_fork(self, result: ForkResult) -> None:
        """Tell every plugin."""
        await self._await_each("amplifier_after_fork", "result", result, observing=True)

    async def before_spawn(self, request: SpawnRequest) -> None:
        """Ask every plugin. Raises `SpawnRefused`."""
        await self._await_each("amplifier_before_spawn", "request", request, observing=False)

    async def after_spawn(self, result: SpawnOutcome) -> None:
        """Tell every plugin."""
        await self._await_each("amplifier_after_spawn", "result", result, observing=True)

    async def before_trigger(self, event: TriggerEvent) -> None:
        """Ask every plugin. Raises `TriggerError` when one skips the event."""
        await self._await_each("amplifier_before_trigger", "event", event, observing=False)

    async def after_trigger(self, delivery: Delivery) -> None:
        """Tell every plugin."""
        await self._await_each("amplifier_after_trigger", "delivery", delivery, observing=True)


def load_plugins(
    *,
    environ: Mapping[str, str] | None = None,
    safe_mode: bool = False,
    extra_specs: Iterable[ModuleType] = (),
    marks: Path | None = None,
) -> Plugins:
    """Load the installed plugins, and return them in a fresh `Plugins`.

    `AMPLIFIER_LOAD_PLUGINS=a,b` allows these alone (empty: none), `AMPLIFIER_BLOCK_PLUGINS=a,b` denies these; both name
    entry points of the group `amplifier`, and an unknown name is logged. `safe_mode` loads none. Never raises for a bad
    plugin: its row names the cause. Further hook specifications come from the entry points of the group
    `amplifier.hookspecs`, and from `extra_specs`.

    While a plugin is loaded its text for stdout goes to stderr, a change of the working folder is undone, and both are
    reported. In the folder `marks` a small file names the plugin: one that ended its process is tried in a new process
    the next time, and skipped if it ends that one too. One that took too long is skipped
    for ten minutes, or until its package changes.
    """
    environ = os.environ if environ is None else environ
    plugins = Plugins([*_specs_of_others(), *extra_specs])
    entries = find_entry_points(hookspecs.GROUP)
    if not safe_mode:
        _report_unknown(environ, {entry.name for entry in entries})
    with LoadingMarks(None if safe_mode else marks) as loading:
        for entry in entries:
            row = PluginRow(entry.name, *entry.dist, entry.value)
            plugins.rows.append(row)
            if safe_mode or not is_allowed(entry.name, environ):
                row.status = "blocked"
            elif loading.is_guilty(entry.name):
                _fail(row, PluginLoadFailed(row.name, row.dist, row.version, "it ends the process that loads it"))
            elif loading.is_slow(entry):
                _fail(row, PluginLoadFailed(row.name, row.dist, row.version, SLOW))
            else:
                loading.note(entry.name)
                _load(plugins, entry, row, loading)
    return plugins


def _specs_of_others() -> Iterator[ModuleType]:
    for entry in find_entry_points(SPECS_GROUP):
        try:
            yield entry.load()
        except (Exception, SystemExit) as error:
            logger.warning("the hooks that '%s' specifies are unknown: %s", entry.value, _one_line(error))


def _load(plugins: Plugins, entry: EntryPoint, row: PluginRow, loading: LoadingMarks) -> None:
    guard, began = Guard(), time.perf_counter()
    try:
        with guard.watch(IMPORT_TIME_LIMIT):
            plugins.register(entry.load(), entry.name, row)
    except PluginRefused as error:
        row.status, row.error = "blocked", error.cause
        if error.is_fault:
            _fail(row, error)
    except BaseException as error:  # a plugin's exit() must not end the program
        from .cancellation import ends_program  # rarely needed

        if ends_program(error):
            raise
        if guard.is_late:
            loading.note_slow(entry)
        _fail(row, error)
    row.seconds = time.perf_counter() - began
    for fault in guard.faults:
        logger.warning("plugin '%s' of %s: %s", row.name, row.owner, fault)


def _fail(row: PluginRow, error: BaseException) -> None:
    """Write the cause of a failure into its row, and log it."""
    row.status = "failed"
    row.error = error.cause if isinstance(error, PluginLoadFailed | PluginRefused) else _one_line(error)
    failure = error if isinstance(error, PluginError) else PluginLoadFailed(row.name, row.dist, row.version, row.error)
    logger.warning("%s", failure)


def _report_unknown(environ: Mapping[str, str], known: Iterable[str]) -> None:
    for variable in (_LOADED, _BLOCKED):
        for name in sorted(_names(environ.get(variable, "")).difference(known)):
            logger.warning("%s: %s", variable, UnknownName("plugin", name, known))


def is_allowed(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether the environment has the plugin `name` loaded."""
    allowed, blocked = environ.get(_LOADED), environ.get(_BLOCKED, "")
    if allowed is not None and name not in _names(allowed):
        return False
    return name not in _names(blocked)


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",") if name.strip()}


def _one_line(error: BaseException) -> str:
    from .raised import describe_at, find_place  # rarely needed, and not free

    place = "" if isinstance(error, AmplifierError) else find_place(error)
    return " ".join(describe_at(error, place).split())
