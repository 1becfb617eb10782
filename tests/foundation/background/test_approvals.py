"""Questions of background sessions, on a clock that only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import SessionConflict
from amplifier_core.storage import DurableStore, PromptDeliveries
from amplifier_core.testing import MemoryStore, VirtualClock
from amplifier_core.testing.shared_memory_store import SharedMemoryStore
from amplifier_foundation.background.approvals import decide, read_all, read_approvals, settle
from amplifier_foundation.sessions.history import text_of

OpenBench = Callable[..., Any]

MODULES = """
from amplifier_core import HookResult

class Pay:
    name, description, paid = "pay", "Pays.", []
    input_schema = {"type": "object"}

    async def execute(self, input):
        Pay.paid.append(input["amount"])
        return f"paid {input['amount']}"

async def mount(coordinator, config):
    async def ask(event, data):
        if data["tool_input"]["amount"] == (config or {}).get("free", 0):
            return None
        return HookResult(action="ask_user", approval_prompt="Pay?", approval_options=["Allow", "Deny"])

    coordinator.register_capability("tests.paid", Pay.paid)
    await coordinator.mount("tools", Pay())
    coordinator.hooks.register("tool:pre", ask)
"""


@pytest.fixture
def paying(tmp_path: Path) -> dict[str, Any]:
    """Sections of a bundle whose model pays, which a hook asks about."""
    (tmp_path / "pay.py").write_text(MODULES)
    pays = {"when": {"user": ".*"}, "call": {"tool": "pay", "input": {"amount": 7}}}
    rules = [pays, {"when": {"tool": "pay"}, "say": "{result}"}]
    return {
        "providers": [{"module": "provider-playbook", "config": {"rules": rules}}],
        "tools": [{"module": "tool-pay", "source": "./pay.py"}],
    }


async def answer_of(bench: Any) -> str:
    [delivery] = await bench.deliveries()
    return text_of((await bench.store.read(delivery.session_id))[-1])


async def ask(bench: Any, **fields: Any) -> Any:
    """Let one event come to its question, and return that."""
    await bench.start(**fields)
    bench.trigger.feed(1)
    await bench.until("held")
    [asked] = await read_all(bench.store, bench.clock.now())
    return asked


async def test_on_a_store_of_several_hosts_its_clock_tells_what_has_expired(
    open_bench: OpenBench, paying: dict[str, Any]
) -> None:
    store = SharedMemoryStore(clock := VirtualClock(datetime.now(UTC) - timedelta(days=3)))
    async with open_bench(store=store, clock=clock, **paying) as bench:
        asked = await ask(bench)
        assert [each.state for each in await read_all(store)] == ["pending"]
        decided = await decide(store, asked, "approved")
        assert decided.decided is not None
        assert decided.decided - clock.now() < timedelta(minutes=5)


async def test_of_two_answers_of_two_hosts_at_once_one_counts_and_the_other_is_told(
    open_bench: OpenBench, paying: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(SharedMemoryStore):
        async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
            found = await super().trigger_state(project, trigger)
            await asyncio.sleep(0)
            return found

    store = Slow(clock := VirtualClock())
    async with open_bench(store=store, clock=clock, **paying) as bench:
        asked = await ask(bench)

        async def answer(host: str, state: Any) -> Any:
            monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / host))
            return await decide(store, asked, state)

        first, second = await asyncio.gather(
            answer("berlin", "denied"), answer("paris", "approved"), return_exceptions=True
        )
        assert (first.state, str(second)) == ("denied", f"approval {asked.id} {first.describe_answer()}")
        assert [each.state for each in await read_all(store)] == ["denied"]


async def test_a_question_waits_a_day_and_counts_as_denied_then(open_bench: OpenBench, paying: dict[str, Any]) -> None:
    async with open_bench(**paying) as bench:
        asked = await ask(bench)
        assert asked.expires - asked.created == timedelta(days=1)
        [waiting] = await bench.deliveries()
        assert (waiting.state, waiting.attempts, waiting.available_at) == ("pending", 0, asked.expires)
        await bench.holds(lambda: not any(row["running"] for row in bench.manager.get_status().values()))
        bench.manager._engine.poll = 3600.0
        await bench.until("completed", step=3600)
        assert "which counts as a denial" in await answer_of(bench)
        async with asyncio.timeout(60):
            while await bench.store.trigger_state(asked.project, f"{asked.queue}#approvals"):
                await asyncio.sleep(0)  # forgotten right after the end


async def test_an_answer_makes_the_session_go_on(open_bench: OpenBench, paying: dict[str, Any]) -> None:
    async with open_bench(**paying) as bench:
        asked = await ask(bench, approval_timeout=60.0)
        assert (asked.tool, asked.arguments, asked.expires - asked.created) == (
            "pay",
            {"amount": 7},
            timedelta(minutes=1),
        )
        await decide(bench.store, asked, "approved", now=bench.clock.now())
        bench.manager.wake("queue")
        await bench.until("completed")
        assert await answer_of(bench) == "paid 7"
        assert bench.told("started", "resumed") == [False, True]


async def test_a_store_that_cannot_make_a_delivery_due_is_asked_now_and_then(
    open_bench: OpenBench, paying: dict[str, Any]
) -> None:
    class Plain(MemoryStore):
        make_due = None  # type: ignore[assignment]  # as in a store of another package

    store: DurableStore = Plain()
    assert not isinstance(store, PromptDeliveries)
    async with open_bench(store=store, **paying) as bench:
        asked = await ask(bench)
        [waiting] = await bench.deliveries()
        assert waiting.available_at - asked.created == timedelta(seconds=30)
        await decide(store, asked, "denied", said="too dear", now=bench.clock.now())
        await bench.until("completed", step=5)
        assert "the user denied this call: too dear" in await answer_of(bench)


async def test_the_version_before_reads_a_question_and_members_of_a_later_one_are_left_out(
    open_bench: OpenBench, paying: dict[str, Any]
) -> None:
    known = "id state project queue delivery_id session_id tool arguments call_hash key question reason options"
    later = "created expires scripts preview messages answer said decided"
    async with open_bench(**paying) as bench:
        asked = await ask(bench)
        place = (asked.project, f"{asked.queue}#approvals")
        [(its_id, stored)] = (await bench.store.trigger_state(*place)).items()
        assert (its_id, stored.keys()) == (asked.id, {*known.split(), *later.split()})
        await bench.store.save_trigger_state(*place, {its_id: {**stored, "later": 1}}, merge=True)
        assert await read_approvals(bench.store, asked.project, asked.queue) == {asked.id: asked}


async def test_what_is_not_asked_about_leaves_nothing_in_the_inbox(
    open_bench: OpenBench, paying: dict[str, Any]
) -> None:
    paying["providers"][0]["config"]["rules"][0]["call"]["input"]["amount"] = 0
    async with open_bench(**paying) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("completed")
        assert (await answer_of(bench), await read_all(bench.store, bench.clock.now())) == ("paid 0", [])


async def test_the_newest_answers_stay_for_a_week_without_their_arguments(
    open_bench: OpenBench, paying: dict[str, Any]
) -> None:
    async with open_bench(**paying) as bench:
        asked = await ask(bench)
        answered = await decide(bench.store, asked, "denied", said="too dear", now=bench.clock.now())
        bench.manager.wake("queue")
        await bench.until("completed")
        assert await read_all(bench.store, bench.clock.now()) == []
        async with asyncio.timeout(60):
            while not (kept := await read_all(bench.store, bench.clock.now(), finished=True))[0].is_kept:
                await asyncio.sleep(0)
        assert [(each.id, each.outcome, each.said, dict(each.arguments)) for each in kept] == [
            (asked.id, "denied", "too dear", {})
        ]
    begin = answered.created
    many = [replace(answered, id=f"{hour:03}", decided=begin + timedelta(hours=hour)) for hour in range(99)]
    changes = settle(many, begin + timedelta(hours=160))
    assert [its_id for its_id, each in changes.items() if each is not None] == [f"{each:03}" for each in range(49, 99)]
    assert settle([each for each in changes.values() if each], begin + timedelta(hours=160)) == {}
    assert set(settle(many, begin + timedelta(days=30)).values()) == {None}


async def test_a_question_keeps_what_the_call_would_change_and_is_asked_anew_when_that_changes(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    writes = {"when": {"user": ".*"}, "call": {"tool": "write_file", "input": {"file_path": "a.txt", "content": "new"}}}
    rules = [writes, {"when": {"tool": "write_file"}, "say": "written"}]
    bundle = {
        "providers": [{"module": "provider-playbook", "config": {"rules": rules}}],
        "tools": [{"module": "tool-filesystem", "config": {"working_dir": str(tmp_path)}}],
        "permissions": {"ask": ["write_file"]},
    }
    async with open_bench(**bundle) as bench:
        file = tmp_path / "a.txt"
        file.write_text("old\n")
        asked = await ask(bench)
        assert "-old\n+new" in asked.preview
        file.write_text("theirs\n")
        await decide(bench.store, asked, "approved", now=bench.clock.now())
        bench.manager.wake("queue")
        await bench.until("held", count=2)
        void, anew = sorted(await read_all(bench.store, bench.clock.now()), key=lambda each: each.state == "pending")
        assert (void.state, void.said) == ("void", "what it would change has changed")
        assert "-theirs\n+new" in anew.preview and file.read_text() == "theirs\n"
        await decide(bench.store, anew, "approved", now=bench.clock.now())
        bench.manager.wake("queue")
        await bench.until("completed")
        assert file.read_text() == "new"


@pytest.mark.parametrize("approves", [False, True])
async def test_a_changed_bundle_asks_anew_and_says_why(
    open_bench: OpenBench, paying: dict[str, Any], approves: bool
) -> None:
    async with open_bench(**paying) as bench:
        asked = await ask(bench)
    if approves:  # before anybody notices that the bundle has changed
        await decide(bench.store, asked, "approved", now=bench.clock.now())
    async with open_bench(**paying, instruction="Pay at once.") as bench:
        await bench.start()
        await bench.until("held")
        void, anew = sorted(await read_all(bench.store, bench.clock.now()), key=lambda each: each.state == "pending")
        assert (void.state, anew.state, anew.id != asked.id) == ("void", "pending", True)
        assert anew.question == f"{asked.question} (asked anew: the bundle has changed)"
        with pytest.raises(SessionConflict, match="is void since .* UTC: the bundle has changed, so the call is asked"):
            await decide(bench.store, asked, "approved", now=bench.clock.now())
        await decide(bench.store, anew, "approved", now=bench.clock.now())
        await bench.until("completed", step=1)
        assert await answer_of(bench) == "paid 7"


async def test_a_question_that_a_changed_bundle_no_longer_asks_is_void(
    open_bench: OpenBench, paying: dict[str, Any]
) -> None:
    more = {"when": {"tool": "pay", "output": "paid 7"}, "call": {"tool": "pay", "input": {"amount": 9}}}
    paying["providers"][0]["config"]["rules"].insert(0, more)
    async with open_bench(**paying) as bench:
        asked = await ask(bench)
    paying["tools"][0]["config"] = {"free": 7}
    async with open_bench(**paying) as bench:
        await bench.start()
        await bench.until("held")
        void, anew = sorted(await read_all(bench.store, bench.clock.now()), key=lambda each: each.state == "pending")
        assert (void.id, void.state, void.said) == (asked.id, "void", "the bundle has changed")
        assert (anew.state, anew.arguments) == ("pending", {"amount": 9})
        for answer in ("approved", "denied"):
            with pytest.raises(SessionConflict, match="is void since .* UTC: the bundle has changed, so the call is"):
                await decide(bench.store, asked, answer, now=bench.clock.now())  # type: ignore[arg-type]
    async with open_bench(**paying) as bench:
        await bench.start()  # makes nothing due: the question is that of this bundle
        [waiting] = await bench.deliveries()
        assert (waiting.epoch, waiting.available_at) == (2, anew.expires)
