"""Limit what the process of a session may use: `session: {limits: {…}}` in its plan."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

from ..bundle.sections import DEFAULT_OUTPUT, DEFAULT_PROCESSES
from .control_groups import Group

if TYPE_CHECKING:
    from collections.abc import Mapping

MEBIBYTE = 1024 * 1024


@frozen
class ProcessLimits:
    """The most that one session's process, and each process that it starts, may use; None: as its parent may.

    `memory` and `file_size` are bytes of memory and of one file, `cpu_seconds` the time on a processor, `open_files`
    and `processes` numbers, `output` bytes on stdout and stderr together. `processes` counts all below the session.
    `memory` and `cpu_seconds` hold for all of them together in a control group. Elsewhere each process has these limits
    by itself, and its memory is its address space.
    """

    memory: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = None
    processes: int | None = DEFAULT_PROCESSES
    file_size: int | None = None
    output: int | None = DEFAULT_OUTPUT

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ProcessLimits:
        """Return the limits of a mount plan. Raises `ValueError` for an impossible one."""
        section = (config.get("session") or {}).get("limits") or {}
        if not isinstance(section, dict):
            raise ValueError(f"session.limits: must be a mapping, not {type(section).__name__}")
        known = set(cls.__dataclass_fields__)
        if unknown := [name for name in section if name not in known]:
            raise ValueError(f"session.limits: unknown key '{unknown[0]}'. Known: {', '.join(sorted(known))}")
        return cls(**{name: _read(name, value) for name, value in section.items()})

    @property
    def of_all(self) -> frozenset[str]:
        """The limits that were asked for and can hold for all processes together, by name."""
        asked = {
            "memory": self.memory is not None,
            "cpu_seconds": self.cpu_seconds is not None,
            "processes": self.processes not in (None, DEFAULT_PROCESSES),
        }
        return frozenset(name for name, there in asked.items() if there)

    def set(self) -> None:
        """Limit this process and those that it starts."""
        held = Group(os.getppid(), os.getpid()).join(self) if self.of_all else frozenset()
        for kind, most in (
            (resource.RLIMIT_AS, self.memory if "memory" not in held else None),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_size),
            (resource.RLIMIT_CORE, 0),
        ):
            if most is not None:
                with nullcontext() if sys.platform == "linux" else suppress(OSError, ValueError):  # some have not all
                    resource.setrlimit(kind, (_within(kind, most),) * 2)
        if self.cpu_seconds is not None:
            most = _within(resource.RLIMIT_CPU, self.cpu_seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))

    def describe(self, name: str) -> str:
        """Return a limit in words: `memory: 512 MiB`."""
        value = getattr(self, name)
        if name in ("memory", "file_size", "output"):
            return f"{name}: {value / MEBIBYTE:g} MiB"
        return f"{name}: {value:g}"


def _read(name: str, value: Any) -> int:
    from amplifier_core.durations import seconds_of

    from ..documents.sizes import size_of

    try:
        if name in ("memory", "file_size", "output"):
            value = size_of(value)
        elif name == "cpu_seconds":
            value = int(seconds_of(value))
    except ValueError as error:
        raise ValueError(f"session.limits.{name}: {error}") from None
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"session.limits.{name}: must be a number above 0, not {value!r}")
    return value


def _within(kind: int, wanted: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
