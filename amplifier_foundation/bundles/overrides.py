"""What settings put over the modules of every bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .merge import deep_merge
from .paths import is_path, local_path
from .positions import Place
from .sources import LocalSource, module_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .model import Bundle


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
