"""Load the plugins of this process, list them, and call their hooks.

Entry points are loaded one by one: one that fails becomes a row that says why, and the rest go on.
"""

from __future__ import annotations

import inspect
import logging
import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import pluggy

from . import hookspecs
from .errors import AmplifierError, NameTaken, PluginError, PluginLoadFailed, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from importlib.metadata import EntryPoint
    from types import FrameType, ModuleType

    from .hookspecs import RunnerFactory, StorageFactory, TriggerFactory
    from .moments import ForkRequest, ForkResult, SpawnOutcome, SpawnRequest
    from .storage import Delivery
    from .triggers import TriggerEvent

logger = logging.getLogger(__name__)

IMPORT_TIME_LIMIT = 10.0
"""Seconds that one plugin may take to import before it is given up."""

SPECS_GROUP = f"{hookspecs.GROUP}.hookspecs"
"""Entry points of modules that specify hooks besides the kernel's."""
_OFFER = "amplifier_register_"

Factory = TypeVar("Factory")


@dataclass(slots=True)
class PluginRow:
    """One plugin as `amplifier plugin list` shows it."""

    name: str
    dist: str
    version: str
    target: str
    status: Literal["loaded", "failed", "blocked"] = "loaded"
    error: str = ""
    offers: list[str] = field(default_factory=list)

    @property
    def owner(self) -> str:
        """The distribution and its version, for error messages."""
        return f"{self.dist} {self.version}".strip()


class Registry(Generic[Factory]):
    """Names of one kind, each with its factory and the distribution that offered it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._offers: dict[str, list[tuple[Factory, str]]] = {}

    def add(self, name: str, factory: Factory, owner: str) -> None:
        """Record an offer. Raises `NameTaken`; the name is then unusable until one of the owners is gone."""
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
    """The plugins of one process: what they offer by name, and their moments.

    `register` adds a plugin object, as `load_plugins` does for every entry point. Nothing here is global: two of these
    do not know each other.
    """

    def __init__(self, extra_specs: Iterable[ModuleType] = ()) -> None:
        self._manager = pluggy.PluginManager(hookspecs.GROUP)
        for specs in (hookspecs, *extra_specs):
            self._manager.add_hookspecs(specs)
        self.rows: list[PluginRow] = []
        self._registries: dict[str, Registry[Any]] = {
            name: Registry(name.removeprefix(_OFFER)) for name in vars(self._manager.hook) if name.startswith(_OFFER)
        }
        self.triggers: Registry[TriggerFactory] = self.offered("trigger")
        self.storages: Registry[StorageFactory] = self.offered("storage")
        self.runners: Registry[RunnerFactory] = self.offered("runner")
        self._owners: dict[str, str] = {}

    def offered(self, kind: str) -> Registry[Any]:
        """Return what is offered through `amplifier_register_<kind>`. Raises `KeyError` when there is no such hook."""
        return self._registries[f"{_OFFER}{kind}"]

    def register(self, plugin: object, name: str = "", row: PluginRow | None = None) -> PluginRow:
        """Take one plugin: a module or object with `@hookimpl` functions.

        Raises `NameTaken` for a plugin's name, or a name that it offers, that is registered already, and
        `PluginLoadFailed` for everything else: a hook that does not exist, has other arguments, or is not async where
        the specification is. A plugin that is refused is never called later.
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
            self._manager.register(plugin, name)
            misuse = self._misuse(plugin)
        if misuse is not None:
            raise PluginLoadFailed(row.name, row.dist, row.version, misuse)
        for hook, implementation in self._implementations(plugin):
            registry = self._registries.get(hook.name)
            if registry is not None:
                implementation.function(register=_registrar(registry, row))

    def _implementations(self, plugin: object) -> Iterator[tuple[pluggy.HookCaller, pluggy.HookImpl]]:
        for hook in self._manager.get_hookcallers(plugin) or ():
            yield from ((hook, each) for each in hook.get_hookimpls() if each.plugin is plugin)

    def _misuse(self, plugin: object) -> str | None:
        """Return what is wrong with a plugin's hooks, as far as pluggy lets it pass."""
        known = [name for name, hook in vars(self._manager.hook).items() if hook.spec is not None]
        for hook, implementation in self._implementations(plugin):
            if hook.spec is None:
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

    async def _await_each(self, hook: str, argument: str, value: object, *, observing: bool) -> None:
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            arguments = {argument: value} if argument in implementation.argnames else {}
            try:
                await implementation.function(**arguments)
            except Exception as error:
                failure = f"plugin '{implementation.plugin_name}' failed in {hook}: {_one_line(error)}"
                if observing:
                    logger.warning("%s", failure)
                elif isinstance(error, AmplifierError):
                    error.add_note(f"in plugin '{implementation.plugin_name}' ({hook})")
                    raise
                else:
                    raise PluginError(failure) from error

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
) -> Plugins:
    """Load every installed plugin that may be loaded, and return them in a fresh `Plugins`.

    `AMPLIFIER_LOAD_PLUGINS=a,b` allows these alone (empty: none), `AMPLIFIER_BLOCK_PLUGINS=a,b` denies these; both name
    entry points of the group `amplifier`. `safe_mode` loads none. Never raises for a bad plugin: its row says why.
    Hooks that others specify come from the entry points of the group `amplifier.hookspecs`, and from `extra_specs`.
    """
    environ = os.environ if environ is None else environ
    plugins = Plugins([*_specs_of_others(), *extra_specs])
    for entry in sorted(entry_points(group=hookspecs.GROUP), key=lambda entry: entry.name):
        row = _row(entry)
        plugins.rows.append(row)
        if safe_mode or not _allowed(entry.name, environ):
            row.status = "blocked"
        else:
            _load(plugins, entry, row)
    return plugins


def _specs_of_others() -> Iterator[ModuleType]:
    for entry in entry_points(group=SPECS_GROUP):
        try:
            yield entry.load()
        except Exception as error:
            logger.warning("the hooks that '%s' specifies are unknown: %s", entry.value, _one_line(error))


def _load(plugins: Plugins, entry: EntryPoint, row: PluginRow) -> None:
    try:
        with _time_limit(IMPORT_TIME_LIMIT):
            plugin = entry.load()
        plugins.register(plugin, entry.name, row)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin that calls exit() while it is imported must not end the command line
        row.status = "failed"
        row.error = error.cause if isinstance(error, PluginLoadFailed) else _one_line(error)
        logger.warning("%s", error if isinstance(error, PluginError) else PluginLoadFailed(
            row.name, row.dist, row.version, row.error))  # fmt: skip


def _registrar(registry: Registry[Any], row: PluginRow) -> Any:
    def register(name: str, factory: object) -> None:
        registry.add(name, factory, row.owner)
        row.offers.append(name)

    return register


def _row(entry: EntryPoint) -> PluginRow:
    dist = entry.dist
    return PluginRow(entry.name, dist.name if dist else "?", dist.version if dist else "", entry.value)


def _allowed(name: str, environ: Mapping[str, str]) -> bool:
    allowed, blocked = environ.get("AMPLIFIER_LOAD_PLUGINS"), environ.get("AMPLIFIER_BLOCK_PLUGINS", "")
    if allowed is not None and name not in _names(allowed):
        return False
    return name not in _names(blocked)


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",") if name.strip()}


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the block after `seconds`, where the system can (main thread, with interval timers)."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def on_alarm(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"its import took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
