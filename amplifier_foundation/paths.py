"""Find the user's data folder and the project of a folder."""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager, suppress
from errno import EACCES, EROFS
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


GONE = "is gone"
"""The absence of a folder for which nothing has its name."""
_VARIABLE = "AMPLIFIER_HOME"
_in_use: set[Path] = set()
"""Data folders that are not made again: what is written into another folder of the name would be lost."""
_warned: set[Path] = set()
"""Data folders of users that root was warned of."""
_own: set[Path] = set()
"""Data folders without files of others."""
_REMOVABLE = ("settings.yaml", "skills", "commands", "cache")
"""What of another user in the data folder may be removed: it is obeyed, and none of the user's work is lost."""


@contextmanager
def using_folder(folder: Path) -> Iterator[None]:
    """Have `make_private` refuse to make this folder again when it is gone, while the block runs."""
    _in_use.add(folder)
    try:
        yield
    finally:
        _in_use.discard(folder)


def data_home() -> Path:
    """Return the data folder: `AMPLIFIER_HOME`, or the system's own place for user data.

    Raises `StoreUnavailable` where that is in the home folder, and the user has none.
    """
    chosen = os.environ.get(_VARIABLE)
    try:
        if chosen:
            return Path(chosen).expanduser()
        from platformdirs import user_data_path

        if (found := user_data_path("amplifier")).is_absolute():
            return found
    except RuntimeError:
        pass
    why = f"{'is' if chosen else 'would be'} in the home folder, and this user has none: HOME is not set"
    remedy = f"Set {_VARIABLE} to an absolute path"
    raise StoreUnavailable(chosen or "the data folder", f"{why}. {remedy}", needs_person=True)


def find_home() -> Path | None:
    """Return the user's home folder; None without `HOME` for a user whom the system does not know, as in containers."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def sources_home() -> Path:
    """Return the folder of fetched sources."""
    return data_home() / "cache" / "sources"


def fetched_root(path: Path | str | None) -> Path | None:
    """Return the folder of the fetched source around a path; None for a path that was not fetched."""
    if path is None:
        return None
    text = os.path.normpath(Path(path).absolute())
    for home in _spell(str(sources_home().absolute())):
        if text.startswith(home):
            return Path(home, text[len(home) :].partition(os.sep)[0])
    return None


def is_personal(folder: Path) -> bool:
    """Return whether a folder is the person's own: neither fetched nor that of an installed package."""
    return fetched_root(folder) is None and not {"site-packages", "dist-packages"} & set(folder.parts)


@lru_cache(maxsize=8)
def _spell(folder: str) -> tuple[str, str]:
    """Return the beginnings of the paths in a folder: as written, and with its symlinks resolved."""
    return folder + os.sep, os.path.realpath(folder) + os.sep


def make_private(folder: Path) -> Path:
    """Create `folder`, private to its user (0700), and return it. Raises `StoreUnavailable`.

    A folder that others could enter before is made private too, with a warning.
    """
    try:
        for missing in [each for each in (*reversed(folder.parents), folder) if not each.exists()]:
            if missing in _in_use:
                raise StoreUnavailable(missing, "is gone, while this process uses it. Put it back")
            missing.mkdir(0o700, exist_ok=True)
            missing.chmod(0o700)  # whatever the umask took away
            if missing in data_home().parents and os.geteuid() == 0:  # such as `.local`, which other programs need
                _give_to_owner_above(missing)
        if not folder.is_dir():
            raise StoreUnavailable(folder, "is a file, where a folder is needed. Move it away, or set AMPLIFIER_HOME")
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode != 0o700:
            folder.chmod(0o700)
        if mode & 0o077:
            import logging  # rarely needed, and not free

            logging.getLogger(__name__).warning(
                "%s: was open to others (mode %04o), is now private (0700)", folder, mode
            )
    except StoreUnavailable:
        raise
    except OSError as error:
        raise unusable_error(folder, error) from error
    if folder == data_home():
        require_own_files()
        if os.geteuid() == 0 and folder not in _warned:
            _warn_root(folder)
    return folder


def _give_to_owner_above(folder: Path) -> None:
    """Give a folder that root has made to the user in whose folder it is, if the system lets root do so."""
    above = folder.parent.stat()
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # that user may have replaced it
    try:
        with suppress(OSError):  # a container may have no such user, or root no such right
            os.fchown(opened, above.st_uid, above.st_gid)
    finally:
        os.close(opened)


def require_own_files() -> None:
    """Raise `StoreUnavailable` for a file or folder of another user in the data folder: its files are obeyed.

    Those of root are as good as the user's, and so are those of the one owner that a mount shows for all: see
    `is_mapped`. Root may use the data folder of a user, with that user's files.
    """
    home, user = data_home(), os.geteuid()
    if home in _own:
        return
    try:
        owners = {0, user, home.stat().st_uid} if user == 0 else {0, user}
        found = _owners_in(home)
    except OSError:  # it is not made yet, or closed, which is told of what needs it
        return
    strange = min((path for path, owner in found.items() if owner not in owners), default=None)
    if strange is not None and not is_mapped():
        why = f"belongs to {_user(found[strange])}, and what others put there is not obeyed"
        remove = "Remove it, as root if you may not, or set" if Path(strange).name in _REMOVABLE else "Set"
        raise StoreUnavailable(strange, f"{why}. {remove} {_VARIABLE} to a folder of yours", needs_person=True)
    _own.add(home)


def is_mapped() -> bool:
    """Return whether the data folder is on a mount that shows one other owner for all files, as NFS with `all_squash`.

    The folder is closed to all but that owner (0700), and this user can list it: so the mount takes one for the other.
    """
    try:
        home = data_home().stat()
        is_closed_to_user = os.geteuid() not in (0, home.st_uid) and stat.S_IMODE(home.st_mode) == 0o700
        return is_closed_to_user and {home.st_uid}.issuperset(_owners_in(data_home()).values())
    except OSError:
        return False


def _owners_in(home: Path) -> dict[str, int]:
    owners = {}
    with os.scandir(home) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # a busy store makes and removes files
                owners[entry.path] = entry.stat(follow_symlinks=False).st_uid
    return owners


def is_closed(error: BaseException) -> bool:
    """Return whether the system refuses a file to this user, or any writing on its file system."""
    return isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == EROFS)


def unusable_error(path: Path, error: OSError) -> StoreUnavailable:
    """Return the error for a file or folder that cannot be used; it names the other user who owns it, or one above."""
    home, user = data_home(), os.geteuid()
    for each in (path, *path.parents):
        with suppress(OSError):
            owner = each.stat().st_uid
            if each.is_relative_to(home) and owner != user:
                why = f"{'it' if each == path else each} belongs to {_user(owner)}"
                told = f"cannot be used ({error.strerror}): {why}. {own_remedy(owner)}"
                return StoreUnavailable(path, told, needs_person=isinstance(error, PermissionError))
    told = f"cannot be used ({error.strerror}). Make it writable, or set {_VARIABLE} to a folder that is"
    return StoreUnavailable(path, told, needs_person=isinstance(error, PermissionError))


def own_remedy(owner: int = 0) -> str:
    """Return what helps this user with files of another user, `owner`, in the data folder.

    They are only to be made the user's if they are root's, in a folder of the user: AMPLIFIER_HOME may be any folder.
    """
    home, user = data_home(), os.geteuid()
    if owner == 0 != user and user in (home.stat().st_uid, home.parent.stat().st_uid):
        return f"Make it yours: sudo chown -R {user}:{os.getegid()} {home}"
    return f"Set {_VARIABLE} to a folder of yours"


def require_open_home() -> None:
    """Raise `StoreUnavailable` if the data folder is there and closed to this user, before a file in it is blamed."""
    home = data_home()
    if os.path.lexists(home) and home.is_dir() and not os.access(home, os.X_OK):
        raise unusable_error(home, PermissionError(EACCES, os.strerror(EACCES)))


def _warn_root(home: Path) -> None:
    """Warn root in the data folder of a user, or in one within a user's folder: that user cannot use root's files."""
    for each in (home, home.parent):
        owner = each.stat().st_uid
        if owner != 0:
            _warned.add(home)
            import logging

            logging.getLogger(__name__).warning(
                "%s belongs to %s, who cannot use what root makes in it. Run amplifier as that user, or set %s",
                each,
                _user(owner),
                _VARIABLE,
            )
            return


def _user(number: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"


def find_absence(folder: Path | str) -> str:
    """Return why nobody can enter a folder, such as "is gone"; '' for one that is there, and for a relative path.

    It is gone where nothing, or a file, has its name. Any other answer of the system, as that of a dead mount or of a
    closed folder above, does not tell: the folder cannot be reached.
    """
    if not Path(folder).is_absolute():
        return ""
    try:
        os.stat(os.path.join(folder, "."))  # noqa: PTH116, PTH118 - a path drops the dot, which asks to enter
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return GONE
    except OSError as error:
        return f"cannot be reached ({error.strerror})"
    return ""


def find_obstacle(folder: Path | str) -> str:
    """Return why a folder cannot be reached; '' for one that is there, or gone."""
    absence = find_absence(folder)
    return "" if absence == GONE else absence


def project_of(folder: Path | str | None = None) -> str:
    """Return the project of `folder` (default: the current one): its real absolute path."""
    text = os.fspath(folder or Path.cwd())
    if text.startswith("~"):
        text = os.path.expanduser(text)  # noqa: PTH111 - a user may have no home
    return os.path.realpath(text)  # not by a `Path`, which takes three times as long: each session asks


BUNDLE_FILES = ("bundle.md", "bundle.yaml", "bundle.yml")
"""The names of a bundle's file in its folder; the first existing one counts."""
OWN_SECTIONS = {
    *("includes", "session", "providers", "tools", "hooks", "agents", "spawn", "budget", "context"),
    *("background_sessions", "instruction", "workflows"),
}
"""The sections that show a `bundle.yaml` to be a bundle: all but `permissions`, which other programs have."""
_SETTINGS = (".amplifier/settings.yaml", ".amplifier/settings.local.yaml")


def find_bundle_file(folder: Path) -> Path | None:
    """Return the file of the bundle in a folder, None without one."""
    return next(_bundle_files(folder), None)


def _bundle_files(folder: Path) -> Iterator[Path]:
    """Yield all with the name of a bundle's file but folders; every link is one: no other bundle runs instead."""
    for path in (folder / name for name in BUNDLE_FILES):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            yield path


def find_own_file(folder: Path) -> Path | None:
    """Return the file of the bundle in a folder that no command names, None without one.

    Other programs call files `bundle.yaml` too. One of theirs has no `bundle:`, or no section of ours beside it.
    """
    return next((path for path in _bundle_files(folder) if path.suffix == ".md" or not _is_foreign(path)), None)


def _is_foreign(file: Path) -> bool:
    """Return whether a YAML file is another program's, by the keys at its top: commands have no time to parse it.

    One that cannot be read is not: what loads it says why.
    """
    if not file.is_file():
        return False
    try:
        with file.open(encoding="utf-8-sig") as opened:
            text = opened.read(1 << 20)
    except (OSError, ValueError):
        return False
    start = r"[{,]\s*" if re.search(r"^\{", text, re.M) else "^"
    keys = set(re.findall(rf"{start}[\"']?(\w+)[\"']?[ \t]*:", text, re.M))
    return "bundle" not in keys or keys.isdisjoint(OWN_SECTIONS)


def find_project(folder: Path | str | None = None) -> str:
    """Return the project around `folder` (default: the current one).

    It is the nearest folder upward with a bundle or settings, as `find_upward` finds it, else the folder itself.
    """
    return str(find_upward(_is_project, folder) or project_of(folder))


def _is_project(folder: Path) -> bool:
    return find_own_file(folder) is not None or any((folder / name).is_file() for name in _SETTINGS)


def find_upward(is_wanted: Callable[[Path], bool], folder: Path | str | None = None) -> Path | None:
    """Return the nearest folder that is wanted, upward from `folder` (default: the current one).

    The search ends at the root of a git checkout and below the home folder, and leaves out folders of other users.
    """
    here = Path(project_of(folder))
    home, user = Path(project_of("~")), here.stat().st_uid
    for each in (here, *here.parents):
        if each == home and each != here:
            break
        with suppress(OSError):
            if each.stat().st_uid == user and is_wanted(each):
                return each
            if (each / ".git").exists():
                break
    return None
