"""What settings put over the modules of every bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .merge import deep_merge
from .paths import is_path, local_path
from .positions import Place
from .sources import MODULE_LISTS, LocalSource, module_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .model import Bundle
    from .positions import KeyPath


def override_modules(bundle: Bundle, overrides: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Merge `overrides` (module -> `config`, `source`) over a bundle's modules; paths are relative to `folder`."""
    for entry in _entries(bundle):
        override = overrides.get(str(entry.get("module")))
        if override is None:
            continue
        if override.get("config"):
            entry["config"] = deep_merge(entry.get("config") or {}, override["config"])
        if override.get("source"):
            entry["source"] = _source(bundle, str(override["source"]), folder)


def overriding(bundle: Bundle, path: KeyPath, overrides: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...] | None:
    """Return the keys in `overrides` of what a value of a bundle comes from; None when it does not come from there."""
    section, *rest = path
    if len(rest) < 2 or section not in ("session", *MODULE_LISTS):
        return None
    entry: Any = getattr(bundle, str(section))[rest[0]]
    module = str(entry.get("module")) if isinstance(entry, dict) else ""
    setting: Any = overrides.get(module)
    keys: tuple[str, ...] = (module,)
    for part in rest[1:]:
        entry = entry[part]
        if isinstance(setting, list):  # lists are joined
            return keys if entry in setting else None
        if not isinstance(setting, dict) or part not in setting:
            return None
        setting, keys = setting[part], (*keys, str(part))
    return keys


def _entries(bundle: Bundle) -> Iterator[dict[str, Any]]:
    for name in ("orchestrator", "context"):
        spec = bundle.session.get(name)
        if isinstance(spec, str):
            spec = bundle.session[name] = {"module": spec}
        if isinstance(spec, dict):
            yield spec
    plan = {"providers": bundle.providers, "tools": bundle.tools, "hooks": bundle.hooks}
    yield from (entry for _, _, entry in module_entries(plan))


def _source(bundle: Bundle, written: str, folder: Path) -> str:
    if not is_path(written):
        return written
    path, _ = local_path(written, folder)
    bundle.local_sources[str(path)] = LocalSource(path, None, Place("settings", path="overrides"))
    return str(path)
