"""Guard files of a working folder in a sandbox that bubblewrap sets up: by descriptors, and never through a link.

This is also a program: `python -I -S -c SOURCE ORDERS` becomes bubblewrap, and leaves a helper beside it. Bubblewrap
resolves the paths of its mounts when it mounts them, while a program in another sandbox may replace a folder of the
working folder by a link; so it gets none of those paths. When its other mounts are there, it waits for the helper. That
enters its namespaces, opens each guarded file part by part, and mounts what it has opened on itself. It stays until the
sandbox ends with bubblewrap by itself. The numbers are those of <asm-generic/unistd.h>, <linux/mount.h> and
<linux/sched.h>. It imports little: it starts before each command.
"""

# ruff: noqa: PTH116, PTH123, SIM105

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import marshal
import os
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

READ_ONLY, WRITABLE, EMPTY = "read-only", "writable", "empty"
"""How a guarded file is mounted."""
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CLONE, _RECURSIVE, _ITSELF, _FROM_AND_TO_ITSELF, _NO_WRITES = 1, 0x8000, 0x1000, 0x44, 1
_SPACES = (("user", 0x10000000), ("mnt", 0x20000))
_LOCAL, _STREAM, _CLOSED_BY_EXEC, _OF_WRITES = 1, 1, 0o2000000, 1
_IGNORED_BY_PYTHON, _KILL, _END = (13, 25), 9, 15  # SIGPIPE, SIGXFSZ
_AT_END_OF_PARENT = 1
_FOLDER, _LINK = 0o4, 0o12
_PAUSES = (0.0005, 0.05)
"""Seconds between two looks at the first process of a sandbox: at first, and at most."""
_OWN = "/.sandbox"
"""A folder of the sandbox: an empty file and folder, and two files to wait for each other."""


def main(orders: int) -> None:
    """Become bubblewrap; a child guards the files, and lets it go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_AT_END_OF_PARENT, _KILL)  # as bubblewrap does, later
    with open(orders, "rb") as stream:
        given = marshal.load(stream)
    if _is_orphan(*given["starter"]):
        sys.exit(1)
    for number in _IGNORED_BY_PYTHON:
        libc.signal(number, None)
    try:
        folder = _identify(_open(os.open("/", os.O_PATH), given["folder"]))
    except OSError as error:
        sys.exit(_explain(error))
    said, saying = os.pipe()
    waiting, gate = os.pipe()  # closed by the helper, or by its end
    ready = (ctypes.c_int * 2)()
    _call(libc.socketpair(_LOCAL, _STREAM | _CLOSED_BY_EXEC, 0, ready))
    libc.shutdown(ready[0], _OF_WRITES)
    inherited, own_pid = (ready[1], waiting, saying), os.getpid()
    if os.fork() == 0:
        for each in inherited:
            os.close(each)
        begun: list[int] = []
        _signal.signal(_END, lambda *_: _give_up(own_pid, said, begun))
        libc.prctl(_AT_END_OF_PARENT, _END)
        if os.getppid() != own_pid:
            os._exit(1)
        os.read(ready[0], 1)  # the end: bubblewrap has closed the other side
        begun.append(_find_pid(os.read(said, 1 << 16).decode()))
        status = _help(libc, given, folder, begun[0])
        before = _read_filters(status)
        os.closerange(0, 3)  # the output of the command ends with the command
        os.close(gate)
        _await_filter(own_pid, status, before)
        if os.getppid() != own_pid:
            _give_up(own_pid, said, begun)
        os._exit(0)
    for each in inherited:
        os.set_inheritable(each, True)
    own = ("--dir", f"{_OWN}/none", "--file", str(ready[1]), f"{_OWN}/empty", "--file", str(waiting), f"{_OWN}/gate")
    # whatever closes the gate, it does not go on without the mark
    options = [*given["options"], *own, "--chmod", "0444", f"{_OWN}/guarded", "--info-fd", str(saying)]
    listed = os.memfd_create("options", 0)  # they have the environment, and every user sees a command line
    os.write(listed, os.fsencode("\0".join(options)))
    os.lseek(listed, 0, os.SEEK_SET)
    os.execv(given["bwrap"], [given["bwrap"], "--args", str(listed), "--", *given["program"]])


def _help(libc: ctypes.CDLL, given: dict[str, Any], folder: tuple[int, int], pid: int) -> int:
    """Guard the files in the namespaces of bubblewrap; it is killed where that cannot be done.

    Return a descriptor of the status of `pid`, the first process in there.
    """
    try:
        status = os.open(f"/proc/{pid}/status", os.O_RDONLY)
        spaces = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), flag) for name, flag in _SPACES]
    except (FileNotFoundError, ProcessLookupError):
        os._exit(1)  # bubblewrap has ended, and said why
    except OSError as error:
        _refuse(pid, error)
    try:
        for space, flag in spaces:
            _call(libc.setns(space, flag))
        _guard(libc, given, folder)
    except OSError as error:
        _refuse(pid, error)
    return status


def _await_filter(parent: int, status: int, before: bytes) -> None:
    """Wait until the first process of a sandbox is filtered, or the own `parent` has ended.

    It asks for its end with bubblewrap just before the filter: bubblewrap may have been killed by then.
    """
    pause, longest = _PAUSES
    while _read_filters(status) == before and os.getppid() == parent:
        time.sleep(pause)
        pause = min(2 * pause, longest)


def _read_filters(status: int) -> bytes:
    """Return the number of filters of system calls in the status of a process; empty when it is gone."""
    try:
        return os.pread(status, 1 << 14, 0).partition(b"Seccomp_filters:")[2].partition(b"\n")[0]
    except ProcessLookupError:
        return b""


def _refuse(pid: int, error: OSError) -> NoReturn:
    os.write(2, f"{_explain(error)}\n".encode())  # first: this ends with bubblewrap
    os.kill(pid, _KILL)
    os._exit(1)


def _give_up(parent: int, said: int, begun: list[int]) -> NoReturn:
    """End when bubblewrap, the own `parent`, has been killed, and the sandbox with it: that would go on for ever.

    Until bubblewrap tells of its first process, its group is killed, where others have no part in it.
    """
    os.set_blocking(said, False)
    try:
        told = begun[0] if begun else _find_pid(os.read(said, 1 << 16).decode())
    except BlockingIOError:
        told = 0
    try:
        os.kill(told or (-parent if os.getpgrp() == parent else os.getpid()), _KILL)
    except ProcessLookupError:
        pass
    os._exit(1)


def _find_pid(said: str) -> int:
    """Return the first process of the sandbox, as bubblewrap tells it; 0: it has told nothing."""
    return int(said.partition('"child-pid": ')[2].partition(",")[0].strip(" \n}") or 0)


def find_starter() -> tuple[int, str, int]:
    """Return this process, with the machine and the namespace in which it has its number."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return os.getpid(), file.read(), os.stat("/proc/self/ns/pid").st_ino


def _is_orphan(starter: int, *place: str | int) -> bool:
    """Return whether the process that starts this is gone: a signal at its end is asked for too late then."""
    if os.getppid() == starter or find_starter()[1:] != place:
        return False
    try:
        with open(f"/proc/{starter}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"  # nobody has waited for it yet
    except (FileNotFoundError, ProcessLookupError):
        return True


def _guard(libc: ctypes.CDLL, given: dict[str, Any], folder: tuple[int, int]) -> None:
    """Mount what is guarded, those above first, and leave the mark. Raises `OSError`."""
    root = os.open("/newroot", os.O_PATH)
    top, own = _open(root, given["folder"]), _open(root, _OWN)
    if _identify(top) != folder:
        raise OSError(0, "another folder is there now", given["folder"])
    empty, none = _open(own, "empty"), _open(own, "none")
    for each in (empty, none):
        _mount(libc, each, os.dup(each), EMPTY)  # nobody writes it
    for path, kind in given["guarded"]:
        place = _open(top, path)
        hiding = none if os.fstat(place).st_mode >> 12 == _FOLDER else empty
        _mount(libc, hiding if kind == EMPTY else place, place, kind)
    os.close(os.open("guarded", os.O_CREAT | os.O_EXCL, dir_fd=own))


def _mount(libc: ctypes.CDLL, source: int, place: int, kind: str) -> None:
    tree = _call(libc.syscall(_OPEN_TREE, source, b"", _CLONE | _RECURSIVE | _ITSELF))
    if kind != WRITABLE:
        attributes = struct.pack("QQQQ", _NO_WRITES, 0, 0, 0)
        _call(libc.syscall(_MOUNT_SETATTR, tree, b"", _RECURSIVE | _ITSELF, attributes, len(attributes)))
    _call(libc.syscall(_MOVE_MOUNT, tree, b"", place, b"", _FROM_AND_TO_ITSELF))
    os.close(tree)
    os.close(place)


def _open(top: int, path: str) -> int:
    """Return the descriptor of what lies below a folder. Raises `OSError`, also for a link on the way."""
    descriptor = os.dup(top)
    for part in filter(None, path.split("/")):
        try:
            below = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            raise OSError(error.errno or 0, f"it has changed just now ({error.strerror})", path) from None
        finally:
            os.close(descriptor)
        descriptor = below
        if os.fstat(descriptor).st_mode >> 12 == _LINK:
            raise OSError(0, "it has become a link just now", path)
    return descriptor


def _explain(error: OSError) -> str:
    about = f"{error.filename}: " if error.filename else ""
    return f"the sandbox does not begin: {about}{error.strerror}; call again"


def _identify(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return (status.st_dev, status.st_ino)


def _call(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"files cannot be guarded here: {os.strerror(ctypes.get_errno())}")
    return result


if __name__ == "__main__":
    main(int(sys.argv[1]))
