"""Look after the data folder of a running process: clear what killed processes left, and notice its loss.

What is written into a folder that is gone would be lost. One that was moved away may come back: until then, nothing is
accepted, and the store refuses every call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreUnavailable

from ..paths import GONE, data_home, find_obstacle, using_folder
from ..sessions.lock import running_owners
from ..sessions.presence import is_gone
from .tasks import keep_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.5
"""Seconds."""
AWAY = 30.0
"""Seconds that the folder may be away."""
LEFT_BEHIND = 60.0
"""Seconds after which a file is judged; a process that starts makes its file a moment before it holds a lock."""


class DataFolder:
    """The data folder as it was when this was made, with the folder of its locks."""

    def __init__(self) -> None:
        self._paths = data_home(), data_home() / "locks"
        self._found = [_identity(path) for path in self._paths]
        self._open = os.open(self._paths[0], os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._open)

    def check(self) -> None:
        """Raise `StoreUnavailable` when the folder was removed, moved or replaced, or cannot be reached."""
        if not self.is_there:
            what = self._find_obstacle() or "was removed or replaced while this process used it"
            remedy = "Nothing more is accepted; put the folder back, and run again: amplifier up"
            raise StoreUnavailable(self._paths[0], f"the data folder {what}. {remedy}")

    @property
    def is_there(self) -> bool:
        """Whether `check` passes."""
        return [_identity(path) for path in self._paths] == self._found

    async def wait_for_loss(self, lost: Callable[[StoreUnavailable], None]) -> None:
        """Call `lost` once when the folder was removed or replaced, or is away for too long."""
        since = None
        while True:
            try:
                self.check()
                if since is not None:
                    logger.warning("%s is back", self._paths[0])
                since = None
            except StoreUnavailable as error:
                now = time.monotonic()
                if not self._may_come_back() or (since is not None and now - since > AWAY):
                    lost(error)
                    return
                if since is None:
                    advice = f"Nothing is accepted until it is back, and this process ends in {AWAY:g} s"
                    logger.warning("%s %s. %s", self._paths[0], self._find_obstacle() or GONE, advice)
                    since = now
            await asyncio.sleep(LOOK_EVERY)

    def _may_come_back(self) -> bool:
        """Return whether the folder was moved, or cannot be reached: it was neither removed nor replaced."""
        if self._find_obstacle():
            return True
        try:
            return _identity(self._paths[0]) is None and os.fstat(self._open).st_nlink > 0
        except OSError:  # its mount is dead, and away
            return True

    def _find_obstacle(self) -> str:
        """Return why the folder cannot be reached; that of a dead mount looks well for a second, what is in it not."""
        return next(filter(None, map(find_obstacle, self._paths)), "")


@asynccontextmanager
async def watching_data_folder(lost: Callable[[StoreUnavailable], None]) -> AsyncIterator[DataFolder]:
    """Look at the data folder while the block runs; call `lost` once when it is lost. It is not made again.

    At first, the sockets and locks of killed processes are removed.
    """
    clear_leftovers()
    with using_folder(data_home()), closing(DataFolder()) as folder:
        async with keep_beside(partial(folder.wait_for_loss, lost), "data folder"):
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
