"""Finds the code of the modules that a bundle brings itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.module_sources import ModuleLoadError, ModuleNotFoundError, ModuleSource

from .paths import is_path, local_path
from .positions import Place
from .sources import LocalSource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .model import Bundle


@dataclass(frozen=True, slots=True)
class BundleModuleSource(ModuleSource):
    """The code of one module in a bundle's folder."""

    module_id: str
    source: LocalSource

    def resolve(self) -> Path:
        """Return the `.py` file or the folder of the module's package, checked now.

        Raises `ModuleLoadError`, and never `ModuleNotFoundError`: code that the bundle names must not be replaced by an
        installed module of the same name.
        """
        problem = self.source.problem()
        if problem is not None:
            raise ModuleLoadError(f"module '{self.module_id}': {problem}")
        nested = self.source.path / f"amplifier-module-{self.module_id}"
        return nested if nested.is_dir() else self.source.path


class BundleModuleResolver:
    """What is mounted at `module-source-resolver` for the sessions of one bundle."""

    def __init__(
        self,
        sources: Mapping[str, LocalSource],
        by_module: Mapping[str, str] | None = None,
        base_path: Path | None = None,
    ) -> None:
        self._sources = dict(sources)
        self._by_module = dict(by_module or {})
        self._base_path = base_path

    @classmethod
    def of(cls, bundle: Bundle) -> BundleModuleResolver:
        """Return the resolver of a bundle."""
        entries = [*bundle.providers, *bundle.tools, *bundle.hooks]
        entries += [spec for spec in bundle.session.values() if isinstance(spec, dict) and "module" in spec]
        named = {entry["module"]: entry["source"] for entry in entries if entry.get("source") in bundle.local_sources}
        return cls(bundle.local_sources, named, bundle.base_path)

    def knows(self, module_id: str, source_hint: Any = None) -> bool:
        """Return whether the bundle names this module, at this path if there is one."""
        named = self._by_module.get(module_id)
        return named is not None and source_hint in (None, named)

    def lacks(self, module_id: str) -> bool:
        """Return whether `resolve` would find nothing for a module without a path: to ask costs less than to fail."""
        return module_id not in self._by_module

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> ModuleSource:
        """Return the code of `module_id`: at `source_hint`, or where the bundle says.

        Raises `ModuleNotFoundError` when the bundle brings no code for it.
        """
        hint = source_hint or self._by_module.get(module_id)
        if not isinstance(hint, str) or not is_path(hint):
            raise ModuleNotFoundError(
                f"the bundle has no code for '{module_id}'. Install it with: pip install amplifier-{module_id}"
            )
        return BundleModuleSource(module_id, self._sources.get(hint) or self._written(hint))

    def _written(self, hint: str) -> LocalSource:
        try:
            path, relative = local_path(hint, self._base_path)
        except ValueError as error:
            raise ModuleNotFoundError(f"source '{hint}': {error}") from error
        return LocalSource(path, self._base_path if relative else None, Place("source"))
