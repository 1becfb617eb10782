"""Set the limits of a command, and name the one that it has reached."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from amplifier_sandbox.contracts import find_bash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_sandbox.protection import Guarded

    from .config import Limits

_HARD_CPU = 2
"""Seconds from the signal that names the limit of processor time to the end."""


def make_limits(limits: Limits) -> str:
    """Return the commands of bash that set the limits; one beyond the limits of this process changes nothing."""
    orders = [
        f"ulimit -n {limits.open_files}",
        f"ulimit -f {limits.file_size_mb * 1024}",
        f"ulimit -u {limits.processes}",
        f"ulimit -Ht {limits.cpu_seconds + _HARD_CPU}",
        f"ulimit -St {limits.cpu_seconds}",
        "ulimit -c 0",
    ]
    if limits.memory_mb is not None:
        orders.append(f"ulimit -v {limits.memory_mb * 1024}")
    return "{ " + "; ".join(orders) + "; } 2>/dev/null;"


def make_shell(limits: str, script: str) -> list[str]:
    """Return the arguments that set the limits and run the script in a fresh bash."""
    bash = find_bash()
    begin = f'{limits} exec {bash} --noprofile --norc -c "$1" bash'
    return [bash, "--noprofile", "--norc", "-c", begin, "bash", script]


def find_limit(limits: Limits, code: int, text: str) -> str | None:
    """Return the sentence about the limit that a failed command has reached; None for another failure."""
    if code == 0:
        return None
    if code in (128 + signal.SIGXCPU, -signal.SIGXCPU):
        return f"the limit of processor time was reached: cpu_seconds, {limits.cpu_seconds}"
    if code in (128 + signal.SIGXFSZ, -signal.SIGXFSZ) or "File too large" in text:
        return f"the limit of a file's size was reached: file_size_mb, {limits.file_size_mb}"
    if "Too many open files" in text:
        return f"the limit of open files was reached: open_files, {limits.open_files}"
    if "fork: " in text or "can't start new thread" in text:
        return f"the limit of processes was reached: processes, {limits.processes}"
    signs = ("MemoryError", "Cannot allocate memory", "cannot allocate", "bad_alloc", "out of memory", "Out of memory")
    if limits.memory_mb is not None and any(sign in text for sign in signs):
        return f"the limit of memory was reached: memory_mb, {limits.memory_mb}"
    return None


def find_own_python(guarded: Guarded, text: str) -> Iterator[str]:
    """Yield a sentence about the Python of this program and its rule, if a command has met it read-only."""
    lines = "\n".join(line for line in text.splitlines() if "Read-only file system" in line)
    paths = [path for path in (*guarded.fixed, *guarded.own_links) if guarded.fixed and path in lines]
    met = next((path for path in paths if re.search(rf"(?<![\w.-]){re.escape(path)}(?![\w.-])", lines)), None)
    if met is not None:
        rule = f"bash({met if met in guarded.fixed else guarded.fixed[0]}/**)"
        yield f'{met} has the Python that runs amplifier, read-only: allow: ["{rule}"] of your own settings opens it'
