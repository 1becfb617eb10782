"""Find the files of a working folder that programs obey, and those with secrets; look again after a command.

A command sees the first read-only and the others empty. So it sees the Python that runs this program, and a data folder
that lies there. What it creates anew is looked at afterwards: a repository with
anything that git would run is moved aside, the rest is named.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections import deque
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.errors import StoreUnavailable
from amplifier_core.permissions import find_named_by_git, find_own_python, is_secret, what_obeys
from amplifier_core.permissions.own_python import find_own_links
from amplifier_core.permissions.protected import counts_with_names_above
from amplifier_foundation.paths import data_home, make_private

from .repositories import find_obeyed, is_harmful, runs_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MOST_ENTRIES = 20_000
"""Files and folders of a walk; a larger working folder is looked at in part."""
MOST_GUARDED = 500
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SKIPPED = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache"})


class Guarded(NamedTuple):
    """The guarded files of a working folder; paths are relative to it, with `/`."""

    obeyed: tuple[str, ...]
    secret: tuple[str, ...]
    is_complete: bool
    """Whether the walk has seen everything."""
    parts: dict[str, tuple[str, ...]]
    """By each repository, what git obeys in it. A bare one is there if it would run programs."""
    identities: dict[str, tuple[int, int]]
    """The device and inode of each file and repository above."""
    links: tuple[str, ...] = ()
    """Links with names that programs obey: they are only looked at afterwards."""
    fixed: tuple[str, ...] = ()
    """What belongs to the Python that runs this program."""
    hidden: tuple[str, ...] = ()
    """The data folder, if it is there: its settings, its store and its keys."""
    own_links: Mapping[str, str] = MappingProxyType({})
    """What the links hold that lead to that Python, or to the data folder: they are made again afterwards."""

    @property
    def obeyed_secrets(self) -> list[str]:
        """The secrets that programs obey, but for those in a folder that is obeyed as a whole."""
        wholes = tuple(f"{each}/" for each in self.obeyed)
        return [path for path in self.secret if what_obeys(path) and not path.startswith(wholes)]


class _Found(NamedTuple):
    """What a walk has found so far."""

    obeyed: list[str]
    secret: list[str]
    links: list[str]
    bare: list[str]


def find_guarded(
    folder: str, is_allowed: Callable[[str, str], bool] = lambda kind, path: False, before: Guarded | None = None
) -> Guarded:
    """Walk the folder from the top down, but no repositories and no links; in what programs obey, seek secrets alone.

    `is_allowed("read" or "write", path)` says what the person has released. The top and the folders of what was guarded
    `before` are looked at in any case: no number of other files hides what is new there.
    """
    hidden = _find_data_folder(folder)
    known = (*before.obeyed, *before.links, *before.secret, *before.own_links) if before is not None else ()
    waiting = deque(dict.fromkeys(("", *(path[: path.rfind("/") + 1] for path in known))))
    seen, surely, entries = set(waiting), len(waiting), 0
    found = _Found([], [], [], [])
    found.obeyed.extend(path for above in Path(folder).parents for path in _find_named(folder, str(above), is_allowed))
    while waiting and (surely > 0 or (entries <= MOST_ENTRIES and sum(map(len, found)) <= MOST_GUARDED)):
        inside = waiting.popleft()
        surely -= 1
        with suppress(OSError):  # gone, or not to be read
            listed = _list_folder(folder, inside, opens=before is not None)
            entries += len(listed)
            if any(entry.name == ".git" for entry in listed):
                found.obeyed.extend(_find_named(folder, f"{folder}/{inside}".rstrip("/"), is_allowed))
            below = [f"{inside}{name}/" for name in _add_found(found, inside, listed, is_allowed)]
            waiting += [each for each in below if each not in seen and each[:-1] not in hidden]
    own = [each[len(folder) + 1 :] for each in find_own_python(folder) if each.startswith(f"{folder}/")]
    fixed = [each for each in own if Path(folder, each).exists() and not is_allowed("write", each)]
    guarded = _describe(folder, found, is_complete=not waiting)._replace(fixed=tuple(fixed), hidden=hidden)
    closed = tuple(f"{each}/" for each in (*guarded.obeyed, *fixed))
    links = find_own_links(folder, [os.path.join(os.getcwd(), data_home())])  # noqa: PTH109, PTH118 - with its ".."
    here = {path[len(folder) + 1 :]: target for path, target in links.items()}
    kept = [path for path in here if not path.startswith(closed) and not is_allowed("write", path)]
    return guarded._replace(own_links={path: here[path] for path in kept})


def _find_data_folder(folder: str) -> tuple[str, ...]:
    """Return the path of a data folder inside of the folder; it is made if it is missing: a command could fill it."""
    whole = os.path.realpath(data_home())
    if not whole.startswith(f"{folder}/"):
        return ()
    with suppress(StoreUnavailable):
        make_private(Path(whole))
    return (whole[len(folder) + 1 :],) if Path(whole).is_dir() else ()


def _list_folder(folder: str, inside: str, *, opens: bool) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; `opens` makes one readable that a command has closed. Raises `OSError`."""
    try:
        return list(os.scandir(f"{folder}/{inside}"))
    except PermissionError:
        if not opens:
            raise
        with _open_folder(folder, inside) as descriptor:
            _make_open(descriptor)
        return list(os.scandir(f"{folder}/{inside}"))


@contextmanager
def _open_folder(folder: str, inside: str) -> Iterator[int]:
    """Give the descriptor of a folder inside of the working folder. Raises `OSError`, also for a link on the way.

    A program in another sandbox may put a link there at any time.
    """
    descriptor = os.open(folder, _FOLDER)
    try:
        for part in filter(None, inside.split("/")):
            above, descriptor = descriptor, os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def _make_open(descriptor: int) -> None:
    """Let the person list and change a folder."""
    if hasattr(os, "O_PATH"):
        Path(f"/proc/self/fd/{descriptor}").chmod(0o700)  # `fchmod` takes no descriptor of a closed folder
    else:
        os.fchmod(descriptor, 0o700)


def _add_found(
    found: _Found, inside: str, listed: list[os.DirEntry[str]], is_allowed: Callable[[str, str], bool]
) -> Iterator[str]:
    """Sort the entries of a folder; yield the folders to look at."""
    names = {entry.name for entry in listed}
    is_below_obeyed, is_below_secret = what_obeys(f"{inside}-") is not None, is_secret(f"{inside}-")
    is_repository = inside.lower().endswith(".hg/")  # its own settings count, and nothing below
    is_bare = "HEAD" in names and ("commondir" in names or {"objects", "refs"} <= names)
    if is_bare and not is_below_obeyed and not is_allowed("write", f"{inside}config"):
        found.bare.append(inside.rstrip("/") or ".")
    known = "/".join(inside.split("/")[-3:]) if counts_with_names_above(inside) else ""
    for entry in listed:
        is_obeyed, is_kept = _judge_name(f"{known}{entry.name}")
        is_obeyed, is_kept = is_obeyed and not is_below_obeyed, is_kept or is_below_secret
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_obeyed or is_kept:
            path = f"{inside}{entry.name}"
            if entry.is_symlink():
                if is_obeyed and not is_allowed("write", path):
                    found.links.append(path)
            elif is_kept and not is_folder and not is_allowed("read", path):
                found.secret.append(path)
            elif is_obeyed and not is_allowed("write", path):
                found.obeyed.append(path)
        if is_folder and entry.name not in _SKIPPED and entry.name.lower() != ".git" and not is_repository:
            yield entry.name


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
    """Return whether a program obeys a file of this name, or of one with those above, and whether it is a secret."""
    return what_obeys(name) is not None, is_secret(name)


def _describe(folder: str, found: _Found, *, is_complete: bool) -> Guarded:
    obeyed, secret, links, bare = found
    repositories = [path for path in obeyed if path.rpartition("/")[2].lower() == ".git"]
    repositories += [module for path in repositories for module in _find_modules(folder, path)]
    repositories += [path for path in bare if runs_programs(Path(folder, path))]
    parts = {path: find_obeyed(f"{folder}/{path}") for path in repositories}
    identities = {}
    for path in (*obeyed, *secret, *links, *parts):
        with suppress(OSError):
            status = os.lstat(f"{folder}/{path}")
            identities[path] = (status.st_dev, status.st_ino)
    return Guarded(tuple(dict.fromkeys(obeyed)), tuple(secret), is_complete, parts, identities, tuple(links))


def _find_modules(folder: str, repository: str) -> Iterator[str]:
    """Yield the repositories of submodules inside of a repository, and links to others."""
    for above, folders, files in os.walk(f"{folder}/{repository}/modules"):
        yield from (f"{above[len(folder) + 1 :]}/{each}" for each in folders if Path(above, each).is_symlink())
        if "HEAD" in files:
            yield above[len(folder) + 1 :]
            folders[:] = [each for each in folders if each == "modules"]


def why_unguarded(folder: str, guarded: Guarded) -> str:
    """Return why a file cannot be guarded, with the remedy: a command could reach it by another name; "" for none."""
    inside = [f"{path}/{part}" for path, parts in guarded.parts.items() for part in parts]
    for path in (*guarded.obeyed, *guarded.secret, *inside):
        if _count_names(f"{folder}/{path}") > 1:
            return f"{path} has another name (a hard link), and cannot be guarded. Put a copy of it in its place"
    return ""


def _count_names(path: str) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_nlink if stat.S_ISREG(status.st_mode) else 1


def restore_links(folder: str, links: Mapping[str, str]) -> Iterator[str]:
    """Make links again that a command has changed, and move aside what is there; yield a sentence about each."""
    for path, target in links.items():
        inside, _, name = path.rpartition("/")
        current = held = ""
        try:
            with _open_folder(folder, inside) as above:
                with suppress(OSError):  # gone, or no link
                    current = os.readlink(name, dir_fd=above)
                if current != target:
                    held = _hold(folder, path)
                    os.symlink(target, name, dir_fd=above)
        except OSError as error:
            yield f"{path} led to what amplifier runs or obeys: make it a link to {target} again ({error.strerror})"
        if held:
            again = f"it is a link to {target} again; the other one is {held}"
            yield f"{path} leads to what amplifier runs or obeys: {again}"


def hold_new_repositories(folder: str, before: Guarded, after: Guarded) -> list[str]:
    """Move aside what a command has created for git to obey; return a sentence about each new guarded file.

    Links to the Python of this program, and to the data folder, are as they were afterwards.

    A file is the same one while its inode is: under Landlock it may move with a folder above it.
    """
    earlier = {identity: path for path, identity in before.identities.items()}
    said = list(restore_links(folder, before.own_links))
    if before.is_complete and not after.is_complete:
        said.append("there are too many files now to look at all of them: programs may obey others that are new")
    for path in (*after.obeyed, *after.links, *after.obeyed_secrets):
        if after.identities.get(path) in earlier:
            continue
        if path.rpartition("/")[2].lower() == ".git" and runs_programs(Path(folder, path)):
            said.append(f"{path} would run programs on your machine: it is now {_hold(folder, path)}")
        elif (reader := what_obeys(path)) is not None:
            said.append(f"{path} is new: {reader} obeys it")
        else:
            said.append(f"{path} is new, and git obeys it: it is now {_hold(folder, path)}")
    for repository, parts in after.parts.items():
        whole = Path(folder, repository)
        known = before.parts.get(earlier.get(after.identities.get(repository, (0, 0)), ""))
        if known is None and whole.is_symlink():
            said.append(f"{repository} would run programs on your machine: it is now {_hold(folder, repository)}")
            continue
        if known is None and whole.name.lower() != ".git" and runs_programs(whole):
            held = _hold(folder, f"{repository}/HEAD")
            said.append(f"{repository} would run programs on your machine: its HEAD is now {held}")
        for part in sorted(set(parts) - set(parts if known is None else known)):
            if is_harmful(whole, part):
                held = _hold(folder, f"{repository}/{part}")
                said.append(f"{repository}/{part} is new, and git obeys it: it is now {held}")
    return said


def _hold(folder: str, path: str) -> str:
    """Move a file or folder aside; return its new name."""
    inside, _, name = path.rpartition("/")
    held = f"{name}-held-{secrets.token_hex(4)}"
    try:
        with _open_folder(folder, inside) as above:
            try:
                os.rename(name, held, src_dir_fd=above, dst_dir_fd=above)
            except PermissionError:  # a command has closed it
                _make_open(above)
                os.rename(name, held, src_dir_fd=above, dst_dir_fd=above)
    except FileNotFoundError:  # another call has moved it
        return "gone"
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        return "behind a link, which has come just now"
    return f"{inside}/{held}".removeprefix("/")
