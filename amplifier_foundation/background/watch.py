"""Run a background session's triggers: arm them, store their events, restart them when they fail."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.cancellation import as_failure, call_guarded, own_failure
from amplifier_core.clock import sleep_until
from amplifier_core.errors import QueueFull, StaleEpoch, StoreUnavailable, TriggerConfigError, TriggerError, UnknownName
from amplifier_core.frozen import slotted
from amplifier_core.raised import describe_raised
from amplifier_core.triggers import TriggerContext, TriggerEvent
from amplifier_core.utils.secrets import redact_text

from ..sessions.documents import find_documents
from .accepting import accept
from .keys import key_on_host
from .queue_room import FULL
from .tasks import first_cause, run_apart
from .trigger_errors import emit_trigger_error, place_of
from .trigger_making import call_method, is_local, make_trigger, open_stream, stop_trigger, take_over_state, url_of
from .yielded import check_event, require_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.triggers import TriggerSource

    from ..bundle.background_config import TriggerConfig
    from .hosts.leading import Leadership
    from .state import BackgroundSessionState, BackgroundStatus, Engine

logger = logging.getLogger(__name__)

STORE_PAUSE = 1.0
"""Seconds until a failed store is tried again."""
FULL_PAUSE = 1.0
"""Seconds until a held trigger looks for room again."""
LONGEST_PAUSE = 60.0
"""Seconds between two tries of a failing trigger, at most."""
ENDING = 1.0
"""Seconds for `watch` to end after `stop`."""
CLEANUP = 7.0
"""Seconds for a cancelled watch to end, its `stop` included; then it is given up."""


class LeadershipLost(Exception):
    """Another host runs this trigger from now on."""


@slotted
class Watch:
    """One trigger of a background session, restarted when it fails."""

    engine: Engine
    background: BackgroundSessionState
    name: str
    declared: TriggerConfig
    armed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    stopping: bool = False
    _is_ready: bool = False
    _has_worked: bool = False
    _is_waiting_for_store: bool = False
    _is_held: bool = False
    _is_accepting: bool = False
    _trigger: TriggerSource | None = None
    _prepared: TriggerSource | None = None
    _stopping: TriggerSource | None = None
    _run: object = field(default_factory=object)
    """Another one for each watch: what an earlier one still yields, saves or reports does not count."""

    async def prepare(self) -> None:
        """Make the trigger of the first watch; `run` tells of one that cannot be made, and tries again.

        Raises `UnknownName`, `TriggerConfigError`.
        """
        try:
            trigger = await self._make_trigger()
        except TriggerConfigError:
            raise
        except TriggerError:
            return
        self._prepared = trigger if self._leadership is None else None  # another host may change its state before

    async def _make_trigger(self) -> TriggerSource:
        """Make the trigger, bound to its stored state. Raises `UnknownName`, `TriggerConfigError`, `TriggerError`."""
        run, state = self._run, await self._read_state()
        context = TriggerContext(
            name=self.name,
            working_dir=Path(self.background.project),
            events=self.engine.router,
            documents=find_documents(self.engine.store, self.background.project),
            clock=self.engine.clock,
            state=state,
            saver=partial(self._save, run),
            reporter=partial(self._report, run),
            own_writes=self.engine.files.own_writes((self.background.project, self.background.queue)),
        )
        engine = self.engine
        return await make_trigger(self.declared, context, engine.plugins, engine.parent.loader, engine.trigger_loader)

    async def _read_state(self) -> dict[str, Any]:
        store, project, key = self.engine.store, self.background.project, self._state_key
        state = await store.trigger_state(project, key)
        if state or not self._is_local:
            return state
        return await take_over_state(store, project, self.name, key)

    async def _save(self, run: object, state: Mapping[str, Any], *, merge: bool = False) -> None:
        self._require_current(run)
        await self.engine.store.save_trigger_state(self.background.project, self._state_key, state, merge=merge)

    @property
    def _is_local(self) -> bool:
        """Whether each host runs this trigger, for its own files and addresses."""
        return is_local(self.declared, self.engine.plugins) and not self.background.config.shared_folder

    @property
    def _state_key(self) -> str:
        member = self.engine.member
        return self.name if member is None or not self._is_local else key_on_host(self.name, member.host)

    @property
    def _leadership(self) -> Leadership | None:
        """The leadership that this trigger waits for; None: it always runs here."""
        return None if self._is_local else self.engine.leadership

    def _require_current(self, run: object) -> None:
        """Raise `TriggerError` in a watch that was given up."""
        if run is not self._run:
            raise TriggerError(self.declared.module, "its watch was cancelled and is given up")

    def _report(self, run: object, problem: str | None) -> None:
        """Show the trigger's own problem, beside its failures: being ready does not end it."""
        component = f"{self.name} itself"
        if run is not self._run:
            return
        if problem:
            self.engine.report_problem(self.background, component, "degraded", problem)
        else:
            self.engine.clear_problem(self.background, component)

    async def run(self) -> None:
        """Watch until the background session stops; after each failure, try again, with growing pauses.

        A watch that goes on although it was cancelled is given up: from then on, nothing that it does counts.

        A mistake of the configuration is not tried again, unless the trigger worked with the same configuration before:
        then something else has changed.
        """
        failures, window = 0, self.background.config.restart_window
        while not self._is_ending:
            if (leadership := self._leadership) is not None:
                self.armed.set()  # another host may lead for long
                await leadership.wait_until_held()
            began = self.engine.clock.monotonic()
            try:
                await self._watch_once()
                return
            except BaseException as raised:
                if not isinstance(cause := first_cause(as_failure(raised)), Exception):
                    raise
                self.armed.set()  # nobody waits for it any longer
                if self.stopping or self.background.stopping:
                    return
                if isinstance(cause, (LeadershipLost, StaleEpoch)):
                    continue
                if isinstance(cause, StoreUnavailable):
                    await self._wait_for_store(str(cause))
                    continue
                failures = 1 if self.engine.clock.monotonic() - began > window else failures + 1
                if not await self._pause_after(cause, failures):
                    return
            finally:
                self.armed.set()

    async def _watch_once(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                leading = group.create_task(self._follow_leadership())
                await run_apart(self._watch(self._run), f"trigger {self.name}", CLEANUP)
                leading.cancel()
        finally:
            self._forget_trigger(self._run)
            self._run = object()

    def _forget_trigger(self, run: object) -> None:
        if run is self._run:
            self._report(run, None)
            self._trigger, self._is_ready, self._is_accepting = None, False, False

    async def _watch(self, run: object) -> None:
        trigger = self._prepared if self._prepared is not None else await self._make_trigger()
        self._require_current(run)
        self._trigger, self._prepared = trigger, None
        async with asyncio.TaskGroup() as group:
            announcing = group.create_task(call_guarded(self._announce, trigger, run), name=f"trigger {self.name}")
            async with open_stream(trigger, self.declared.module) as stream:
                try:
                    await self._store_events(stream, group, run)
                finally:
                    announcing.cancel()
                    self._forget_trigger(run)
                    await self._stop_trigger(trigger)
        if not self._is_ending:
            raise TriggerError(self.declared.module, "it ended without being stopped")

    async def _store_events(self, stream: AsyncIterator[TriggerEvent], group: asyncio.TaskGroup, run: object) -> None:
        """Store each event before the next is asked for, until the stream ends or the background session stops.

        A generator gets `StoreUnavailable` at its `yield` for an event that was not stored: it may go on without it.
        """
        with suppress(StopAsyncIteration):
            event = await anext(stream)
            while True:
                self._require_current(run)
                check_event(self.declared.module, event, stream)
                self._is_accepting = True  # a plugin may take its time to let it through
                try:
                    if not await self._take_place(event, group):
                        return
                    await accept(self.engine, self.background, self.name, event, self._leadership, local=self._is_local)
                    self._is_accepting = False
                except TypeError:
                    require_json(event, stream)
                    raise
                except (StoreUnavailable, QueueFull) as error:
                    if not hasattr(stream, "athrow"):
                        raise
                    if not self._is_waiting_for_store and not isinstance(error, QueueFull):
                        group.create_task(call_guarded(self._wait_for_store, str(error)))
                    self._is_accepting = False
                    event = await stream.athrow(error)  # this takes until the next event
                else:
                    if self._is_ending:
                        return
                    event = await anext(stream)

    async def _take_place(self, event: TriggerEvent, group: asyncio.TaskGroup) -> bool:
        """Wait until one more event may wait; return False if the end came first.

        Raises `QueueFull` for a trigger whose callers wait for an answer.
        """
        background, full = self.background, QueueFull(self.background.queue, self.background.config.max_waiting)
        if await self._has_place():
            return True
        self.engine.report_problem(background, FULL, "degraded", full.problem)
        self.engine.lookout.full[background.session_id] = background
        if getattr(self._trigger, "answers_callers", False):
            self.engine.refuse(background, event, full.problem, self.name)
            if not self._is_held:
                self._is_held = True
                group.create_task(call_guarded(self._wait_for_room))
            raise full
        await self._wait_for_room()
        return not self._is_ending

    async def _has_place(self) -> bool:
        return await self.background.room.take(self.engine.store, self.background.project, self.background.queue)

    async def _wait_for_room(self) -> None:
        """Return when there is a place for an event, and take it."""
        self._is_held = True
        try:
            while not self._is_ending:
                await self.engine.clock.sleep(FULL_PAUSE)
                with suppress(StoreUnavailable):
                    if await self._has_place():
                        return
        finally:
            self._is_held = False

    async def _follow_leadership(self) -> None:
        """Raise `LeadershipLost` when another host is to run this trigger."""
        if (leadership := self._leadership) is not None:
            await leadership.wait_until_lost()
            raise LeadershipLost

    async def stand_by(self) -> None:
        """Let the trigger say that its background session is stopped, if it has a `stand_by`, until `stop`."""
        with suppress(Exception):  # it cancels itself: the others stand by all the same
            await run_apart(self._stand_by(), f"stand_by of trigger {self.name}", CLEANUP)

    async def _stand_by(self) -> None:
        try:
            trigger = await self._make_trigger()
            if hasattr(trigger, "stand_by"):
                self._trigger = trigger
                await call_method(trigger, "stand_by")
        except BaseException as raised:
            text = redact_text(describe_raised(own_failure(raised)))
            logger.warning("trigger %s cannot say that it is stopped: %s", self.name, text)

    @property
    def _is_ending(self) -> bool:
        return self.stopping or self.background.stopping

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is awaited of the trigger: it is stopped or caught up, or has a problem."""
        return self._is_ending or self.name in self.background.problems or self._is_caught_up

    @property
    def _is_caught_up(self) -> bool:
        """Whether it has yielded everything so far: it is ready, and its `caught_up()`, if any, is true."""
        if self._leadership is not None and self._leadership.lease is None:
            return True
        caught_up = getattr(self._trigger, "caught_up", None)
        return self._is_ready and not (self._is_held or self._is_accepting) and (caught_up is None or bool(caught_up()))

    @property
    def knows_when_caught_up(self) -> bool:
        """Whether the trigger has a `caught_up()`."""
        return hasattr(self._trigger, "caught_up")

    @property
    def fires_by_clock(self) -> bool:
        """Whether time alone brings events of this trigger, without end."""
        return bool(getattr(self._trigger, "fires_by_clock", False))

    async def stop(self) -> None:
        """Stop the trigger; cancel it if it goes on. `run` gives up one that still does."""
        self.stopping, trigger = True, self._trigger
        if trigger is not None:
            await self._stop_trigger(trigger)
        if self.task is not None:
            if trigger is not None:
                await asyncio.wait({self.task}, timeout=ENDING)
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=ENDING)

    async def _stop_trigger(self, trigger: TriggerSource) -> None:
        """Stop a trigger; while its `stop` runs, and after it has failed, another call does nothing."""
        if trigger is not self._stopping:
            self._stopping = trigger
            if await stop_trigger(trigger, self.name):
                self._stopping = None

    async def _announce(self, trigger: TriggerSource, run: object) -> None:
        await (call_method(trigger, "ready") if hasattr(trigger, "ready") else asyncio.sleep(0))
        self._require_current(run)
        self._is_ready = self._has_worked = True
        self.engine.clear_problem(self.background, self.name)
        facts = {"module": self.declared.module, "url": url_of(trigger)}
        self.engine.notify("armed", self.background, trigger=self.name, **facts)
        self.armed.set()

    async def _pause_after(self, cause: Exception, failures: int) -> bool:
        """Report a failure; return whether to try again, after a random pause of up to a minute."""
        config, text = self.background.config, redact_text(describe_raised(cause))
        is_mistake = isinstance(cause, (TriggerConfigError, UnknownName)) and not self._has_worked
        restarts = config.restart_on_failure and config.max_restarts > 0 and not is_mistake
        pause = self.engine.backoff(failures, base=0.5, cap=LONGEST_PAUSE) if restarts else 0.0
        next_try = self.engine.clock.now() + timedelta(seconds=pause) if restarts else None
        reason = text if restarts else f"{place_of(self.background, self.name)}{text}"
        status: BackgroundStatus = "degraded" if restarts else "failed"
        self.engine.report_problem(self.background, self.name, status, reason, next_try)
        module = self.declared.module
        short = text.removeprefix(f"{module}: ")
        facts = {"trigger": self.name, "module": module, "error": short, "restarts": restarts, "next_try": next_try}
        self.engine.notify("trigger_failed", self.background, **facts)
        again = f"; tried again in {pause:.1f} s" if restarts else ""
        logger.warning("trigger %s failed%s: %s", self.name, again, text)
        error = {"trigger": self.name, "module": module, "error": text, "error_type": type(cause).__name__}
        await emit_trigger_error(self.engine, self.background, error, next_try)
        if next_try is not None:
            self.background.restart_count += 1
            await sleep_until(self.engine.clock, next_try)
        return restarts

    async def _wait_for_store(self, problem: str) -> None:
        """Return when the store can be written again."""
        self._is_waiting_for_store = True
        try:
            while not self._is_ending:
                self.engine.report_problem(self.background, self.name, "degraded", problem)
                self.engine.notify("store_failed", self.background, error=problem)
                await self.engine.clock.sleep(STORE_PAUSE)
                try:
                    await self._save(self._run, await self._read_state())
                except StoreUnavailable as error:
                    problem = str(error)
                else:
                    self.engine.clear_problem(self.background, self.name)
                    return
        finally:
            self._is_waiting_for_store = False
