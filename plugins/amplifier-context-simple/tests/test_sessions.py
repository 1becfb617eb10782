"""Test compaction in stored sessions: requests are compacted, and the history stays whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.llm_errors import ContextLengthError
from amplifier_core.models import HookResult
from amplifier_core.storage import SessionRecord
from amplifier_foundation import load_bundle, open_store
from amplifier_foundation.sessions.forks import fork_stored
from amplifier_foundation.spawning.conversation import Conversation, open_conversation

BUNDLE = """---
bundle: {name: long}
session:
  context: {module: context-simple, config: {max_tokens: 120}}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^read'}
          call: {tool: read_file, input: {file_path: a.txt}}
        - when: {tool: read_file}
          say: "{lines} lines."
      otherwise: {say: "You said: {prompt}"}
tools: [{module: tool-filesystem}]
---
Be brief.
"""


class Watch:
    """The compactions and the requests of a session."""

    def __init__(self, conversation: Conversation) -> None:
        self.cuts: list[dict[str, Any]] = []
        conversation.session.coordinator.hooks.register("context:compaction", self._note)
        self.requests = record_requests(conversation, "playbook")

    async def _note(self, event: str, data: dict[str, Any]) -> None:
        self.cuts.append(data)


def record_requests(conversation: Conversation, name: str) -> list[list[Any]]:
    """Return the messages of each request from now on, as they come; a refused one is among them."""
    requests: list[list[Any]] = []
    provider = conversation.session.coordinator.get("providers")[name]
    complete = provider.complete

    async def record(request: Any, **kwargs: Any) -> Any:
        requests.append(request.messages)
        return await complete(request, **kwargs)

    provider.complete = record
    return requests


async def test_a_compacted_session_is_stored_whole_and_forked_and_resumed_at_any_message(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    (tmp_path / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    (tmp_path / "a.txt").write_text("1\n2\n", encoding="utf-8")
    plugins = load_plugins(environ={})
    store, bundle = open_store(plugins), await load_bundle(str(tmp_path / "bundle.md"))
    async with open_conversation(bundle, store, plugins, working_dir=tmp_path) as conversation:
        watch = Watch(conversation)
        for number in range(5):
            assert (await conversation.say(f"read {number}")).output == "2 lines."
        record = await conversation.read_record()
    assert record is not None
    assert len(watch.cuts) >= 2
    assert max(map(len, watch.requests)) < 20
    assert {request[0].content for request in watch.requests} == {"Be brief."}
    whole = await store.read(record.session_id)
    assert [each["role"] for each in whole] == ["user", "assistant", "tool", "assistant"] * 5
    assert [each["content"] for each in whole[::4]] == [f"read {number}" for number in range(5)]

    for message in range(1, 21):
        fork = await fork_stored(store, record, message=message, plugins=plugins)
        async with open_conversation(bundle, store, plugins, resume=fork) as conversation:
            again = Watch(conversation)
            assert (await conversation.say("read again")).output == "2 lines."
            for request in again.requests:
                calls = [call for each in request if each.role == "assistant" for call in calls_of(each)]
                assert calls == [each.tool_call_id for each in request if each.role == "tool"]
    assert list(await store.read(record.session_id)) == list(whole)
    async with open_conversation(bundle, store, plugins, resume=record) as conversation:
        assert (await conversation.say("and now?")).output == "You said: and now?"
    await store.close()


STRICT = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock
from amplifier_core.llm_errors import ContextLengthError
from amplifier_core.message_models import Usage

class Strict:
    name = "strict"
    def get_info(self):
        defaults = {"context_window": 2000, "max_output_tokens": 200}
        return ProviderInfo(id="strict", display_name="Strict", defaults=defaults)
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        tokens = sum(len(str(message.content)) for message in request.messages)
        if tokens > 2000: raise ContextLengthError("prompt is too long", provider="strict")
        answer = f"{len(request.messages)} messages, the last is {request.messages[-1].content[:6]}"
        usage = Usage(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
        return ChatResponse(content=[TextBlock(text=answer)], usage=usage)

async def mount(coordinator, config):
    await coordinator.mount("providers", Strict())
"""


@pytest.fixture
def strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle of a model that counts each character, and takes 2,000."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    provider = "[{module: provider-strict, source: ./strict.py}]"
    text = f"---\nbundle: {{name: long}}\nproviders: {provider}\n---\nBe brief.\n"
    (tmp_path / "bundle.md").write_text(text, encoding="utf-8")
    (tmp_path / "strict.py").write_text(STRICT, encoding="utf-8")
    return tmp_path / "bundle.md"


async def test_a_model_that_counts_each_character_takes_a_long_session(strict: Path, tmp_path: Path) -> None:
    plugins = load_plugins(environ={})
    store, bundle = open_store(plugins), await load_bundle(str(strict))
    record, refused = None, 0
    for number in range(12):
        async with open_conversation(bundle, store, plugins, resume=record, working_dir=tmp_path) as conversation:
            turn = await conversation.say(f"say {number:2} " + "\u8bf7" * 400)
            assert turn.output.endswith(f"say {number:2}"), turn
            record = await conversation.read_record()
    assert record is not None
    async with open_conversation(bundle, store, plugins, resume=record) as conversation:
        coordinator = conversation.session.coordinator

        async def count(event: str, data: dict[str, Any]) -> None:
            nonlocal refused
            refused += 1

        coordinator.hooks.register("provider:error", count)
        too_long = "\u8bf7" * 2001
        with pytest.raises(ContextLengthError):
            await conversation.say(too_long)
        assert refused == 1
    await store.close()


@pytest.mark.parametrize("window", ['"context_window": 20000', '"model": "unknown"'])
async def test_a_resumed_session_sends_no_more_than_one_that_was_never_left(
    strict: Path, tmp_path: Path, window: str
) -> None:
    of_another_size = STRICT.replace('"context_window": 2000, "max_output_tokens": 200', window)
    (tmp_path / "strict.py").write_text(of_another_size, encoding="utf-8")
    plugins = load_plugins(environ={})
    store, bundle = open_store(plugins), await load_bundle(str(strict))

    async def talk(turns: int, record: SessionRecord | None) -> tuple[SessionRecord | None, list[list[str]]]:
        async with open_conversation(bundle, store, plugins, resume=record, working_dir=tmp_path) as conversation:
            requests = record_requests(conversation, "strict")
            for _ in range(turns):
                await conversation.say("say so " + "well " * 40)
            return await conversation.read_record(), [[each.content for each in request] for request in requests]

    _, expected = await talk(16, None)
    assert len(expected) == 19  # three were refused
    record, sent = await talk(1, None)
    for _ in range(15):
        record, more = await talk(1, record)
        sent += more
    assert sent == expected
    await store.close()


async def test_a_refusal_for_what_a_hook_has_added_leaves_the_session_its_history(strict: Path, tmp_path: Path) -> None:
    plugins = load_plugins(environ={})
    store, bundle = open_store(plugins), await load_bundle(str(strict))
    async with open_conversation(bundle, store, plugins, working_dir=tmp_path) as conversation:
        for number in range(6):
            turn = await conversation.say(f"say {number}" + " well" * 20)
        assert turn.output.startswith("12 messages")

        async def inject(event: str, data: dict[str, Any]) -> HookResult:
            large = "x" * 2001
            return HookResult(action="inject_context", context_injection=large, ephemeral=True)

        unregister = conversation.session.coordinator.hooks.register("prompt:submit", inject)
        with pytest.raises(ContextLengthError):
            await conversation.say("say 6")
        unregister()
        assert (await conversation.say("say 7")).output.startswith("15 messages")
    await store.close()


def calls_of(message: Any) -> list[str]:
    return [block.id for block in message.content if block.type == "tool_call"] if message.content else []
