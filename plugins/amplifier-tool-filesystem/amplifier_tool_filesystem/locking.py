"""Keep the writers of one file apart: sessions of this process, and of others."""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from .failures import FileToolError
from .writing import find_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import ParamSpec

    from .folder import Folder, InnerPath

    Arguments = ParamSpec("Arguments")

Result = TypeVar("Result")

LONGEST_WAIT = 2.0
"""Seconds that a write waits for a lock: a session holds one while it writes, other programs as long as they run."""
_PAUSE = 0.005


@asynccontextmanager
async def lock_file(folder: Folder, path: InnerPath) -> AsyncIterator[None]:
    """Hold the lock of a file while the block runs; go on without it after `LONGEST_WAIT`, or if there is no file.

    The lock is on the file itself: it leaves nothing in the folder, and holds in sandboxes, too.
    """
    with ExitStack() as held:
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                while not await run_to_end(_try_lock, folder, path, held):  # noqa: ASYNC110 - another process tells nobody
                    await asyncio.sleep(_PAUSE)
        yield


def _try_lock(folder: Folder, path: InnerPath, held: ExitStack) -> bool:
    """Lock a file until `held` ends; return False while another one holds the lock, or has replaced the file."""
    with ExitStack() as opened:
        try:
            stream = opened.enter_context(folder.open_file(path))
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = find_status(folder, path)
        except BlockingIOError:
            return False
        except (FileToolError, OSError):  # there is none to lock: the write says what is wrong with it
            return True
        is_held = status is not None and os.path.samestat(status, os.fstat(stream.fileno()))
        if is_held:
            held.push(opened.pop_all())
        return is_held


async def run_to_end(
    function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Run `function` in a thread; a cancellation waits for its end, as nobody else may write before."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # nobody waits for the failure any more; asyncio would report it as forgotten
        raise
