"""Find entry points, and name their distributions."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Protocol

    import importlib_metadata

    from .errors import PluginRefused

    class Gate(Protocol):
        """Decides which entry points are loaded."""

        def __call__(self, entry: EntryPoint) -> PluginRefused | None:
            """Return why an entry point is not loaded; None if it is."""

    class Keeper(Protocol):
        """Keeps values between processes."""

        def find(self, path: str, about: str) -> Any:
            """Return an object with the `values` that were kept for `path` with the same `about`, else None."""

        def keep(self, path: str, about: str, values: dict[str, Any] | None = None) -> None:
            """Keep the values of `path`."""


_LOCK = Lock()
_ABOUT = (".dist-info", ".egg-info", ".egg")
"""The ends of the names of files and folders about distributions."""
_REPLACED = "~"
"""The start of the name of what pip replaces; it stays behind where pip is killed, and counts for nothing."""

_HEADERS = ("METADATA", "PKG-INFO")
"""The files with the name and the version of a distribution."""

_Stamp: TypeAlias = "tuple[str, int, int]"
"""A path with its time of change and its size."""


class Distribution(NamedTuple):
    """An installed distribution; "?" without a version stands for an unknown one."""

    name: str = "?"
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


class EntryPoint(NamedTuple):
    """A name that a distribution offers for an object: `package.module:attribute`, or a module."""

    name: str
    value: str
    dist: Distribution = Distribution()
    summary: str = ""
    """What the distribution does, in its own words."""

    @property
    def module(self) -> str:
        """The name of the module."""
        return self.value.partition("[")[0].partition(":")[0].strip()

    def check(self) -> None:
        """Raise `PluginRefused` if the gate of this process keeps the object from being imported."""
        for gate in _gates:
            if (refusal := gate(self)) is not None:
                raise refusal

    def load(self) -> Any:
        """Import and return the object. Raises `PluginRefused`, every error of the import, and `AttributeError`."""
        self.check()
        found: Any = import_module(self.module)
        attributes = self.value.partition("[")[0].partition(":")[2].strip()  # "[...]" names extras
        for attribute in filter(None, attributes.split(".")):
            found = getattr(found, attribute)
        return found


_gates: list[Gate] = []
_keepers: list[Keeper] = []


def guard_with(gate: Gate | None) -> None:
    """Ask `gate` before the object of an entry point is imported in this process; None: ask nobody."""
    _gates[:] = [] if gate is None else [gate]


def keep_with(keeper: Keeper | None) -> None:
    """Keep entry points between processes; None: scan the environment in each process.

    To import the library and to scan takes as long as the start of Python. Kept entry points are valid until a
    distribution comes or goes, or a file about one changes.
    """
    _keepers[:] = [] if keeper is None else [keeper]


def find_entry_points(group: str, name: str | None = None) -> list[EntryPoint]:
    """Return the entry points of a group (of one name), sorted by name; none is imported.

    The library importlib-metadata finds them 10 to 20 % faster than the standard module of Python 3.11.
    """
    stamps = tuple(_stamp(path or os.curdir) for path in sys.path)
    with _LOCK:  # two threads must not scan at the same time: the second one takes the result of the first
        found = _find(group, stamps)
    return [entry for entry in found if name in (None, entry.name)]


@lru_cache(maxsize=32)
def _find(group: str, stamps: tuple[_Stamp, ...]) -> tuple[EntryPoint, ...]:
    folders = _list_distributions(stamps)
    if folders is None or not _keepers:
        return _scan(group, folders, stamps)
    environment, about = repr((group, os.path.realpath(os.curdir), sys.path)), _describe(folders, stamps)
    kept = _keepers[0].find(environment, about)
    found = _read(kept.values) if kept is not None else None
    if found is None:
        found = _scan(group, folders, stamps)
        rows = [[entry.name, entry.value, *entry.dist, entry.summary] for entry in found]
        _keepers[0].keep(environment, about, {"entries": rows})
    return found


@lru_cache(maxsize=8)
def _describe(folders: tuple[str, ...], stamps: tuple[_Stamp, ...]) -> str:
    """Return the state of the files about distributions; those without entry points have only a place."""
    offers = [_stamp(f"{folder}/entry_points.txt") for folder in folders]
    owners = [path.removesuffix("entry_points.txt") for path, time, _ in offers if time]
    return repr((offers, [_stamp(owner + name) for owner in owners for name in _HEADERS]))


def _read(values: Any) -> tuple[EntryPoint, ...] | None:
    """Return kept entry points; None for anything else."""
    rows = values.get("entries") if isinstance(values, dict) else None
    if not isinstance(rows, list):
        return None
    if any(not isinstance(row, list) or list(map(type, row)) != [str] * 5 for row in rows):
        return None
    return tuple(EntryPoint(name, value, Distribution(*dist), summary) for name, value, *dist, summary in rows)


def _scan(group: str, folders: tuple[str, ...] | None, stamps: tuple[_Stamp, ...]) -> tuple[EntryPoint, ...]:
    """Find the entry points of a group, unless no distribution in `folders` may offer it.

    Most environments lack the rarer groups; importing the library to learn that takes twice as long as reading the
    files.
    """
    if folders is not None and not any(_has_heading(f"[{group}]".encode(), folder) for folder in folders):
        return ()
    found = [(entry, folder) for entry, folder in _find_all(stamps) if entry.group == group]
    entries = (EntryPoint(each.name, each.value, *_read_metadata(each, folder)) for each, folder in found)
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _has_heading(heading: bytes, folder: str) -> bool:
    with suppress(OSError), open(f"{folder}/entry_points.txt", "rb") as file:  # noqa: PTH123 - pathlib is not imported here
        return heading in file.read()
    return False


@lru_cache(maxsize=8)
def _list_distributions(stamps: tuple[_Stamp, ...]) -> tuple[str, ...] | None:
    """Return the folders about the distributions of the import path.

    None: an archive or an egg on the path, or another finder of distributions, may offer anything.
    """
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if not _is_plain(finder)):
        return None
    found: list[str] = []
    for path, _, _ in stamps:
        try:
            with os.scandir(path) as entries:
                names = (entry for entry in entries if entry.name.lower().endswith(_ABOUT))
                found += sorted(entry.path for entry in names if not entry.name.startswith(_REPLACED))
        except NotADirectoryError:
            return None
        except OSError:
            continue
    is_egg = any(path.endswith(".egg") for path in (*found, *(path for path, _, _ in stamps)))
    return None if is_egg else tuple(found)


def _is_plain(finder: object) -> bool:
    """Return whether a finder looks for distributions in the folders of the import path."""
    return finder is PathFinder or type(finder).__module__ == "importlib_metadata"


@lru_cache(maxsize=8)
def _find_all(stamps: tuple[_Stamp, ...]) -> tuple[tuple[importlib_metadata.EntryPoint, str], ...]:
    """Return all entry points, each with the folder about its distribution, or "" for an unknown one.

    A scan reads a file of every distribution, and a bundle asks for each of its modules. Of two folders about one
    distribution the first counts, as for an import. One that cannot be read offers nothing.
    """
    from pathlib import Path

    from importlib_metadata import PathDistribution, distributions

    folders = _list_distributions(stamps)
    if folders is None:
        read = ((each, _read_entries(each, "")) for each in distributions())
        first = {_name_of(each): entries for each, entries in reversed([pair for pair in read if pair[1]])}
        return tuple((entry, "") for entries in first.values() for entry in entries)
    about: dict[str, str] = {}
    for folder in folders:
        key, _ = _split(folder)
        kept = about.setdefault(key, folder)
        if kept != folder and not any(_stamp(f"{kept}/{name}")[1] for name in _HEADERS):  # half removed
            about[key] = folder
    about_all = ((PathDistribution(Path(folder)), folder) for folder in about.values())
    return tuple((entry, folder) for each, folder in about_all for entry in _read_entries(each, folder))


def _name_of(found: Any) -> object:
    """Return the name of a distribution, normalized; the distribution itself for one without a name."""
    try:
        return _normalize(found.name)
    except (LookupError, TypeError, ValueError, OSError):
        return found


def _read_entries(found: Any, folder: str) -> Collection[importlib_metadata.EntryPoint]:
    """Return the entry points of a distribution; none of one whose file cannot be read, as after a full disk."""
    try:
        entries: importlib_metadata.EntryPoints = found.entry_points
        return entries
    except (ValueError, TypeError, OSError) as error:  # of the encoding, of the file's own rules, of a link
        if folder and _has_heading(b"[amplifier", folder):
            import logging

            logging.getLogger(__name__).warning("%s cannot be read (%s): install its package anew", folder, error)
        return ()


def _split(folder: str) -> tuple[str, str]:
    """Return the normalized name of a distribution, and its version, by the name of its folder."""
    stem, _ = os.path.splitext(os.path.basename(folder))  # noqa: PTH119, PTH122 - pathlib is not imported here
    name, _, rest = stem.partition("-")
    return _normalize(name), rest.partition("-")[0]


def _normalize(name: str) -> str:
    """Return a name in small letters, with `_` for each of the signs that count as one."""
    return re.sub(r"[-_.]+", "_", name).lower()


def _stamp(path: str) -> _Stamp:
    """Return the time of the last change and the size of a file or folder: an installation changes its folder."""
    try:
        status = os.stat(path)  # noqa: PTH116 - pathlib is not imported here
    except OSError:
        return path, 0, 0
    return path, status.st_mtime_ns, status.st_size


def _read_metadata(entry: importlib_metadata.EntryPoint, folder: str) -> tuple[Distribution, str]:
    """Return the distribution of `entry`, and its summary; a half removed one is named after its `folder`.

    They are read here: `entry.dist.metadata` imports a parser of e-mails, which takes longer than to
    find every entry point.
    """
    metadata = ""
    if entry.dist is not None:
        with suppress(UnicodeDecodeError):
            metadata = entry.dist.read_text("METADATA") or entry.dist.read_text("PKG-INFO") or ""
    headers = (re.search(rf"^{name}:(.*)$", metadata, re.MULTILINE) for name in ("Name", "Version", "Summary"))
    name, version, summary = (found[1].strip() if found else "" for found in headers)
    if not name:
        name, version = _split(folder)
    return Distribution(name or "?", version), summary
