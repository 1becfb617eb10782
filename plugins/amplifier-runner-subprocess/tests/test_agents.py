"""Agents with `runner: subprocess`: what crosses between their process and that of the session above them."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import AmplifierSession, load_plugins
from amplifier_core.errors import BudgetExceeded
from amplifier_core.events import TOOL_POST, TOOL_PRE
from amplifier_core.models import HookResult
from amplifier_core.permissions import Policy, parse_permissions
from amplifier_core.testing import MemoryStore
from amplifier_foundation.bundle.load import read_bundle
from amplifier_foundation.sessions.history import text_of
from amplifier_foundation.spawning.conversation import Conversation, open_conversation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Open = Callable[..., AbstractAsyncContextManager[Conversation]]

pytestmark = pytest.mark.slow

WORKER = """
import os
from amplifier_core import ToolResult

class Worker:
    name, description, input_schema = "work", "Works.", {"type": "object", "properties": {}}

    def __init__(self, coordinator):
        self.coordinator = coordinator

    async def execute(self, arguments):
        display = self.coordinator.display_system
        if display is not None:
            display.show_message("at work", "info", "worker")
        emit = self.coordinator.get_capability("event.emit")
        await emit("work:done", {"by": self.coordinator.session_id})
        return ToolResult(success=True, output=str(os.getpid()))

async def mount(coordinator, config):
    await coordinator.mount("tools", Worker(coordinator))
"""
BUNDLE = """---
bundle: {name: lead}
session: {orchestrator: loop-basic, context: context-simple}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {tool: work, output: '(?P<pid>.*)'}
          say: "I am {pid}"
        - when: {tool: delegate, output: '(?s)(?P<what>.*)'}
          say: "It said: {what}"
        - when: {user: do the work}
          call: {tool: work, input: {}}
        - when: {user: delegate}
          call: {tool: delegate, input: {agent: worker, instruction: do the work}}
tools: [{module: tool-delegate}]
agents:
  worker:
    runner: subprocess
    tools: [{module: tool-work, source: ./work.py}]
SECTIONS---
"""


class Display:
    """Keeps what it is to show, with the level."""

    def __init__(self) -> None:
        self.level = 0
        self.shown: list[tuple[int, str]] = []

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        self.shown.append((self.level, message))

    def push_nesting(self) -> None:
        self.level += 1

    def pop_nesting(self) -> None:
        self.level -= 1


class Approvals:
    """Answers every question alike, and keeps it."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - a published signature
        default: str,
    ) -> str:
        self.asked.append(prompt)
        return self.answer


@pytest.fixture
def open_lead(tmp_path: Path) -> Open:
    """Open a session whose agent has a process of its own; `sections` are added to its bundle."""
    (tmp_path / "work.py").write_text(WORKER)
    plugins = load_plugins()

    def opener(store: MemoryStore, sections: str = "", **options: Any) -> Any:
        (tmp_path / "bundle.md").write_text(BUNDLE.replace("SECTIONS", sections))
        bundle = read_bundle(tmp_path / "bundle.md")
        return open_conversation(bundle, store, plugins, working_dir=tmp_path, **options)

    return opener


async def agents_of(store: MemoryStore, lead: str) -> AsyncIterator[Any]:
    """Yield the sessions of agents."""
    for record in await store.sessions(parent_id=lead):
        yield record


async def test_an_agent_has_a_process_of_its_own_and_its_history_in_the_store(open_lead: Open) -> None:
    store = MemoryStore()
    async with open_lead(store) as lead:
        turn = await lead.say("delegate")
    [pid] = re.findall(r"I am ([0-9]+)", turn.output)
    assert int(pid) != os.getpid()
    [record] = [each async for each in agents_of(store, turn.session_id)]
    messages = await store.read(record.session_id)
    assert (record.status, record.turn_count, record.message_count) == ("completed", 1, len(messages))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert record.metadata["usage"]["requests"] == 2
    [event] = [each for each in await store.events() if each.name == "work:done"]
    assert (event.source_session_id, event.data["by"]) == (record.session_id, record.session_id)


async def test_its_tools_are_held_to_the_permissions_of_the_session_above(open_lead: Open) -> None:
    policy = Policy([parse_permissions({"deny": ["work"]}, "the settings", is_own=True)])
    store = MemoryStore()
    async with open_lead(store, permissions=policy) as lead:
        turn = await lead.say("delegate")
    assert "not permitted: the rule work of the settings" in turn.output


@pytest.mark.parametrize(("answer", "told"), [("Allow once", "I am "), ("Deny", "Denied by")])
async def test_its_questions_are_put_above(open_lead: Open, answer: str, told: str) -> None:
    policy = Policy([parse_permissions({"ask": ["work"]}, "the settings", is_own=True)])
    approvals = Approvals(answer)
    async with open_lead(MemoryStore(), permissions=policy, approval_system=approvals) as lead:
        turn = await lead.say("delegate")
    assert told in turn.output
    [question] = approvals.asked
    assert question.startswith("worker: work(): ")


async def test_what_it_shows_is_shown_above_one_level_down(open_lead: Open) -> None:
    display = Display()
    async with open_lead(MemoryStore(), display_system=display) as lead:
        await lead.say("delegate")
    assert (display.shown, display.level) == ([(1, "at work")], 0)


async def test_those_who_listen_above_hear_its_tools_before_they_run_and_may_refuse_them(open_lead: Open) -> None:
    heard: list[tuple[str, str]] = []

    def attach(session: AmplifierSession) -> None:
        async def hear(event: str, data: dict[str, Any]) -> HookResult | None:
            heard.append((event, data["tool_name"]))
            refused = event == TOOL_PRE and data["tool_name"] == "work"
            return HookResult(action="deny", reason="not on a Sunday") if refused else None

        for event in (TOOL_PRE, TOOL_POST):
            session.coordinator.hooks.register(event, hear)

    async with open_lead(MemoryStore(), attach=attach) as lead:
        turn = await lead.say("delegate")
    assert "not on a Sunday" in turn.output
    assert heard == [(TOOL_PRE, "delegate"), (TOOL_PRE, "work"), (TOOL_POST, "delegate")]


async def test_the_budget_of_the_tree_counts_what_it_uses(open_lead: Open) -> None:
    async with open_lead(MemoryStore(), "spawn: {budget: {turns: 1}}\n") as lead:
        with pytest.raises(BudgetExceeded):
            await lead.say("delegate")
            await lead.say("delegate")


async def test_a_stop_of_the_session_above_reaches_it(open_lead: Open, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        WORKER.replace(
            "return ToolResult",
            "open('begun', 'w').close()\n        import asyncio\n"
            "        while not self.coordinator.cancellation.is_cancelled:\n            await asyncio.sleep(0.01)\n"
            "        return ToolResult",
        )
    )
    store = MemoryStore()
    async with open_lead(store) as lead:
        turn = asyncio.ensure_future(lead.say("delegate"))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        lead.session.coordinator.cancellation.request_graceful()
        await turn
        [record] = [each async for each in agents_of(store, lead.session.session_id)]
    assert record.status == "cancelled"
    assert any("I am" not in text_of(message) for message in await store.read(record.session_id))
