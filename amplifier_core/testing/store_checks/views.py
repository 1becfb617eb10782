"""Check the pages, the counts and the news of a store with `StoreViews`, and the search of one with `MessageSearch`."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import DeliveryNotFound, SessionNotFound
from ...events import SessionEvent
from ...storage import DurableStore, SessionRecord
from ...store_views import DeliveryRate, MessageSearch, StoreViews
from .deliveries import LATER, claim_from, enqueue_to, event_of
from .rules import collect_checks, refuses, require

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ...storage import Delivery

PATIENCE = 20.0
"""Seconds to wait for news."""


class Viewed(DurableStore, StoreViews, Protocol):
    """A store that these checks are for."""


async def _walk(page: Callable[..., Awaitable[Sequence[Any]]], name: str, limit: int = 2, **chosen: Any) -> list[str]:
    """Return the ids of all pages."""
    ids = list[str]()
    while found := await page(before=ids[-1] if ids else None, limit=limit, **chosen):
        require(len(found) <= limit, f"a page must have at most {limit} rows: {len(found)}")
        ids += [getattr(each, name) for each in found]
    return ids


async def _enqueue(store: Viewed) -> list[Delivery]:
    """Enqueue deliveries of two projects and two queues in all states; return them, the last arrived first."""
    for number in range(8):
        project, queue = ("/p", "/other")[number // 3 % 2], ("queue", "second")[number % 2]
        await store.enqueue(project, queue, f"t{number % 3}", event_of(f"{number}"))
    await store.enqueue("/p", "queue", "t0", event_of("refused"), refused="too many")
    await store.commit(await claim_from(store))
    await store.dead_letter(await claim_from(store, queue="second"), reason="gave up")
    await claim_from(store)
    return await store.deliveries()


async def check_121_deliveries_are_shown_page_by_page(store: Viewed) -> None:
    """The last arrived first; of a project, a queue and some states, or of all."""
    require(await store.delivery_page() == [], "delivery_page must return none before the first delivery")
    every = await _enqueue(store)
    require(await store.delivery_page() == every, "delivery_page must return whole deliveries, the last arrived first")
    cases: list[dict[str, Any]] = [
        {},
        {"project": "/p"},
        {"project": "/p", "queue": "second"},
        {"queue": "queue"},
        {"states": ("dead",)},
        {"states": ("pending", "claimed", "done")},
        {"project": "/p", "states": ("done", "refused")},
        {"project": "/p", "queue": "queue", "states": ("claimed",)},
        {"project": "/nowhere"},
        {"states": ("skipped",)},
    ]
    for case in cases:
        states = case.get("states") or {each.state for each in every}
        place = {name: value for name, value in case.items() if name != "states"}
        of_it = [each for each in every if all(getattr(each, name) == value for name, value in place.items())]
        wanted = [each.delivery_id for each in of_it if each.state in states]
        for limit in (1, 2, 50):
            found = await _walk(store.delivery_page, "delivery_id", limit, **case)
            require(found == wanted, f"pages of {limit} with {case} must be {wanted}, not {found}")
    await refuses(store.delivery_page(before="nobody"), DeliveryNotFound, "delivery_page before an unknown delivery")


async def check_122_sessions_are_shown_page_by_page(store: Viewed) -> None:
    """The last changed first; of a project, with some states, with a text in the name, the id or the bundle."""
    require(await store.session_page() == [], "session_page must return none before the first session")
    for number in range(7):
        project, bundle = ("/p", "/other")[number % 2], ("Reviewer", "größer")[number // 4]
        await store.create(SessionRecord(f"s{number}", name=f"Näht {number % 3}", project=project, bundle=bundle))
        await store.append(f"s{number}", [{"role": "user", "content": "hello"}], at=0)
    await store.update("s2", status="failed")
    await store.update("s0", status="completed", name="100% \0'_")
    every = await store.sessions()
    require(await store.session_page() == every, "session_page must return whole records, the last changed first")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "0265431"),
        ({"project": "/other"}, "531"),
        ({"statuses": ("failed", "completed")}, "02"),
        ({"project": "/other", "statuses": ("failed",)}, ""),
        ({"text": "REVIEW"}, "0231"),
        ({"text": "GRÖSSER"}, "654"),
        ({"text": "näHT 1"}, "41"),
        ({"text": "na\u0308ht \uff11"}, "41"),
        ({"text": "S4"}, "4"),
        ({"text": "0% \0'_"}, "0"),
        ({"text": "%"}, "0"),
        ({"text": "view", "project": "/p", "statuses": ("failed",)}, "2"),
        ({"text": "hello"}, ""),
    ]
    for case, numbers in cases:
        wanted = [f"s{number}" for number in numbers]
        for limit in (1, 2, 50):
            found = await _walk(store.session_page, "session_id", limit, **case)
            require(found == wanted, f"pages of {limit} with {case} must be {wanted}, not {found}")
    await refuses(store.session_page(before="nobody"), SessionNotFound, "session_page before an unknown session")


async def check_123_deliveries_are_counted_by_time(store: Viewed) -> None:
    """Those that came since a time, by their present state."""
    require(await store.delivery_rates(since=LATER, step=1) == [], "delivery_rates must return none without deliveries")
    every = (await _enqueue(store))[::-1]
    since = every[2].created
    for seconds in (0.000_002, 0.001, 86_400):
        step = timedelta(seconds=seconds)
        came = [each for each in every if each.created >= since]
        counts = Counter((each.project, each.queue, (each.created - since) // step, each.state) for each in came)
        wanted = [
            DeliveryRate(project, queue, since + at * step, state, count)
            for (project, queue, at, state), count in sorted(counts.items())
        ]
        found = await store.delivery_rates(since=since, step=seconds)
        require(found == wanted, f"delivery_rates with a step of {seconds} s must return {wanted}, not {found}")
        of_one = [each for each in wanted if each.project == "/other"]
        found = await store.delivery_rates(since=since, step=seconds, project="/other")
        require(found == of_one, f"delivery_rates of a project must return {of_one}, not {found}")
    for bad in (0, -1):
        await refuses(store.delivery_rates(since=since, step=bad), ValueError, f"delivery_rates with a step of {bad}")


async def check_124_a_commit_is_told(store: Viewed) -> None:
    """Of a session, a message, an event and a delivery, to every listener until it ends; one that fails harms none."""
    heard = [threading.Event() for _ in range(2)]
    ends = [store.watch_commits(each.set) for each in heard]
    writes: list[Callable[[], Awaitable[object]]] = [
        lambda: store.create(SessionRecord("s")),
        lambda: store.append("s", [{"role": "user", "content": "hello"}], at=0),
        lambda: store.update("s", name="named"),
        lambda: store.emit(SessionEvent("a", {})),
        lambda: enqueue_to(store),
        lambda: claim_from(store),
        lambda: store.delete("s"),
    ]
    for number, write in enumerate(writes):
        for each in heard:
            each.clear()
        await write()
        for each in heard:
            told = await asyncio.to_thread(each.wait, PATIENCE)
            require(told, f"watch_commits must tell of write {number} within {PATIENCE:g} s")
    ends[0]()
    ends[0]()
    heard[1].clear()
    await store.emit(SessionEvent("b", {}))
    require(await asyncio.to_thread(heard[1].wait, PATIENCE), "the end of one listener must not end another one")
    ends[1]()


VIEW_CHECKS = collect_checks(globals())


class Searched(DurableStore, MessageSearch, Protocol):
    """A store that these checks are for."""


async def _say(store: Searched, session_id: str, *texts: str, role: str = "user", project: str = "/p") -> None:
    """Append messages to a session, which is made first."""
    if not await store.find(session_id):
        await store.create(SessionRecord(session_id, project=project))
    at = (await store.get(session_id)).message_count
    await store.append(session_id, [{"role": role, "content": text} for text in texts], at=at)


async def _find(store: Searched, query: str, **chosen: Any) -> list[tuple[str, int]]:
    found = await store.search_messages(query, **chosen)
    require(found.complete, "a search of a small store must look at every message")
    return [(each.session_id, each.position) for each in found.matches]


async def check_131_messages_are_found_by_their_words(store: Searched) -> None:
    """In all sessions or those of a project, without regard to case and accents, by the beginning of a longer word."""
    require(await _find(store, "anything") == [], "a search before the first message must find none")
    await _say(store, "a", "Die Größe der Straße", "max_depth=5")
    await _say(store, "b", "全文検索のテスト", "a\0b c🙂d", project="/other")
    blocks = [{"type": "text", "text": "Cafe\u0301"}, {"type": "image", "source": "depth"}, {"type": "text"}]
    await store.append("b", [{"role": "assistant", "content": blocks}, {"role": "tool", "content": None}], at=2)
    cases = {("a", 0): ("grosse", "STRA"), ("a", 1): ("depth", "max 5"), ("b", 0): ("検索",), ("b", 2): ("café",)}
    for place, queries in cases.items():
        for query in queries:
            require(await _find(store, query) == [place], f"a search for {query!r} must find {place} alone")
    for query in ("ax", "source", "🙂", "", "索検"):
        require(await _find(store, query) == [], f"a search for {query!r} must find nothing")
    require(await _find(store, "depth", project="/other") == [], "a search of a project must find its own alone")
    require(await _find(store, "depth", project="/p") == [("a", 1)], "a search of a project must find its own")
    [match] = (await store.search_messages("cafe")).matches
    require((match.role, match.project) == ("assistant", "/other"), f"a match must have role and project: {match}")
    require(match.snippet == "Cafe\u0301", f"a match must quote its message: {match.snippet!r}")


async def check_132_the_best_messages_come_first(store: Searched) -> None:
    """Those with all words, then with the rarer word; of equal ones the newest. A later message is found at once."""
    await _say(store, "a", "common rare", "common", "common rare other")
    require(await _find(store, "rare common") == [("a", 2), ("a", 0), ("a", 1)], "the best match must come first")
    await _say(store, "b", "rare")
    found = await _find(store, "rare common")
    require(found == [("a", 2), ("a", 0), ("b", 0), ("a", 1)], f"a new message must be found in its place: {found}")
    require(await _find(store, "rare", limit=1) == [("b", 0)], "of equal messages the newest must come first")
    odd = ['"', "'", '"rare', "rare*", "*", "^rare", "rare:", "-rare", "(rare", "NEAR(rare", "a AND", "NOT", "\\", ";"]
    for query in [*odd, "{rare} : a", "\0", "rare\0", "\udce9", "%", "x" * 10_000, "rare " * 10_000]:
        await store.search_messages(query)


async def check_133_a_shared_message_is_found_once(store: Searched) -> None:
    """With the session that wrote it; once that is deleted, with a fork; and no longer after the last of them."""
    await _say(store, "a", "shared", "alone")
    await store.create(SessionRecord("fork", fork_of="a", fork_at=1, project="/p"))
    await store.create(SessionRecord("second", fork_of="fork", fork_at=1, project="/p"))
    await _say(store, "fork", "forked")
    require(await _find(store, "shared") == [("a", 0)], "a shared message must be found with its writer alone")
    require(await _find(store, "forked", project="/p") == [("fork", 1)], "a message of a fork must be found")
    await store.delete("a")
    require(
        await _find(store, "shared", project="/p") == [("fork", 0)], "after its writer, a fork must have the message"
    )
    require(await _find(store, "alone") == [], "a message of a deleted session must not be found")
    await store.delete("fork")
    require(await _find(store, "shared forked") == [("second", 0)], "the last fork must have the message")
    await store.delete("second")
    require(await _find(store, "shared forked alone") == [], "after the last session, none must be found")
    await _say(store, "new", "different", "alone")
    require(
        await _find(store, "shared alone") == [("new", 1)], "messages after a deletion must be found by their words"
    )


async def check_134_a_snippet_has_no_secret(store: Searched) -> None:
    """Nor has one that is cut within a secret."""
    key = "sk-ant-api03-" + "aB3" * 30
    await _say(store, "a", f"here is the key {key} of the service", "x " * 200 + f"api_key={key} beyond")
    found = (await store.search_messages("service beyond here")).matches
    require(len(found) == 2, f"both messages must be found: {found}")
    for each in found:
        require("aB3aB3" not in each.snippet, f"a snippet must have no secret: {each.snippet!r}")


async def check_135_an_idle_page_indexes_step_by_step(store: Searched) -> None:
    """Until nothing is left, at most so many messages at a time."""
    await _say(store, "a", *(f"word{number}" for number in range(10)))
    steps = list[int]()
    while count := await store.index_messages(3):
        steps.append(count)
    require(all(count <= 3 for count in steps), f"index_messages must index no more than it is asked for: {steps}")
    require(await _find(store, "word") == [("a", number) for number in range(9, -1, -1)], "a search must find all")


MESSAGE_CHECKS = tuple(check for check in collect_checks(globals()) if check not in VIEW_CHECKS)
