"""Break each rule of an inbox about waiting, administration, documents, receiving and views, and see its check fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.storage import Admission, Delivery, Purged
from amplifier_core.store_views import MessageMatches
from amplifier_core.testing import MemoryStore
from amplifier_core.testing.store_checks import (
    DOCUMENT_CHECKS,
    INBOX_CHECKS,
    MESSAGE_CHECKS,
    QUEUE_CHECKS,
    RECEIVING_CHECKS,
    SEARCH_CHECKS,
    VIEW_CHECKS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.documents import Document, DocumentChange, DocumentMatch
    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import DeliveryCounts, SessionRecord
    from amplifier_core.store_views import DeliveryRate

CHECKS = {
    int(check.__name__.split("_")[1]): check  # type: ignore[attr-defined]
    for checks in (INBOX_CHECKS, DOCUMENT_CHECKS, SEARCH_CHECKS, RECEIVING_CHECKS, VIEW_CHECKS, MESSAGE_CHECKS)
    for check in (*checks, *QUEUE_CHECKS)
}


class Admits(MemoryStore):
    """Takes another admission than the one that it was given."""

    def admission(self, given: Admission) -> Admission:
        return given

    async def enqueue(self, *event: Any, admission: Admission | None = None, **more: Any) -> Delivery | None:
        return await super().enqueue(*event, admission=None if admission is None else self.admission(admission), **more)


class KnowsNoKeys(Admits):
    def admission(self, given: Admission) -> Admission:
        return replace(given, key=None)


class KeepsOneKey(Admits):
    def admission(self, given: Admission) -> Admission:
        return replace(given, key="key")


class SkipsNothing(Admits):
    def admission(self, given: Admission) -> Admission:
        return replace(given, overlap="queue" if given.overlap == "skip" else given.overlap)


class SkipsWhatWouldReplace(Admits):
    def admission(self, given: Admission) -> Admission:
        return replace(given, overlap="skip" if given.overlap == "replace" else given.overlap)


class QueuesWhatWouldReplace(Admits):
    def admission(self, given: Admission) -> Admission:
        return replace(given, overlap="queue" if given.overlap == "replace" else given.overlap)


class KnowsNoPriority(Admits):
    def admission(self, given: Admission) -> Admission:
        return replace(given, priority=0)


class LowestFirst(MemoryStore):
    async def claim(self, *queue: Any, **who: Any) -> Delivery | None:
        self._turn_over()
        claimed = await super().claim(*queue, **who)
        self._turn_over()
        return claimed and self._deliveries[claimed.delivery_id].delivery

    def _turn_over(self) -> None:
        for kept in self._deliveries.values():
            kept.delivery = replace(kept.delivery, priority=-kept.delivery.priority)


class NeverSettles(Admits):
    def admission(self, given: Admission) -> Admission:
        return replace(given, settle_key=None)


class SettlesAllTogether(Admits):
    def admission(self, given: Admission) -> Admission:
        return replace(given, settle_key=given.settle_key and "one")


class SettlesWithoutEnd(Admits):
    def admission(self, given: Admission) -> Admission:
        return replace(given, settle_within=None)


class HoldsNothingBackForARetry(MemoryStore):
    async def nack(self, delivery: Delivery, **given: Any) -> None:
        await super().nack(delivery, **given)
        kept = self._deliveries.pop(delivery.delivery_id)
        self._deliveries[delivery.delivery_id] = kept


class SettlesWhatIsDue(MemoryStore):
    def _settling(self, delivery: Delivery, admission: Admission) -> list[Any]:
        early = replace(delivery, created=delivery.created - timedelta(days=1))
        return super()._settling(early, admission)


class SettlesWhatWasTried(MemoryStore):
    async def nack(self, delivery: Delivery, **given: Any) -> None:
        await super().nack(delivery, **given)
        self._deliveries[delivery.delivery_id].settle_key = "file"


class ForgetsWhatIsKnown(MemoryStore):
    async def enqueue(self, project: str, queue: str, *event: Any, **more: Any) -> Delivery | None:
        known = set(self._dedupe_keys)
        self._dedupe_keys.clear()
        enqueued = await super().enqueue(project, queue, *event, **more)
        if known and enqueued:
            del self._deliveries[enqueued.delivery_id]
            return None
        return enqueued


class AdmitsWhatIsRefused(MemoryStore):
    async def enqueue(self, *event: Any, refused: str | None = None, **more: Any) -> Delivery | None:
        enqueued = await super().enqueue(*event, **more)
        if refused and enqueued:
            kept = self._deliveries[enqueued.delivery_id]
            kept.delivery = replace(kept.delivery, state="refused", reason=refused)
            return kept.delivery
        return enqueued


class SettlesIntoWhatItSkips(MemoryStore):
    def _admit(self, delivery: Delivery, admission: Admission) -> Any:
        settled = self._settling(delivery, admission)
        kept = super()._admit(delivery, admission)
        for each in settled:
            each.delivery = replace(
                each.delivery, state="skipped", reason=f"settled into event {delivery.event.event_id}"
            )
        return kept


class SkipsForWhatItSettles(MemoryStore):
    def _admit(self, delivery: Delivery, admission: Admission) -> Any:
        without = replace(admission, settle_key=None) if admission.overlap == "skip" else admission
        return super()._admit(delivery, without)


class FindsNoCauses(MemoryStore):
    async def deliveries(self, *, cause: str | None = None, **wanted: Any) -> list[Delivery]:
        return await super().deliveries(**wanted)


class FindsNoEvents(MemoryStore):
    async def deliveries(self, *, event_id: str | None = None, **wanted: Any) -> list[Delivery]:
        return await super().deliveries(**wanted)


class FindsNoSessions(MemoryStore):
    async def deliveries(self, *, session_id: str | None = None, **wanted: Any) -> list[Delivery]:
        return await super().deliveries(**wanted)


class CountsWhatWaitsAlone(MemoryStore):
    async def delivery_counts(self, **wanted: Any) -> list[DeliveryCounts]:
        return [each for each in await super().delivery_counts(**wanted) if each.waiting_since]


class CountsEveryQueue(MemoryStore):
    async def delivery_counts(self, *, project: str | None = None, queue: str | None = None) -> list[DeliveryCounts]:
        return await super().delivery_counts(project=project)


class KeepsTheAttempts(MemoryStore):
    async def redeliver(self, delivery_id: str, **when: Any) -> Delivery:
        attempts = self._deliveries[delivery_id].delivery.attempts if delivery_id in self._deliveries else 0
        again = await super().redeliver(delivery_id, **when)
        self._deliveries[delivery_id].delivery = replace(again, attempts=attempts)
        return self._deliveries[delivery_id].delivery


class BeginsTheEpochsAnew(MemoryStore):
    async def redeliver(self, delivery_id: str, **when: Any) -> Delivery:
        again = await super().redeliver(delivery_id, **when)
        self._deliveries[delivery_id].delivery = replace(again, epoch=0)
        return self._deliveries[delivery_id].delivery


class DeliversAgainAtTheEnd(MemoryStore):
    async def redeliver(self, delivery_id: str, **when: Any) -> Delivery:
        again = await super().redeliver(delivery_id, **when)
        self._deliveries[delivery_id] = self._deliveries.pop(delivery_id)
        return again


class DropsToTheDead(MemoryStore):
    async def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        dropped = replace(await super().drop(delivery_id, reason=reason), state="dead")
        self._deliveries[delivery_id].delivery = dropped
        return dropped


class KeepsWhatIsSkipped(MemoryStore):
    async def purge(self, *, before: datetime, event_bytes: int = 0) -> Purged:
        skipped = [kept for kept in self._deliveries.values() if kept.delivery.state == "skipped"]
        purged = await super().purge(before=before, event_bytes=event_bytes)
        self._deliveries |= {kept.delivery.delivery_id: kept for kept in skipped}
        return replace(purged, deliveries=purged.deliveries - len(skipped))


class FindsNoEventsByTheirBeginning(MemoryStore):
    async def find_events(self, prefix: str) -> list[SessionEvent]:
        return [event for event in await super().find_events(prefix) if event.event_id == prefix]


class FindsNoDeliveriesBySession(MemoryStore):
    async def find_deliveries(self, prefix: str) -> list[Delivery]:
        found = await super().find_deliveries(prefix)
        return [each for each in found if not (each.session_id or "").startswith(prefix)]


class TellsWhatWaitsForAnother(MemoryStore):
    async def next_due(self, project: str, queue: str, *, now: datetime | None = None) -> datetime | None:
        pending = await self.deliveries(project=project, queue=queue, state="pending")
        return min((each.available_at for each in pending if now and each.available_at > now), default=None)


class NamesWhatWaits(MemoryStore):
    async def due_queues(self, project: str, *, now: datetime | None = None) -> set[str]:
        pending = await self.deliveries(project=project, state="pending")
        return {each.queue for each in pending}


class NamesNoLostClaims(MemoryStore):
    async def due_queues(self, project: str, *, now: datetime | None = None) -> set[str]:
        pending = await self.deliveries(project=project, state="pending")
        return {each.queue for each in pending if now is None or each.available_at <= now}


class ExpiresDeadLetters(MemoryStore):
    async def deliveries(self, **wanted: Any) -> list[Delivery]:
        return [] if wanted.get("state") == "dead" else await super().deliveries(**wanted)


class KeepsTheTextsOfDeletedSessions(MemoryStore):
    def _forget_texts(self, session_id: str) -> None:
        pass


class DeletesTheEventsOfDeletedSessions(MemoryStore):
    def _forget_texts(self, session_id: str) -> None:
        self._log = [each for each in self._log if each.source_session_id != session_id]


class ReplacesAStateByItsChanges(MemoryStore):
    def _save_state(self, *its: Any, merge: bool = False) -> None:
        super()._save_state(*its)


class KeepsKeysOfNone(MemoryStore):
    def _save_state(self, project: str, trigger: str, state: Any, *, merge: bool = False) -> None:
        kept = self._states.get((project, trigger), {}) if merge else {}
        super()._save_state(project, trigger, {**kept, **state})


class WaitsForTheClock(MemoryStore):
    async def claim(self, project: str, queue: str, *, now: Any = None, **claim: Any) -> Any:
        waiting = [each for each in await self.deliveries() if now is not None and each.available_at > now]
        return None if waiting else await super().claim(project, queue, now=now, **claim)


class IsDueUntilItCame(MemoryStore):
    def _is_due(self, kept: Any, project: str, queue: str, now: Any) -> bool:
        since = max(now, kept.delivery.available_at) if kept.delivery.created > now + timedelta(hours=1) else now
        return super()._is_due(kept, project, queue, since)


class Writes(MemoryStore):
    """Makes other changes than those that it was given."""

    def change(self, given: DocumentChange) -> DocumentChange:
        return given

    async def write_documents(self, changes: Any, **more: Any) -> list[SessionEvent]:
        return await super().write_documents([self.change(each) for each in changes], **more)


class KeepsOneProject(Writes):
    def change(self, given: DocumentChange) -> DocumentChange:
        return replace(given, project="/p")

    async def documents(self, project: str, *place: Any, **chosen: Any) -> list[Document]:
        return await super().documents("/p", *place, **chosen)


class LooksAtNoVersion(Writes):
    def change(self, given: DocumentChange) -> DocumentChange:
        known = self._documents.get((given.project, given.collection, given.key))
        return replace(given, version=known.version if known else 0)


class StopsHalfway(MemoryStore):
    async def write_documents(self, changes: Any, *, emits: Any = ()) -> list[SessionEvent]:
        for change in changes:
            await super().write_documents([change])
        return await super().write_documents([], emits=emits)


class CountsOnAfterADeletion(Writes):
    def change(self, given: DocumentChange) -> DocumentChange:
        return replace(given, data={}) if given.data is None else given


class LogsNothing(MemoryStore):
    async def write_documents(self, changes: Any, *, emits: Any = ()) -> list[SessionEvent]:
        return await super().write_documents(changes)


class SortsSurrogatesLast(MemoryStore):
    async def documents(self, *place: Any, limit: int | None = None, **chosen: Any) -> list[Document]:
        found = await super().documents(*place, **chosen)
        return sorted(found, key=lambda each: "\ud800" <= each.key[0] < "\ue000")[:limit]


class FindsNumbersAsTexts(MemoryStore):
    async def documents(self, *place: Any, where: Any = None, **chosen: Any) -> list[Document]:
        found = await super().documents(*place, **chosen)
        return [e for e in found if all(str(e.data.get(name)) in texts for name, texts in (where or {}).items())]


class TakesAnyKey(Writes):
    def change(self, given: DocumentChange) -> DocumentChange:
        return replace(given, key=given.key[:256] or "empty")


class WritesTextForWhatIsNoJson(Writes):
    def change(self, given: DocumentChange) -> DocumentChange:
        return replace(given, data={name: repr(value) for name, value in (given.data or {}).items()})


class CommitsNoDocuments(MemoryStore):
    async def commit(self, delivery: Delivery, *, documents: Any = (), **given: Any) -> list[SessionEvent]:
        return await super().commit(delivery, **given)


class CommitsBeforeItsDocuments(MemoryStore):
    async def commit(self, delivery: Delivery, *, documents: Any = (), **given: Any) -> list[SessionEvent]:
        logged = await super().commit(delivery, **given)
        await self.write_documents(documents)
        return logged


class HandsOutItsOwn(MemoryStore):
    async def document(self, project: str, collection: str, key: str) -> Document | None:
        return self._documents.get((project, collection, key))


class ComparesBytes(MemoryStore):
    async def search_documents(self, project: str, collection: str, query: str, **chosen: Any) -> list[DocumentMatch]:
        found = await super().search_documents(project, collection, query, **chosen)
        return [each for each in found if query in str(each.document.data)]


class ReadsALanguageOfQueries(MemoryStore):
    async def search_documents(self, project: str, collection: str, query: str, **chosen: Any) -> list[DocumentMatch]:
        return await super().search_documents(project, collection, query.partition('"')[0], **chosen)


class FindsInTheOrderOfKeys(MemoryStore):
    async def search_documents(self, *place: Any, limit: int = 10) -> list[DocumentMatch]:
        found = await super().search_documents(*place, limit=limit)
        return sorted(found, key=lambda each: each.document.key)


class FindsWhatIsGone(MemoryStore):
    async def write_documents(self, changes: Any, **more: Any) -> list[SessionEvent]:
        before = self._searched
        logged = await super().write_documents(changes, **more)
        self._searched = {place: before.get(place, self._searched.get(place, ())) for place in self._documents}
        return logged


class CommitsWhatNobodyFinds(MemoryStore):
    async def commit(self, delivery: Delivery, *, documents: Any = (), **given: Any) -> list[SessionEvent]:
        return await super().commit(delivery, documents=[replace(each, searched=()) for each in documents], **given)


class ShowsNoLine(MemoryStore):
    async def search_documents(self, *place: Any, **chosen: Any) -> list[DocumentMatch]:
        return [replace(each, snippet="") for each in await super().search_documents(*place, **chosen)]


class ReceivesUnderItsOwnId(MemoryStore):
    async def receive(self, event: SessionEvent, origin: str) -> SessionEvent | None:
        return await super().receive(replace(event, event_id="own"), origin)


class ReceivesTwice(MemoryStore):
    async def receive(self, event: SessionEvent, origin: str) -> SessionEvent | None:
        return await self.emit(event)


class KnowsOneOrigin(MemoryStore):
    async def receive(self, event: SessionEvent, origin: str) -> SessionEvent | None:
        return await super().receive(event, "any")


class ForgetsWhoCame(MemoryStore):
    async def purge(self, *, before: datetime, event_bytes: int = 0) -> Purged:
        self._received.clear()
        return await super().purge(before=before, event_bytes=event_bytes)


class ShowsTheOldestFirst(MemoryStore):
    async def delivery_page(self, **chosen: Any) -> list[Delivery]:
        return (await super().delivery_page(**chosen))[::-1]


class ShowsOnePage(MemoryStore):
    async def session_page(self, *, before: str | None = None, **chosen: Any) -> list[SessionRecord]:
        return [] if before else (await super().session_page(**chosen))


class CountsAllProjects(MemoryStore):
    async def delivery_rates(self, *, project: str | None = None, **chosen: Any) -> list[DeliveryRate]:
        return await super().delivery_rates(**chosen)


class TellsNobody(MemoryStore):
    def _tell(self) -> None:
        pass


class SearchesAllProjects(MemoryStore):
    async def search_messages(self, query: str, *, project: str | None = None, limit: int = 20) -> MessageMatches:
        return await super().search_messages(query, limit=limit)


class FindsTheWorstFirst(MemoryStore):
    async def search_messages(self, query: str, **chosen: Any) -> MessageMatches:
        found = await super().search_messages(query, **chosen)
        return MessageMatches(found.matches[::-1])


class FindsNothingOfForks(MemoryStore):
    async def search_messages(self, query: str, **chosen: Any) -> MessageMatches:
        found = await super().search_messages(query, **chosen)
        forks = {each.session_id for each in await self.sessions() if each.fork_of}
        return MessageMatches([each for each in found.matches if each.session_id not in forks])


class QuotesSecrets(MemoryStore):
    async def search_messages(self, query: str, **chosen: Any) -> MessageMatches:
        found = await super().search_messages(query, **chosen)
        texts = [str((await self.read(each.session_id))[each.position]["content"]) for each in found.matches]
        return MessageMatches([replace(each, snippet=text) for each, text in zip(found.matches, texts, strict=True)])


class IndexesTooMuch(MemoryStore):
    steps = 1

    async def index_messages(self, limit: int = 1000) -> int:
        self.steps, count = 0, self.steps
        return count * (limit + 1)


BROKEN: list[tuple[int, Callable[[], MemoryStore], str]] = [
    (35, KnowsNoKeys, "a delivery must say its key"),
    (35, KeepsOneKey, "claim must return the delivery that is due"),
    (36, HoldsNothingBackForARetry, "an earlier one of the key waits for its retry"),
    (37, SkipsNothing, "enqueue must return what it skips"),
    (37, KeepsOneKey, "only one of the same key is in the way"),
    (38, QueuesWhatWouldReplace, "what is replaced must be skipped"),
    (38, SkipsWhatWouldReplace, "what replaces others must be pending"),
    (39, KnowsNoPriority, "a delivery must say its priority"),
    (39, LowestFirst, "priorities 0, -1, 5, 0, 5 were claimed as"),
    (40, NeverSettles, "must be due `settle` seconds after it came"),
    (40, SettlesAllTogether, "what comes before the first is due must take its place"),
    (41, SettlesWithoutEnd, "must be due at 15, not 16"),
    (41, SettlesWhatIsDue, "what was due must not be settled into a later one"),
    (41, SettlesWhatWasTried, "what was claimed before must not be settled"),
    (42, ForgetsWhatIsKnown, "an event that is known must change nothing"),
    (43, AdmitsWhatIsRefused, "a refused event must not replace or settle another"),
    (44, SettlesIntoWhatItSkips, "what is skipped must not take the place of another"),
    (44, SkipsForWhatItSettles, "must not be skipped for that one"),
    (45, FindsNoEvents, "deliveries by {'event_id': 'e1'}"),
    (45, FindsNoCauses, "deliveries by {'cause': 'c1'}"),
    (45, FindsNoSessions, "deliveries by {'session_id': 's1'}"),
    (46, CountsWhatWaitsAlone, "delivery_counts must be"),
    (46, CountsEveryQueue, "delivery_counts of one queue"),
    (47, KeepsTheAttempts, "what is delivered again must be as new"),
    (47, BeginsTheEpochsAnew, "commit of a claim from before the delivery was dead must raise StaleEpoch"),
    (48, DeliversAgainAtTheEnd, "the earliest must be due"),
    (49, DropsToTheDead, "what is dropped must be skipped"),
    (50, KeepsWhatIsSkipped, "purge must forget what was skipped"),
    (51, FindsNoEventsByTheirBeginning, "events whose id begins with 'abc'"),
    (52, FindsNoDeliveriesBySession, "by the session"),
    (53, TellsWhatWaitsForAnother, "the later one of a key waits for the first"),
    (54, ExpiresDeadLetters, "what an event woke and no delivery needs expires"),
    (61, ReplacesAStateByItsChanges, "enqueue must change the keys of state_changes alone"),
    (61, KeepsKeysOfNone, "merge must delete the keys of None"),
    (62, WaitsForTheClock, "a delivery that came after now must be due"),
    (63, KeepsOneProject, "documents must be those of one project"),
    (64, LooksAtNoVersion, "a change of version 0 of 'a' must raise DocumentConflict"),
    (65, StopsHalfway, "changes must be made all or none"),
    (66, CountsOnAfterADeletion, "document must return None for a deleted one"),
    (67, LogsNothing, "write_documents must return its events"),
    (68, SortsSurrogatesLast, "in the order of the code points"),
    (69, FindsNumbersAsTexts, "documents where"),
    (70, TakesAnyKey, "a key '' must raise ValueError"),
    (71, WritesTextForWhatIsNoJson, "must be refused"),
    (72, CommitsNoDocuments, "commit must change the documents"),
    (73, CommitsBeforeItsDocuments, "dead_letter"),
    (74, LooksAtNoVersion, "one of eight writers must win"),
    (75, HandsOutItsOwn, "a document must not change through one that was read"),
    (76, ComparesBytes, "a search for 'grosse' must find"),
    (77, ReadsALanguageOfQueries, "a search for '\"text'"),
    (78, FindsInTheOrderOfKeys, "a search for 'how is the rollback done?' must find"),
    (79, FindsWhatIsGone, "a search must not find what no change asks for"),
    (80, ShowsNoLine, "a snippet must be around the word"),
    (81, CommitsWhatNobodyFinds, "commit must change what is found"),
    (83, ReceivesUnderItsOwnId, "receive must keep the event as it came"),
    (84, ReceivesTwice, "the second must be None"),
    (84, KnowsOneOrigin, "another origin has ids of its own"),
    (85, ForgetsWhoCame, "purge must keep the id of an event that came today"),
    (121, ShowsTheOldestFirst, "the last arrived first"),
    (122, ShowsOnePage, "pages of 1"),
    (123, CountsAllProjects, "delivery_rates of a project"),
    (124, TellsNobody, "watch_commits must tell"),
    (131, SearchesAllProjects, "a search of a project"),
    (132, FindsTheWorstFirst, "the best match must come first"),
    (133, FindsNothingOfForks, "a message of a fork must be found"),
    (134, QuotesSecrets, "a snippet must have no secret"),
    (135, IndexesTooMuch, "no more than it is asked for"),
    (161, KeepsTheTextsOfDeletedSessions, "the texts of its events must be empty"),
    (161, DeletesTheEventsOfDeletedSessions, "the texts of its events must be empty"),
    (142, IsDueUntilItCame, "a delivery given back by a clock that was set back must keep its pause"),
    (142, WaitsForTheClock, "a delivery given back after now must be due"),
    (141, NamesWhatWaits, "what is postponed, done or claimed is no work"),
    (141, NamesNoLostClaims, "a claim whose lease is over must be named"),
]


@pytest.mark.parametrize(("number", "broken", "rule"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
async def test_a_store_that_breaks_a_rule_is_told_which(
    number: int, broken: Callable[[], MemoryStore], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_core.testing.store_checks.views.PATIENCE", 0.01)
    with pytest.raises(AssertionError) as told:
        await CHECKS[number](broken())
    assert rule in str(told.value)


def test_every_rule_of_waiting_administration_documents_receiving_and_views_is_broken_once() -> None:
    assert {number for number, *_ in BROKEN} == {number for number in CHECKS if number >= 35}
