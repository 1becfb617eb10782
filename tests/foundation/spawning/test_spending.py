"""Budgets of sessions and trees: what restarts, resumes and forks do not reset."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import BudgetExceeded
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_core.testing import VirtualClock
from amplifier_foundation import PreparedBundle, spawn_bundle
from amplifier_foundation.bundle.load import load_bundle
from amplifier_foundation.documents.problems import InvalidBundle
from amplifier_foundation.sessions.forks import fork_stored
from amplifier_foundation.sessions.ledger import Ledger, OpenLedger
from amplifier_foundation.sessions.usage import Usage, UsageMeter
from amplifier_foundation.spawning.budget import Limits
from amplifier_foundation.spawning.conversation import open_conversation

MakeBundle = Callable[..., PreparedBundle]

DYING = """
import os, signal
from amplifier_core import ChatResponse, ProviderInfo, ToolCall, ToolCallBlock
from amplifier_core.message_models import Usage

class Dying:
    name = "dying"
    def get_info(self): return ProviderInfo(id="dying", display_name="Dying")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return list(response.tool_calls or ())
    async def complete(self, request, **kwargs):
        if any(message.role == "tool" for message in request.messages):
            os.kill(os.getpid(), signal.SIGKILL)
        call = ToolCall(id="call_1", name="glob", arguments={"pattern": "*"})
        block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
        usage = Usage(input_tokens=60, output_tokens=40, total_tokens=100)
        return ChatResponse(content=[block], tool_calls=[call], usage=usage)

async def mount(coordinator, config):
    await coordinator.mount("providers", Dying())
"""
MUTE = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock
from amplifier_core.message_models import Usage

class Mute:
    name = "mute"
    def get_info(self): return ProviderInfo(id="mute", display_name="Mute")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        text = request.messages[-1].content
        known = Usage(input_tokens=1, output_tokens=1, total_tokens=2, cost_usd="0.01") if text == "known" else None
        return ChatResponse(content=[TextBlock(text="hi")], usage=known)

async def mount(coordinator, config):
    await coordinator.mount("providers", Mute())
"""


@pytest.fixture
def talk(make_bundle: MakeBundle, words: Any) -> Callable[..., PreparedBundle]:
    """Make a bundle whose model takes 7 tokens and a cent a request."""
    return lambda **sections: make_bundle("talk", providers=[words.entry("provider-echo")], **sections)


async def test_a_budget_of_turns_ends_the_next_turn_and_a_refused_turn_counts_none(
    talk: Any, store: DurableStore, plugins: Plugins
) -> None:
    async with open_conversation(talk(session={"budget": {"turns": 2}}), store, plugins) as conversation:
        session_id = conversation.session.session_id
        for prompt in ("one", "two"):
            await conversation.say(prompt)
        for _ in range(2):
            with pytest.raises(BudgetExceeded, match="used 2 of 2 turns") as caught:
                await conversation.say("three")
    assert (caught.value.scope, caught.value.unit, caught.value.until) == ("session", "turns", None)
    assert Ledger.of((await store.get(session_id)).metadata).sum().turns == 2


async def test_a_resume_and_a_fork_do_not_reset_a_budget(talk: Any, store: DurableStore, plugins: Plugins) -> None:
    bundle = talk(session={"budget": {"turns": 2}}, spawn={"budget": {"turns": 2}})
    async with open_conversation(bundle, store, plugins) as conversation:
        await conversation.say("one")
        await conversation.say("two")
    source = await store.get(conversation.session.session_id)
    fork = await fork_stored(store, source, turn=1)
    second = await fork_stored(store, await store.get(fork.session_id))
    for record in (source, fork, second):
        async with open_conversation(bundle, store, plugins, resume=record) as conversation:
            with pytest.raises(BudgetExceeded):
                await conversation.say("three")
    for section in ("session", "spawn"):
        bundle = talk(**{section: {"budget": {"turns": 3}}})
        fork = await fork_stored(store, source)
        async with open_conversation(bundle, store, plugins, resume=fork) as conversation:
            await conversation.say("three")
            with pytest.raises(BudgetExceeded, match="used 3 of 3 turns"):
                await conversation.say("four")


async def test_the_budget_of_a_tree_counts_the_children_of_earlier_processes(
    talk: Any, store: DurableStore, plugins: Plugins
) -> None:
    bundle = talk(spawn={"budget": {"usd": 0.03}})
    async with open_conversation(bundle, store, plugins) as conversation:
        await conversation.say("one")
        await spawn_bundle(talk(), "child", conversation.session, session_storage=store)
    record = await store.get(conversation.session.session_id)
    async with open_conversation(bundle, store, plugins, resume=record) as conversation:
        await conversation.say("two")
        with pytest.raises(BudgetExceeded, match="cost \\$0.03 of \\$0.03"):
            await conversation.say("three")
    fork = await fork_stored(store, record)
    async with open_conversation(bundle, store, plugins, resume=fork) as conversation:
        await conversation.say("the fork begins with two cents")
        with pytest.raises(BudgetExceeded):
            await conversation.say("and has none left")


async def test_the_budget_of_a_session_leaves_out_those_below_it(
    talk: Any, store: DurableStore, plugins: Plugins
) -> None:
    async with open_conversation(talk(session={"budget": {"turns": 1}}), store, plugins) as conversation:
        await spawn_bundle(talk(), "child", conversation.session, session_storage=store)
        await conversation.say("one")
        with pytest.raises(BudgetExceeded):
            await conversation.say("two")


async def test_the_budget_of_a_bundle_counts_the_sessions_of_all_processes(
    talk: Any, store: DurableStore, plugins: Plugins
) -> None:
    bundle = talk(budget={"turns": 2, "per": "day"})
    for prompt in ("one", "two"):
        async with open_conversation(bundle, store, plugins) as conversation:
            await conversation.say(prompt)
    async with open_conversation(bundle, store, plugins) as conversation:
        with pytest.raises(BudgetExceeded, match="the sessions of its bundle used 2 of 2 turns today") as caught:
            await conversation.say("three")
    assert caught.value.until is not None


async def test_an_unknown_price_is_said_once_and_its_tokens_count(
    make_bundle: MakeBundle, store: DurableStore, plugins: Plugins, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "free.py").write_text(DYING.replace("os.kill(os.getpid(), signal.SIGKILL)", "pass").replace(
        "tool_calls=[call], ", "").replace("content=[block]", "content=[{'type': 'text', 'text': 'hi'}]"))  # fmt: skip
    providers = [{"module": "provider-free", "source": "./free.py"}]
    budget = {"usd": 0.01, "tokens": 300}
    with caplog.at_level(logging.WARNING):
        async with open_conversation(
            make_bundle("talk", providers=providers, session={"budget": budget}), store, plugins
        ) as conversation:
            for prompt in ("one", "two", "three"):
                await conversation.say(prompt)
            with pytest.raises(BudgetExceeded, match="used 300 of 300 tokens"):
                await conversation.say("four")
    warned = [record.message for record in caplog.records if "budget in US dollars" in record.message]
    assert len(warned) == 1
    assert "the price of dying is unknown" in warned[0]


@pytest.mark.parametrize("prompts", [("one", "two"), ("known", "one", "two"), ("one", "known")])
@pytest.mark.parametrize("budget", [{"usd": 1}, {"tokens": 10}, {"turns": 9}])
async def test_a_model_that_reports_no_tokens_is_told_of_once(
    make_bundle: MakeBundle,
    store: DurableStore,
    plugins: Plugins,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    budget: dict[str, float],
    prompts: tuple[str, ...],
) -> None:
    (tmp_path / "mute.py").write_text(MUTE)
    providers = [{"module": "provider-mute", "source": "./mute.py"}]
    bundle = make_bundle("talk", providers=providers, session={"budget": budget})
    with caplog.at_level(logging.WARNING):
        async with open_conversation(bundle, store, plugins) as conversation:
            for prompt in prompts:
                await conversation.say(prompt)
    warned = [record.message for record in caplog.records if "has a budget" in record.message]
    (unit,) = budget
    assert len(warned) == (unit != "turns")
    assert all(f"a budget in {unit}, and mute reports no tokens" in each for each in warned)


def test_a_kill_does_not_reset_a_budget(amplifier: Any, tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    sections = {
        "bundle": {"name": "dying"},
        "providers": [{"module": "provider-dying", "source": "./dying.py"}],
        "tools": [{"module": "tool-filesystem"}],
        "session": {"budget": {"tokens": 150}},
    }
    (tmp_path / "bundle.md").write_text(f"---\n{json.dumps(sections)}\n---\n")
    killed = amplifier("run", "go", cwd=tmp_path)
    assert killed.returncode == -9, killed.stderr
    (listed,) = json.loads(amplifier("session", "list", "--json", cwd=tmp_path).stdout)["data"]
    sections["session"] = {"budget": {"tokens": 100}}
    (tmp_path / "bundle.md").write_text(f"---\n{json.dumps(sections)}\n---\n")
    resumed = amplifier("run", "--accept", "--resume", listed["session_id"], cwd=tmp_path)
    assert resumed.returncode == 7, resumed.stderr
    assert "used 100 of 100 tokens" in resumed.stderr
    costs = json.loads(amplifier("cost", "--by", "session,model", "--json", cwd=tmp_path).stdout)["data"]
    assert [(row["session"], row["model"], row["input_tokens"]) for row in costs["rows"]] == [
        (listed["session_id"], "dying", 60)
    ]


async def test_seconds_count_those_of_turns_alone() -> None:
    clock = VirtualClock()
    ledger = OpenLedger({}, UsageMeter(Coordinator(), clock), clock)  # type: ignore[arg-type]
    ledger.begin_turn(is_new=True)
    await clock.advance(5)
    ledger.end_turn()
    await clock.advance(100)
    ledger.begin_turn(is_new=False)
    await clock.advance(2)
    spent = (await ledger.read()).sum()
    assert (spent.seconds, spent.turns) == (7.0, 1)
    limits = Limits.of({"seconds": "7s", "turns": 1})
    assert limits is not None
    exceeded = limits.exceeded(spent, begins_turn=False)
    assert exceeded is not None
    assert exceeded[0] == "seconds"


class Coordinator:
    """Stands in for the coordinator of a session without providers."""

    async def collect_contributions(self, channel: str) -> list[Any]:
        return []


def test_a_ledger_survives_its_storage() -> None:
    ledger = Ledger()
    ledger.add_usage("2026-01-01", "a/b", Usage.from_dict({"input_tokens": 3, "cost_usd": "0.1"}))
    ledger.add_usage("2026-01-02", "a/b", Usage.from_dict({"input_tokens": 4}))
    ledger.add_time("2026-01-01", turns=1, seconds=1.5)
    read = Ledger.of(json.loads(json.dumps({"ledger": ledger.to_dict()})))
    assert read.to_dict() == ledger.to_dict()
    assert (read.sum("2026-01-01").usage.input_tokens, read.sum().usage.cost_is_partial) == (3, True)
    assert Ledger.of({"ledger": {"x": 1, "2026-01-01": {"turns": "many", "models": [1]}}}).sum().turns == 0


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ("session: {budget: {per: day}}", "session.budget"),
        ("spawn: {budget: {usd: 0}}", "spawn.budget.usd"),
        ("budget: {euros: 5}", "budget.euros"),
        ("budget: {usd: 5, per: week}", "budget.per"),
        ("background_sessions: [{name: q, budget: {tokens: 1.5}}]", "budget.tokens"),
    ],
)
async def test_a_budget_that_cannot_be_is_refused_with_its_place(tmp_path: Path, section: str, path: str) -> None:
    file = tmp_path / "bundle.md"
    file.write_text(f"---\nbundle: {{name: b}}\n{section}\n---\n")
    with pytest.raises(InvalidBundle, match=path):
        await load_bundle(str(file))
