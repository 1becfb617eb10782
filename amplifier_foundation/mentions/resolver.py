"""From a mention to its file, which never lies outside of the folder that the mention begins in."""

from __future__ import annotations

import os
from copy import copy
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from ..bundles.paths import leaves
from ..bundles.positions import show_file
from ..bundles.problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

LISTED = 1000
"""Names of a folder among which the nearest one is looked for."""


class MentionResolver(Protocol):
    """What finds mentioned files: the capability `mention_resolver`."""

    def resolve(self, mention: str) -> Path | None:
        """Return the file that `mention` stands for, or None."""


@runtime_checkable
class HasFolder(Protocol):
    """Something with a folder of its own, as a bundle has."""

    @property
    def base_path(self) -> Path | None:
        """The folder; None: it has none."""


class _Place(NamedTuple):
    """Where a file may be, and the folder that it must lie in."""

    root: Path
    path: Path


class BaseMentionResolver:
    """Finds files by mention: of the base folder, of the user's home, of folders registered by name.

    `@path` is looked for in `relative_to`, then in `base_path` (default: the current folder); `@./path` and
    `@../path` in `relative_to` alone (default: `base_path`). `..` and symlinks are followed and must not lead out of
    `base_path`, or of `relative_to` where that is not in it. Where nothing has the name, `.md` is put behind it.
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
        """Have `@name:path` stand for a file in `root`: a folder, or something with one in `base_path`."""
        folder = root if isinstance(root, (str, Path)) else root.base_path
        if folder is not None:
            self._roots[name] = Path(folder)

    def resolve(self, mention: str) -> Path | None:
        """Return the regular file that `mention` stands for, its symlinks followed; None: see `explain`."""
        try:
            return _file_of(self._places(mention))
        except (LookupError, OSError, ValueError):
            return None

    def explain(self, mention: str, *, hint: bool = True) -> str:
        """Return why `mention` stands for no file, with a `hint` at the nearest name there is; `` when it does."""
        try:
            places = self._places(mention)
            return "" if _file_of(places) else _why(places, hint)
        except OSError as error:
            return error.strerror or str(error)
        except (LookupError, ValueError) as error:
            return str(error)

    def beginning_in(self, folder: Path) -> Self:
        """Return a resolver that differs in where relative mentions begin."""
        other = copy(self)
        other.relative_to = folder
        return other

    def within(self, file: Path) -> Self:
        """Return the resolver of the mentions in `file`.

        They begin in its folder and end at the innermost registered folder around it. The home is out of reach from
        there unless `file` was found in it: what a project says must not fetch what its user keeps elsewhere.
        """
        other = self.beginning_in(file.parent)
        other.base_path = self._root_around(file)
        home = _home()
        other._reaches_home = self._reaches_home and home is not None and not leaves(other.base_path, home)
        return other

    def _root_around(self, file: Path) -> Path:
        home = _home() if self._reaches_home else None
        roots = [*self._roots.values(), self.base_path, self.relative_to, *([home] if home else [])]
        around = [root.resolve() for root in roots if not leaves(root, file)]
        return max(around, key=lambda root: len(root.parts), default=file.parent)

    def _places(self, mention: str) -> list[_Place]:
        """Return where the file may be, the likeliest place first. Raises `LookupError` for what names no place."""
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
        home = _home() if self._reaches_home else None
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


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def _file_of(places: list[_Place]) -> Path | None:
    for root, path in places:
        for candidate in (path, Path(f"{path}.md")):
            if candidate.is_file() and not leaves(root, candidate):
                return candidate.resolve()
    return None


def _why(places: list[_Place], hint: bool) -> str:
    """Return the first of the reasons why `places` hold no file that says more than that nothing is there."""
    reasons = (_problem(place, hint) for place in places)
    return next(filter(None, reasons), f"{show_file(places[0].path)}: no such file")


def _problem(place: _Place, hint: bool) -> str:
    """Return what stands in the way, or ``: nothing is there."""
    root, path = place
    if path.is_symlink() and not path.exists():
        return f"{show_file(path)}: is a link that leads nowhere"
    if leaves(root, path):
        return f"{show_file(path)}: leads out of {show_file(root)}; mention a file in it"
    if path.is_dir():
        return f"{show_file(path)}: is a folder; mention a file in it"
    if path.exists():
        return f"{show_file(path)}: is not a regular file"
    near = _nearest(root.resolve(), path.resolve()) if hint else ""
    return f"{show_file(path)}: no such file{near}" if near else ""


def _nearest(root: Path, path: Path) -> str:
    """Return a hint at what is called nearly as `path`, or as the uppermost of its folders that is missing."""
    while path != root and not path.parent.is_dir():
        path = path.parent
    if path == root:
        return ""
    with os.scandir(path.parent) as entries:
        return did_you_mean(path.name, [entry.name for entry in islice(entries, LISTED)])
