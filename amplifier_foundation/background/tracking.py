"""Keep the work that events are about in step with their deliveries, by the tracker that the bundle names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from amplifier_core.cancellation import own_failure
from amplifier_core.documents import DocumentEdit, retry_conflicts
from amplifier_core.errors import (
    AmplifierError,
    BundleValidationError,
    DocumentConflict,
    PluginError,
    RefusalError,
    SessionNotFound,
    StaleEpoch,
    StoreError,
)
from amplifier_core.raised import blame, describe_at, find_origin, find_place
from amplifier_core.utils.secrets import redact_text

from ..sessions.documents import documents_of
from ..sessions.untrusted import UNTRUSTED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from amplifier_core.events import SessionEvent
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Delivery
    from amplifier_core.triggers import TriggerEvent

    from ..bundle.background_config import BackgroundSessionConfig
    from ..hookspecs import WorkTracker
    from ..sessions.documents import SessionDocuments
    from .state import Engine

logger = logging.getLogger(__name__)

_ANSWERS: dict[str, tuple[Any, str]] = {
    "begin": (str | None, "text or None"),
    "refresh": (Mapping, "a mapping"),
    "find_withdrawal": (str | None, "text or None"),
    "finish": (DocumentEdit, "a DocumentEdit"),
    "give_up": (DocumentEdit, "a DocumentEdit"),
    "recover": (Sequence, "a list of texts"),
}


class WorkNotWanted(AmplifierError):
    """The work of a delivery is not to be done; the text says why."""


class TrackerError(PluginError):
    """The tracker of a background session is at fault."""


class Tracking:
    """The tracker of one background session, with the documents of its project; without one it changes nothing."""

    def __init__(self, engine: Engine, project: str, tracker: WorkTracker | None, name: str = "") -> None:
        self._engine = engine
        self._project = project
        self._tracker = tracker
        self._name = name

    @classmethod
    def of(cls, engine: Engine, project: str, config: BackgroundSessionConfig) -> Tracking:
        """Return the tracking of a background session. Raises `BundleError`, `UnknownName`, and `StorageUnsuitable`."""
        if config.tracker is None:
            return cls(engine, project, None)
        documents_of(engine.store, project)
        return cls(engine, project, make_tracker(engine.plugins, config), config.tracker.name)

    async def begin(self, delivery: Delivery) -> TriggerEvent:
        """Mark the work of a delivery as begun; return its event with the work as it is. Raises `WorkNotWanted`."""
        if self._tracker is None:
            return delivery.event
        documents = self._documents(delivery)
        if (reason := await self._ask("begin", documents, delivery)) is not None:
            raise WorkNotWanted(reason)
        if not hasattr(self._tracker, "refresh"):
            return delivery.event
        return replace(delivery.event, data=await self._ask("refresh", documents, delivery))

    async def find_withdrawal(self, delivery: Delivery) -> str | None:
        """Return why the finished work of a delivery is not wanted any more; None if it is."""
        if not hasattr(self._tracker, "find_withdrawal"):
            return None
        reason: str | None = await self._ask("find_withdrawal", self._documents(delivery), delivery)
        return reason

    async def commit(
        self, delivery: Delivery, emits: Sequence[SessionEvent], session: Mapping[str, Any]
    ) -> list[SessionEvent]:
        """Mark a delivery as done, and its work with it; see `Inbox.commit`.

        The first event is `session:completed`: its data is the outcome for the tracker, with `untrusted`, the reason
        why the text of the session is not trusted.
        """
        commit = partial(self._engine.store.commit, delivery, session=session)
        if self._tracker is None:
            return await commit(emits=emits)
        documents = self._documents(delivery)
        outcome = {**emits[0].data, UNTRUSTED: (session.get("metadata") or {}).get(UNTRUSTED)}
        return await self._write("finish", documents, (delivery, outcome), commit, emits)

    async def give_up(
        self, delivery: Delivery, reason: str, emits: Sequence[SessionEvent], session: Mapping[str, Any] | None
    ) -> list[SessionEvent]:
        """Set a delivery aside, and give its work up with it; see `Inbox.dead_letter`.

        A tracker that cannot give it up is told in the log, and keeps no delivery.
        """
        dead_letter = partial(self._engine.store.dead_letter, delivery, reason=reason, session=session)
        if self._tracker is None:
            return await dead_letter(emits=emits)
        documents = self._documents(delivery)
        try:
            return await self._write("give_up", documents, (delivery, reason), dead_letter, emits)
        except TrackerError as error:
            logger.error("the work of event %s is not given up: %s", delivery.event.event_id, error)
            return await dead_letter(emits=emits)

    async def recover(self, queue: str) -> Sequence[str]:
        """Free the work of the queue that no unfinished delivery goes on with; return what was freed."""
        if self._tracker is None:
            return ()
        store = self._engine.store
        found = [
            each
            for state in ("pending", "claimed")
            for each in await store.deliveries(project=self._project, queue=queue, state=state, limit=1_000_000)
        ]
        live = {each.session_id for each in found if each.session_id is not None}
        documents = documents_of(store, self._project, publish=self._engine.router.publish)
        freed: Sequence[str] = await self._ask("recover", documents, queue, live)
        return freed

    async def _ask(self, verb: str, *given: Any) -> Any:
        """Return what a method of the tracker answers. Raises `TrackerError` as `_blaming`, also for another answer."""
        method, (kind, wanted) = getattr(self._tracker, verb), _ANSWERS[verb]
        with self._blaming(verb):
            answer = await method(*given)
            if not isinstance(answer, kind):
                raise blame(TypeError(f"it must return {wanted}, not {type(answer).__name__}"), method)
        return answer

    @contextmanager
    def _blaming(self, verb: str) -> Iterator[None]:
        """Raise `TrackerError` in place of any error in the block, but for a refusal, and for errors of the store."""
        try:
            yield
        except (RefusalError, StoreError, StaleEpoch, DocumentConflict, SessionNotFound):
            raise
        except (Exception, SystemExit, asyncio.CancelledError) as raised:
            error = own_failure(raised)
            place = find_origin(error)[1] or find_place(error, self._tracker)
            told = str(error) if isinstance(error, AmplifierError) else describe_at(error, place)
            raise TrackerError(f"tracker '{self._name}', {verb}: {redact_text(told)}") from error

    async def _write(
        self,
        verb: str,
        documents: SessionDocuments,
        given: tuple[Any, ...],
        end: Callable[..., Awaitable[list[SessionEvent]]],
        emits: Sequence[SessionEvent],
    ) -> list[SessionEvent]:
        """Make an edit, and write it with the end of the delivery. Raises `TrackerError`, also after many conflicts."""

        async def attempt() -> list[SessionEvent]:
            edit = await self._ask(verb, documents, *given)
            with self._blaming(verb):
                changes, told = documents.prepare(edit.changes, edit.events)
            return await end(emits=[*emits, *told], documents=changes)

        try:
            return await retry_conflicts(attempt)
        except DocumentConflict as error:
            raise TrackerError(f"tracker '{self._name}', {verb}: {error}") from error

    def _documents(self, delivery: Delivery) -> SessionDocuments:
        """Return the documents for a delivery's session: its events continue the chain of the delivery's event."""
        cause = delivery.event
        return documents_of(
            self._engine.store,
            self._project,
            session_id=delivery.session_id,
            cause=cause.event_id,
            depth=cause.depth,
            publish=self._engine.router.publish,
        )


def make_tracker(plugins: Plugins, config: BackgroundSessionConfig) -> WorkTracker:
    """Return the tracker that a background session names. Raises `UnknownName`, `BundleValidationError`."""
    assert config.tracker is not None
    name = config.tracker.name
    try:
        tracker: WorkTracker = plugins.registry_of("tracker").get(name)(config.tracker.config)
    except ValueError as error:
        raise BundleValidationError(f"background session '{config.name}': tracker '{name}': {error}") from error
    return tracker
