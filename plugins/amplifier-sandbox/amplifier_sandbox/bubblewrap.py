"""Run programs in bubblewrap: namespaces of their own, a small read-only system, and the working folder."""

from __future__ import annotations

import marshal
import os
import shutil
import sys
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from . import mounting
from .contracts import Launch, Run, find_home, make_environment
from .mounting import EMPTY, READ_ONLY, WRITABLE
from .protection import Guarded
from .repositories import find_outer_repository, is_linked
from .seccomp import AF_INET, AF_INET6, AF_NETLINK, make_filter

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib64", "/lib32")
_SETTINGS = (
    "passwd", "group", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl",
    "ca-certificates", "pki", "localtime", "mime.types",
)  # fmt: skip
_NETWORK_SETTINGS = ("resolv.conf", "hosts", "services", "protocols", "gai.conf")
_PYTHON, _MOUNTING = os.path.realpath(sys.executable), Path(mounting.__file__).read_text()
"""Both are taken before a command runs: they may lie in the working folder."""
_TEMPORARY_BYTES = 1 << 30
"""Bytes of /tmp, which lives in memory."""


class Bubblewrap:
    """Confinement by namespaces, mounts and a seccomp filter."""

    kind = "bubblewrap"
    confines = True
    covers = (
        "writes only in the working folder and in a /tmp that ends with the command",
        "no home folder, and no file outside of the system's and of the working folder",
        "files that programs obey (.git/config, .git/hooks, .amplifier, bundle.md …) are read-only",
        "files with secrets (.env, keys), and a data folder in the working folder, are empty",
        "the Python that runs amplifier is read-only",
        "no network without a grant, and no Unix or other local sockets at all",
        "no other process is seen, traced or signalled, and none outlives the command",
        "no privileges, no nested user namespaces, no terminal",
    )
    open = (
        "with a grant, the network is that of the machine: every host, and services on localhost",
        "a limit of memory holds for each process, and the limit of processes does not hold for root",
        "new files of the working folder run when you run them: tests, scripts, build files",
    )

    def find_obstacle(self) -> str:
        """Return why it cannot run here."""
        if shutil.which("bwrap") is None:
            return "bubblewrap is not installed; install it with: apt-get install bubblewrap (or dnf, pacman, zypper)"
        return "" if make_filter(()) is not None else "there is no seccomp filter for this machine's architecture"

    def launch(self, run: Run) -> Launch:
        """Return the process that runs a program."""
        bwrap, program = shutil.which("bwrap"), make_filter((AF_INET, AF_INET6, AF_NETLINK))
        if bwrap is None or program is None:
            raise FileNotFoundError(self.find_obstacle())
        filter, orders = os.memfd_create("seccomp"), os.memfd_create("orders")
        given = {
            "bwrap": bwrap,
            "options": [*_confine(run), *_mount(run), "--seccomp", str(filter), "--chdir", run.where],
            "program": [*run.argv],
            "folder": run.folder,
            "starter": mounting.find_starter(),
            "guarded": list(_guard(run.folder, run.guarded or Guarded((), (), True, {}, {}))),
        }
        for descriptor, content in ((filter, program), (orders, marshal.dumps(given))):
            os.write(descriptor, content)
            os.lseek(descriptor, 0, os.SEEK_SET)
        return Launch([_PYTHON, "-I", "-S", "-c", _MOUNTING, str(orders)], {}, (filter, orders))


def _confine(run: Run) -> Iterator[str]:
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session")
    yield from ("--cap-drop", "ALL", "--clearenv")
    if run.network:
        yield "--share-net"
    for name, value in make_environment(run._replace(scratch="/tmp")).items():
        yield from ("--setenv", name, value)


def _mount(run: Run) -> Iterator[str]:
    """Yield the options for files; a later one covers an earlier one."""
    yield from ("--ro-bind", "/usr", "/usr")
    for path in _SYSTEM:
        if Path(path).is_symlink():
            yield from ("--symlink", str(Path(path).readlink()), path)
        elif Path(path).is_dir():
            yield from ("--ro-bind", path, path)
    for name in (*_SETTINGS, *(_NETWORK_SETTINGS if run.network else ())):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    # root owns the kernel's settings in /proc also without any capability
    yield from (
        "--proc",
        "/proc",
        "--remount-ro",
        "/proc",
        "--dev",
        "/dev",
        "--size",
        str(_TEMPORARY_BYTES),
        "--tmpfs",
        "/tmp",
    )
    for empty in ("/run", find_home()):
        yield from ("--tmpfs", empty) if empty else ()
    for path in run.find_readable():
        yield from ("--ro-bind", path, path)
    if (outer := find_outer_repository(run.folder)) is not None:
        yield from ("--ro-bind", outer, outer)
    yield from ("--ro-bind" if run.is_read_only else "--bind", run.folder, run.folder)


def _guard(folder: str, guarded: Guarded) -> Iterator[tuple[str, str]]:
    """Yield how guarded files are mounted, and the folders above them: a mount point cannot be renamed."""
    own = (*guarded.fixed, *guarded.hidden, *guarded.own_links)
    held = (*guarded.obeyed, *guarded.parts, *guarded.obeyed_secrets, *own)
    mounts = {str(above): WRITABLE for path in held for above in PurePath(path).parents if above.name}
    mounts |= dict.fromkeys((*guarded.obeyed, *guarded.fixed), READ_ONLY)
    for path, parts in guarded.parts.items():
        whole = Path(folder, path)
        if whole.is_dir() and not whole.is_symlink() and not is_linked(str(whole)):
            if path != ".":  # the working folder is a mount, and another one would cover what is guarded in it
                mounts[path] = WRITABLE
            mounts |= {f"{path}/{part}": READ_ONLY for part in parts}
    yield from sorted(mounts.items(), key=lambda mount: mount[0].count("/"))
    yield from ((path, EMPTY) for path in (*guarded.secret, *guarded.hidden))
