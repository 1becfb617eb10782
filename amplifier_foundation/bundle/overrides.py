"""Merge the overrides of settings into the modules of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..documents.dicts import deep_merge
from ..documents.local_paths import is_path, local_path
from ..documents.positions import Place
from .sections import DEFAULT_SESSION, MODULE_LISTS
from .sources import LocalSource, module_entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.positions import KeyPath
    from ..settings import Settings
    from .model import Bundle


DAY = 86_400.0
"""Seconds that a question about a tool call waits for an answer, unless the bundle or the settings say another time."""


def apply_settings(bundle: Bundle, settings: Settings, folder: Path | None = None) -> None:
    """Merge what the settings in `folder` (default: the current one) say about modules and approvals into a bundle."""
    override_modules(bundle, settings.get("overrides"), folder or Path.cwd())
    if bundle.background_sessions:
        from amplifier_core.durations import seconds_of

        apply_approval_timeout(bundle, seconds_of(settings.get("approvals.timeout")) or DAY)


def override_modules(bundle: Bundle, overrides: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Merge `overrides` (module -> `config`, `source`) over a bundle's modules; paths are relative to `folder`."""
    for name in DEFAULT_SESSION:
        if isinstance(bundle.session.get(name), str):
            bundle.session[name] = {"module": bundle.session[name]}
    specs = [bundle.session[name] for name in DEFAULT_SESSION if isinstance(bundle.session.get(name), dict)]
    plan = {section: getattr(bundle, section) for section in MODULE_LISTS}
    for entry in [*specs, *(entry for _, _, entry in module_entries(plan))]:
        override_entry(bundle, entry, overrides, folder)


def apply_approval_timeout(bundle: Bundle, seconds: float) -> None:
    """Set how long the questions of background sessions wait, where the bundle does not say it."""
    bundle.background_sessions[:] = [
        each if each.approval_timeout is not None else each.model_copy(update={"approval_timeout": seconds})
        for each in bundle.background_sessions
    ]


def override_entry(
    bundle: Bundle, entry: dict[str, Any], overrides: Mapping[str, Mapping[str, Any]], folder: Path
) -> None:
    """Merge the override of one module over its entry in a bundle."""
    override = overrides.get(str(entry.get("module"))) or {}
    if override.get("config"):
        entry["config"] = deep_merge(entry.get("config") or {}, override["config"])
    if override.get("source"):
        entry["source"] = source = str(override["source"])
        if is_path(source):
            path, _ = local_path(source, folder)
            entry["source"] = str(path)
            bundle.local_sources[str(path)] = LocalSource(path, None, Place("settings", path="overrides"))


def overriding(bundle: Bundle, path: KeyPath, overrides: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...] | None:
    """Return the keys in `overrides` of the origin of a bundle's value; None for another origin."""
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
