"""Budgets in US dollars: of a session, of a tree of sessions, and of the command line's turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, BudgetExceeded
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import PreparedBundle, spawn_bundle
from amplifier_foundation.bundle.load import load_bundle
from amplifier_foundation.cli import exits
from amplifier_foundation.documents.problems import InvalidBundle
from amplifier_foundation.spawning.budget import Budget
from amplifier_foundation.spawning.conversation import open_conversation

MakeBundle = Callable[..., PreparedBundle]


async def test_a_session_begins_no_request_once_its_budget_is_spent(
    make_bundle: MakeBundle, store: DurableStore, plugins: Plugins, words: Any
) -> None:
    bundle = make_bundle("talk", providers=[words.entry("provider-echo")], spawn={"max_cost_usd": 0.02})
    async with open_conversation(bundle, store, plugins) as conversation:
        session_id = conversation.session.session_id
        await conversation.say("one")
        await conversation.say("two")
        with pytest.raises(BudgetExceeded, match="cost \\$0.02 of \\$0.02") as caught:
            await conversation.say("three")
    assert (caught.value.session_id, caught.value.limit, caught.value.spent) == (
        session_id,
        Decimal("0.02"),
        Decimal("0.02"),
    )
    record = await store.get(session_id)
    assert (record.status, record.turn_count, record.metadata["usage"]["requests"]) == ("failed", 3, 2)
    async with open_conversation(bundle, store, plugins, resume=record) as conversation:
        with pytest.raises(BudgetExceeded):
            await conversation.say("its earlier turns count")
    richer = make_bundle("talk", providers=[words.entry("provider-echo")], spawn={"max_cost_usd": 0.03})
    async with open_conversation(richer, store, plugins, resume=record) as conversation:
        assert (await conversation.say("now")).status == "completed"


async def test_the_budget_of_the_session_at_the_top_holds_for_all_below(
    make_bundle: MakeBundle, store: DurableStore, words: Any
) -> None:
    providers = [words.entry("provider-echo")]
    async with await make_bundle("top", providers=providers, spawn={"max_cost_usd": 0.03}).create_session() as parent:
        child = make_bundle(providers=providers, spawn={"max_cost_usd": 100})
        outputs = [(await spawn_bundle(child, "go", parent, session_storage=store)).output for _ in range(3)]
        assert outputs == ["user:go"] * 3
        with pytest.raises(BudgetExceeded, match="cost \\$0.03 of \\$0.03"):
            await spawn_bundle(child, "go", parent, session_id="fourth", session_storage=store)
    failed = await store.get("fourth")
    assert (failed.status, "cost $0.03 of $0.03" in (failed.error or "")) == ("failed", True)


@pytest.mark.parametrize("limit", [None, "5", True, 0, -1])
def test_a_section_without_an_amount_sets_no_budget(limit: Any) -> None:
    assert Budget.of_tree({"max_cost_usd": limit}, "tree:s") == []


async def test_a_budget_that_cannot_be_is_an_error_of_the_bundle(tmp_path: Path) -> None:
    path = tmp_path / "bundle.md"
    path.write_text("---\nbundle: {name: b}\nspawn: {max_cost_usd: 0}\n---\n")
    with pytest.raises(InvalidBundle, match=r"spawn.max_cost_usd"):
        await load_bundle(str(path))


def test_a_run_that_spends_its_budget_ends_with_7(amplifier: Any, tmp_path: Path, words: Any) -> None:
    section = json.dumps({"providers": [words.entry("provider-echo")], "spawn": {"max_cost_usd": 0.01}})
    (tmp_path / "bundle.md").write_text(f"---\n{{bundle: {{name: talk}}, {section[1:-1]}}}\n---\n", encoding="utf-8")
    first = amplifier("run", "--json", "hello", cwd=tmp_path)
    assert first.returncode == exits.OK, first.stderr
    session_id = json.loads(first.stdout)["data"]["session_id"]
    second = amplifier("run", "--resume", session_id, "more", cwd=tmp_path)
    assert (second.returncode, second.stdout.strip()) == (exits.BUDGET, "")
    assert "Allow more in the bundle: 'spawn: {max_cost_usd: …}'" in second.stderr
    assert "Traceback" not in second.stderr


async def test_sessions_without_a_budget_cost_what_they_cost(parent: AmplifierSession, make_bundle: MakeBundle) -> None:
    assert (await spawn_bundle(make_bundle(), "hello", parent)).status == "completed"
