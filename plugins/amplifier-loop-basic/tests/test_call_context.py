"""Test the context of a tool call: its idempotency key, and calls that run again."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from amplifier_core.models import HookResult, ToolResult
from amplifier_loop_basic.call_context import CallGroup


def asks_for_its_call(room: Any, seen: list[dict[str, Any]]) -> Any:
    """Return a tool's function that notes the context of its own call."""

    async def note(input: dict[str, Any]) -> ToolResult:
        call = room.coordinator.get_capability("tool.call")
        seen.append({**call(), **input})
        return ToolResult(output="noted")

    return note


async def test_a_tool_reads_the_context_of_its_own_call(room: Any) -> None:
    seen: list[dict[str, Any]] = []
    room.tool("a", asks_for_its_call(room, seen))
    room.tool("b", asks_for_its_call(room, seen))
    await room.run("go", room.calls("a", "b"), room.calls("a"), "done")
    assert [(each["session_id"], each["tool_name"], each["tool_call_id"]) for each in seen] == [
        ("s", "a", "1"),
        ("s", "b", "2"),
        ("s", "a", "1"),
    ]
    keys = [each["idempotency_key"] for each in seen]
    assert len(set(keys)) == 3, "two calls of one id stand at two places of the history"
    assert [data["idempotency_key"] for data in room.data("tool:pre")] == keys
    assert [data["idempotency_key"] for data in room.data("tool:post")] == keys
    assert room.coordinator.get_capability("tool.call")() is None


async def test_a_call_has_the_same_key_whenever_it_is_asked_for(room: Any) -> None:
    seen: list[dict[str, Any]] = []

    async def tidy(input: dict[str, Any]) -> ToolResult:
        early = room.coordinator.get_capability("tool.call")()
        await room.context.add_message({"role": "assistant", "content": "by another hand"})
        seen.extend([early, room.coordinator.get_capability("tool.call")()])
        return ToolResult(output="done")

    room.tool("a", tidy)
    await room.run("go", room.calls("a"), "done")
    keys = {each["idempotency_key"] for each in (*seen, *room.data("tool:post"))}
    assert keys == {sha256(b"s\x001\x001").hexdigest()[:32]}, "of the session, the place of the message, and the call"


def test_the_place_of_a_call_is_that_before_its_tool_ran_also_when_it_is_looked_up_later() -> None:
    history: list[dict[str, Any]] = [{"role": "user"}, {"role": "assistant", "tool_calls": [{"id": "1"}]}]
    group = CallGroup("s", history, "1")
    history += [{"role": "tool", "tool_call_id": "1"}, {"role": "assistant", "tool_calls": [{"id": "1"}]}]
    assert group.position == 1


async def test_a_call_that_runs_again_has_its_first_key_and_input(room: Any) -> None:
    seen: list[dict[str, Any]] = []
    room.tool("pay", asks_for_its_call(room, seen))
    room.tool("read")
    await room.run("go", room.calls("read", "pay"), "done")
    room.context.messages = room.context.messages[:3]  # as a crash leaves it before the result of `pay`
    room.coordinator.register_capability("tool.run_again", ["2"])
    assert await room.run("", "paid") == "paid"
    assert seen[0] == seen[1]
    assert (seen[1]["n"], room.history()[-2:]) == (
        2,
        [("tool", "noted"), ("assistant", [{"type": "text", "text": "paid"}])],
    )
    assert [message["role"] for message in room.context.messages] == ["user", "assistant", "tool", "tool", "assistant"]


class Held:
    """The held calls of a session, as its program keeps them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.waiting: set[str] = set()

    async def begin(self, call_id: str) -> None:
        self.begun.append(call_id)

    def is_held(self, call_id: str) -> bool:
        return call_id in self.waiting


async def test_a_held_call_has_no_result_and_ends_the_turn_while_the_others_run(room: Any) -> None:
    room.tool("read")
    pay = room.tool("pay")
    answers = [HookResult(action="deny", reason="wait", data={"held": "a1"}), HookResult()]

    async def guard(event: str, data: dict[str, Any]) -> HookResult:
        return answers.pop(0) if data["tool_name"] == "pay" else HookResult()

    room.hooks.register("tool:pre", guard)
    held = Held()
    room.coordinator.register_capability("tool.held", held)
    assert await room.run("go", room.calls("pay", "read"), "unasked") == "A tool call waits for approval."
    assert (pay.inputs, held.begun) == ([], ["2"])
    assert [message.get("tool_call_id") for message in room.context.messages] == [None, None, "2"]
    room.coordinator.register_capability("tool.run_again", ["1"])
    assert await room.run("", "paid") == "paid"
    assert (pay.inputs, held.begun) == ([{"n": 1}], ["2", "1"])


async def test_what_a_hook_adds_beside_a_held_call_stands_in_the_result_of_another(room: Any) -> None:
    room.tool("read")
    room.tool("pay")

    async def guard(event: str, data: dict[str, Any]) -> HookResult:
        is_held = data["tool_name"] == "pay"
        return HookResult(action="deny", reason="wait", data={"held": "a1"}) if is_held else HookResult()

    room.hooks.register("tool:pre", guard)
    room.on("tool:post", action="inject_context", context_injection="It was read before.")
    await room.run("go", room.calls("pay", "read"), "unasked")
    assert [message["role"] for message in room.context.messages] == ["user", "assistant", "tool"]
    assert room.context.messages[-1]["content"] == "read\n\nIt was read before."


async def test_a_call_is_held_too_when_one_of_a_session_below_it_is(room: Any) -> None:
    held = Held()

    async def delegate(given: dict[str, Any]) -> str:
        held.waiting.add("1")
        return "half of an answer"

    room.tool("delegate", delegate)
    room.coordinator.register_capability("tool.held", held)
    await room.run("go", room.calls("delegate"), "unasked")
    assert [message["role"] for message in room.context.messages] == ["user", "assistant"]
    assert [each["error"]["type"] for each in room.data("tool:error")] == ["Held"]
