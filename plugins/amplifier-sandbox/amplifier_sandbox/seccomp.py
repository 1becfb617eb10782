"""Pack a seccomp filter as bytes, without a library: system calls by which a process gets around a sandbox fail.

The program is that of classic BPF, as in <linux/filter.h>; the data it reads is `struct seccomp_data` of
<linux/seccomp.h>. Numbers of system calls are those of <asm/unistd_64.h> and <asm-generic/unistd.h>.
"""

from __future__ import annotations

import platform
import struct
from typing import NamedTuple

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
TIOCSTI, TIOCLINUX = 0x5412, 0x541C

_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_SET_IDS = 0o6000
_X32 = 0x40000000


class Machine(NamedTuple):
    """The numbers of one architecture."""

    architecture: int
    socket: int
    ioctl: int
    modes: tuple[tuple[int, int], ...]
    """Calls that set the mode of a file, and the place of the mode among their arguments."""
    blocked: tuple[int, ...]


_EVERYWHERE = (425, 426, 427, 438)  # io_uring_setup, io_uring_enter, io_uring_register, pidfd_getfd
_OPENAT2 = 437
MACHINES = {
    # modes: chmod, fchmod, fchmodat, fchmodat2, open, openat, creat, mknod, mknodat
    # blocked: ptrace, process_vm_readv, process_vm_writev, bpf, keyctl, add_key, request_key, perf_event_open,
    # userfaultfd, open_by_handle_at, init_module, finit_module, delete_module, kexec_load, syslog
    "x86_64": Machine(
        0xC000003E, 41, 16, ((90, 1), (91, 1), (268, 2), (452, 2), (2, 2), (257, 3), (85, 1), (133, 1), (259, 2)),
        (*_EVERYWHERE, 101, 310, 311, 321, 250, 248, 249, 298, 323, 304, 175, 313, 176, 246, 103),
    ),
    "aarch64": Machine(
        0xC00000B7, 198, 29, ((52, 1), (53, 2), (452, 2), (56, 3), (33, 2)),
        (*_EVERYWHERE, 117, 270, 271, 280, 219, 217, 218, 241, 282, 265, 105, 273, 106, 104, 116),
    ),
}  # fmt: skip


def make_filter(families: tuple[int, ...], machine: str | None = None) -> bytes | None:
    """Return the filter that lets sockets of some address families through; None for an unknown machine."""
    numbers = MACHINES.get(machine or platform.machine())
    if numbers is None:
        return None
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, numbers.architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, 0, 1),  # the second set of numbers on x86_64
        _step(_RETURN, _FAIL | _EPERM),
    ]
    for blocked in numbers.blocked:
        program += [_step(_EQUAL, blocked, 0, 1), _step(_RETURN, _FAIL | _EPERM)]
    program += [_step(_EQUAL, _OPENAT2, 0, 1), _step(_RETURN, _FAIL | _ENOSYS)]  # its mode is out of sight
    for call, place in numbers.modes:
        program += _check_argument(call, place, _HAS_BITS, (_SET_IDS,), _FAIL | _EPERM, _ALLOW)
    program += _check_argument(numbers.ioctl, 1, _EQUAL, (TIOCSTI, TIOCLINUX), _FAIL | _EPERM, _ALLOW)
    program += _check_argument(numbers.socket, 0, _EQUAL, families, _ALLOW, _FAIL | _EAFNOSUPPORT)
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _check_argument(
    call: int, place: int, comparison: int, values: tuple[int, ...], listed: int, others: int
) -> list[bytes]:
    """Return the steps for one system call: one result when an argument's low half compares, else the other."""
    inside = [_step(_LOAD, _ARGUMENTS + 8 * place)]
    for value in values:
        inside += [_step(comparison, value, 0, 1), _step(_RETURN, listed)]
    inside += [_step(_RETURN, others)]
    return [_step(_EQUAL, call, 0, len(inside)), *inside]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
