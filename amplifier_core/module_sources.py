"""Find the code of a module that is not installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .contracts import Contract

if TYPE_CHECKING:
    from collections.abc import Iterable


class ModuleNotFoundError(Exception):
    """No source offers the module."""


class ModuleLoadError(Exception):
    """The module was found and cannot be loaded."""


class ModuleSource(ABC):
    """The place of one module's code."""

    @abstractmethod
    def resolve(self) -> Path:
        """Return the folder to import from, and fetch it first if necessary.

        Raises `ModuleNotFoundError` for an absent folder.
        """


class FileSystemModuleSource(ModuleSource):
    """Folders on this machine; the module is in the first existing one."""

    def __init__(self, paths: Path | str | Iterable[Path | str] | None = None) -> None:
        listed = [paths] if isinstance(paths, str | Path) else list(paths or ())
        self.paths = [Path(path) for path in listed]

    def resolve(self) -> Path:
        """Return the first existing folder."""
        for path in self.paths:
            if path.is_dir():
                return path.resolve()
        looked = ", ".join(map(str, self.paths)) or "no folder was named"
        raise ModuleNotFoundError(f"no module folder found ({looked}); check the 'source' of the module")

    def get_module_paths(self) -> list[str]:
        """Return the existing folders."""
        return [str(path) for path in self.paths if path.is_dir()]

    def get_mention_mappings(self) -> dict[str, str]:
        """Return the names for mentions of this source's files: none."""
        return {}


@runtime_checkable
class ModuleSourceResolver(Protocol, metaclass=Contract):
    """Finds the source of a module; mounted at `module-source-resolver`."""

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> ModuleSource:
        """Return the source of `module_id`; raises `ModuleNotFoundError`."""
        ...
