"""How two bundles become one: the later one wins, lists of modules are joined by what names a module."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

EntryKey = tuple[str, str]


def deep_merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return both merged, sharing nothing with either.

    Mappings are merged key by key, lists are joined without what they both hold, anything else of `override` wins.
    """
    merged = deepcopy(dict(base))
    for key, value in override.items():
        merged[key] = _merged_value(merged[key], value) if key in merged else deepcopy(value)
    return merged


def _merged_value(base: Any, override: Any) -> Any:
    if isinstance(base, dict) and isinstance(override, dict):
        return deep_merge(base, override)
    if isinstance(base, list) and isinstance(override, list):
        return base + [deepcopy(item) for item in override if item not in base]
    return deepcopy(override)


def entry_key(entry: Mapping[str, Any]) -> EntryKey:
    """Return what makes a module's entry itself: its module, and its `instance_id` or `id` where it has one."""
    return str(entry.get("module", "")), str(entry.get("instance_id") or entry.get("id") or "")


def merge_module_lists(
    base: Sequence[Mapping[str, Any]], override: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the entries of both in the order first seen; two entries of one `entry_key` are merged deep."""
    merged: dict[EntryKey, dict[str, Any]] = {}
    for entry in (*base, *override):
        key = entry_key(entry)
        merged[key] = deep_merge(merged[key], entry) if key in merged else deepcopy(dict(entry))
    return list(merged.values())


def merge_sessions(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return two session sections merged; another orchestrator or context takes nothing of the former one's config."""
    kept = dict(base)
    for name in ("orchestrator", "context"):
        if name in override and _module_of(base.get(name)) != _module_of(override[name]):
            kept.pop(name, None)
            kept.pop(f"{name}_source", None)
    return deep_merge(kept, override)


def _module_of(spec: Any) -> Any:
    return spec.get("module") if isinstance(spec, dict) else spec


def merge_named(configs: Iterable[Any]) -> list[Any]:
    """Return `configs` with each `name` once: the place of the first, the content of the last."""
    return list({config.name: config for config in configs}.values())
