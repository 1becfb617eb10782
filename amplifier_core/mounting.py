"""Mount the modules of one session's plan, and keep account of the failures."""

from __future__ import annotations

import logging
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from . import events
from .cancellation import own_failure
from .credentials import KeyUnusable, describe_missing, find_broken_key
from .eager import Waiting, is_awaitable, start
from .frozen import frozen
from .loader import ModuleLoader, attach_loader, call_mount, detach_loader, module_failure_reason
from .raised import describe_raised, find_place
from .time_limits import finish
from .undoing import MountSteps, current_mount, find_replaced, take_back
from .utils.plan_secrets import hide_secrets_of
from .utils.secrets import redact_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .coordinator import ModuleCoordinator
    from .undoing import Step

logger = logging.getLogger(__name__)

MOUNT_TIME_LIMIT = 60.0
"""The most seconds to find and mount one module, unless `session.mount_timeout` sets another limit."""

_OPTIONAL = (("provider", "providers"), ("tool", "tools"), ("hook", "hooks"))


@frozen
class LoadFailure:
    """A module missing in its session."""

    kind: str
    module_id: str
    error: str
    lacks_key: bool = False
    """Whether it has no key, or one that no request can carry."""


class Mounting:
    """One pass over a mount plan: required modules first, then providers, tools and hooks in the order of the plan."""

    def __init__(self, coordinator: ModuleCoordinator, loader: ModuleLoader, config: dict[str, Any]) -> None:
        self.failures: list[LoadFailure] = []
        self.without_key: list[str] = []
        """The reasons of providers whose modules mounted none: usual among several, fatal for all of them."""
        self._coordinator = coordinator
        self._loader = loader
        self._config = config
        self._time_limit = config["session"].get("mount_timeout") or MOUNT_TIME_LIMIT
        load = getattr(loader, "load", None)
        self._load = load if getattr(load, "__func__", None) is ModuleLoader.load else None
        """The loader's function if it is the kernel's own: it finds what `find_installed` finds."""
        self._tool_owners: dict[str, str] = {}
        """The modules of the tools so far, by the names of the tools."""
        self._ready: list[tuple[str, Callable[..., Any]]] = []
        self._untold: list[tuple[str, dict[str, Any]]] = []

    async def mount_all(self, *, strict: bool = False) -> None:
        """Mount everything.

        Raises `RuntimeError`, with the cause, without orchestrator or context, and with `strict` for any failing
        module; `ValueError` for two entries of one provider without an `instance_id`.
        """
        _require_instance_ids(self._config.get("providers") or ())
        hide_secrets_of(self._config)
        try:
            await self._mount_required("orchestrator", "orchestrator")
            await self._mount_required("context", "context manager")
            for kind, section in _OPTIONAL:
                entries = self._config.get(section)
                if not entries:
                    continue
                mounted: set[Any] = set()  # a hook may be there twice, with an `instance_id` for the second
                for entry in entries:
                    await self._mount_optional(kind, entry, mounted, strict=strict)
        finally:
            self._coordinator.mounting = ""

    async def make_ready(self) -> list[tuple[str, dict[str, Any]]]:
        """Await `on_session_ready` of the modules; return the events about all failures so far."""
        for module_id, ready in self._ready:
            self._coordinator.mounting = module_id
            try:
                outcome = start(ready(self._coordinator))
                if isinstance(outcome, Waiting):
                    await self._finish(outcome, module_id, "its on_session_ready")
            except BaseException as raised:
                error = own_failure(raised)
                text = _describe(error)
                logger.warning("on_session_ready of module '%s' failed: %s", module_id, text)
                failure = {"module_id": module_id, "error": text}
                self._untold.append((events.MODULE_ON_SESSION_READY_FAILED, failure))
        self._coordinator.mounting = ""
        return self._untold

    async def _mount_required(self, name: str, title: str) -> None:
        section, spec = self._config["session"], self._config["session"][name]
        if isinstance(spec, str):
            more = self._config.get(name)
            config = more.get("config") if isinstance(more, dict) else None
            spec = {"module": spec, "source": section.get(f"{name}_source"), "config": config}
        try:
            await self._mount(spec)
        except BaseException as raised:
            error = own_failure(raised)
            redact_error(error)
            raise RuntimeError(f"Cannot initialize without {title}: {_describe(error)}") from error

    async def _mount_optional(self, kind: str, entry: dict[str, Any], mounted: set[Any], *, strict: bool) -> None:
        mount = MountSteps()
        token = current_mount.set(mount)
        try:
            if kind == "provider":
                await self._mount_provider(entry)
            else:
                key = _module_of(entry), entry.get("instance_id") if kind == "hook" else None
                if key in mounted:
                    raise ValueError("it is listed twice; its first entry was taken")
                mounted.add(key)
                await self._mount(entry, is_tool=kind == "tool")
        except BaseException as raised:
            take_back(mount.end())
            error = own_failure(raised)
            redact_error(error)
            self._note_failure(kind, entry, error)
            if strict:
                name = entry.get("module") if isinstance(entry, dict) else entry
                raise RuntimeError(f"Cannot initialize without {kind} '{name}': {_describe(error)}") from error
        else:
            steps = mount.end()
            if kind == "tool":
                self._note_tools(_module_of(entry), steps)
        finally:
            current_mount.reset(token)

    def _note_tools(self, module_id: str, steps: list[Step]) -> None:
        """Warn of a tool that takes the place of another module's."""
        for name, is_replaced in find_replaced(steps, self._coordinator.mount_points["tools"]).items():
            owner = self._tool_owners.get(name, module_id)
            if is_replaced and owner != module_id:
                _warn_of_replaced(name, owner, module_id)
            self._tool_owners[name] = module_id

    def _note_failure(self, kind: str, entry: Any, error: Exception) -> None:
        entry = entry if isinstance(entry, dict) else {}
        module_id = str(entry.get("module") or "?")
        text = _describe(error)
        self.failures.append(LoadFailure(kind, module_id, text, getattr(error, "lacks_key", False)))
        logger.warning("%s '%s' was not mounted: %s", kind, module_id, text)
        failure = {"module_type": kind, "module_id": module_id, "error": text}
        failure["reason_code"] = module_failure_reason(error)
        if entry.get("instance_id"):
            failure["instance_id"] = str(entry["instance_id"])
        self._untold.append((events.MODULE_LOAD_FAILED, failure))

    async def _mount(self, entry: dict[str, Any], *, is_tool: bool = False) -> Any:
        """Mount a module, and return its own `mount` function."""
        module_id = _module_of(entry)
        config = entry.get("config") or {}
        if not isinstance(config, dict):
            raise TypeError(f"its 'config' must be a mapping, not {type(config).__name__}")
        self._coordinator.mounting = module_id
        load = self._find_load(entry, is_tool=is_tool)
        source, known = entry.get("source"), None
        if load == self._load:  # never that of a sandbox
            known = self._loader.find_installed(module_id, config, source, self._coordinator)
        if known is not None:
            mount, ready = known
            cleanup = call_mount(mount, self._coordinator, dict(config))
            if is_awaitable(cleanup):
                cleanup = start(cleanup)
            if isinstance(cleanup, Waiting):
                cleanup = await self._finish(cleanup, module_id)
        else:
            outcome = start(self._load_and_mount(load, module_id, config, source))
            loaded, cleanup = await self._finish(outcome, module_id) if isinstance(outcome, Waiting) else outcome
            mount, ready = getattr(loaded, "__wrapped__", loaded), None
        if waiting := self._loader.get_on_session_ready_queue():
            self._ready += waiting
            self._loader.clear_on_session_ready_queue()  # at once: others may use the loader too
        if ready is not None:
            self._ready.append((module_id, ready))
        if callable(cleanup):
            self._coordinator.register_cleanup(cleanup)
        return mount

    async def _finish(self, waiting: Waiting[Any], module_id: str, act: str = "its mount") -> Any:
        """Return the result of a mount that waits. Raises `TimeoutError` after the time limit."""
        owner = f"module '{module_id}' of session {self._coordinator.session_id}"
        return await finish(waiting, self._time_limit, act, owner)

    def _find_load(self, entry: dict[str, Any], *, is_tool: bool) -> Callable[..., Any]:
        """Return the loader's function for an entry; one with `sandbox: true` is never loaded in this process."""
        sandbox = entry.get("sandbox")
        if sandbox is None or sandbox is False:
            return self._loader.load
        if sandbox is not True:
            raise TypeError(f"its 'sandbox' must be true or false, not {sandbox!r}")
        if not is_tool:
            raise ValueError("its 'sandbox: true' is for tools alone: they run in a process of their own")
        load: Callable[..., Any] | None = getattr(self._loader, "load_in_sandbox", None)
        if load is None:
            raise ValueError("its 'sandbox: true' needs a loader with a sandbox: make the session from a bundle")
        return load

    async def _load_and_mount(
        self, load: Callable[..., Any], module_id: str, config: dict[str, Any], source: Any
    ) -> tuple[Any, Any]:
        """Return the function that mounts the module, and the clean-up that it returned."""
        mount = await load(module_id, dict(config), source, self._coordinator)
        return mount, await mount(self._coordinator)

    async def _mount_provider(self, entry: dict[str, Any]) -> None:
        """Mount one provider under its `instance_id`; a failing one leaves the providers as they were.

        Raises `ValueError` for a key that no request can carry.
        """
        own_name = _module_of(entry).removeprefix("provider-")
        providers = self._coordinator.mount_points["providers"]
        before = dict(providers)
        instance = entry.get("instance_id") or own_name
        if instance != own_name:
            providers.pop(own_name, None)
        mounted: dict[str, Any] = {}
        try:
            mount = await self._mount(entry)
            found = {name: module for name, module in providers.items() if before.get(name) is not module}
            if not found:
                self.without_key.append(describe_missing(_module_of(entry), mount))
            for module in found.values():
                if problem := find_broken_key(module, entry.get("config") or {}, mount):
                    raise KeyUnusable(problem)
            mounted = found
        finally:
            providers.clear()
            providers.update(before)
            providers.update({instance if name == own_name else name: module for name, module in mounted.items()})


async def initialize_session(
    config: dict[str, Any], coordinator: ModuleCoordinator, session_id: str, parent_id: str | None
) -> None:
    """Mount the plan `config` on a coordinator without a session, as `AmplifierSession` does on its own.

    The coordinator's own `loader` is used, or a new one. Raises the errors of `Mounting.mount_all`.
    """
    loader = coordinator.loader or ModuleLoader(coordinator)
    attach_loader(loader, coordinator)
    coordinator.register_cleanup(lambda: detach_loader(loader, coordinator))
    mounting = Mounting(coordinator, loader, config)
    await mounting.mount_all()
    for event, data in await mounting.make_ready():
        await coordinator.hooks.emit(event, data)
    if parent_id is not None:
        fork = {"parent": parent_id, "session_id": session_id, "parent_id": parent_id}
        await coordinator.hooks.emit(events.SESSION_FORK, fork)


@cache
def _warn_of_replaced(name: str, owner: str, module_id: str) -> None:
    """Tell once of a tool that each session has from the second module: it may be meant so."""
    logger.warning("tool '%s' of module '%s' is replaced by that of module '%s'", name, owner, module_id)


def _describe(error: Exception) -> str:
    """Return an error with its class and place, where code of a module raised it otherwise than for its configuration.

    A `ValueError` refuses a configuration. It, an error of a provider, and one of the program were written for people.
    """
    from .llm_errors import LLMError  # rarely needed

    is_told = (isinstance(error, ValueError | LLMError) or not find_place(error)) and str(error)
    return str(error) if is_told else describe_raised(error)


def _module_of(entry: Any) -> str:
    if not isinstance(entry, dict):
        raise TypeError(f"an entry must be a mapping with 'module', not {type(entry).__name__}")
    if not entry.get("module"):
        raise ValueError("the entry has no 'module'")
    return str(entry["module"])


def _require_instance_ids(providers: Sequence[Any]) -> None:
    if len(providers) < 2:
        return
    unnamed = Counter(
        entry.get("module") for entry in providers if isinstance(entry, dict) and not entry.get("instance_id")
    )
    for module, times in unnamed.items():
        if module and times > 1:
            raise ValueError(
                f"Multi-instance providers require explicit 'instance_id' on each entry but one: "
                f"'{module}' has {times} without"
            )
