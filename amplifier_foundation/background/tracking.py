"""Keep the work that events are about in step with their deliveries, by the tracker that the bundle names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from amplifier_core.documents import retry_conflicts
from amplifier_core.errors import AmplifierError, BundleValidationError

from ..sessions.documents import documents_of
from ..sessions.untrusted import UNTRUSTED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from amplifier_core.documents import DocumentEdit
    from amplifier_core.events import SessionEvent
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Delivery
    from amplifier_core.triggers import TriggerEvent

    from ..bundle.background_config import BackgroundSessionConfig
    from ..hookspecs import WorkTracker
    from ..sessions.documents import SessionDocuments
    from .state import Engine


class WorkNotWanted(AmplifierError):
    """The work of a delivery is not to be done; the text says why."""


class Tracking:
    """The tracker of one background session, with the documents of its project; without one it changes nothing."""

    def __init__(self, engine: Engine, project: str, tracker: WorkTracker | None) -> None:
        self._engine = engine
        self._project = project
        self._tracker = tracker

    @classmethod
    def of(cls, engine: Engine, project: str, config: BackgroundSessionConfig) -> Tracking:
        """Return the tracking of a background session. Raises `BundleError`, `UnknownName`, and `StorageUnsuitable`."""
        if config.tracker is None:
            return cls(engine, project, None)
        documents_of(engine.store, project)
        return cls(engine, project, make_tracker(engine.plugins, config))

    async def begin(self, delivery: Delivery) -> TriggerEvent:
        """Mark the work of a delivery as begun; return its event with the work as it is. Raises `WorkNotWanted`."""
        if self._tracker is None:
            return delivery.event
        documents = self._documents(delivery)
        if (reason := await self._tracker.begin(documents, delivery)) is not None:
            raise WorkNotWanted(reason)
        refresh = getattr(self._tracker, "refresh", None)
        return delivery.event if refresh is None else replace(delivery.event, data=await refresh(documents, delivery))

    async def find_withdrawal(self, delivery: Delivery) -> str | None:
        """Return why the finished work of a delivery is not wanted any more; None if it is."""
        find = getattr(self._tracker, "find_withdrawal", None)
        reason: str | None = await find(self._documents(delivery), delivery) if find is not None else None
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
        return await _write(documents, partial(self._tracker.finish, documents, delivery, outcome), commit, emits)

    async def give_up(
        self, delivery: Delivery, reason: str, emits: Sequence[SessionEvent], session: Mapping[str, Any] | None
    ) -> list[SessionEvent]:
        """Set a delivery aside, and give its work up with it; see `Inbox.dead_letter`."""
        dead_letter = partial(self._engine.store.dead_letter, delivery, reason=reason, session=session)
        if self._tracker is None:
            return await dead_letter(emits=emits)
        documents = self._documents(delivery)
        return await _write(documents, partial(self._tracker.give_up, documents, delivery, reason), dead_letter, emits)

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
        return await self._tracker.recover(documents, queue, live)

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


async def _write(
    documents: SessionDocuments,
    make: Callable[[], Awaitable[DocumentEdit]],
    end: Callable[..., Awaitable[list[SessionEvent]]],
    emits: Sequence[SessionEvent],
) -> list[SessionEvent]:
    """Make an edit, and write it with the end of the delivery. Raises as `retry_conflicts` does."""

    async def attempt() -> list[SessionEvent]:
        edit = await make()
        changes, told = documents.prepare(edit.changes, edit.events)
        return await end(emits=[*emits, *told], documents=changes)

    return await retry_conflicts(attempt)
