"""Find the code of the modules in a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from amplifier_core.frozen import frozen
from amplifier_core.module_sources import ModuleLoadError, ModuleNotFoundError, ModuleSource

from ..documents.local_paths import is_path, local_path
from ..documents.positions import Place
from .packages import requirement_of
from .sections import MODULE_LISTS
from .sources import LocalSource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .model import Bundle


class Guard(Protocol):
    """Decides whether the code of a bundle may run; its methods raise an error where it may not."""

    def check_code(self, path: Path) -> None:
        """Check the code at a path, a file or a folder, right before it is imported."""

    def check_bundle(self, bundle: Bundle) -> None:
        """Check a bundle that another one brings along, and have it guarded too."""


@frozen
class BundleModuleSource(ModuleSource):
    """The code of one module in a bundle's folder."""

    module_id: str
    source: LocalSource
    guard: Guard | None = None

    def resolve(self) -> Path:
        """Return the `.py` file or the folder of the module's package, checked now.

        Raises `ModuleLoadError`, never `ModuleNotFoundError`: an installed module of the same name must not replace
        the bundle's code. Raises the error of the guard, too.
        """
        problem = self.source.problem()
        if problem is not None:
            raise ModuleLoadError(f"module '{self.module_id}': {problem}")
        if self.guard is not None:
            self.guard.check_code(self.source.path)
        nested = self.source.path / f"amplifier-module-{self.module_id}"
        return nested if nested.is_dir() else self.source.path


class BundleModuleResolver:
    """The resolver mounted at `module-source-resolver` for the sessions of one bundle."""

    def __init__(
        self,
        sources: Mapping[str, LocalSource],
        by_module: Mapping[str, str] | None = None,
        base_path: Path | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._sources = dict(sources)
        self._by_module = dict(by_module or {})
        self._base_path = base_path
        self._guard = guard

    @classmethod
    def of(cls, bundle: Bundle) -> BundleModuleResolver:
        """Return the resolver of a bundle."""
        entries = [entry for section in MODULE_LISTS for entry in getattr(bundle, section)]
        entries += [spec for spec in bundle.session.values() if isinstance(spec, dict) and "module" in spec]
        named = {entry["module"]: entry["source"] for entry in entries if entry.get("source") in bundle.local_sources}
        return cls(bundle.local_sources, named, bundle.base_path, bundle.guard)

    def knows(self, module_id: str, source_hint: Any = None) -> bool:
        """Return whether the bundle names this module, at this path if given."""
        named = self._by_module.get(module_id)
        return named is not None and source_hint in (None, named)

    def lacks(self, module_id: str) -> bool:
        """Return whether `resolve` finds nothing for a module without a path; cheaper than an error."""
        return module_id not in self._by_module

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> ModuleSource:
        """Return the code of `module_id`: at `source_hint`, or at the path in the bundle.

        Raises `ModuleNotFoundError` for a module without code in the bundle.
        """
        hint = source_hint or self._by_module.get(module_id)
        if not isinstance(hint, str) or not is_path(hint):
            requirement = requirement_of(module_id)
            remedy = f". Install it with: pip install {requirement}" if requirement else ", and it is not installed"
            raise ModuleNotFoundError(f"the bundle has no code for '{module_id}'{remedy}")
        source = self._sources.get(hint)
        if source is None:
            try:
                path, relative = local_path(hint, self._base_path)
            except ValueError as error:
                raise ModuleNotFoundError(f"source '{hint}': {error}") from error
            source = LocalSource(path, self._base_path if relative else None, Place("source"))
        return BundleModuleSource(module_id, source, self._guard)
