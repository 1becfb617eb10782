"""Test the loop in stored sessions: with the playbook, the store, forks and budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import BudgetExceeded, load_plugins
from amplifier_foundation import load_bundle, open_store
from amplifier_foundation.sessions.forks import fork_stored
from amplifier_foundation.spawning.conversation import Conversation, open_conversation

BUNDLE = """---
bundle: {name: steered}
session: {orchestrator: loop-streaming}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^count (?P<name>\\S+)'}
          call: [{tool: read_file, input: {file_path: "{name}"}}, {tool: read_file, input: {file_path: "{name}"}}]
        - when: {user: '^stop'}
          say: "Stopped."
        - when: {tool: read_file}
          say: "{lines} lines."
      otherwise: {say: "You said: {prompt}"}
tools: [{module: tool-filesystem}]
---
"""
COSTLY = """---
bundle: {name: costly}
session: {orchestrator: loop-streaming}
providers: [{module: provider-costly, source: ./costly.py}]
spawn: {max_cost_usd: 0.02}
---
"""
PROVIDER = '''
from decimal import Decimal

from amplifier_core.message_models import ChatResponse, TextBlock, Usage


class Costly:
    """Answers for a cent."""

    name = "costly"

    async def complete(self, request, **kwargs):
        usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2, cost_usd=Decimal("0.01"))
        return ChatResponse(content=[TextBlock(text="yes")], usage=usage)

    def parse_tool_calls(self, response):
        return []


async def mount(coordinator, config):
    await coordinator.mount("providers", Costly())
'''


@pytest.fixture
async def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    (tmp_path / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    (tmp_path / "costly.md").write_text(COSTLY, encoding="utf-8")
    (tmp_path / "costly.py").write_text(PROVIDER, encoding="utf-8")
    (tmp_path / "a.txt").write_text("1\n2\n", encoding="utf-8")
    plugins = load_plugins(environ={})
    store = open_store(plugins)

    async def open_session(record: Any = None, name: str = "bundle.md") -> Any:
        bundle = await load_bundle(str(tmp_path / name))
        return open_conversation(bundle, store, plugins, resume=record, working_dir=None if record else tmp_path)

    open_session.store = store  # type: ignore[attr-defined]
    yield open_session
    await store.close()


def steer_at_first_tool(conversation: Conversation, text: str) -> None:
    """Send one message to the session while its first tool call runs."""
    coordinator, waiting = conversation.session.coordinator, [text]

    async def send(event: str, data: dict[str, Any]) -> None:
        if waiting:
            assert coordinator.get_capability("session.steer")(waiting.pop())

    coordinator.hooks.register("tool:pre", send)


async def test_a_message_to_a_running_turn_is_stored_and_a_fork_begins_before_or_after_it(opened: Any) -> None:
    async with await opened() as conversation:
        steer_at_first_tool(conversation, "stop")
        turn = await conversation.say("count a.txt")
        record = await conversation.read_record()
    assert (turn.output, turn.status, turn.turn_count) == ("Stopped.", "completed", 2)
    history = await opened.store.read(record.session_id)
    assert [each["role"] for each in history] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    before = await fork_stored(opened.store, record, turn=1, plugins=load_plugins(environ={}))
    assert before.message_count == 4
    async with await opened(before) as conversation:
        assert (await conversation.say("")).output == "2 lines."


async def test_a_spent_budget_ends_the_turn_with_its_reason(opened: Any) -> None:
    ends: list[dict[str, Any]] = []

    async def note(event: str, data: dict[str, Any]) -> None:
        ends.append(data)

    async with await opened(name="costly.md") as conversation:
        conversation.session.coordinator.hooks.register("orchestrator:complete", note)
        await conversation.say("one")
        await conversation.say("two")
        with pytest.raises(BudgetExceeded):
            await conversation.say("three")
        history = await conversation.session.history()
    assert [(each["status"], each.get("finish_reason")) for each in ends[1:]] == [
        ("success", None),
        ("incomplete", "budget"),
    ]
    assert history[-1]["content"] == "three"
