"""Notice changes of packages under `amplifier up`: later imports may not fit the running code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from amplifier_core.entry_points import find_entry_points

from ..packages.report import GROUPS
from .tasks import keep_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from amplifier_core.clock import Clock

logger = logging.getLogger(__name__)

PACKAGES = "packages"
"""The component with the problem."""
LOOK_EVERY = 60.0
"""Seconds."""


@asynccontextmanager
async def looking_at_packages(clock: Clock, report: Callable[[str], None]) -> AsyncIterator[None]:
    """Compare the installed packages, and their imported files, with those of now each minute, while the block runs.

    `report` gets what has changed after each look, '' for nothing. Packages without entry points of ours are not seen.
    A file counts as it was at the first look after its import.
    """
    async with keep_beside(partial(_look_regularly, _versions(), clock, report), "look at packages"):
        yield


async def _look_regularly(begun: Mapping[str, str], clock: Clock, report: Callable[[str], None]) -> None:
    imported: dict[tuple[str, str], int] = {}
    with suppress(Exception):  # the next look tells
        imported = await asyncio.to_thread(_read_files)  # triggers are armed meanwhile
    while True:
        await clock.sleep(LOOK_EVERY)
        try:
            now, files = await asyncio.to_thread(_versions), await asyncio.to_thread(_read_files)
        except Exception as error:  # `up` goes on without
            logger.warning("the installed packages could not be looked at: %s", error)
            continue
        changes = [
            f"{name} {version} is {now[name]} now" if name in now else f"{name} {version} is gone"
            for name, version in sorted(begun.items())
            if now.get(name) != version
        ]
        imported = {**files, **imported}
        edited = {name: path for (name, path), checksum in sorted(files.items()) if checksum != imported[name, path]}
        kept = sorted(begun.items() & now.items())
        changes += [f"{name} {version} has an edited {edited[name]}" for name, version in kept if name in edited]
        report(f"packages changed since this process began: {', '.join(changes)}. Restart it" if changes else "")


def _versions() -> dict[str, str]:
    return {entry.dist.name: entry.dist.version for group in GROUPS for entry in find_entry_points(group)}


def _read_files() -> dict[tuple[str, str], int]:
    """Return the checksum of each file of an imported module, by its package and its path."""
    entries = [entry for group in GROUPS for entry in find_entry_points(group)]
    owners = {_top_package(entry.module): entry.dist.name for entry in entries}
    if (program := owners.get("amplifier_foundation")) is not None:
        owners["amplifier_core"] = program  # they are one distribution
    files: dict[tuple[str, str], int] = {}
    for name in sys.modules.copy():
        if (owner := next((owners[each] for each in _packages_of(name) if each in owners), None)) is not None:
            with suppress(OSError):  # it is in an archive, or is gone
                if path := _file_of(name):
                    found = os.stat(path)  # noqa: PTH116 - it is a string
                    files[owner, path] = _checksum(path, (found.st_mtime_ns, found.st_size))
    return files


def _packages_of(name: str) -> list[str]:
    """Return the name of a module and those of its packages, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _top_package(name: str) -> str:
    """Return the outermost imported package of a module; packages without a file belong to several distributions."""
    return next(filter(_file_of, _packages_of(name)), name)


def _file_of(name: str) -> str | None:
    """Return the file of an imported module; None without one."""
    try:
        file = object.__getattribute__(sys.modules[name], "__dict__")["__file__"]  # a lazy module would be imported
    except Exception:  # no module is there
        return None
    return file if isinstance(file, str) else None


@lru_cache(maxsize=10_000)
def _checksum(path: str, stamp: tuple[int, int]) -> int:
    """Return the checksum of a file; one with the same time of change and size is not read again."""
    return crc32(Path(path).read_bytes())
