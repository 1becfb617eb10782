"""Run the background sessions of a conversation's bundle beside it, once its orchestrator asks for them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.cancellation import own_failure
from amplifier_core.errors import SessionConflict

from ..sessions.lock import running_owner
from .draining import drain
from .up import run_background

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ..bundle.model import Bundle
    from .state import Activity
    from .up import Up


class BesideConversation:
    """The capability `background.host` of a conversation; leaving it as a context manager stops what it has started.

    Running sessions get `grace` seconds to finish then; later ones are interrupted, and the next start resumes them.
    """

    def __init__(
        self,
        bundle: Bundle,
        store: DurableStore,
        plugins: Plugins,
        project: str,
        observer: Callable[[Activity], None],
    ) -> None:
        self.running: Up | None = None
        """The running background sessions; None before `start`, and where another process runs them."""
        self.grace = 0.0
        self.store = store
        self._project = project
        self._run_background = partial(
            run_background, [bundle], store, plugins, working_dir=Path(project), observer=observer
        )
        self._leave = asyncio.Event()
        self._started: asyncio.Future[Up] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> BesideConversation:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._leave.set()
        if self._task is None:
            return
        try:
            await asyncio.wait({self._task})
        except asyncio.CancelledError:  # another Ctrl-C: the sessions are interrupted, but end before the store closes
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        finally:
            self.running = None

    async def start(self) -> str | None:
        """Start the background sessions, unless they run; return who runs them, None for this process.

        Raises as `run_background` does.
        """
        if self._task is None:
            owner = running_owner(self._project)
            if owner is not None:
                return f"process {owner.get('pid', '?')} ({', '.join(map(str, owner.get('bundles') or ()))})"
            self._started = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._started), name="background-beside")
        assert self._started is not None  # beside the task
        try:
            self.running = await asyncio.shield(self._started)
        except Exception as error:  # a later call tries again
            self._task = None
            if isinstance(error, SessionConflict):  # another process was faster
                return str(error)
            raise
        return None

    async def drain(self) -> bool:
        """Return when all work is done; False when an event was given up, or a trigger has failed."""
        return True if self.running is None else await drain([self.running.manager])

    async def _run(self, started: asyncio.Future[Up]) -> None:
        try:
            async with self._run_background() as [up]:
                started.set_result(up)
                await self._leave.wait()
                await up.manager.stop_all(grace=self.grace)
        except BaseException as raised:
            error = own_failure(raised)
            if started.done():
                raise
            started.set_exception(error)
