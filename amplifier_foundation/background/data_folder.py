"""Look after the data folder of a running process: clear what killed processes left, and notice its loss.

What is written into a folder that is gone would be lost.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreUnavailable

from ..paths import data_home
from ..sessions.lock import running_owners
from ..sessions.presence import is_gone
from .tasks import run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LOOK_EVERY = 0.5
"""Seconds."""
LEFT_BEHIND = 60.0
"""Seconds after which a file is judged; a process that starts makes its file a moment before it holds a lock."""


class DataFolder:
    """The data folder as it was when this was made, with the folder of its locks."""

    def __init__(self) -> None:
        self._paths = data_home(), data_home() / "locks"
        self._found = [_identity(path) for path in self._paths]

    def check(self) -> None:
        """Raise `StoreUnavailable` when the folder was removed, moved or replaced."""
        if not self.is_there:
            raise StoreUnavailable(
                self._paths[0],
                "the data folder was removed or replaced while this process used it. Nothing more is accepted; put "
                "the folder back, and run again: amplifier up",
            )

    @property
    def is_there(self) -> bool:
        """Whether `check` passes."""
        return [_identity(path) for path in self._paths] == self._found

    async def wait_for_loss(self, lost: Callable[[StoreUnavailable], None]) -> None:
        """Call `lost` once when the folder is gone."""
        while True:
            try:
                self.check()
            except StoreUnavailable as error:
                lost(error)
                return
            await asyncio.sleep(LOOK_EVERY)


@asynccontextmanager
async def watching_data_folder(lost: Callable[[StoreUnavailable], None]) -> AsyncIterator[DataFolder]:
    """Look at the data folder while the block runs; call `lost` once when it is gone.

    At first, the sockets and locks of killed processes are removed.
    """
    clear_leftovers()
    folder = DataFolder()
    async with run_beside(folder.wait_for_loss(lost), "data folder"):
        yield folder


def clear_leftovers() -> None:
    """Remove the sockets and locks of processes that are gone: their locks are not held."""
    sockets = _old_files("run", "*.sock")  # before the owners: an owner holds its lock before it has a socket
    owned = {Path(str(owner.get("socket"))).name for owner in running_owners()}
    for path in sockets:
        if path.name not in owned:
            with suppress(OSError):
                path.unlink()
    for path in _old_files("processes", "*.lock"):
        with suppress(OSError):
            is_gone(path.stem)  # removes the lock


def _old_files(folder: str, pattern: str) -> list[Path]:
    found = []
    for path in (data_home() / folder).glob(pattern):
        with suppress(OSError):  # its process has ended
            if path.stat().st_mtime < time.time() - LEFT_BEHIND:
                found.append(path)
    return found


def _identity(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a microsecond, before each event
    except OSError:
        return None
    return found.st_dev, found.st_ino
