"""Find out what a git repository would run: programs that its settings, its hooks and its submodules name.

Settings are known by a positive list of keys. What cannot be read counts as naming a program.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from pathlib import Path

from amplifier_core.permissions import read_regular

OBEYED = ("config", "config.worktree", "hooks", "info", "commondir", "gitdir", "remotes", "branches", "worktrees")
"""What git obeys in a repository, or what says where that is."""
_LARGEST = 64 * 1024 * 1024
"""Bytes of a file that is read."""
_REBASING = "rebase-merge"
_RUNS_WHEN_CONTINUED = re.compile(rb"^[ \t]*(?:x|exec)(?:[ \t]|$)", re.MULTILINE)
_PLAIN_KEYS = (
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|whitespace|abbrev|compression|untrackedcache|preloadindex|longpaths|sparsecheckout(?:cone)?)"
    r"|remote\..*\.(?:url|pushurl|fetch|prune|tagopt|gh-resolved)|branch\..*\.(?:remote|merge|rebase|pushremote)"
    r"|user\.(?:name|email)|init\.defaultbranch|extensions\.(?:objectformat|worktreeconfig)|color\..*|advice\..*"
    r"|pull\.(?:rebase|ff)|push\.(?:default|autosetupremote)|fetch\.prune|submodule\..*\.(?:url|active)"
)
_UNUSED_KEYS = (
    r"core\.(?:hookspath|editor|pager|sshcommand)|pager\..*|alias\..*|credential\..*|http\..*|url\..*|lfs\..*"
    r"|(?:commit|tag|gc|rebase|rerere|sequence|maintenance|difftool|mergetool)\..*|user\.signingkey|merge\.conflictstyle"
    r"|diff\.(?:renames|algorithm|colormoved|mnemonicprefix|noprefix|context|tool)|log\.(?:date|decorate|abbrevcommit)"
)
"""Settings that may name programs, and commands that only read run none of those: they have no terminal."""
_SECTION = re.compile(r"\[([A-Za-z.-]+)(?:\s+\"([^\"\\\n]*)\")?\]")
_VALUE = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*=\s*([^\\\n]*)")
_HOOK = "post-index-change"
"""The only hook that a command that reads runs: when it has looked at the files anew."""


def runs_programs_to_read(folder: str, where: str) -> bool:
    """Return whether a git command that only reads may run a program that a repository names.

    `where` is the folder of the command; `folder` is the session's working folder. Each repository between them
    counts, since git skips a damaged one.
    """
    place = Path(os.path.realpath(where))
    if str(place) != os.path.realpath(os.path.normpath(where)):
        return True  # through a link and back: a shell is elsewhere than its path says
    is_found = False
    for above in (place, *place.parents):
        if is_found and not above.is_relative_to(folder):
            break
        if os.path.lexists(above / "HEAD"):
            return True  # the shape of a bare repository
        if os.path.lexists(above / ".git"):
            is_found = True
            if _runs_to_read(above / ".git"):
                return True
    return False


def _runs_to_read(repository: Path) -> bool:
    try:
        own = repository
        if not repository.is_dir():
            own = repository.parent / _read_line(repository).removeprefix("gitdir: ")
        common = own / _read_line(own / "commondir") if os.path.lexists(own / "commondir") else own
        indexes = [own / "index", *own.glob("sharedindex.*")]
        if any(_may_have_submodules(_read(each)) for each in indexes if os.path.lexists(each)):
            return True  # git reads their settings, too
        files = [each for each in (common / "config", own / "config.worktree") if os.path.lexists(each)]
        settings = [pair for file in files for pair in _read_settings(_read(file).decode())]
    except (OSError, ValueError, struct.error):
        return True
    hooks = [common / "hooks", *(repository.parent / value for key, value in settings if key == "core.hookspath")]
    return not all(_is_unused(*pair) for pair in settings) or any(os.path.lexists(each / _HOOK) for each in hooks)


def _read_line(file: Path) -> str:
    """Return the path that stands in a file; git removes nothing but the end of the line."""
    return _read(file).decode().rstrip("\r\n")


def _read(file: Path) -> bytes:
    """Return what stands in a file. Raises `OSError`, also for one that is too large, or no regular file."""
    data = read_regular(file, _LARGEST + 1)
    if len(data) > _LARGEST:
        raise OSError(f"{file} is too large")
    return data


def _is_unused(key: str, value: str) -> bool:
    """Return whether commands that only read run no program for a setting."""
    if key == "extensions.objectformat":
        return value == "sha1"  # `_may_have_submodules` knows no other index
    is_path = key != "core.hookspath" or re.fullmatch(r"[\w./-]+", value)
    return bool(is_path and re.fullmatch(f"{_PLAIN_KEYS}|{_UNUSED_KEYS}", key))


def _may_have_submodules(index: bytes) -> bool:
    """Return whether an index has anything but files and links, or another format than versions 2 and 3.

    The format is that of git's `Documentation/gitformat-index.txt`. Raises `ValueError` and `struct.error`.
    """
    sign, version, count = struct.unpack_from(">4sII", index)
    if sign != b"DIRC" or version not in (2, 3):
        return True
    place = 12
    for _ in range(count):
        mode, flags = struct.unpack_from(">24xI32xH", index, place)
        if mode not in (0o100644, 0o100755, 0o120000):
            return True
        name = place + (64 if flags & 0x4000 else 62)
        length = flags & 0xFFF
        end = index.index(b"\0", name) if length == 0xFFF else name + length
        place += (end - place + 8) & ~7
    return False


def runs_programs(repository: Path) -> bool:
    """Return whether git would run a program for what stands in a repository, whatever it is asked for."""
    if not repository.is_dir() or is_linked(str(repository)):
        return True
    parts = {part for part in find_obeyed(str(repository)) if is_harmful(repository, part)} - {"config", "hooks"}
    if parts or os.path.lexists(repository / "modules"):
        return True
    hooks = repository / "hooks"
    if hooks.is_dir() and any(not each.name.endswith(".sample") for each in hooks.iterdir()):
        return True
    try:
        settings = _read_settings(_read(repository / "config").decode())
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return not all(re.fullmatch(_PLAIN_KEYS, key) and "::" not in value for key, value in settings)


def find_obeyed(repository: str) -> tuple[str, ...]:
    """Return what there is in a repository for git to obey; a rebase, when it runs programs as it goes on."""
    found = tuple(part for part in OBEYED if os.path.lexists(f"{repository}/{part}"))
    try:
        todo = _read(Path(repository, _REBASING, "git-rebase-todo"))
    except (FileNotFoundError, NotADirectoryError):
        return found
    except OSError:
        return (*found, _REBASING)
    return (*found, _REBASING) if _RUNS_WHEN_CONTINUED.search(todo) else found


def is_harmful(repository: Path, part: str) -> bool:
    """Return whether a new part of a repository, as of `find_obeyed`, is more than git itself leaves there."""
    if part == "info":
        return os.path.lexists(repository / part / "attributes")
    if part in ("remotes", "branches"):
        folder = repository / part
        return not folder.is_dir() or folder.is_symlink() or any(folder.iterdir())
    if part != "worktrees":
        return True
    try:
        return any(
            _read_line(each / "commondir") != "../.." or find_obeyed(str(each)) != ("commondir", "gitdir")
            for each in (repository / part).iterdir()
        )
    except (OSError, ValueError):
        return True


def is_linked(path: str) -> bool:
    """Return whether a repository's hooks or settings are links: then nothing in it can be guarded one by one."""
    return any(Path(path, part).is_symlink() for part in OBEYED)


def find_outer_repository(folder: str) -> str | None:
    """Return the repository of a linked worktree, to be read; None for any other folder.

    The repository names the worktree, too: a file `.git` that a command wrote leads nowhere.
    """
    pointer = Path(folder, ".git")
    try:
        if not stat.S_ISREG(pointer.lstat().st_mode):
            return None
        own = Path(folder, _read(pointer).decode().removeprefix("gitdir:").strip()).resolve()
        back = Path(own, _read(own / "gitdir").decode().strip())
        common = (own / _read(own / "commondir").decode().strip()).resolve()
    except (OSError, ValueError):
        return None
    is_real = back == pointer and own.is_relative_to(common) and not own.is_relative_to(folder)
    return str(common) if is_real and (common / "HEAD").is_file() else None


def _read_settings(text: str) -> list[tuple[str, str]]:
    """Return the keys and values of git's settings. Raises `ValueError` for a text in an unusual form."""
    section = ""
    settings = []
    for line in map(str.strip, text.split("\n")):
        if (found := _SECTION.fullmatch(line)) is not None:
            section = found[1].lower() + (f".{found[2]}" if found[2] is not None else "")
        elif line and line[0] not in "#;":
            if (value := _VALUE.fullmatch(line)) is None:
                raise ValueError(line)
            settings.append((f"{section}.{value[1].lower()}", value[2]))
    return settings
