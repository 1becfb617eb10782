"""Take up changed bundles while their background sessions run."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.clock import SystemClock, wait_for
from amplifier_core.errors import AmplifierError, SessionNotFound, StoreError

from ..paths import data_home, find_absence
from ..security import NotTrusted, TrustUnreadable
from ..security.trust_ledger import Ledger
from ..sessions.failures import describe_failure
from .log_events import BACKGROUND_RELOADED
from .undeclared import find_stranded, find_undeclared, remember_declared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from amplifier_core.storage import DurableStore

    from ..bundle.model import Bundle
    from .up import Up

    Stamps = dict[str, tuple[int, int, int] | None]

logger = logging.getLogger(__name__)

CHANGE = "changed bundle"
"""The component that has a problem while a bundle cannot be loaded, or is not trusted."""
LOOK_EVERY = timedelta(seconds=1)
"""Time between two looks at a bundle's files."""


class Reloading:
    """Loads bundles anew when one of their files, or what is trusted, has changed, or `ask` is called.

    A bundle with an error changes nothing: `tell` gets the error once, the status shows it, and the old bundle runs on.
    After an error of the system, as while a folder is replaced, the bundle is loaded again at the next look; and so is
    one that waits for trust. The events of one whose trust a person took back wait.
    """

    def __init__(
        self,
        running: Sequence[Up],
        store: DurableStore,
        load: Callable[[Path], Awaitable[Bundle]],
        tell: Callable[[str], None],
    ) -> None:
        self._running = running
        self._store = store
        self._load = load
        self._tell = tell
        self._asked = asyncio.Event()
        self._failures: dict[int, str] = {}

    def ask(self) -> None:
        """Load the bundles now, whatever the times of their files."""
        self._asked.set()

    async def tell_undeclared(self, running: Sequence[Up]) -> None:
        """Tell of events that wait for names that these bundles no longer declare, or in folders that are away.

        An outage of the store tells nothing.
        """
        with suppress(StoreError):  # the status tells of the store
            undeclared = await find_undeclared(self._store, [(up.bundle, up.project) for up in running])
            for each in [*undeclared, *await find_stranded(self._store, [up.bundle for up in running])]:
                self._tell(str(each))

    async def run(self) -> None:
        """Look at the bundles' files until cancelled."""
        clock = SystemClock()
        seen: dict[int, Stamps] = {}  # none: a bundle may have changed since it was loaded
        while True:
            asked = await wait_for(clock, self._asked, clock.now() + LOOK_EVERY)
            self._asked.clear()
            for up in self._running if not find_absence(data_home()) else ():  # without it, nothing is trusted
                now = await asyncio.to_thread(_stamps, up.bundle)
                if not asked and now == seen.get(id(up)):
                    continue
                seen.pop(id(up), None)  # what is not over is looked at again, also when the files are as before
                if await self._reload(up):
                    after = await asyncio.to_thread(_stamps, up.bundle)
                    if all(now.get(name, stamp) == stamp for name, stamp in after.items()):
                        seen[id(up)] = after

    async def _reload(self, up: Up) -> bool:
        """Load a bundle and run its declarations; return whether nothing more can be done until it changes again."""
        path = up.bundle.source_path
        assert path is not None  # what is watched was read from a file
        is_over, digest = True, up.bundle.digest
        try:
            bundle = await self._load(path)
            if bundle.digest == up.bundle.digest and id(up) not in self._failures:  # a failure may have stopped some
                return True
            changed = await up.reconcile(bundle)
        except Exception as error:  # also a mistake of ours: what runs must go on
            is_over = not isinstance(error, OSError | NotTrusted | TrustUnreadable)
            is_taken_back = isinstance(error, NotTrusted) and error.is_taken_back
            what = ": its events wait" if is_taken_back else " has changed and is not taken up"
            text, problem = f"{path}{what}: {_describe(error)}", _describe(error)
            if not isinstance(error, NotTrusted | TrustUnreadable):
                problem = f"the changed bundle is not taken up: {problem}"
            up.manager.report_shared(CHANGE, problem, holds=is_taken_back)
            before, self._failures[id(up)] = self._failures.get(id(up)), text
            if text == before and not is_over:
                return False
        else:
            self._failures.pop(id(up), None)
            up.manager.report_shared(CHANGE, "")
            up.manager.wake()
            text = f"{path} has changed: {', '.join(changed) or 'nothing that runs'}"
        self._tell(text)
        if up.bundle.digest != digest:
            with suppress(StoreError, SessionNotFound):  # the bundle has another name
                await remember_declared(self._store, up.bundle, up.project)
        with suppress(StoreError):
            data = {"project": up.project, "bundle": up.bundle.name, "text": text}
            await up.router.emit(BACKGROUND_RELOADED, data, project=up.project)
        await self.tell_undeclared([up])
        return is_over


def _describe(error: Exception) -> str:
    if isinstance(error, AmplifierError):
        return str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    logger.debug("a bundle could not be loaded", exc_info=error)
    return describe_failure(error)


def _stamps(bundle: Bundle) -> Stamps:
    return {name: _stamp(name) for name in (*bundle.origins, str(Ledger().file))}


def _stamp(name: str) -> tuple[int, int, int] | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
