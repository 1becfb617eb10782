"""Find the files of a working folder that programs obey, and those with secrets; look again after a command.

A command sees the first read-only and the others empty. What it creates anew is looked at afterwards: a repository with
anything that git would run is moved aside, the rest is named.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.permissions import find_named_by_git, is_secret, what_obeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_ENTRIES = 20_000
"""Files and folders of a walk; a larger working folder is looked at in part."""
MOST_GUARDED = 500
_SKIPPED = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache", ".hg"})
_IN_GIT = ("config", "config.worktree", "hooks", "info", "commondir", "gitdir")
"""What git obeys in a repository, or what says where that is."""
_PLAIN_KEYS = re.compile(
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)"
    r"|remote\..*\.(?:url|fetch)|branch\..*\.(?:remote|merge)|user\.(?:name|email)|init\.defaultbranch"
    r"|extensions\.objectformat"
)
_SECTION = re.compile(r"\[([A-Za-z.-]+)(?:\s+\"([^\"\\\n]*)\")?\]")
_VALUE = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*=\s*([^\\\n]*)")


class Guarded(NamedTuple):
    """The guarded files of a working folder; paths are relative to it, with `/`."""

    obeyed: tuple[str, ...]
    secret: tuple[str, ...]
    is_complete: bool
    """Whether the walk has seen everything."""
    parts: dict[str, tuple[str, ...]]
    """By each repository, what git obeys in it."""
    identities: dict[str, tuple[int, int]]
    """The device and inode of each file and repository above."""


def find_guarded(folder: str, is_allowed: Callable[[str, str], bool] = lambda kind, path: False) -> Guarded:
    """Walk the folder, but not what programs obey, and no links.

    `is_allowed("read" or "write", path)` says what the person has released.
    """
    obeyed = [path for above in Path(folder).parents for path in _find_named(folder, str(above), is_allowed)]
    secret: list[str] = []
    entries = 0
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            found = list(os.scandir(f"{folder}/{inside}"))
        except OSError:  # gone, or not to be read
            continue
        entries += len(found)
        if entries > MOST_ENTRIES or len(obeyed) + len(secret) > MOST_GUARDED:
            return _describe(folder, obeyed, secret, is_complete=False)
        for entry in found:
            is_obeyed, is_kept = _judge_name(entry.name)
            is_folder = entry.is_dir(follow_symlinks=False)
            if (is_obeyed or is_kept) and not entry.is_symlink():
                path = f"{inside}{entry.name}"
                if is_kept and not is_folder and not is_allowed("read", path):
                    secret.append(path)
                elif is_obeyed and not is_allowed("write", path):
                    obeyed.append(path)
            if entry.name == ".git":
                obeyed += _find_named(folder, f"{folder}/{inside}".rstrip("/"), is_allowed)
            if is_folder and not is_obeyed and entry.name not in _SKIPPED:
                waiting.append(f"{inside}{entry.name}/")
    return _describe(folder, obeyed, secret, is_complete=True)


def _find_named(folder: str, top: str, is_allowed: Callable[[str, str], bool]) -> list[str]:
    """Return what the settings of the repository at `top` name inside of the folder, such as its hooks."""
    real = os.path.realpath(folder)
    inside = (each[len(real) + 1 :] for each in find_named_by_git(top) if each.startswith(f"{real}/"))
    there = (
        each for each in inside if os.path.realpath(f"{real}/{each}") == f"{real}/{each}" and Path(real, each).exists()
    )
    return [each for each in dict.fromkeys(there) if not is_allowed("write", each)]


@lru_cache(maxsize=2 * MOST_ENTRIES)
def _judge_name(name: str) -> tuple[bool, bool]:
    """Return whether a program obeys a file of this name, and whether it is a secret."""
    return what_obeys(name) is not None, is_secret(name)


def _describe(folder: str, obeyed: list[str], secret: list[str], *, is_complete: bool) -> Guarded:
    repositories = [path for path in obeyed if path.rpartition("/")[2].lower() == ".git"]
    repositories += [module for path in repositories for module in _find_modules(folder, path)]
    parts = {
        path: tuple(part for part in _IN_GIT if os.path.lexists(f"{folder}/{path}/{part}")) for path in repositories
    }
    identities = {}
    for path in (*obeyed, *secret, *parts):
        with suppress(OSError):
            status = os.lstat(f"{folder}/{path}")
            identities[path] = (status.st_dev, status.st_ino)
    return Guarded(tuple(dict.fromkeys(obeyed)), tuple(secret), is_complete, parts, identities)


def _find_modules(folder: str, repository: str) -> Iterator[str]:
    """Yield the repositories of submodules inside of a repository."""
    for above, folders, files in os.walk(f"{folder}/{repository}/modules"):
        if "HEAD" in files:
            yield above[len(folder) + 1 :]
            folders[:] = [each for each in folders if each == "modules"]


def find_second_names(folder: str, guarded: Guarded) -> list[str]:
    """Return the guarded files with a second name (a hard link): through that, a command could read or write them."""
    inside = [f"{path}/{part}" for path, parts in guarded.parts.items() for part in parts]
    return [path for path in (*guarded.obeyed, *guarded.secret, *inside) if _count_names(f"{folder}/{path}") > 1]


def _count_names(path: str) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_nlink if stat.S_ISREG(status.st_mode) else 1


def is_linked(path: str) -> bool:
    """Return whether a repository's hooks or settings are links: then nothing in it can be guarded one by one."""
    return any(Path(path, part).is_symlink() for part in _IN_GIT)


def find_outer_repository(folder: str) -> str | None:
    """Return the repository of a linked worktree, to be read; None for any other folder.

    The repository names the worktree, too: a file `.git` that a command wrote leads nowhere.
    """
    pointer = Path(folder, ".git")
    try:
        if not stat.S_ISREG(pointer.lstat().st_mode):
            return None
        own = Path(folder, pointer.read_text().removeprefix("gitdir:").strip()).resolve()
        back = Path(own, (own / "gitdir").read_text().strip())
        common = (own / (own / "commondir").read_text().strip()).resolve()
    except (OSError, ValueError):
        return None
    is_real = back == pointer and own.is_relative_to(common) and not own.is_relative_to(folder)
    return str(common) if is_real and (common / "HEAD").is_file() else None


def hold_new_repositories(folder: str, before: Guarded, after: Guarded) -> list[str]:
    """Move aside what a command has created for git to obey; return a sentence about each new guarded file.

    A file is the same one while its inode is: a guarded one cannot be deleted, and moves only with a folder above it.
    """
    earlier = {identity: path for path, identity in before.identities.items()}
    said = []
    for path in (*after.obeyed, *(path for path in after.secret if what_obeys(path))):
        if after.identities.get(path) in earlier:
            continue
        if path.rpartition("/")[2].lower() == ".git" and _may_run_programs(Path(folder, path)):
            said.append(f"{path} would run programs on your machine: it is now {_hold(folder, path)}")
        elif (reader := what_obeys(path)) is not None:
            said.append(f"{path} is new: {reader} obeys it")
        else:
            said.append(f"{path} is new, and git obeys it: it is now {_hold(folder, path)}")
    for repository, parts in after.parts.items():
        known = before.parts.get(earlier.get(after.identities.get(repository, (0, 0)), ""), parts)
        for part in sorted(set(parts) - set(known)):
            if part != "info" or Path(folder, repository, "info/attributes").exists():
                held = _hold(folder, f"{repository}/{part}")
                said.append(f"{repository}/{part} is new, and git obeys it: it is now {held}")
    return said


def _hold(folder: str, path: str) -> str:
    """Move a file or folder aside; return its new name."""
    held = f"{path}-held-{secrets.token_hex(4)}"
    try:
        Path(folder, path).rename(Path(folder, held))
    except FileNotFoundError:  # another call has moved it
        return "gone"
    return held


def _may_run_programs(repository: Path) -> bool:
    """Return whether git would run a program for what stands in a repository."""
    if not repository.is_dir() or is_linked(str(repository)):
        return True
    if any((repository / part).exists() for part in ("commondir", "config.worktree", "modules", "info/attributes")):
        return True
    hooks = repository / "hooks"
    if hooks.is_dir() and any(not each.name.endswith(".sample") for each in hooks.iterdir()):
        return True
    try:
        return not _has_plain_settings((repository / "config").read_text())
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _has_plain_settings(text: str) -> bool:
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if (found := _SECTION.fullmatch(line)) is not None:
            section = found[1].lower() + (f".{found[2]}" if found[2] is not None else "")
        elif line:
            value = _VALUE.fullmatch(line)
            if value is None or not _PLAIN_KEYS.fullmatch(f"{section}.{value[1].lower()}") or "::" in value[2]:
                return False
    return True
