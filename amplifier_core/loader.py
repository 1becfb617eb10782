"""Find a module by its id and mount it: from the bundle's own source, a folder, or an installed entry point."""

from __future__ import annotations

import logging
import os
import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import search_path
from .eager import is_awaitable
from .entry_points import find_entry_points
from .errors import NameTaken, UnknownName
from .plugin_guard import guard_module

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import ModuleType

    from .coordinator import ModuleCoordinator
    from .importing import find_package, import_from_path
    from .models import ModuleInfo

    MountFunction = Callable[[ModuleCoordinator], Awaitable[Callable[[], Any] | None]]

logger = logging.getLogger(__name__)

GROUP = "amplifier.modules"

__all__ = [
    "GROUP",
    "MODULE_FAILURE_REASONS",
    "ModuleInfo",
    "ModuleLoader",
    "ModuleValidationError",
    "find_package",
    "import_from_path",
    "installed_modules",
    "module_failure_reason",
]

_TYPES = {
    "orchestrator": "orchestrator",
    "provider": "providers",
    "tool": "tools",
    "hook": "hooks",
    "context": "context",
    "resolver": "module-source-resolver",
}
_PREFIXES = {"loop-": "orchestrator", "provider-": "provider", "tool-": "tool", "hooks-": "hook", "context-": "context"}

MODULE_FAILURE_REASONS = frozenset(
    {
        "invalid_module_metadata",
        "invalid_package_layout",
        "validation_failed",
        "unknown",
        "invalid_entry_point",
        "missing_source",
    }
)


_HOME_OF = {"ModuleInfo": ".models", "find_package": ".importing", "import_from_path": ".importing"}


def __getattr__(name: str) -> object:
    """Import a name at its first use: modules expect it here."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __package__), name)
    return value


class ModuleValidationError(Exception):
    """The found code is not a module: `reason_code` is one of `MODULE_FAILURE_REASONS`."""

    def __init__(self, message: str, *, reason_code: str = "validation_failed") -> None:
        self.reason_code = reason_code
        super().__init__(message)


def module_failure_reason(error: BaseException) -> str:
    """Return the member of `MODULE_FAILURE_REASONS` for `error`."""
    if isinstance(error, ModuleValidationError):
        return error.reason_code if error.reason_code in MODULE_FAILURE_REASONS else "validation_failed"
    if isinstance(error, (UnknownName, FileNotFoundError)) or type(error).__name__ == "ModuleNotFoundError":
        return "missing_source"
    return "unknown"


class InstalledModule(NamedTuple):
    """An imported module with an entry point: its own `mount`, and the `on_session_ready` beside it."""

    mount: Callable[..., Any]
    on_session_ready: Callable[..., Any] | None


class ModuleLoader:
    """Loads modules for sessions; one loader may serve a session and its forks.

    It looks for a module with the coordinator's `module-source-resolver`, then in the folders of `AMPLIFIER_MODULES`
    (separated as in PATH) and `search_paths`, then among the installed entry points. Nothing is imported before a
    session asks for it, and a module is mounted once: its mount shows its kind.
    """

    def __init__(
        self, coordinator: ModuleCoordinator | None = None, search_paths: Sequence[Path] | None = None
    ) -> None:
        self._coordinator = coordinator
        self._own_search_paths = search_paths or ()
        self._added_paths: list[str] = []
        self._users: set[int] = set()
        self._installed: dict[str, InstalledModule] = {}
        self._ready_queue: list[tuple[str, Callable[..., Any]]] = []

    @cached_property
    def _search_paths(self) -> list[Path]:
        return [*_folders_of_environment(), *map(Path, self._own_search_paths)]

    def another(self, kind: type[ModuleLoader] | None = None) -> ModuleLoader:
        """Return a loader for another session, of this or another kind; it knows the installed modules of this one."""
        loader = (kind or type(self))()
        loader._search_paths, loader._installed = self._search_paths, self._installed
        return loader

    def find_installed(
        self, module_id: str, config: dict[str, Any], source_hint: Any, coordinator: ModuleCoordinator
    ) -> InstalledModule | None:
        """Return an installed module if it is known and takes `config` as it is; None: see `load`.

        A session of a known plan so mounts a module without the steps that find it.
        """
        known = self._installed.get(module_id)
        if known is None or self._search_paths or not self.is_complete(module_id, known.mount, config):
            return None
        resolver = coordinator.mount_points["module-source-resolver"]
        return known if _has_no_source(resolver, module_id, source_hint) else None

    def is_complete(self, module_id: str, mount: Callable[..., Any], config: dict[str, Any]) -> bool:
        """Return whether `complete_config` certainly changes nothing."""
        return type(self).complete_config is ModuleLoader.complete_config

    async def load(
        self,
        module_id: str,
        config: dict[str, Any] | None = None,
        source_hint: str | dict[str, Any] | None = None,
        coordinator: ModuleCoordinator | None = None,
    ) -> MountFunction:
        """Return an async function to mount `module_id` with `config` on a coordinator.

        Raises `UnknownName` for an id without a module, `NameTaken` for an id of two distributions,
        `ModuleValidationError` for code without a mount function, and every error of the import.
        """
        owner = coordinator or self._coordinator
        resolver = owner.mount_points["module-source-resolver"] if owner is not None else None
        is_found_by_name = not self._search_paths and _has_no_source(resolver, module_id, source_hint)
        path = None if is_found_by_name else await self.find_path(module_id, source_hint, owner)
        module = self._from_path(module_id, path) if path else None
        if module is None and module_id.startswith("provider-") and module_id not in self._installed:
            from .preloading import wait_for_import

            await wait_for_import(module_id, GROUP)
        mount = _mount_of(module, module_id) if module else self._from_entry_point(module_id)
        whole = await self.complete_config(module_id, sys.modules.get(mount.__module__), config or {}, owner)

        async def mount_module(target: ModuleCoordinator) -> Callable[[], Any] | None:
            outcome = call_mount(mount, target, whole)
            cleanup = await outcome if is_awaitable(outcome) else outcome
            ready = find_ready(mount)
            if ready is not None:
                self.enqueue_on_session_ready(module_id, ready)
            return cleanup if callable(cleanup) else None

        mount_module.__wrapped__ = mount  # type: ignore[attr-defined]  # as `functools.wraps` does
        return mount_module

    async def complete_config(
        self, module_id: str, module: ModuleType | None, config: dict[str, Any], coordinator: ModuleCoordinator | None
    ) -> dict[str, Any]:
        """Return the configuration to mount a module with; a subclass adds what no mount plan holds, such as keys."""
        return config

    async def find_path(self, module_id: str, hint: Any, coordinator: ModuleCoordinator | None) -> Path | None:
        """Return the file or folder of a module's code; None for an installed module. Raises the resolver's errors."""
        return await self._source(module_id, hint, coordinator) or self._in_search_paths(module_id)

    async def _source(self, module_id: str, hint: Any, coordinator: ModuleCoordinator | None) -> Path | None:
        resolver = coordinator.get("module-source-resolver") if coordinator is not None else None
        if resolver is None or _has_no_source(resolver, module_id, hint):
            return None
        from .module_sources import ModuleNotFoundError as SourceNotFound

        try:
            if hasattr(resolver, "async_resolve"):
                source = await resolver.async_resolve(module_id, source_hint=hint)
            else:
                source = resolver.resolve(module_id, source_hint=hint)
        except SourceNotFound:
            if hint:
                raise
            return None
        return Path(source.resolve())

    def _in_search_paths(self, module_id: str) -> Path | None:
        if not self._search_paths:
            return None
        candidates = (folder / f"amplifier-module-{module_id}" for folder in self._search_paths)
        return next((candidate for candidate in candidates if candidate.is_dir()), None)

    def _from_path(self, module_id: str, path: Path) -> ModuleType:
        from .importing import import_from_path

        if path.is_dir() and str(path) not in self._added_paths:
            search_path.acquire(str(path))
            self._added_paths.append(str(path))
        with guard_module(f"module '{module_id}' in {path}"):
            return import_from_path(module_id, path)

    def _from_entry_point(self, module_id: str) -> Callable[..., Any]:
        if module_id in self._installed:
            return self._installed[module_id].mount
        entries = find_entry_points(GROUP, module_id)
        if not entries:
            raise UnknownName("module", module_id, {entry.name for entry in find_entry_points(GROUP)})
        if len(entries) > 1:
            first, second, *_ = sorted(str(entry.dist) for entry in entries)
            raise NameTaken("module", module_id, (first, second))
        (entry,) = entries
        with guard_module(f"module '{module_id}' of {entry.dist}"):
            mount = entry.load()
        if not callable(mount):
            raise ModuleValidationError(
                f"module '{module_id}': entry point {entry.value} is not a mount function",
                reason_code="invalid_entry_point",
            )
        self._installed[module_id] = InstalledModule(mount, find_ready(mount))
        return mount  # type: ignore[no-any-return]  # authors name any function

    async def initialize(self, module: Any, coordinator: ModuleCoordinator) -> Callable[[], Any] | None:
        """Mount an imported module without configuration; return its clean-up."""
        outcome = call_mount(_mount_of(module, getattr(module, "__name__", "?")), coordinator, {})
        cleanup = await outcome if is_awaitable(outcome) else outcome
        return cleanup if callable(cleanup) else None

    async def discover(self) -> list[ModuleInfo]:
        """Return the installed modules, sorted by id; none is imported."""
        return installed_modules()

    def enqueue_on_session_ready(self, module_id: str, fn: Callable[..., Any]) -> None:
        """Have `fn(coordinator)` awaited after the last mount."""
        self._ready_queue.append((module_id, fn))

    def get_on_session_ready_queue(self) -> list[tuple[str, Callable[..., Any]]]:
        """Return the functions to await after the last mount."""
        return list(self._ready_queue)

    def clear_on_session_ready_queue(self) -> None:
        """Forget these functions."""
        self._ready_queue.clear()

    def attach(self, coordinator: ModuleCoordinator) -> None:
        """Count the session of `coordinator` as a user of this loader."""
        self._users.add(id(coordinator))

    def detach(self, coordinator: ModuleCoordinator) -> bool:
        """Stop counting the session of `coordinator`; return whether no session uses this loader now."""
        self._users.discard(id(coordinator))
        return not self._users

    def cleanup(self) -> None:
        """Take the folders of modules off `sys.path`; idempotent.

        The loader stays usable, and still knows its entry points: to find them takes longer than a session.
        """
        while self._added_paths:
            search_path.release(self._added_paths.pop())
        self._ready_queue.clear()


def call_mount(mount: Callable[..., Any], coordinator: ModuleCoordinator, config: dict[str, Any]) -> Any:
    """Call a mount function. Raises `ModuleValidationError` for one with other parameters, and its own errors."""
    try:
        return mount(coordinator, config)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # raised within it
            raise
        raise ModuleValidationError(f"{error}: write `async def mount(coordinator, config)`") from error


def find_ready(mount: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the `on_session_ready` beside a mount function."""
    ready = getattr(sys.modules.get(mount.__module__), "on_session_ready", None)
    return ready if callable(ready) else None


def _has_no_source(resolver: Any, module_id: str, hint: Any) -> bool:
    """Return whether a resolver certainly finds no code for a module."""
    if resolver is None or hint is not None:
        return resolver is None
    lacks = getattr(resolver, "lacks", None)
    return lacks is not None and bool(lacks(module_id))


def attach_loader(loader: Any, coordinator: ModuleCoordinator) -> None:
    """Count a session as a user of `loader`; a loader of another make need not count."""
    if hasattr(loader, "attach"):
        loader.attach(coordinator)


def detach_loader(loader: Any, coordinator: ModuleCoordinator) -> None:
    """End a session's use of `loader`; the last session cleans it up. An error of the clean-up is logged."""
    is_free = not hasattr(loader, "detach") or loader.detach(coordinator)
    try:
        if is_free and hasattr(loader, "cleanup"):
            loader.cleanup()
    except Exception as error:
        logger.error("the clean-up of a module loader failed: %s: %s", type(error).__name__, error)


def modules_in_folders() -> dict[str, Path]:
    """Return the folders of the modules in `AMPLIFIER_MODULES` by name, none imported; the first of a name counts."""
    prefix = "amplifier-module-"
    found: dict[str, Path] = {}
    for folder in _folders_of_environment():
        for path in filter(Path.is_dir, folder.glob(f"{prefix}*")):
            found.setdefault(path.name.removeprefix(prefix), path)
    return found


def _folders_of_environment() -> list[Path]:
    return [Path(folder) for folder in os.environ.get("AMPLIFIER_MODULES", "").split(os.pathsep) if folder]


def installed_modules() -> list[ModuleInfo]:
    """Return the modules with an entry point, sorted by id; none is imported."""
    from importlib_metadata import PackageNotFoundError, metadata

    from .models import ModuleInfo

    found = []
    for entry in find_entry_points(GROUP):
        kind = next((kind for prefix, kind in _PREFIXES.items() if entry.name.startswith(prefix)), "tool")
        try:
            summary = metadata(entry.dist.name).get("Summary", "")
        except PackageNotFoundError:
            summary = ""
        found.append(
            ModuleInfo.model_validate(
                {
                    "id": entry.name,
                    "name": entry.name,
                    "version": entry.dist.version,
                    "type": kind,
                    "mount_point": _TYPES[kind],
                    "description": summary,
                }
            )
        )
    return found


def _mount_of(module: Any, module_id: str) -> Callable[..., Any]:
    mount = getattr(module, "mount", None)
    if not callable(mount):
        raise ModuleValidationError(
            f"module '{module_id}': {getattr(module, '__file__', module)} has no function 'mount(coordinator, config)'",
            reason_code="invalid_module_metadata",
        )
    return mount  # type: ignore[no-any-return]  # authors write any function
