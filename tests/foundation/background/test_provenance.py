"""Why something happened, from a real store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from amplifier_core import SessionConflict, SessionEvent, SessionRecord, TriggerEvent, TriggerType
from amplifier_core.errors import InvalidSessionId
from amplifier_core.storage import Delivery, DurableStore
from amplifier_foundation.background.provenance import BELOW, MOST, Link, NothingStored, explain, listeners, walk

PROJECT = "/project"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def delivered(store: DurableStore, queue: str, event: TriggerEvent, session: str) -> Delivery:
    """Have a background session take an event, in a session that runs now."""
    await store.enqueue(PROJECT, queue, f"{queue}/t#1", event, now=NOW)
    claimed = await store.claim(PROJECT, queue, owner="o", lease=60.0, session_id=session, now=NOW)
    assert claimed is not None
    await store.create(SessionRecord(session, parent_id="root", project=PROJECT, event_id=event.event_id, created=NOW))
    return claimed


async def handled(
    store: DurableStore, queue: str, event: TriggerEvent, session: str, emits: Sequence[str] = ()
) -> list[SessionEvent]:
    """Have a background session handle an event, and emit others."""
    claimed = await delivered(store, queue, event, session)
    events = [SessionEvent(name, {}, session, NOW, cause=event.event_id, event_id=f"{name}-id") for name in emits]
    return await store.commit(claimed, emits=events)


def heard(event: SessionEvent, **fields: str) -> TriggerEvent:
    """Return what a trigger makes of an event of a session."""
    of = {"event_name": event.name, "source_session_id": event.source_session_id, "cause": event.event_id}
    return TriggerEvent(TriggerType.SESSION_EVENT, "trigger-session-event", **{**of, **fields})  # type: ignore[arg-type]


def drawn(first: Link) -> list[str]:
    """Return the links by their ids, each indented below what led to it; `*` is what was asked for."""
    depths: dict[Link | None, int] = {None: -1}
    lines = []
    for above, link in walk(first):
        depths[link] = depths[above] + 1
        lines.append(f"{'  ' * depths[link]}{'*' * link.asked}{link.key}")
    return lines


@pytest.fixture
async def chain(store: DurableStore) -> DurableStore:
    """A file wakes `one`, whose event wakes `two` and is refused by `never`; `two` makes `helper`."""
    await store.create(SessionRecord("root", project=PROJECT))
    file = TriggerEvent(TriggerType.FILE_CHANGE, "t", file_path="a.py", event_id="file-id")
    [done] = await handled(store, "b/first", file, "one", ["done"])
    await store.enqueue(
        PROJECT, "b/never", "b/never/t#1", heard(done, event_id="passed-1"), refused="its 'if'", now=NOW
    )
    await handled(store, "b/second", heard(done, event_id="passed-2"), "two", ["more"])
    await store.create(SessionRecord("helper", parent_id="two", project=PROJECT, created=NOW + timedelta(seconds=1)))
    return store


async def test_a_session_is_explained_from_the_first_event_down_to_what_it_caused(chain: DurableStore) -> None:
    assert drawn(await explain(chain, "two")) == [
        "file-id", "  one", "    done-id", "      *two", "        more-id", "        helper",
    ]  # fmt: skip


async def test_an_event_is_explained_by_what_every_background_session_made_of_it(chain: DurableStore) -> None:
    first = await explain(chain, "done-id")
    links = {link.key: link for _, link in walk(first)}
    refused = next(link for link in links.values() if link.delivery and link.delivery.state == "refused")
    assert drawn(first) == [
        "file-id", "  one", "    *done-id", f"      {refused.key}", "      two", "        more-id", "        helper",
    ]  # fmt: skip
    assert refused.delivery is not None
    assert (refused.delivery.queue, refused.delivery.reason, refused.session_id) == ("b/never", "its 'if'", None)


async def test_a_session_that_another_made_comes_from_what_woke_that(chain: DurableStore) -> None:
    assert drawn(await explain(chain, "help")) == ["file-id", "  one", "    done-id", "      two", "        *helper"]


async def test_whatever_has_the_id_names_the_event(chain: DurableStore) -> None:
    [refused] = await chain.deliveries(state="refused")
    asked = [await explain(chain, text) for text in ("done", "passed-1", "passed-2", refused.delivery_id[:8])]
    assert all("    *done-id" in drawn(first) for first in asked)
    assert "*file-id" in drawn(await explain(chain, "file"))


async def test_what_is_not_stored_and_what_is_not_unique_is_said(chain: DurableStore) -> None:
    for text in ("nothing", "two-", "tw"):
        with pytest.raises(NothingStored, match=text):
            await explain(chain, text)
    with pytest.raises(SessionConflict, match="stands for several ids: done-id, done-too. Give the whole"):
        await chain.emit(SessionEvent("x", {}, event_id="done-too"))
        await explain(chain, "done-")
    refused, *others = [each.delivery_id for each in await chain.deliveries()]
    ids = sorted([refused, *(each for each in others if each.startswith(refused[:4]))])
    with pytest.raises(SessionConflict, match=f"stands for several ids: {', '.join(ids[:5])}. Give the whole id"):
        await explain(chain, refused[:4])
    with pytest.raises(InvalidSessionId):
        await explain(chain, "../x")


async def test_the_tag_in_a_line_of_up_names_its_session_where_it_is_unique(chain: DurableStore) -> None:
    event = TriggerEvent(TriggerType.MANUAL, "trigger-manual", event_id="by-hand")
    await delivered(chain, "b/first", event, "first-3f56aa00bb11")
    assert drawn(await explain(chain, "3f56")) == ["by-hand", "  *first-3f56aa00bb11"]
    postponed = TriggerEvent(TriggerType.MANUAL, "trigger-manual", event_id="without-a-session")
    await chain.enqueue(PROJECT, "b/second", "b/second/t#1", postponed, now=NOW)
    await chain.claim(PROJECT, "b/second", owner="o", lease=60.0, session_id="second-77c1aa00bb11", now=NOW)
    assert drawn(await explain(chain, "77c1")) == ["without-a-session", "  *second-77c1aa00bb11"]
    await chain.create(SessionRecord("other-3f56cc00dd11", project=PROJECT))
    with pytest.raises(SessionConflict, match="several ids: first-3f56aa00bb11, other-3f56cc00dd11"):
        await explain(chain, "3f56")
    with pytest.raises(NothingStored):
        await explain(chain, "aa00")


async def test_the_chain_is_told_where_sessions_and_the_log_are_gone(chain: DurableStore) -> None:
    await chain.delete("one")
    assert drawn(await explain(chain, "two"))[:4] == ["file-id", "  one", "    done-id", "      *two"]
    await chain.purge(before=datetime.now(UTC) + timedelta(days=1))
    assert drawn(await explain(chain, "two")) == ["*two", "  helper"]


async def test_a_circle_of_causes_ends(store: DurableStore) -> None:
    event = SessionEvent("again", {}, "one", event_id="again-id")
    await store.emit(event)
    await handled(store, "b/first", heard(event, event_id="passed"), "one")
    assert drawn(await explain(store, "one")) == ["again-id", "  *one"]
    assert drawn(await explain(store, "again-id")) == ["one", "  *again-id"]


async def test_a_refused_event_of_an_emitter_outside_is_the_first(store: DurableStore) -> None:
    await store.emit(SessionEvent("lonely", {}, event_id="lonely-id"))
    assert drawn(await explain(store, "lonely-id")) == ["*lonely-id"]


async def test_those_that_listen_are_those_that_events_have_woken(chain: DurableStore) -> None:
    assert await listeners(chain, PROJECT) == {"b/never": ["done"], "b/second": ["done"]}
    assert await listeners(chain, "/elsewhere") == {}


async def test_of_many_forks_the_last_ones_are_told_and_that_there_are_more(store: DurableStore) -> None:
    await store.create(SessionRecord("source", project=PROJECT))
    for number in range(BELOW + 20):
        moment = NOW + timedelta(seconds=number)
        about = {"parent_id": "source", "fork_of": "source", "created": moment, "updated": moment}
        await store.create(SessionRecord(f"fork-{number}", project=PROJECT, **about))  # type: ignore[arg-type]  # of several types
    source = await explain(store, "source")
    assert source.open
    assert [link.key for link in source.caused] == [f"fork-{number}" for number in range(20, BELOW + 20)]
    assert not any(link.open for link in source.caused)


async def test_a_fork_is_told_among_many_later_sessions_of_events(store: DurableStore) -> None:
    await store.create(SessionRecord("source", project=PROJECT))
    for number in range(BELOW + 20):
        moment = NOW + timedelta(seconds=number)
        about = {"parent_id": "source", "event_id": f"e{number}" if number else None, "updated": moment}
        await store.create(SessionRecord(f"made-{number}", project=PROJECT, **about))  # type: ignore[arg-type]  # of several types
    source = await explain(store, "source")
    assert ([link.key for link in source.caused], source.open) == (["made-0"], False)


async def test_the_effects_of_many_links_are_bounded_in_all(store: DurableStore) -> None:
    await store.create(SessionRecord("source", project=PROJECT))
    for number in range(MOST // BELOW + 2):
        await store.create(SessionRecord(f"fork-{number}", parent_id="source", project=PROJECT))
        for below in range(BELOW):
            await store.create(SessionRecord(f"fork-{number}-{below}", parent_id=f"fork-{number}", project=PROJECT))
    links = [link for _, link in walk(await explain(store, "source"))]
    assert MOST < len(links) <= MOST + BELOW
    assert any(link.open for link in links)
