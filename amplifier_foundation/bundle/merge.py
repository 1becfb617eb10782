"""Merge a section of several bundles: the later bundle wins, lists of modules are joined by module.

Each function but `merge_module_lists` takes the values of all the bundles at once and copies each value once, so that a
bundle with hundreds of includes takes as long for each as one with a few. What it returns shares nothing with them.
"""

from __future__ import annotations

from copy import deepcopy
from functools import reduce
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleValidationError

from ..documents.dicts import deep_merge, merge_into

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .background_config import BackgroundSessionConfig

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
    return join_module_lists([base, override])


def join_module_lists(lists: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Do as `merge_module_lists` does with any number of lists."""
    merged: dict[EntryKey, dict[str, Any]] = {}
    for name, entries in zip(chain(("base",), repeat("override")), lists, strict=False):
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


def merge_sessions(sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return session sections merged; a different orchestrator or context drops the config of the former one."""
    return reduce(_merge_session, sections[1:], deepcopy(dict(sections[0])))


def _merge_session(base: dict[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a section into `base`, and return it."""
    for name in ("orchestrator", "context"):
        specs = (base.get(name), override.get(name))
        before, after = (spec.get("module") if isinstance(spec, dict) else spec for spec in specs)
        if name in override and before != after:
            base.pop(name, None)
            base.pop(f"{name}_source", None)
    if "provider_preferences" in override:  # their order would make no sense joined
        base.pop("provider_preferences", None)
    merge_into(base, override)
    return base


def merge_deep(sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return sections merged as by `deep_merge`."""
    merged = deepcopy(dict(sections[0]))
    for section in sections[1:]:
        merge_into(merged, section)
    return merged


def merge_permissions(sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rules of all, with the strictest mode: a bundle loosens nothing of one that it includes.

    An `allow` of one bundle counts for calls without a rule of the other.
    """
    merged = merge_deep(sections)
    modes = {section.get("mode") for section in sections} - {None}
    if modes:
        merged["mode"] = min(modes, key=("read-only", "ask", "auto").index)
    return merged


def merge_background_sessions(lists: Sequence[Sequence[BackgroundSessionConfig]]) -> list[BackgroundSessionConfig]:
    """Return each `name` once, in the place of the first: a later one replaces the keys that it gives.

    Raises `BundleValidationError` for keys that have no meaning beside each other.
    """
    from .background_config import replace_keys  # not at import: it makes models, and spawning merges modules alone

    merged: dict[str, BackgroundSessionConfig] = {}
    for config in chain.from_iterable(lists):
        before = merged.get(config.name)
        try:
            merged[config.name] = config if before is None else replace_keys(before, config)
        except ValueError as error:
            reason = str(error).partition("Value error, ")[2].partition(" [type=")[0]
            raise BundleValidationError(f"background_sessions: '{config.name}' of two bundles: {reason}") from None
    return list(merged.values())


def merge_keys(sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keys of all with copies of their values; values are replaced, not merged."""
    return deepcopy({key: value for section in sections for key, value in section.items()})


def merge_workflows(sections: Sequence[Any]) -> Any:
    """Return the workflows of all by name; a section of another kind, which is told when it is read, replaces them."""
    last = override_value(sections)
    return merge_keys([each for each in sections if isinstance(each, dict)]) if isinstance(last, dict) else last


def override_value(values: Sequence[Any]) -> Any:
    """Return a copy of the last value that there is, or of the first."""
    return deepcopy(next((value for value in reversed(values) if value not in (None, "")), values[0]))


def override_list(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """Return a copy of the last list, also of an empty one."""
    return list(lists[-1])
