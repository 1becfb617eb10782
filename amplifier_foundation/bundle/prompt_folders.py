"""Find the folders with skills and commands: of the person, of the project around a working folder, of bundles."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from amplifier_core.frozen import frozen
from amplifier_core.permissions.hidden import is_printable

from ..documents.local_paths import leaves
from ..documents.positions import Place, show_file
from ..documents.problems import warning_at
from ..paths import data_home, find_home
from .prompt_files import MAX_BYTES, SKILL_FILE, read_command, read_skill, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..documents.problems import Problem
    from .model import Bundle
    from .prompt_files import Kind, PromptFile, ReadText

Owner = Literal["user", "project", "bundle"]
OWNERS: tuple[Owner, ...] = ("user", "project", "bundle")
"""The person's own come first, as in other programs: a stranger's project cannot replace them."""
FOLDERS: dict[Kind, str] = {"skill": "skills", "command": "commands"}
_OF_PROJECT: dict[Kind, tuple[str, ...]] = {
    "skill": (".amplifier/skills", ".claude/skills", ".agents/skills"),
    "command": (".amplifier/commands", ".claude/commands"),
}
MOST, MOST_FILES, MOST_OF_ALL, MOST_ENTRIES, DEEPEST = 500, 500, 5_000, 10_000, 5
"""Skills or commands of a folder; files of one skill, and of all; names of a folder; folders within each other."""
SKIPPED = {"__pycache__", "node_modules"}


@frozen
class PromptFolder:
    """A folder with skills or commands."""

    kind: Kind
    owner: Owner
    path: Path
    root: Path | None = None
    """The folder that no link may lead out of; None for those of the person."""


def user_folders(kind: Kind) -> list[PromptFolder]:
    """Return the person's own folders of skills or commands, the first one first."""
    found = [data_home() / FOLDERS[kind]]
    if (home := find_home()) is not None:
        found += [home / each for each in _OF_PROJECT[kind] if not each.startswith(".amplifier")]
    return [PromptFolder(kind, "user", each) for each in found]


def project_folders(kind: Kind, folder: Path) -> list[PromptFolder]:
    """Return the folders of skills or commands of the project around a working folder, the nearest first."""
    return [
        PromptFolder(kind, "project", each / name, each) for each in find_roots(folder) for name in _OF_PROJECT[kind]
    ]


def find_roots(folder: Path) -> list[Path]:
    """Return a working folder and those above it, up to the root of its git checkout; without one, itself alone.

    The home folder is no project, and folders of other users do not count.
    """
    here = Path(os.path.realpath(folder))
    home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111 - a user may have no home
    found: list[Path] = []
    try:
        user = here.stat().st_uid
        for each in (here, *here.parents):
            if each == home or each.stat().st_uid != user:
                break
            found.append(each)
            if (each / ".git").exists():
                return found
    except OSError:  # a folder closed to this user
        pass
    return found[:1]


def bundle_folders(kind: Kind, roots: Iterable[Path]) -> list[PromptFolder]:
    """Return the folders of skills or commands of bundles in these folders."""
    return [PromptFolder(kind, "bundle", root / FOLDERS[kind], root) for root in roots]


def bundle_roots(bundle: Bundle) -> list[Path]:
    """Return the folders of a bundle and of those it includes, the winning one first."""
    layers = [*reversed(bundle.layers), bundle]
    return list(dict.fromkeys(each.base_path for each in layers if each.base_path is not None))


def find_prompt_files(folder: PromptFolder, read: ReadText, problems: list[Problem]) -> Iterator[PromptFile]:
    """Yield the skills or commands of a folder by name; add what is wrong to `problems`."""
    for path, name in _find(folder, problems):
        one, others = read_skill(path, read) if folder.kind == "skill" else read_command(path, name, read)
        problems += others
        if one is not None:
            yield one


def read_bundle_prompts(bundle: Bundle) -> tuple[list[PromptFile], list[Problem]]:
    """Return the skills and commands in the folders of a bundle, and what is wrong with them."""
    found: dict[tuple[str, str], PromptFile] = {}
    problems: list[Problem] = []
    for kind in FOLDERS:
        for folder in bundle_folders(kind, bundle_roots(bundle)):
            for each in find_prompt_files(folder, read_text, problems):
                found.setdefault((each.kind, each.name), each)
    return sorted(found.values(), key=lambda each: (each.kind, each.name)), problems


def _find(folder: PromptFolder, problems: list[Problem]) -> Iterator[tuple[Path, str]]:
    """Yield the path and the name of each skill or command of a folder, as far as they count."""
    found = _find_skills(folder, problems) if folder.kind == "skill" else _find_commands(folder, problems)
    yield from islice(found, MOST)
    if next(found, None) is not None:
        message = f"only the first {MOST} {FOLDERS[folder.kind]} of a folder are used"
        problems.append(warning_at(Place(show_file(folder.path)), "AMP121", message))


def _find_skills(folder: PromptFolder, problems: list[Problem]) -> Iterator[tuple[Path, str]]:
    for entry in _scan(folder):
        file = f"{entry.path}/{SKILL_FILE}"
        if entry.name.startswith(".") or not os.path.isfile(file):  # noqa: PTH113 - it knows no error
            continue
        is_link = entry.is_symlink() or os.path.islink(file)  # noqa: PTH114
        if not is_link or _is_inside(folder, Path(file), problems):
            yield Path(entry.path), entry.name


def _find_commands(folder: PromptFolder, problems: list[Problem]) -> Iterator[tuple[Path, str]]:
    waiting = [(folder, "", 1)]
    while waiting:
        here, namespace, depth = waiting.pop(0)
        for entry in _scan(here):
            if entry.name.startswith(".") or entry.name in SKIPPED:
                continue
            if os.path.isdir(entry.path):  # noqa: PTH112 - it knows no error
                if (folder.root is None or not entry.is_symlink()) and depth < DEEPEST:
                    below = replace(folder, path=Path(entry.path))
                    waiting.append((below, f"{namespace}{entry.name}:", depth + 1))
                continue
            if not entry.name.endswith(".md") or not os.path.isfile(entry.path):  # noqa: PTH113
                continue
            if not entry.is_symlink() or _is_inside(folder, Path(entry.path), problems):
                yield Path(entry.path), f"{namespace}{entry.name.removesuffix('.md')}"


def _scan(folder: PromptFolder) -> list[os.DirEntry[str]]:
    """Return what is in a folder, sorted; nothing for a missing one, and for one that a link takes elsewhere."""
    try:
        with os.scandir(folder.path) as entries:
            found = sorted(islice(entries, MOST_ENTRIES), key=lambda each: each.name)
    except OSError:  # missing, or closed to this user
        return []
    return found if folder.root is None or not found or not leaves(folder.root, folder.path) else []


def _is_inside(folder: PromptFolder, path: Path, problems: list[Problem]) -> bool:
    if folder.root is None or not leaves(folder.root, path):
        return True
    message = "is left out: it is a link that leads elsewhere"
    problems.append(warning_at(Place(show_file(path)), "AMP121", message))
    return False


def stamp_files(folders: Iterable[PromptFolder]) -> list[tuple[str, int, int, int, int]]:
    """Return what changes when a skill or a command comes, goes or changes: paths, sizes, times and inodes."""
    found = []
    for folder in folders:
        for path, _ in _find(folder, []):
            with suppress(OSError):
                status = (path / SKILL_FILE if folder.kind == "skill" else path).stat()
                found.append((str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return found


def list_skill_files(skill: Path) -> list[str]:
    """Return the files of a skill's folder beside `SKILL.md`, relative to it and sorted.

    Hidden files, links out of the folder, and names that cannot be printed are left out.
    """
    found: list[str] = []
    for top, folders, names in os.walk(skill):
        at = Path(top)
        depth = len(at.relative_to(skill).parts)
        keep = [each for each in folders if depth < DEEPEST and each not in SKIPPED and not each.startswith(".")]
        folders[:] = sorted(keep)
        inside = [(at / name).relative_to(skill).as_posix() for name in sorted(names) if not name.startswith(".")]
        inside = [each for each in inside if is_printable(each) and each != SKILL_FILE]
        files = (each for each in inside[:MOST_FILES] if (skill / each).is_file() and not leaves(skill, skill / each))
        found += files
        if len(found) > MOST_FILES:
            break
    return sorted(found[:MOST_FILES])


def list_files(folders: Iterable[PromptFolder]) -> list[Path]:
    """Return the real paths of the files that skills and commands in these folders may bring into a prompt."""
    found: list[Path] = []
    for folder in folders:
        for path, _ in _find(folder, []):
            is_skill = folder.kind == "skill"
            found += [path / each for each in (SKILL_FILE, *list_skill_files(path))] if is_skill else [path]
            if len(found) >= MOST_OF_ALL:
                break
    files = (each.resolve() for each in found[:MOST_OF_ALL])
    return [each for each in files if each.is_file() and each.stat().st_size <= MAX_BYTES]
