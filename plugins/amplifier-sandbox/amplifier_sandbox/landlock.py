"""Run programs under Landlock: the kernel's own rules about files, with a seccomp filter; no namespaces.

This file is also a program: `python -I -S landlock.py JSON` confines itself, and then becomes the other one. System
calls and structures are those of <linux/landlock.h>; the same numbers hold for every architecture.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .contracts import Launch, Run

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER, _DROP_CAPABILITY = 38, 22, 2, 24
_END_WITH_PARENT, _ADOPT_ORPHANS = 1, 36
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
_SETTINGS = (
    "passwd", "group", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl",
    "ca-certificates", "pki", "localtime", "resolv.conf", "hosts",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def find_version() -> int:
    """Return the version of the kernel's Landlock; 0 without it."""
    if not sys.platform.startswith("linux"):
        return 0
    version: int = ctypes.CDLL(None).syscall(_CREATE, None, 0, 1)
    return max(version, 0)


class Landlock:
    """Confinement by rules about files."""

    kind = "landlock"
    confines = False
    covers = (
        "writes only in the working folder and in a temporary folder of the session",
        "no file outside of the system's and of the working folder is read",
        "no network without a grant, and no Unix sockets",
        "no other process is traced",
    )
    open = (
        "files that programs obey (.git/config, .git/hooks …) can be written; new ones are looked at afterwards",
        "files with secrets in the working folder (.env, keys) are read",
        "the Python that runs amplifier can be written where it lies in the working folder",
        "modes, owners and times of files can be changed everywhere",
        "other processes are seen, and before Linux 6.12 signalled; a command that leaves its group outlives its call",
        "every command is asked for",
    )

    def find_obstacle(self) -> str:
        """Return why it cannot run here."""
        from .seccomp import make_filter

        if find_version() == 0:
            return "this kernel has no Landlock (Linux 5.13 or newer, started with lsm=landlock)"
        return "" if make_filter(()) is not None else "there is no seccomp filter for this machine's architecture"

    def launch(self, run: Run) -> Launch:
        """Return the process that confines itself, and then runs a program."""
        from amplifier_core.utils.interpreters import PYTHON

        from .contracts import Launch, make_environment
        from .seccomp import AF_INET, AF_INET6, AF_NETLINK, make_filter

        if run.guarded is not None and run.guarded.hidden:
            raise PermissionError(
                f"the data folder, {run.guarded.hidden[0]}, lies in the working folder, where Landlock cannot hide it; "
                "move it and set AMPLIFIER_HOME, or install bubblewrap"
            )
        program = make_filter((AF_INET, AF_INET6, AF_NETLINK) if run.network else ()) or b""
        orders = {
            "readable": [*_SYSTEM, *(f"/etc/{name}" for name in _SETTINGS), *run.find_readable(), run.folder],
            "writable": [*([] if run.is_read_only else [run.folder]), run.scratch, *_DEVICES],
            "network": run.network,
            "filter": program.hex(),
            "where": run.where,
            "argv": [*run.argv],
            "supervised": run.supervised,
        }
        argv = [*PYTHON, "-I", "-S", __file__, json.dumps(orders)]
        own = {"HOME": run.scratch, "GIT_CONFIG_NOSYSTEM": "1"}  # git stops at a file that it may not read
        return Launch(argv, {**make_environment(run), **own}, goes_on=not run.supervised)


def main(orders: dict[str, object]) -> None:
    """Confine this process, and become the command."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.chdir(str(orders["where"]))
    if orders["supervised"]:
        _supervise(libc)
    libc.prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    for capability in range(64):  # root gets none of them back
        libc.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    _restrict(libc, orders["readable"], orders["writable"], bool(orders["network"]))  # type: ignore[arg-type]
    program = bytes.fromhex(str(orders["filter"]))
    steps = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
    if libc.prctl(_SET_SECCOMP, _FILTER, header, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    argv: list[str] = orders["argv"]  # type: ignore[assignment]
    os.execv(argv[0], argv)


def _supervise(libc: ctypes.CDLL) -> None:
    """Return in a child; this process stays outside, and ends all below it when the child or its own parent has ended.

    It adopts processes that leave their group.
    """
    libc.prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        return
    os.closerange(0, 1 << 16)
    signal.signal(signal.SIGTERM, lambda *_: _end_all(128 + signal.SIGTERM))
    libc.prctl(_END_WITH_PARENT, signal.SIGTERM, 0, 0, 0)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            _end_all(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _end_all(code: int) -> None:
    """Kill every process below this one, and end; orphans of killed ones become children of this one."""
    try:
        while True:
            with open(f"/proc/self/task/{os.getpid()}/children") as listed:  # noqa: PTH123 - as above
                for pid in listed.read().split():
                    os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)
    except ChildProcessError:
        os._exit(code)


def _restrict(libc: ctypes.CDLL, readable: list[str], writable: list[str], network: bool) -> None:
    version = find_version()
    files = (1 << 13) - 1
    files |= (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0) | (1 << 15 if version >= 5 else 0)
    attributes = struct.pack("QQQ", files, 0 if network else 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = libc.syscall(_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for paths, access in ((readable, _READ), (writable, files)):
        for path in paths:
            _allow(libc, ruleset, path, access & files)
    if libc.syscall(_RESTRICT, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # this system has no such file
    if not os.path.isdir(path):  # noqa: PTH112 - the program starts without pathlib
        access &= _OF_FILES
    done = libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", access, descriptor), 0)
    os.close(descriptor)
    if done != 0:
        raise OSError(ctypes.get_errno(), f"landlock_add_rule {path}")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
