"""Lock a folder for one process with background sessions, and a session for one conversation.

The locks end with their process, however it ends; its forks do not inherit them.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict
from amplifier_core.process_forks import close_in_forks

from ..documents.times import format_time
from ..paths import data_home, is_closed, make_private, unusable_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


PROBES = 20
"""Attempts for a lock, 10 ms apart: another process may probe it."""


@contextmanager
def owner_lock(facts: dict[str, Any]) -> Iterator[None]:
    """Own the background work of the folders `facts["projects"]` while the block runs; others read `facts`.

    Without folders it owns that of all. Processes of different folders run side by side. Raises `SessionConflict` with
    the process that owns one of them.
    """
    projects = sorted(set(facts.get("projects") or ()))
    for owner in running_owners():  # also one that holds a lock by another name
        others = owner.get("projects") or ()
        if not projects or not others or set(projects) & set(others):
            raise _conflict(owner)
    with ExitStack() as stack:
        for project in projects or [""]:
            stack.enter_context(_hold(_lock_path(project), facts))
        yield


@contextmanager
def _hold(path: Path, facts: dict[str, Any]) -> Iterator[None]:
    with _open(path, "a+") as file:
        path.chmod(0o600)
        for attempt in range(PROBES):
            if _acquire(file.fileno()):
                break
            owner = _read_facts(path)
            if owner or attempt == PROBES - 1:
                raise _conflict(owner)
            time.sleep(0.01)  # another process looks whether the lock is held
        _write_facts(path, file, {"pid": os.getpid(), "since": format_time(), **facts})
        close_in_forks(file)
        try:
            yield
        finally:
            with suppress(OSError):  # its folder may be away: the lock ends all the same
                file.truncate(0)


@contextmanager
def session_lock(session_id: str, *, is_run: bool = False) -> Iterator[None]:
    """Hold a session's conversation, or the run of a workflow, while the block runs.

    Raises `SessionConflict` while another one holds it, in this process or in another.
    """
    path, probes = make_private(data_home() / "locks" / "sessions") / session_id, PROBES
    while True:
        with _open(path, "a+") as file:
            if not _acquire(file.fileno()):
                facts, probes = _read_facts(path), probes - 1
                is_probed = not facts or not _has_open(facts.get("pid"), [path])
                if probes and is_probed:  # another process looks whether the lock is held
                    time.sleep(0.01)
                    continue
                pid = facts.get("pid", "?")
                does, fork = "talks in session", f"run --fork {session_id}"
                if is_run:
                    does, fork = "takes the steps of run", f"flow fork {session_id} --at TASK"
                raise SessionConflict(
                    session_id,
                    f"process {pid} {does} '{session_id}'. Wait until that has ended, "
                    f"or go on with a fork of it: amplifier {fork}",
                )
            try:
                has_name = os.path.samestat(path.stat(), os.fstat(file.fileno()))
            except FileNotFoundError:
                has_name = False
            if not has_name:  # the last holder has removed the file since it was opened here: lock the new one
                continue
            from .presence import this_process

            _write_facts(path, file, {"pid": os.getpid()})  # a full disk is named by this file
            _write_facts(path, file, {"pid": os.getpid(), "process": this_process()})
            close_in_forks(file)
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def holder_of(session_id: str) -> str | None:
    """Return the number of the process that holds the conversation of a session; None: nobody does."""
    facts = read_holder(session_id)
    return None if facts is None else str(facts.get("pid", "?"))


def read_holder(session_id: str) -> dict[str, Any] | None:
    """Return the `pid` and the `process` (its whole name) that hold a session; None: nobody; {}: not known yet."""
    path = data_home() / "locks" / "sessions" / session_id
    with suppress(FileNotFoundError, NotADirectoryError), _open(path, "r") as file:
        if not _acquire(file.fileno(), fcntl.LOCK_SH):
            return _read_facts(path)
    return None


def running_owners() -> list[dict[str, Any]]:
    """Return the facts of every process that runs background sessions with this data folder, each once.

    Raises `StoreUnavailable` for locks of another user.
    """
    return list({owner_key(facts): facts for _, facts, is_held in _owner_files() if is_held}.values())


def killed_owners() -> list[dict[str, Any]]:
    """Return the facts of every process that did not let go of its folders: it was killed, or the machine stopped."""
    running = {owner_key(each) for each in running_owners()}
    found = {owner_key(facts): facts for _, facts, is_held in _owner_files() if not is_held}
    return [facts for key, facts in found.items() if key not in running]


def forget_killed(project: str | None = None) -> list[dict[str, Any]]:
    """Forget the killed processes of a folder (None: of all); return their facts.

    On a read-only file system, they are found again.
    """
    killed = [each for each in killed_owners() if project is None or project in (each.get("projects") or ())]
    keys = {owner_key(each) for each in killed}
    for path, facts, is_held in _owner_files():
        if not is_held and owner_key(facts) in keys:
            with suppress(OSError):
                os.truncate(path, 0)
    return killed


def owner_key(owner: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells an owner from others: of two containers, each may have one with the same number."""
    return owner.get("pid"), *(owner.get("projects") or ())


def _owner_files() -> Iterator[tuple[Path, dict[str, Any], bool]]:
    """Yield the file of each folder's lock that names a process, its facts, and whether that holds it.

    The file stays open, and nobody else gets its lock, until the next one is asked for.
    """
    folder = data_home() / "locks"
    try:
        paths = sorted(folder.glob("up*.lock"))
    except OSError as error:
        raise unusable_error(folder, error) from error
    for path in paths:
        with suppress(FileNotFoundError), _open(path, "r") as file:
            is_held = not _acquire(file.fileno(), fcntl.LOCK_SH)
            if facts := _read_facts(path):
                yield path, facts, is_held


def running_owner(project: str | None = None) -> dict[str, Any] | None:
    """Return the facts of the process that runs the background sessions of a folder (None: of any), if there is one."""
    owners = (each for each in running_owners() if project is None or project in (each.get("projects") or ()))
    return next(owners, None)


def is_missing(owner: Mapping[str, Any]) -> bool:
    """Return whether the process here with the number of this owner, if there is one, is another one.

    The owner has the file of its lock open. In another container, a stranger may have its number.
    """
    return not _has_open(owner.get("pid"), [_lock_path(each) for each in owner.get("projects") or [""]])


def missing_conflict(owner: Mapping[str, Any]) -> SessionConflict:
    """Return the error about an owner that `is_missing`, while its lock is held."""
    path = _lock_path(next(iter(sorted(owner.get("projects") or ())), ""))
    message = (
        f"process {owner.get('pid', '?')} is gone from here, but its lock is held: by a process that it left behind, "
        f"or it runs in another container, and is stopped there. Find the holder with: fuser {path}"
    )
    return SessionConflict(str(data_home()), message)


def _has_open(pid: Any, paths: Iterable[Path]) -> bool:
    """Return whether process `pid` is there and, as far as the system shows that, has one of these files open."""
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, TypeError, ValueError):
        return False
    except PermissionError:  # of another user
        return True
    files = {path.name: path for path in paths}
    try:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since
                file = files.get(each.readlink().name)  # no other file is looked at: its file system may hang
                if file is not None and os.path.samestat(file.stat(), each.stat()):
                    return True
    except OSError:  # of a process that keeps that to itself, or no Linux
        return True
    return False


def _conflict(owner: dict[str, Any]) -> SessionConflict:
    if is_missing(owner):
        return missing_conflict(owner)
    bundles = ", ".join(str(each) for each in owner.get("bundles") or ()) or "bundles"
    folders = ", ".join(str(each) for each in owner.get("projects") or ()) or "this data folder"
    message = (
        f"process {owner.get('pid', '?')} runs {bundles} since {owner.get('since', '?')} in {folders}, and a folder "
        "has one such process. Look at it with: amplifier ps; stop it with: amplifier stop --all"
    )
    return SessionConflict(str(data_home()), message)


def _lock_path(project: str) -> Path:
    digest = sha256(project.encode(errors="surrogateescape")).hexdigest()[:16]
    name = f"up-{digest}.lock" if project else "up.lock"
    return make_private(data_home() / "locks") / name


def _open(path: Path, mode: str) -> IO[str]:
    try:
        return path.open(mode, encoding="utf-8")
    except OSError as error:
        if is_closed(error):
            raise unusable_error(path, error) from error
        raise


def _acquire(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_facts(path: Path, file: IO[str], facts: Mapping[str, Any]) -> None:
    """Write who holds a lock, past the buffer of `file`, whose end would fail again on a full disk."""
    try:
        file.truncate(0)
        os.write(file.fileno(), json.dumps(facts).encode())
    except OSError as error:
        error.filename = str(path)  # the error of a write names none
        raise


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, FileNotFoundError):  # nobody has held it, or its last holder has just removed it
        return {}
    return facts if isinstance(facts, dict) else {}
