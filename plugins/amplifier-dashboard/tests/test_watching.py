"""Views of what runs show it as it is in the store, and change it as the command line does."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.errors import DeliveryNotFound
from amplifier_core.events import SessionEvent
from amplifier_core.testing.shared_memory_store import SharedMemoryStore
from amplifier_dashboard.desk import Desk
from amplifier_dashboard.links import background_key
from amplifier_dashboard.live import read_facts
from amplifier_dashboard.pages import Place, find_acts, find_views
from amplifier_foundation.background.asking import NoSuchBackgroundSession
from amplifier_foundation.background.lifecycle import save_wish
from amplifier_foundation.background.log_events import OPERATOR_ACTED
from amplifier_foundation.operations.acting import Actor, record_act
from amplifier_foundation.operations.spending import sum_usage
from amplifier_foundation.sessions.costs import format_cost
from amplifier_storage_sqlite import open_sqlite

from .filled import HOSTILE, Filled, deliver, file_change, fill, fill_large, spent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_dashboard.pages import Reply

VIEWS = {view.path: view for view in find_views()}
ACTS = {act.path: act for act in find_acts()}


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    """A person at a store of their own; nothing runs."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    store = open_sqlite({"folder": tmp_path})
    yield Desk(store, load_plugins(), "ada", "/work")
    await store.close()


@pytest.fixture
async def filled(desk: Desk, tmp_path: Path) -> Filled:
    return await fill(desk.store, tmp_path / "projects")


async def show(desk: Desk, path: str, query: dict[str, str] | None = None, **variables: str) -> str:
    """Return all parts and feeds of a view, as the next answer after a change has them."""
    desk.changes.note()
    page = await VIEWS[path].read(desk, Place(path, variables, query or {}))
    facts: Any = await read_facts(page)
    entries = [each.html for feed in facts["feeds"].values() for each in feed]
    return "\n".join([*map(str, page.parts.values()), *map(str, entries)])


async def do(desk: Desk, path: str, form: dict[str, str], **variables: str) -> Reply:
    return await ACTS[path].do(desk, Place(path, variables), form)


def words(html: str) -> str:
    """Return the text of a page in one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


async def acts_of(desk: Desk) -> list[dict[str, Any]]:
    events = await desk.store.events(limit=10_000)
    return [dict(each.data) for each in events if each.name == OPERATOR_ACTED]


# The overview.


async def test_problems_come_first(desk: Desk, filled: Filled) -> None:
    html = await show(desk, "/")
    assert html.index("shop/reviewer") < html.index("garden/watcher")
    assert "Nothing runs. Waiting events are handled by: amplifier up BUNDLE" in words(html)


async def test_the_overview_has_counts_outcomes_and_costs(desk: Desk, filled: Filled) -> None:
    text = words(await show(desk, "/"))
    assert "Waiting 3 At work 1 To approve 1 Dead letters 3" in text
    assert "given up: the call of 'pay' was interrupted" in text
    spent_by_day = {day: format_cost(usage) for (day,), usage in sum_usage(await desk.store.sessions(), ["day"])}
    assert f"Spent today {spent_by_day.get(today(), '-')}" in text


async def test_no_page_links_to_a_session_that_was_not_made(desk: Desk, filled: Filled) -> None:
    at = datetime.now(UTC)
    delivery = await deliver(desk.store, filled.garden, "garden/watcher", "t", file_change("x", at), at)
    claimed = await desk.store.claim(filled.garden, "garden/watcher", owner="1", lease=60, session_id="s-none", now=at)
    assert claimed is not None
    await desk.store.dead_letter(claimed, reason="Its template has no value for 'event_name'")
    for page in ("/", "/deliveries/{delivery_id}", "/background/{background_id}"):
        ids = {"delivery_id": delivery.delivery_id, "background_id": key(filled.garden, "garden/watcher")}
        html = await show(desk, page, **ids)
        assert "event_name" in html
        assert "/sessions/s-none" not in html


async def test_an_outcome_is_read_anew_when_it_changes(desk: Desk, filled: Filled) -> None:
    await show(desk, "/")
    at = datetime.now(UTC)
    delivery = await deliver(desk.store, filled.garden, "garden/watcher", "t", file_change("x", at), at)
    claimed = await desk.store.claim(filled.garden, "garden/watcher", owner="1", lease=60, session_id="s-1", now=at)
    assert claimed is not None
    assert claimed.delivery_id == delivery.delivery_id
    await desk.store.dead_letter(claimed, reason="Broken: the hose leaks")
    assert "given up: Broken: the hose leaks" in words(await show(desk, "/"))


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, {"shop/reviewer", "garden/watcher"}),
        ({"state": "problem"}, {"shop/reviewer"}),
        ({"state": "running"}, set()),
        ({"text": "GARDEN"}, {"garden/watcher"}),
        ({"text": "nowhere"}, set()),
    ],
)
async def test_the_address_filters(desk: Desk, filled: Filled, query: dict[str, str], shown: set[str]) -> None:
    page = await VIEWS["/"].read(desk, Place("/", {}, query))
    found = set(re.findall(r">(shop/reviewer|garden/watcher)</a>", page.parts["queues"]))
    assert found == shown
    assert ("No background session is like that." in page.parts["queues"]) == (not shown)


async def test_a_folder_filters_its_lines_too(desk: Desk, filled: Filled) -> None:
    html = await show(desk, "/", {"project": filled.garden})
    assert "beds are wet" in html
    assert "reviewer" not in html


async def test_an_empty_store_says_what_to_do(desk: Desk) -> None:
    assert "Start one: amplifier up BUNDLE" in words(await show(desk, "/"))


async def test_many_background_sessions_have_pages(desk: Desk) -> None:
    at = datetime.now(UTC)
    for number in range(53):
        await deliver(desk.store, "/p", f"many/n{number:02}", "t", file_change("x", at), at)
    first, second = await show(desk, "/"), await show(desk, "/", {"from": "50"})
    assert "1 to 50 of 53" in words(first)
    assert "51 to 53 of 53" in words(second)


async def test_an_act_is_a_line_with_a_link_to_what_it_was_about(desk: Desk, filled: Filled) -> None:
    actor, talk = Actor("ada", "dashboard"), filled.sessions["talk"]
    await record_act(desk.store, actor, "session.rename", talk, session_id=talk)
    await record_act(desk.store, actor, "bundle.save", "bundle.md")
    html = await show(desk, "/")
    assert f'href="/sessions/{talk}">session rename' in html
    assert "bundle.md" in html


async def test_a_page_for_reading_has_no_buttons(desk: Desk, filled: Filled) -> None:
    desk.read_only = True
    dead = filled.deliveries["dead"].delivery_id
    for path, variables in (
        ("/dead", {}),
        ("/deliveries/{delivery_id}", {"delivery_id": dead}),
        ("/background/{background_id}", {"background_id": key(filled.shop, "shop/reviewer")}),
    ):
        assert "<button" not in await show(desk, path, None, **variables), path


async def test_the_log_links_to_stored_sessions_alone(desk: Desk, filled: Filled) -> None:
    stored = filled.sessions["reviewed"]
    for source in (stored, "bg-hook-0001"):
        await desk.store.emit(SessionEvent("work:done", {}, source_session_id=source))
    html = await show(desk, "/log")
    assert f'href="/sessions/{stored}"' in html
    assert '<span class="id small">bg-hook-0001</span>' in html
    assert "/sessions/bg-hook-0001" not in html


async def test_the_log_shows_what_other_sites_have_sent(desk: Desk) -> None:
    await desk.store.emit(SessionEvent("work:done", {}, source_session_id="berlin.coder-0123456789ab"))
    assert '<span class="id small">berlin.coder-0123456789ab</span>' in await show(desk, "/log")


async def test_the_log_shows_every_event(desk: Desk, filled: Filled) -> None:
    await desk.store.emit(SessionEvent("work:done", {"text": HOSTILE}))
    html = await show(desk, "/log")
    assert "<b>work:done</b>" in html
    assert HOSTILE not in html


# One background session.


async def test_triggers_say_what_they_do_next(desk: Desk, filled: Filled) -> None:
    text = words(await show(desk, "/background/{background_id}", background_id=key(filled.garden, "garden/watcher")))
    assert "trigger-timer fires 20" in text
    assert "listens at http://127.0.0.1:(any free port)/rain" in text
    text = words(await show(desk, "/background/{background_id}", background_id=key(filled.shop, "shop/reviewer")))
    assert f"watches *.py in {filled.shop}" in text


async def test_a_stopped_one_has_no_next_fire(desk: Desk, filled: Filled) -> None:
    await save_wish(desk.store, filled.garden, "garden/watcher", "stopped")
    place = key(filled.garden, "garden/watcher")
    assert "it stays stopped at the next start" in await show(desk, "/background/{background_id}", background_id=place)


async def test_a_broken_bundle_leaves_the_rest_of_the_page(desk: Desk, filled: Filled) -> None:
    (Path(filled.shop) / "bundle.md").write_text("---\nbundle: {nam: shop}\n---\n", encoding="utf-8")
    text = words(await show(desk, "/background/{background_id}", background_id=key(filled.shop, "shop/reviewer")))
    assert "nam" in text
    assert "file waiting.py modified" in text


async def test_events_have_states_and_pages(desk: Desk, filled: Filled) -> None:
    at = datetime.now(UTC) - timedelta(days=1)
    for number in range(60):
        await deliver(
            desk.store, filled.garden, "garden/watcher", "t", file_change(f"{number:02}", at), at, refused="no"
        )
    place = {"background_id": key(filled.garden, "garden/watcher")}
    page = await VIEWS["/background/{background_id}"].read(desk, Place("/b", place, {"state": "refused"}))
    [before] = re.findall(r'before=([0-9a-f]+)">Older', page.parts["deliveries"])
    older = await VIEWS["/background/{background_id}"].read(
        desk, Place("/b", place, {"state": "refused", "before": before})
    )
    assert page.parts["deliveries"].count("<tr id=") == 50
    assert older.parts["deliveries"].count("<tr id=") == 10
    assert "done" not in older.parts["deliveries"]


async def test_an_unknown_one_is_an_error(desk: Desk, filled: Filled) -> None:
    with pytest.raises(NoSuchBackgroundSession):
        await show(desk, "/background/{background_id}", background_id="nobody")


# One delivery.


async def test_a_delivery_shows_steps_causes_and_text_of_strangers_as_text(desk: Desk, filled: Filled) -> None:
    html = await show(desk, "/deliveries/{delivery_id}", delivery_id=filled.deliveries["hostile"].delivery_id)
    assert HOSTILE not in html
    assert "&lt;script&gt;window.hacked" in html
    text = words(html)
    assert "accepted trigger-webhook" in text
    assert "tool → read_file" in text
    assert "event session:completed" in text  # what it caused


async def test_a_retried_delivery_is_due_again_and_told_with_who_did_it(desk: Desk, filled: Filled) -> None:
    dead = filled.deliveries["dead"].delivery_id
    reply = await do(desk, "/deliveries/{delivery_id}/retry", {}, delivery_id=dead)
    assert reply.said == "1 event is handled again by the next: amplifier up."
    [delivery] = await desk.store.find_deliveries(dead)
    assert (delivery.state, delivery.attempts) == ("pending", 0)
    [act] = await acts_of(desk)
    assert (act["act"], act["by"], act["via"], act["subject"]) == ("trigger.retry", "ada", "dashboard", dead)
    assert "ada" in await show(desk, "/deliveries/{delivery_id}", delivery_id=dead)


async def test_an_interrupted_call_needs_a_decision(desk: Desk, filled: Filled) -> None:
    uncertain = filled.deliveries["uncertain"].delivery_id
    assert "pay was interrupted" in await show(desk, "/deliveries/{delivery_id}", delivery_id=uncertain)
    reply = await do(desk, "/deliveries/{delivery_id}/retry", {}, delivery_id=uncertain)
    assert "1 left alone: an interrupted call needs your decision first" in reply.said
    await do(desk, "/deliveries/{delivery_id}/retry", {"decision": "done"}, delivery_id=uncertain)
    [delivery] = await desk.store.find_deliveries(uncertain)
    assert delivery.state == "pending"
    marks = (await desk.store.get(filled.sessions["cut"])).metadata["once"]
    assert marks["call-9"]["decision"] == "done"


async def test_a_dropped_delivery_is_skipped_with_the_reason(desk: Desk, filled: Filled) -> None:
    waiting = filled.deliveries["waiting"].delivery_id
    await do(desk, "/deliveries/{delivery_id}/drop", {"reason": "not needed"}, delivery_id=waiting)
    [delivery] = await desk.store.find_deliveries(waiting)
    assert (delivery.state, delivery.reason) == ("skipped", "not needed")


async def test_an_unknown_delivery_is_an_error(desk: Desk) -> None:
    with pytest.raises(DeliveryNotFound):
        await show(desk, "/deliveries/{delivery_id}", delivery_id="none")


# Dead letters.


async def test_dead_letters_have_their_causes(desk: Desk, filled: Filled) -> None:
    page = await VIEWS["/dead"].read(desk, Place("/dead"))
    assert re.findall(r"cause=([0-9a-f]+)", page.parts["causes"])
    text = words(page.parts["causes"])
    assert "ProviderError: the model does not answer 2" in text
    assert "needs your decision: pay was interrupted" in words(page.parts["letters"])


async def test_the_chosen_ones_are_retried(desk: Desk, filled: Filled) -> None:
    dead, other = (filled.deliveries[name].delivery_id for name in ("dead", "dead-too"))
    reply = await do(desk, "/dead/change", {f"pick-{dead}": "on", "verb": "retry"})
    assert reply.said.startswith("1 event is handled again")
    assert [each.delivery_id for each in await desk.store.deliveries(state="dead")] == [
        filled.deliveries["uncertain"].delivery_id,
        other,
    ]


async def test_all_of_a_cause_are_dropped(desk: Desk, filled: Filled) -> None:
    page = await VIEWS["/dead"].read(desk, Place("/dead"))
    cause = re.findall(r'name="cause" value="([0-9a-f]+)"', page.parts["causes"])[0]
    reply = await do(desk, "/dead/change", {"cause": cause, "verb": "drop", "reason": "old"})
    assert reply.said == "2 events are dropped."
    assert [each.state for each in await desk.store.deliveries(state="dead")] == ["dead"]
    assert len(await acts_of(desk)) == 2


async def test_nothing_chosen_changes_nothing(desk: Desk, filled: Filled) -> None:
    gone = filled.deliveries["done"].delivery_id
    reply = await do(desk, "/dead/change", {f"pick-{gone}": "on", "verb": "retry"})
    assert "No dead letter is chosen" in reply.said


# Hosts.


async def test_the_store_of_one_host_says_how_several_share_one(desk: Desk) -> None:
    assert "amplifier config set storage.name storage-postgres" in words(await show(desk, "/hosts"))


async def test_hosts_have_a_row_for_each_process() -> None:
    store = SharedMemoryStore()
    facts = {"pid": 7, "version": "1", "role": "up", "projects": ["/p"], "bundles": {"shop": "d"}}
    await store.present("7-abc@web1", facts)
    desk = Desk(store, load_plugins(), "ada", "/work")
    text = words(await show(desk, "/hosts"))
    assert "web1" in text
    assert "amplifier host drain web1" in text


# Costs.


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def key(project: str, queue: str) -> str:
    return background_key(project, queue)


async def costs(desk: Desk) -> list[tuple[str, ...]]:
    """Return day, model, requests and tokens of the table by day and model."""
    page = await VIEWS["/cost"].read(desk, Place("/cost", {}, {"days": "31"}))
    rows = re.findall(r'<tr id="day-.*?</tr>', page.parts["tables"], re.DOTALL)
    return sorted(tuple(re.findall(r">([^<>]+)</t[hd]>", row)) for row in rows)


async def expected(desk: Desk) -> list[tuple[str, ...]]:
    """Return the same as `amplifier cost --by day,model` sums it."""
    return sorted(
        (*values, str(usage.requests), f"{usage.input_tokens:,}", f"{usage.output_tokens:,}", format_cost(usage))
        for values, usage in sum_usage(await desk.store.sessions(), ["day", "model"])
    )


async def test_costs_are_those_of_the_command(desk: Desk, filled: Filled) -> None:
    assert await costs(desk) == await expected(desk)
    html = await show(desk, "/cost")
    assert "none: sessions of people" in html
    assert f'href="/background/{key(filled.garden, "garden/watcher")}"' in html


async def test_costs_follow_changed_sessions(desk: Desk, filled: Filled) -> None:
    await costs(desk)
    await desk.store.update(filled.sessions["talk"], metadata=spent(datetime.now(UTC), "openai/small", "3.25"))
    desk.changes.note()
    assert await costs(desk) == await expected(desk)


async def test_costs_leave_out_deleted_sessions_once_all_are_read_anew(
    desk: Desk, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    await costs(desk)
    await desk.store.delete(filled.sessions["talk"])
    monkeypatch.setattr("amplifier_dashboard.observing.REREAD", -1.0)
    desk.changes.note()
    assert await costs(desk) == await expected(desk)


async def test_many_costs_are_read_round_by_round(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill_large(desk.store, sessions=40, deliveries=40, queues=4)
    for name in ("FIRST_PAGE", "PAGE"):
        monkeypatch.setattr(f"amplifier_dashboard.observing.{name}", 7)
    for name in ("FIRST_ROUND", "ROUND"):
        monkeypatch.setattr(f"amplifier_dashboard.observing.{name}", 0.0)
    rounds = 0
    while "so far" in (html := await show(desk, "/cost")) or "still being read" in html:
        for name in ("FIRST_ROUND", "ROUND"):
            monkeypatch.setattr(f"amplifier_dashboard.observing.{name}", 0.001)
        rounds += 1
        await asyncio.sleep(0)
    assert rounds >= 1
    assert await costs(desk) == await expected(desk)


# Timers.


async def test_timers_have_the_fires_of_the_next_days(desk: Desk, filled: Filled) -> None:
    html = await show(desk, "/timers", {"days": "3"})
    assert len(re.findall(r"\d\d:30 shop/nightly", html)) == 3
    assert "about 96" in html  # every 900 seconds


async def test_the_days_of_timers_have_bounds(desk: Desk, filled: Filled) -> None:
    assert len(re.findall(r"\d\d:30 shop/nightly", await show(desk, "/timers", {"days": "4000"}))) in (30, 31, 32)


async def test_fires_across_clock_changes_say_so(desk: Desk, filled: Filled) -> None:
    text = words(await show(desk, "/timers", {"from": "2026-03-27"}))
    assert text.count("shop/nightly ! ") == 1 * 2  # in the calendar, and in the list for phones


async def test_a_day_that_is_none_is_today(desk: Desk, filled: Filled) -> None:
    assert words(await show(desk, "/timers", {"from": "soon"})) == words(await show(desk, "/timers"))


async def test_a_stopped_background_session_has_no_fires(desk: Desk, filled: Filled) -> None:
    await save_wish(desk.store, filled.shop, "shop/nightly", "stopped")
    assert "shop/nightly" not in await show(desk, "/timers")
