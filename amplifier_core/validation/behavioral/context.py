"""Test the behaviour of contexts with messages."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import pytest

from ..base import takes
from ..context import CALLS


class ContextBehaviorTests:
    """The behaviour of every context with messages."""

    module_kind: ClassVar[str] = "context"

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, context_module: Any) -> None:
        """A context is mounted."""
        assert context_module is not None, "mount() must mount a context"

    @pytest.mark.asyncio
    async def test_context_has_required_methods(self, context_module: Any) -> None:
        """A context has every method of its protocol."""
        missing = [name for name in CALLS if not callable(getattr(context_module, name, None))]
        assert not missing, f"a context must have: {', '.join(missing)}"

    @pytest.mark.asyncio
    async def test_message_round_trip(self, context_module: Any) -> None:
        """An added message is there, and so is a set one."""
        await context_module.add_message({"role": "user", "content": "Hello"})
        assert await _contents(context_module) == ["Hello"], "get_messages() must return the message that was added"
        await context_module.set_messages([{"role": "user", "content": "Other"}])
        assert await _contents(context_module) == ["Other"], "set_messages() must replace the messages that were there"

    @pytest.mark.asyncio
    async def test_multiple_messages(self, context_module: Any) -> None:
        """Messages are kept in the order of their adding."""
        said = ["First", "Response", "Second"]
        for role, text in zip(("user", "assistant", "user"), said, strict=True):
            await context_module.add_message({"role": role, "content": text})
        assert await _contents(context_module) == said, "get_messages() must return the messages in their order"

    @pytest.mark.asyncio
    async def test_clear_removes_messages(self, context_module: Any) -> None:
        """Nothing is left after `clear`."""
        await context_module.add_message({"role": "user", "content": "Test"})
        await context_module.clear()
        assert await _contents(context_module) == [], "clear() must remove every message"

    @pytest.mark.asyncio
    async def test_get_messages_for_request_returns_messages(self, context_module: Any) -> None:
        """A short history is in the request."""
        await context_module.add_message({"role": "user", "content": "Test"})
        messages = await context_module.get_messages_for_request()
        assert isinstance(messages, list), f"get_messages_for_request() must return a list, not {messages!r}"
        assert messages, "get_messages_for_request() must return the message that was added"

    @pytest.mark.asyncio
    async def test_internal_should_compact_returns_bool(self, context_module: Any) -> None:
        """An optional `_should_compact()` without arguments returns true or false."""
        should_compact = getattr(context_module, "_should_compact", None)
        if callable(should_compact) and takes(should_compact):
            answer = await _resolve(should_compact())
            assert isinstance(answer, bool), f"_should_compact() must return true or false, not {answer!r}"

    @pytest.mark.asyncio
    async def test_internal_compact_does_not_crash(self, context_module: Any) -> None:
        """An optional `_compact_internal()` without arguments works on one message."""
        compact = getattr(context_module, "_compact_internal", None)
        if callable(compact) and takes(compact):
            await context_module.add_message({"role": "user", "content": "Test"})
            await _resolve(compact())
            assert isinstance(await context_module.get_messages(), list), "_compact_internal() must leave a list"

    @pytest.mark.asyncio
    async def test_add_invalid_message_does_not_crash(self, context_module: Any) -> None:
        """A message without role and content is taken or refused, and the next one is kept all the same."""
        try:
            await context_module.add_message({})
        except Exception:  # a refusal
            await context_module.clear()
        except SystemExit as error:
            pytest.fail(f"add_message({{}}) must not end the process: SystemExit({error})")
        await context_module.add_message({"role": "user", "content": "Test"})
        assert "Test" in await _contents(context_module), "add_message() must work after a message that was not valid"

    @pytest.mark.asyncio
    async def test_get_messages_never_returns_none(self, context_module: Any) -> None:
        """An empty context returns an empty list."""
        messages = await context_module.get_messages()
        assert isinstance(messages, list), f"get_messages() must return a list, not {messages!r}"


async def _contents(context: Any) -> list[Any]:
    messages = await context.get_messages()
    assert isinstance(messages, list), f"get_messages() must return a list, not {messages!r}"
    return [_text(message.get("content")) for message in messages]


def _text(content: Any) -> Any:
    """Return a message's text; a context may keep it as blocks."""
    return "".join(str(block.get("text", "")) for block in content) if isinstance(content, list) else content


async def _resolve(outcome: Any) -> Any:
    return await outcome if inspect.isawaitable(outcome) else outcome
