"""Find a module by its id and mount it: from a source that the bundle names, or an installed entry point."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import search_path
from .errors import NameTaken, UnknownName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from importlib.metadata import EntryPoint
    from types import ModuleType

    from .coordinator import ModuleCoordinator
    from .models import ModuleInfo

    MountFunction = Callable[[ModuleCoordinator], Awaitable[Callable[[], Any] | None]]

GROUP = "amplifier.modules"

__all__ = [
    "GROUP",
    "MODULE_FAILURE_REASONS",
    "ModuleInfo",
    "ModuleLoader",
    "ModuleValidationError",
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


def __getattr__(name: str) -> object:
    """Import what modules expect to find here, and only then."""
    if name != "ModuleInfo":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .models import ModuleInfo

    return ModuleInfo


class ModuleValidationError(Exception):
    """A module was found, and is not one: `reason_code` is one of `MODULE_FAILURE_REASONS`."""

    def __init__(self, message: str, *, reason_code: str = "validation_failed") -> None:
        self.reason_code = reason_code
        super().__init__(message)


def module_failure_reason(error: BaseException) -> str:
    """Return the member of `MODULE_FAILURE_REASONS` that tells `error`."""
    if isinstance(error, ModuleValidationError):
        return error.reason_code if error.reason_code in MODULE_FAILURE_REASONS else "validation_failed"
    if isinstance(error, (UnknownName, FileNotFoundError)) or type(error).__name__ == "ModuleNotFoundError":
        return "missing_source"
    return "unknown"


class ModuleLoader:
    """Loads modules for sessions; one loader may serve a session and its forks.

    A module is looked for where the coordinator's `module-source-resolver` says, then in the folders of
    `AMPLIFIER_MODULES` (separated as in PATH) and `search_paths`, then among the installed entry points. Nothing is
    imported before a session asks for it, and a module is mounted once: what it is shows when it is mounted.
    """

    def __init__(
        self, coordinator: ModuleCoordinator | None = None, search_paths: Sequence[Path] | None = None
    ) -> None:
        self._coordinator = coordinator
        self._search_paths = [*_folders_of_environment(), *(Path(path) for path in search_paths or ())]
        self._added_paths: list[str] = []
        self._sessions = 0
        self._installed: dict[str, Callable[..., Any]] = {}
        self._ready_queue: list[tuple[str, Callable[..., Any]]] = []

    def another(self) -> ModuleLoader:
        """Return a loader for a session beside those of this one; it knows already which modules are installed."""
        loader = ModuleLoader()
        loader._search_paths, loader._installed = self._search_paths, self._installed
        return loader

    async def load(
        self,
        module_id: str,
        config: dict[str, Any] | None = None,
        source_hint: str | dict[str, Any] | None = None,
        coordinator: ModuleCoordinator | None = None,
    ) -> MountFunction:
        """Return an async function that mounts `module_id` with `config` on the coordinator it is given.

        Raises `UnknownName` when nothing installed has this id, `NameTaken` when two distributions have it,
        `ModuleValidationError` when what was found is no module, and whatever the import raises.
        """
        owner = coordinator or self._coordinator
        path = await self._source(module_id, source_hint, owner) or self._in_search_paths(module_id)
        module = self._from_path(module_id, path) if path else None
        mount = _mount_of(module, module_id) if module else self._from_entry_point(module_id)

        async def mount_module(target: ModuleCoordinator) -> Callable[[], Any] | None:
            outcome = mount(target, config or {})
            cleanup = await outcome if inspect.isawaitable(outcome) else outcome
            self._enqueue_ready(module_id, mount)
            return cleanup if callable(cleanup) else None

        return mount_module

    async def _source(self, module_id: str, hint: Any, coordinator: ModuleCoordinator | None) -> Path | None:
        resolver = coordinator.get("module-source-resolver") if coordinator is not None else None
        if resolver is None or (hint is None and hasattr(resolver, "lacks") and resolver.lacks(module_id)):
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
        candidates = (folder / f"amplifier-module-{module_id}" for folder in self._search_paths)
        return next((candidate for candidate in candidates if candidate.is_dir()), None)

    def _from_path(self, module_id: str, path: Path) -> ModuleType:
        if path.is_dir() and str(path) not in self._added_paths:
            search_path.acquire(str(path))
            self._added_paths.append(str(path))
        return import_from_path(module_id, path)

    def _from_entry_point(self, module_id: str) -> Callable[..., Any]:
        if module_id in self._installed:
            return self._installed[module_id]
        entry = _only_entry_point(module_id)
        mount = entry.load()
        if not callable(mount):
            raise ModuleValidationError(
                f"module '{module_id}': entry point {entry.value} is no mount function",
                reason_code="invalid_entry_point",
            )
        self._installed[module_id] = mount
        return mount  # type: ignore[no-any-return]  # an entry point is whatever its author named

    def _enqueue_ready(self, module_id: str, mount: Callable[..., Any]) -> None:
        ready = getattr(sys.modules.get(mount.__module__), "on_session_ready", None)
        if callable(ready):
            self.enqueue_on_session_ready(module_id, ready)

    async def initialize(self, module: Any, coordinator: ModuleCoordinator) -> Callable[[], Any] | None:
        """Mount an imported module without configuration; return its clean-up."""
        outcome = _mount_of(module, getattr(module, "__name__", "?"))(coordinator, {})
        cleanup = await outcome if inspect.isawaitable(outcome) else outcome
        return cleanup if callable(cleanup) else None

    async def discover(self) -> list[ModuleInfo]:
        """Return what is installed, sorted by id, without importing any of it."""
        return installed_modules()

    def enqueue_on_session_ready(self, module_id: str, fn: Callable[..., Any]) -> None:
        """Have `fn(coordinator)` awaited when everything is mounted."""
        self._ready_queue.append((module_id, fn))

    def get_on_session_ready_queue(self) -> list[tuple[str, Callable[..., Any]]]:
        """Return what waits for everything to be mounted."""
        return list(self._ready_queue)

    def clear_on_session_ready_queue(self) -> None:
        """Forget it."""
        self._ready_queue.clear()

    def attach(self) -> None:
        """Count one more session that loads with this."""
        self._sessions += 1

    def detach(self) -> None:
        """Count one less; with the last, the folders on `sys.path` are given back."""
        self._sessions -= 1
        if self._sessions <= 0:
            self._give_back_paths()

    def _give_back_paths(self) -> None:
        while self._added_paths:
            search_path.release(self._added_paths.pop())

    def cleanup(self) -> None:
        """Forget what was loaded, and give back its folders on `sys.path`; idempotent."""
        self._give_back_paths()
        self._installed = {}
        self._ready_queue.clear()


def use_loader(loader: Any, coordinator: ModuleCoordinator) -> None:
    """Count a session as a user of `loader` until its clean-up; a loader of another make need not count."""
    if hasattr(loader, "attach"):
        loader.attach()
        coordinator.register_cleanup(loader.detach)


def modules_in_folders() -> set[str]:
    """Return the names of the modules that lie in the folders of `AMPLIFIER_MODULES`; none is imported."""
    prefix = "amplifier-module-"
    found = (path for folder in _folders_of_environment() for path in folder.glob(f"{prefix}*") if path.is_dir())
    return {path.name.removeprefix(prefix) for path in found}


def _folders_of_environment() -> list[Path]:
    return [Path(folder) for folder in os.environ.get("AMPLIFIER_MODULES", "").split(os.pathsep) if folder]


def _only_entry_point(module_id: str) -> EntryPoint:
    found = entry_points(group=GROUP, name=module_id)
    if not found:
        raise UnknownName("module", module_id, entry_points(group=GROUP).names)
    owners = sorted(f"{entry.dist.name} {entry.dist.version}" if entry.dist else "?" for entry in found)
    if len(owners) > 1:
        raise NameTaken("module", module_id, (owners[0], owners[1]))
    return next(iter(found))


def installed_modules() -> list[ModuleInfo]:
    """Return the modules that entry points offer, sorted by id; none is imported."""
    from .models import ModuleInfo

    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        kind = next((kind for prefix, kind in _PREFIXES.items() if entry.name.startswith(prefix)), "tool")
        found.append(
            ModuleInfo.model_validate(
                {
                    "id": entry.name,
                    "name": entry.name,
                    "version": entry.dist.version if entry.dist else "",
                    "type": kind,
                    "mount_point": _TYPES[kind],
                    "description": (entry.dist.metadata["Summary"] or "") if entry.dist else "",
                }
            )
        )
    return found


def import_from_path(module_id: str, path: Path) -> ModuleType:
    """Import the module at `path`: a `.py` file, a package folder, or a folder that holds `amplifier_module_<id>`.

    A file is known by its content: one that changed is imported anew. A package keeps its name unless another module
    has it already: two of one name must not get each other's parts.
    """
    if path.is_file():
        return _import(_own_name(path.read_bytes() + str(path).encode()), path, None)
    package = _package_folder(module_id, path)
    file = package / "__init__.py"
    known = sys.modules.get(package.name)
    is_free = known is None or getattr(known, "__file__", None) == str(file)
    return _import(package.name if is_free else _own_name(str(file).encode()), file, [str(package)])


def _own_name(identity: bytes) -> str:
    return f"_amplifier_source_{sha256(identity).hexdigest()[:16]}"


def _package_folder(module_id: str, path: Path) -> Path:
    stem = module_id.replace("-", "_")
    for candidate in (path / f"amplifier_module_{stem}", path / f"amplifier_{stem}", path / stem, path):
        if (candidate / "__init__.py").is_file():
            return candidate
    raise ModuleValidationError(
        f"module '{module_id}': {path} holds no package amplifier_module_{stem}", reason_code="invalid_package_layout"
    )


def _import(name: str, file: Path, search: list[str] | None) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ModuleValidationError(f"{file} cannot be imported", reason_code="invalid_package_layout")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _mount_of(module: Any, module_id: str) -> Callable[..., Any]:
    mount = getattr(module, "mount", None)
    if not callable(mount):
        raise ModuleValidationError(
            f"module '{module_id}': {getattr(module, '__file__', module)} has no function 'mount(coordinator, config)'",
            reason_code="invalid_module_metadata",
        )
    return mount  # type: ignore[no-any-return]  # a module's mount is whatever its author wrote
