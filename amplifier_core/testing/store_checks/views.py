"""Check the pages, the counts and the news of a store that implements `StoreViews`."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import DeliveryNotFound, SessionNotFound
from ...events import SessionEvent
from ...storage import DurableStore, SessionRecord
from ...store_views import DeliveryRate, StoreViews
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
