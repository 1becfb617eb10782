"""Go on with the run of a workflow in this process, as `amplifier flow resume` does."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionConflict
from amplifier_foundation.spawning.hosting import Host

if TYPE_CHECKING:
    from concurrent.futures import Future

    from amplifier_core.storage import SessionRecord
    from amplifier_foundation.bundle.model import Bundle
    from amplifier_foundation.flows.runs import RunResult
    from amplifier_foundation.flows.tasks import Workflow

    from .desk import Desk

logger = logging.getLogger(__name__)


class ResumedRun:
    """The rest of one run. Its questions go to the approvals inbox."""

    def __init__(self, desk: Desk, record: SessionRecord, *, accept: bool) -> None:
        self._desk = desk
        self._record = record
        self._accept = accept
        self._serving = asyncio.get_running_loop()
        self._host: Host | None = None
        self._task: asyncio.Task[RunResult] | None = None
        self._future: Future[RunResult] | None = None
        self._ended = asyncio.Event()

    async def open(self) -> None:
        """Load the bundle. Raises `NotTrusted`, `SessionConflict` for a changed one, and errors of bundles."""
        from amplifier_foundation.flows.reading import find_workflow
        from amplifier_foundation.spawning.opening import BundleOpener, refuse

        record = self._record
        bundle = await BundleOpener(self._desk.plugins).load(record.project, record, refuse)
        if bundle.digest != record.bundle_digest and not self._accept:
            raise SessionConflict(
                record.session_id,
                "the bundle of this run has changed since. To go on with its present version, tick: go on although "
                "the bundle has changed",
            )
        workflow = find_workflow(bundle, record.metadata["flow"]["name"])
        self._host = Host()
        self._future = self._host.begin(self._run(workflow, bundle))

    async def _run(self, workflow: Workflow, bundle: Bundle) -> RunResult:
        from amplifier_core.durations import seconds_of
        from amplifier_foundation.bundle.overrides import DAY
        from amplifier_foundation.flows.runs import run_workflow
        from amplifier_foundation.settings import read_settings

        self._task = asyncio.current_task()
        return await run_workflow(
            workflow,
            bundle,
            self._desk.store,
            self._desk.plugins.bound_to(self._serving),
            resume=self._record.session_id,
            accept=self._accept,
            approval_timeout=seconds_of(read_settings().get("approvals.timeout")) or DAY,
        )

    async def work(self) -> None:
        """Wait for the end of the run, which is in its record."""
        assert self._host is not None and self._future is not None  # it is open
        try:
            await asyncio.wrap_future(self._future)
        except Exception as error:
            logger.info("the run %s has failed: %s", self._record.session_id, error)
        finally:
            await self._host.end()
            self._ended.set()

    async def end(self) -> None:
        """Interrupt the run, and wait until it is given back: it can be resumed."""
        if self._host is not None and self._task is not None:
            self._host.cancel(self._task)
        await self._ended.wait()
