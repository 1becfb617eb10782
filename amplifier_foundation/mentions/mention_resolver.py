"""Resolve a mention to its file, always inside the folder of its root."""

from __future__ import annotations

import os
from copy import copy
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from amplifier_core.contracts import Contract

from ..documents.local_paths import leaves
from ..documents.positions import show_file
from ..documents.problems import did_you_mean
from ..paths import fetched_root, find_home, is_personal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

LISTED = 1000
"""Names of a folder considered for a suggestion."""


class MentionResolver(Protocol):
    """A resolver of mentions: the capability `mention_resolver`."""

    def resolve(self, mention: str) -> Path | None:
        """Return the file of `mention`, or None."""


@runtime_checkable
class HasFolder(Protocol, metaclass=Contract):
    """An object with a folder of its own, such as a bundle."""

    @property
    def base_path(self) -> Path | None:
        """The folder, or None."""


class _Place(NamedTuple):
    """A possible path of a file, and the folder around it."""

    root: Path
    path: Path


class BaseMentionResolver:
    """Finds mentioned files in the base folder, the user's home, and folders registered by name.

    `@path` is searched in `relative_to`, then in `base_path` (default: the current folder); `@./path` and `@../path` in
    `relative_to` alone (default: `base_path`). `..` and symlinks must stay inside `base_path`, or inside `relative_to`
    if it is another folder. A missing name is tried with `.md` as well.
    """

    def __init__(
        self,
        bundles: Mapping[str, Path | str | HasFolder] | None = None,
        base_path: Path | str | None = None,
        *,
        relative_to: Path | str | None = None,
    ) -> None:
        self.base_path = base_path if isinstance(base_path, Path) else Path(base_path or Path.cwd())
        self.relative_to = relative_to if isinstance(relative_to, Path) else Path(relative_to or self.base_path)
        self._roots: dict[str, Path] = {}
        self._reaches_home = True
        for name, root in (bundles or {}).items():
            self.register(name, root)

    def register(self, name: str, root: Path | str | HasFolder) -> None:
        """Let `@name:path` mean a file in `root`: a folder, or an object with one in `base_path`."""
        folder = root if isinstance(root, (str, Path)) else root.base_path
        if folder is not None:
            self._roots[name] = folder if isinstance(folder, Path) else Path(folder)

    def resolve(self, mention: str) -> Path | None:
        """Return the regular file of `mention`, its symlinks resolved; None: see `explain`."""
        try:
            return _file_of(self._places(mention))
        except (LookupError, OSError, ValueError):
            return None

    def explain(self, mention: str, *, hint: bool = True) -> str:
        """Return the reason a mention has no file, with a `hint` at the closest name; `` for a mention with a file."""
        try:
            places = self._places(mention)
            if _file_of(places):
                return ""
            reasons = (_find_obstacle(place, hint) for place in places)
            return next(filter(None, reasons), f"{show_file(places[0].path)}: no such file")
        except OSError as error:
            return error.strerror or str(error)
        except (LookupError, ValueError) as error:
            return str(error)

    def beginning_in(self, folder: Path) -> Self:
        """Return a copy with relative mentions beginning in `folder`."""
        other = copy(self)
        other.relative_to = folder
        return other

    def within(self, file: Path) -> Self:
        """Return the resolver of the mentions in `file`.

        They begin in its folder and end at the innermost registered folder around it. The home is out of reach unless
        `file` lies in it: a project's texts must not fetch the user's other files. From a fetched file, the home and
        the person's own folders are always out of reach.
        """
        other = self.beginning_in(file.parent)
        other.base_path = self._root_around(file)
        home = find_home()
        other._reaches_home = self._reaches_home and home is not None and not leaves(other.base_path, home)
        root = fetched_root(file)
        if root is not None:
            other.base_path = root if leaves(root, other.base_path) else other.base_path
            other._reaches_home = False
            other._roots = {name: root for name, root in self._roots.items() if not is_personal(root)}
        return other

    def _root_around(self, file: Path) -> Path:
        home = find_home() if self._reaches_home else None
        roots = [*self._roots.values(), self.base_path, self.relative_to, *([home] if home else [])]
        around = [root.resolve() for root in roots if not leaves(root, file)]
        return max(around, key=lambda root: len(root.parts), default=file.parent)

    def _places(self, mention: str) -> list[_Place]:
        """Return the possible places of the file, the likeliest first. Raises `LookupError` for an invalid mention."""
        name = mention.removeprefix("@").strip('"')
        if not name or "\0" in name:
            raise LookupError("names no file")
        if name == "~" or name.startswith("~/"):
            return [self._in_home(name[2:])]
        owner, colon, inside = name.partition(":")
        if colon and "/" not in owner and not owner.startswith("."):
            root = self._root_of(owner)
            return [_Place(root, root / inside)]
        return self._relative(name)

    def _in_home(self, inside: str) -> _Place:
        home = find_home() if self._reaches_home else None
        if home is None:
            raise LookupError(f"the home folder is not within reach here; mention files of {show_file(self.base_path)}")
        return _Place(home, home / inside)

    def _root_of(self, owner: str) -> Path:
        if owner not in self._roots:
            known = ", ".join(sorted(self._roots)) or "none"
            hint = did_you_mean(owner, self._roots) or "."
            raise LookupError(f"no bundle or folder is registered as '{owner}'{hint} Registered: {known}")
        return self._roots[owner]

    def _relative(self, name: str) -> list[_Place]:
        base = _Place(self.base_path, self.base_path / name)
        if self.relative_to == self.base_path:
            return [base]
        root = self.relative_to if leaves(self.base_path, self.relative_to) else self.base_path
        own = _Place(root, self.relative_to / name)
        return [own] if name.startswith(("./", "../")) else [own, base]


def _file_of(places: list[_Place]) -> Path | None:
    for root, path in places:
        for candidate in (path, Path(f"{path}.md")):
            if candidate.is_file() and not leaves(root, candidate):
                return candidate.resolve()
    return None


def _find_obstacle(place: _Place, hint: bool) -> str:
    """Return the obstacle at a place; `` for a missing file without a similar name."""
    root, path = place
    if path.is_symlink() and not path.exists():
        return f"{show_file(path)}: is a broken link"
    if leaves(root, path):
        return f"{show_file(path)}: leads out of {show_file(root)}; mention a file in it"
    if path.is_dir():
        return f"{show_file(path)}: is a folder; mention a file in it"
    if path.exists():
        return f"{show_file(path)}: is not a regular file"
    root, missing = root.resolve(), path.resolve()
    while missing != root and not missing.parent.is_dir():
        missing = missing.parent  # the uppermost missing folder may be the misspelt one
    if not hint or missing == root:
        return ""
    with os.scandir(missing.parent) as entries:
        suggestion = did_you_mean(missing.name, [entry.name for entry in islice(entries, LISTED)])
    return f"{show_file(path)}: no such file{suggestion}" if suggestion else ""
