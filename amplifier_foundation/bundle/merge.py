"""Merge the sections of two bundles: the later bundle wins, lists of modules are joined by module."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ..documents.dicts import deep_merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EntryKey = tuple[str, str]


def entry_key(entry: Mapping[str, Any]) -> EntryKey:
    """Return the identity of a module's entry: its module, and its `instance_id` or `id` or ``."""
    return str(entry.get("module", "")), str(entry.get("instance_id") or entry.get("id") or "")


def merge_module_lists(
    base: Sequence[Mapping[str, Any]], override: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the entries of both in the order first seen; two entries of one `entry_key` are merged deep.

    A tool in a sandbox stays there, whatever a later bundle says; a provider that stands in gives way whole.

    Raises `TypeError` with the place of an entry that is not a mapping.
    """
    merged: dict[EntryKey, dict[str, Any]] = {}
    for name, entries in (("base", base), ("override", override)):
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise TypeError(f"{name}[{number}]: a module must be a mapping, not {type(entry).__name__}")
            key = entry_key(entry)
            before = merged.get(key)
            gives_way = before is not None and before.get("stand_in") and not entry.get("stand_in")
            merged[key] = deepcopy(entry) if before is None or gives_way else deep_merge(before, entry)
            if before is not None and before.get("sandbox"):
                merged[key]["sandbox"] = before["sandbox"]
    return list(merged.values())


def merge_sessions(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return two session sections merged; a different orchestrator or context drops the config of the former one."""
    kept = dict(base)
    for name in ("orchestrator", "context"):
        specs = (base.get(name), override.get(name))
        before, after = (spec.get("module") if isinstance(spec, dict) else spec for spec in specs)
        if name in override and before != after:
            kept.pop(name, None)
            kept.pop(f"{name}_source", None)
    if "provider_preferences" in override:  # their order would make no sense joined
        kept.pop("provider_preferences", None)
    return deep_merge(kept, override)


def merge_permissions(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of both, with the stricter mode: a bundle loosens nothing of one that it includes.

    An `allow` of one bundle counts for calls without a rule of the other.
    """
    merged = deep_merge(base, override)
    modes = {base.get("mode"), override.get("mode")} - {None}
    if modes:
        merged["mode"] = min(modes, key=("read-only", "ask", "auto").index)
    return merged


def merge_by_name(base: Sequence[Any], override: Sequence[Any]) -> list[Any]:
    """Return each `name` once: in the place of the first, with the content of the last."""
    return list({config.name: config for config in (*base, *override)}.values())


def merge_keys(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of both with copies of their values; values are replaced, not merged."""
    return deepcopy({**base, **override})


def override_value(base: Any, override: Any) -> Any:
    """Return a copy of the later value, or of the former one where there is no later one."""
    return deepcopy(override if override not in (None, "") else base)


def override_list(base: Sequence[Any], override: Sequence[Any]) -> list[Any]:
    """Return a copy of the later list, also of an empty one."""
    return list(override)
