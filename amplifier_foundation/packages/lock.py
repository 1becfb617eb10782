"""Pin the packages of plugins for a project: `.amplifier/plugins.lock` has their versions and hashes of their files.

The hashes cover every file that the record of a package lists, and all files of the packages that its entry points
name, so that a checkout that is installed in place is pinned, too. What differs between two installations of the same
wheel is left out: compiled files, scripts, and the notes of installers.
"""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.entry_points import find_entry_points
from amplifier_core.errors import AmplifierError, PluginRefused
from amplifier_core.permissions import read_regular

from .gate import PROGRAM
from .report import GROUPS, name_of_dist

if TYPE_CHECKING:
    from amplifier_core.entry_points import EntryPoint

SCHEMA = "amplifier/plugins.lock/1"
MAX_BYTES = 1 << 26
_NOTES = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}
_SHOWN = 3
"""Changed files that a refusal names."""


class LockUnreadable(AmplifierError, ValueError):
    """The lock of a project is damaged."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(f"{path}: {cause}. Restore it, or pin the installed packages anew: amplifier plugin lock")


class Lock:
    """The pinned packages of a project: their version, the names they offer, and the hashes of their files."""

    def __init__(self, path: Path, packages: dict[str, dict[str, Any]]) -> None:
        self.path, self.packages = path, packages
        self._causes: dict[str, str | None] = {}

    def check(self, entry: EntryPoint) -> PluginRefused | None:
        """Return why an entry point is not as it was pinned; None if it is."""
        dist = name_of_dist(entry.dist.name)
        if dist not in self.packages:
            for owner, facts in self.packages.items():
                if entry.name in facts["offers"]:
                    cause = f"{self.path} pins {owner} {facts['version']} for this name. Uninstall one of them"
                    return PluginRefused(entry.name, str(entry.dist), cause, is_fault=True)
            cause = f"{self.path} does not pin its package. Add it with: amplifier plugin lock"
            return PluginRefused(entry.name, str(entry.dist), cause)
        if dist not in self._causes:
            self._causes[dist] = self._compare(dist, entry)
        cause_of_change = self._causes[dist]
        return PluginRefused(entry.name, str(entry.dist), cause_of_change, is_fault=True) if cause_of_change else None

    def _compare(self, dist: str, entry: EntryPoint) -> str | None:
        """Return what has changed in a package since it was pinned, with the remedy; None for nothing."""
        pinned = self.packages[dist]
        remedy = "Install what was pinned, or look at the change and pin it with: amplifier plugin lock"
        if pinned["version"] != entry.dist.version:
            return f"{self.path} pins {dist} {pinned['version']}. {remedy}"
        before, after = pinned["files"], hash_package(entry.dist.name)
        changed = [f"{path} is new" for path in after if path not in before]
        changed += [f"{path} is gone" for path in before if path not in after]
        changed += [f"{path} has changed" for path in after if path in before and after[path] != before[path]]
        if not changed:
            return None
        more = f", and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        return f"it is not as {self.path} pins it: {', '.join(sorted(changed)[:_SHOWN])}{more}. {remedy}"


def read_lock(path: Path) -> Lock:
    """Read a lock. Raises `LockUnreadable`."""
    try:
        raw = read_regular(path, MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise LockUnreadable(path, f"it is larger than {MAX_BYTES // 2**20} MiB")
        data = json.loads(raw)
        if data["schema"] != SCHEMA:
            raise LockUnreadable(path, f"its schema is {data['schema']!r}, and not '{SCHEMA}'")
        packages = {name: _select(facts) for name, facts in data["packages"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, LockUnreadable):
            raise
        raise LockUnreadable(path, f"it cannot be read ({type(error).__name__}: {error})") from error
    return Lock(path, packages)


def write_lock(path: Path) -> dict[str, list[str]]:
    """Pin all installed packages of plugins; return their names by what happened: added, changed, removed, same."""
    from ..documents.files import write_whole

    before: dict[str, Any] = {}
    with suppress(LockUnreadable):  # there is none, or it is replaced
        before = read_lock(path).packages
    after: dict[str, Any] = {}
    for entry in (entry for group in GROUPS for entry in find_entry_points(group)):
        if entry.dist.name != PROGRAM:
            name = name_of_dist(entry.dist.name)
            if name not in after:
                after[name] = {"version": entry.dist.version, "offers": [], "files": hash_package(entry.dist.name)}
            after[name]["offers"] = sorted({*after[name]["offers"], entry.name})
    for facts in after.values():
        facts["hash"] = sha256(json.dumps(facts["files"], sort_keys=True).encode()).hexdigest()
    text = json.dumps({"schema": SCHEMA, "packages": after}, indent=1, sort_keys=True)
    write_whole(path, text + "\n")
    pinned = {name: _select(facts) for name, facts in after.items()}
    return {
        "added": [name for name in sorted(after) if name not in before],
        "changed": [name for name in sorted(after) if name in before and before[name] != pinned[name]],
        "removed": [name for name in sorted(before) if name not in after],
        "same": [name for name in sorted(after) if before.get(name) == pinned[name]],
    }


def _select(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: facts[key] for key in ("version", "offers", "files")}


def hash_package(dist: str) -> dict[str, str]:
    """Return the SHA-256 (hex) of each file of an installed distribution, by its path below the import folder."""
    from importlib_metadata import distribution

    found = distribution(dist)
    files = {str(file): Path(str(found.locate_file(file))) for file in found.files or () if _is_pinned(file.parts)}
    for entry in (entry for group in GROUPS for entry in find_entry_points(group) if entry.dist.name == dist):
        files.update(files_of_module(entry.module.partition(".")[0]))
    return {name: sha256(path.read_bytes()).hexdigest() for name, path in sorted(files.items()) if path.is_file()}


def _is_pinned(parts: tuple[str, ...]) -> bool:
    """Return whether a file is the same in two installations of one wheel."""
    is_made = "__pycache__" in parts or parts[-1].endswith((".pyc", ".pth"))
    return not is_made and parts[0] != ".." and parts[-1] not in _NOTES


def files_of_module(name: str) -> dict[str, Path]:
    """Return the files of a package or module, by their path below the folder that it is in."""
    spec = PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return {Path(spec.origin).name: Path(spec.origin)} if spec is not None and spec.origin else {}
    return {
        str(path.relative_to(Path(folder).parent)): path
        for folder in spec.submodule_search_locations
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and _is_pinned(path.relative_to(folder).parts) and not path.name.startswith(".")
    }
