"""Test the memory of a session: its messages, its requests, and its cuts."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from importlib.metadata import entry_points
from typing import Any

import pytest

import amplifier_context_simple
from amplifier_context_simple import SimpleContextManager
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.interfaces import ContextManager
from amplifier_core.models import HookResult, ProviderInfo
from amplifier_core.transcript import Transcript

WORD = "x" * 36  # with its own token, a message of ten


def user(name: str) -> dict[str, Any]:
    return {"role": "user", "content": name.ljust(36, "x")}


def assistant(name: str) -> dict[str, Any]:
    return {"role": "assistant", "content": name.ljust(36, "x")}


def call(call_id: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "tool": "read", "arguments": {}}]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": "read", "content": WORD}


def names(messages: list[dict[str, Any]]) -> list[str]:
    return [str(message["content"]).rstrip("x") or str(message["role"]) for message in messages]


class Model:
    """A provider, as far as the context looks at it."""

    def __init__(self, **defaults: Any) -> None:
        self.defaults = defaults

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="m", display_name="M", defaults=self.defaults)


EXACT = {"compact_threshold": 1, "target_usage": 0.75}
"""Requests may fill the budget to its last token."""


async def filled(*messages: dict[str, Any], **config: Any) -> SimpleContextManager:
    context = SimpleContextManager(None, {**EXACT, **config})
    for message in messages:
        await context.add_message(message)
    return context


@pytest.fixture
async def mounted() -> tuple[ModuleCoordinator, SimpleContextManager]:
    coordinator = ModuleCoordinator(session_id="s")
    coordinator.register_capability("session.transcript", Transcript())
    await amplifier_context_simple.mount(coordinator, EXACT)
    return coordinator, coordinator.get("context")


# keeping


async def test_a_message_is_copied_and_stamped_with_the_time_in_utc() -> None:
    message = {"role": "user", "content": "hi"}
    context = await filled(message)
    (kept,) = await context.get_messages()
    assert message == {"role": "user", "content": "hi"}
    assert datetime.fromisoformat(kept["metadata"]["timestamp"]).utcoffset() == timedelta(0)


async def test_a_timestamp_and_other_metadata_are_kept() -> None:
    old, new = {"timestamp": "then", "a": 1}, {"a": 2}
    context = await filled({"role": "user", "metadata": old}, {"role": "user", "metadata": new})
    first, second = await context.get_messages()
    assert first["metadata"] == {"timestamp": "then", "a": 1}
    assert second["metadata"]["a"] == 2
    assert new == {"a": 2}


async def test_what_is_handed_out_can_be_changed_without_changing_the_memory() -> None:
    context = await filled(user("a"))
    for handed in (await context.get_messages(), await context.get_messages_for_request()):
        handed[0]["content"] = "changed"
        handed.clear()
    assert names(await context.get_messages()) == ["a"]


async def test_an_empty_memory_is_an_empty_list() -> None:
    context = await filled()
    assert await context.get_messages() == []
    assert await context.get_messages_for_request(token_budget=1) == []


async def test_messages_are_replaced_and_forgotten() -> None:
    context = await filled(user("a"))
    await context.set_messages([user("b"), assistant("c")])
    assert names(await context.get_messages()) == ["b", "c"]
    await context.clear()
    assert await context.get_messages() == []


async def test_the_kernels_transcript_is_the_memory(mounted: Any) -> None:
    coordinator, context = mounted
    await context.add_message(user("a"))
    transcript = coordinator.get_capability("session.transcript")
    assert context.transcript is transcript
    assert names(list(transcript)) == ["a"]


async def test_replacing_the_messages_leaves_forks_alone(mounted: Any) -> None:
    coordinator, context = mounted
    await context.add_message(user("a"))
    fork = context.transcript.fork()
    await context.set_messages([user("b")])
    assert (names(list(fork)), names(await context.get_messages())) == (["a"], ["b"])
    assert coordinator.get_capability("session.transcript") is context.transcript
    assert isinstance(context.transcript, Transcript)


async def test_without_a_transcript_of_the_kernel_a_list_serves() -> None:
    coordinator = ModuleCoordinator()
    await amplifier_context_simple.mount(coordinator)
    context = coordinator.get("context")
    assert context.transcript == []
    await context.set_messages([user("a")])
    assert coordinator.get_capability("session.transcript") is None


# the system prompt


async def test_the_system_prompt_is_made_anew_for_every_request_and_never_kept() -> None:
    context = await filled(user("a"))
    prompts = ["one", "two"]

    async def factory() -> str:
        return prompts.pop(0)

    await context.set_system_prompt_factory(factory)
    requests = [await context.get_messages_for_request() for _ in range(2)]
    assert [request[0] for request in requests] == [
        {"role": "system", "content": "one"},
        {"role": "system", "content": "two"},
    ]
    assert names(await context.get_messages()) == ["a"]


async def test_the_system_prompt_counts_for_the_budget() -> None:
    context = await filled(user("a"), user("b"))

    async def factory() -> str:
        return "s" * 40

    assert len(await context.get_messages_for_request(token_budget=20)) == 2
    await context.set_system_prompt_factory(factory)
    assert names(await context.get_messages_for_request(token_budget=29)) == ["s" * 40, "b"]


# cutting

TURNS = [user("a"), assistant("b"), user("c"), assistant("d"), user("e"), assistant("f")]


async def test_a_history_that_fits_is_sent_whole() -> None:
    context = await filled(*TURNS)
    assert names(await context.get_messages_for_request(token_budget=60)) == list("abcdef")


async def test_the_oldest_turns_go_first_and_the_history_stays() -> None:
    context = await filled(*TURNS)
    assert names(await context.get_messages_for_request(token_budget=59)) == list("cdef")
    assert names(await context.get_messages()) == list("abcdef")


async def test_a_cut_leaves_room_and_stands_until_that_is_full() -> None:
    context = await filled(*TURNS, max_tokens=55)
    assert names(await context.get_messages_for_request()) == list("cdef")
    await context.add_message(user("g"))
    assert names(await context.get_messages_for_request()) == list("cdefg")
    await context.add_message(assistant("h"))
    assert names(await context.get_messages_for_request()) == list("efgh")


async def test_a_cut_keeps_three_quarters_of_the_room() -> None:
    context = await filled(*TURNS * 4)
    assert len(await context.get_messages_for_request(token_budget=200)) == 14


async def test_another_budget_is_another_cut() -> None:
    context = await filled(*TURNS)
    assert names(await context.get_messages_for_request(token_budget=25)) == list("ef")
    assert names(await context.get_messages_for_request(token_budget=59)) == list("cdef")
    assert names(await context.get_messages_for_request()) == list("abcdef")


async def test_of_a_last_turn_that_is_too_long_its_task_and_its_last_steps_are_sent() -> None:
    steps = [each for number in range(9) for each in (call(f"{number}"), result(f"{number}"))]
    context = await filled(user("a"), assistant("b"), user("c"), *steps, max_tokens=200)
    sent = await context.get_messages_for_request()
    assert [each["content"] for each in sent[:1]] == [user("c")["content"]]
    assert [each["tool_call_id"] for each in sent if each["role"] == "tool"] == ["3", "4", "5", "6", "7", "8"]
    before = len(sent)
    for each in (call("9"), result("9")):
        await context.add_message(each)
    assert (await context.get_messages_for_request())[:before] == sent


async def test_the_last_step_is_sent_even_when_it_alone_is_too_long() -> None:
    context = await filled(user("c"), call("1"), result("1"), call("2"), result("2"))
    assert names(await context.get_messages_for_request(token_budget=10)) == ["c", "assistant", "tool"]
    context = await filled(user("a"), assistant("b"), user("c" * 400))
    assert names(await context.get_messages_for_request(token_budget=10)) == ["c" * 400]


async def test_all_messages_of_the_user_to_a_running_turn_are_sent() -> None:
    steering = {**user("and"), "metadata": {"source": "steering"}}
    reminder = {**user("hook"), "metadata": {"source": "hook"}}
    turn = [user("c"), reminder, call("1"), result("1"), steering, call("2"), result("2"), call("3"), result("3")]
    context = await filled(user("a"), assistant("b"), *turn)
    sent = await context.get_messages_for_request(token_budget=60)
    assert names(sent) == ["c", "and", "assistant", "tool"]
    assert sent[-1]["tool_call_id"] == "3"


@pytest.mark.parametrize("budget", range(1, 120, 3))
async def test_no_result_is_sent_without_its_call(budget: int) -> None:
    turn = [user("a"), call("1"), result("1"), call("2"), result("2"), assistant("b")]
    context = await filled(*turn, *turn, *turn)
    sent = await context.get_messages_for_request(token_budget=budget)
    assert sent[0]["role"] == "user"
    calls = [each["id"] for message in sent for each in message.get("tool_calls", ())]
    assert calls == [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert len(sent) % 6 in (0, 2, 4)


async def test_what_a_hook_says_in_the_middle_of_a_turn_does_not_begin_one() -> None:
    said = {**user("hook"), "metadata": {"source": "hook"}}
    context = await filled(user("a"), assistant("b"), user("c"), said, assistant("d"))
    assert names(await context.get_messages_for_request(token_budget=40)) == ["c", "hook", "d"]


async def test_what_stands_between_a_call_and_its_result_does_not_begin_a_turn() -> None:
    context = await filled(user("a"), assistant("b"), user("c"), call("1"), user("d"), result("1"))
    assert names(await context.get_messages_for_request(token_budget=25)) == ["c", "assistant", "d", "tool"]


async def test_the_arguments_of_a_call_count() -> None:
    long = {**call("1"), "tool_calls": [{"id": "1", "tool": "write", "arguments": {"text": WORD * 10}}]}
    context = await filled(user("a"), long, result("1"), user("b"))
    assert names(await context.get_messages_for_request(token_budget=100)) == ["b"]


async def test_new_messages_are_measured_anew() -> None:
    context = await filled(*TURNS)
    assert names(await context.get_messages_for_request(token_budget=25)) == list("ef")
    await context.set_messages([user("g"), assistant("h")])
    assert names(await context.get_messages_for_request(token_budget=25)) == list("gh")
    await context.set_messages([user("a" * 400), assistant("b"), user("c")])
    assert names(await context.get_messages_for_request(token_budget=25)) == ["c"]


async def test_system_messages_at_the_beginning_are_always_sent() -> None:
    rules = {"role": "system", "content": "r" * 80}
    context = await filled(rules, *TURNS)
    assert names(await context.get_messages_for_request(token_budget=60)) == ["r" * 80, *"ef"]


async def test_an_image_counts_for_its_area_and_not_for_its_bytes() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 1_000_000}}
    context = await filled(user("a"), {"role": "user", "content": [image]}, assistant("b"))
    assert len(await context.get_messages_for_request(token_budget=2_000)) == 3


async def test_each_cut_is_announced_once(mounted: Any) -> None:
    coordinator, context = mounted
    events: list[dict[str, Any]] = []

    async def record(event: str, data: dict[str, Any]) -> HookResult:
        events.append({key: value for key, value in data.items() if key != "timestamp"})
        return HookResult()

    coordinator.hooks.register("context:compaction", record)
    for message in TURNS:
        await context.add_message(message)
    for _ in range(3):
        await context.get_messages_for_request(token_budget=59)
    counts = {"dropped_messages": 2, "kept_messages": 4, "tokens_before": 60, "tokens_after": 40}
    assert events == [{**counts, "budget": 59}]


async def test_a_last_turn_that_cannot_be_cut_is_announced_once(mounted: Any) -> None:
    coordinator, context = mounted
    events: list[str] = []

    async def record(event: str, data: dict[str, Any]) -> HookResult:
        events.append(event)
        return HookResult()

    for event in ("context:pre_compact", "context:compaction", "context:post_compact"):
        coordinator.hooks.register(event, record)
    for message in [user("a"), assistant("b"), user("c"), call("1"), result("1"), result("1"), result("1")]:
        await context.add_message(message)
        await context.get_messages_for_request(token_budget=15)
    assert events == ["context:pre_compact", "context:compaction", "context:post_compact"]


async def test_the_events_of_a_cut_say_what_was_there_and_what_is_sent(mounted: Any) -> None:
    coordinator, context = mounted
    events: list[tuple[str, int, int | None]] = []

    async def record(event: str, data: dict[str, Any]) -> None:
        events.append((event, data["tokens_before"], data.get("tokens_after")))

    for event in ("context:pre_compact", "context:compaction", "context:post_compact"):
        coordinator.hooks.register(event, record)
    for message in TURNS:
        await context.add_message(message)
    await context.get_messages_for_request(token_budget=59)
    after = [(f"context:{name}", 60, 40) for name in ("compaction", "post_compact")]
    assert events == [("context:pre_compact", 60, None), *after]


async def test_compaction_begins_at_the_threshold_and_keeps_the_target() -> None:
    context = SimpleContextManager(None, {"max_tokens": 100})
    for message in [*TURNS, user("g"), assistant("h"), user("i")]:
        await context.add_message(message)
    assert names(await context.get_messages_for_request()) == list("abcdefghi")
    await context.add_message(assistant("j"))
    assert names(await context.get_messages_for_request()) == list("ghij")
    assert len(await context.get_messages()) == 10


@pytest.mark.parametrize("key", ["compact_threshold", "target_usage"])
@pytest.mark.parametrize("value", [0, 1.5, "0.9", True])
def test_a_share_that_is_none_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"context-simple: {key}: Input should be"):
        amplifier_context_simple.check_config({key: value})


# budgets


@pytest.mark.parametrize(
    ("defaults", "sent"),
    [
        ({}, "abcdef"),
        ({"context_window": 60}, "abcdef"),
        ({"context_window": 59}, "cdef"),
        ({"context_window": 64, "max_output_tokens": 5}, "cdef"),
        ({"context_window": 120, "max_output_tokens": 1_000}, "abcdef"),
        ({"context_window": "large"}, "abcdef"),
    ],
)
async def test_the_providers_window_less_its_answer_is_the_budget(defaults: dict[str, Any], sent: str) -> None:
    context = await filled(*TURNS)
    assert names(await context.get_messages_for_request(provider=Model(**defaults))) == list(sent)


async def test_a_budget_in_the_call_wins_over_the_config_and_that_over_the_provider() -> None:
    context = await filled(*TURNS, max_tokens=59)
    model = Model(context_window=25)
    assert names(await context.get_messages_for_request(provider=model)) == list("cdef")
    assert names(await context.get_messages_for_request(token_budget=60, provider=model)) == list("abcdef")


@pytest.mark.parametrize("value", [0, -1, "many", 1.5, True])
async def test_a_limit_that_is_none_is_refused_at_mount(value: Any) -> None:
    with pytest.raises(ValueError, match="context-simple: max_tokens: must be"):
        await amplifier_context_simple.mount(ModuleCoordinator(), {"max_tokens": value})
    with pytest.raises(ValueError, match="context-simple: max_tokens: must be"):
        amplifier_context_simple.check_config({"max_tokens": value})


def test_editors_know_its_keys() -> None:
    keys = {"max_tokens", "compact_threshold", "target_usage"}
    assert set(amplifier_context_simple.config_schema()["properties"]) == keys


def test_a_mistyped_key_is_refused_and_one_of_another_program_is_a_warning() -> None:
    (warning,) = amplifier_context_simple.check_config({"max_tokens": 5, "compact_threshold": 0.8, "debug": True})
    assert warning.startswith("debug: unknown key without effect; known are ")
    with pytest.raises(ValueError, match="context-simple: max_tokns: unknown key; did you mean 'max_tokens'"):
        amplifier_context_simple.check_config({"max_tokns": 5})


class Broken:
    """A tool without a description."""

    name = "broken"

    @property
    def input_schema(self) -> Any:
        raise RuntimeError("no schema today")

    async def execute(self, input: dict[str, Any]) -> Any:
        raise AssertionError("it is not offered")


async def test_a_tool_that_cannot_be_described_takes_no_room() -> None:
    coordinator = ModuleCoordinator(session_id="s")
    await coordinator.mount("tools", Broken())
    context = SimpleContextManager(coordinator, {**EXACT, "max_tokens": 40})
    for name in ("a", "b", "c"):
        await context.add_message(user(name))
    assert names(await context.get_messages_for_request()) == ["a", "b", "c"]


# the module


async def test_it_is_the_context_that_the_entry_point_names() -> None:
    coordinator = ModuleCoordinator()
    (entry,) = entry_points(group="amplifier.modules", name="context-simple")
    await entry.load()(coordinator, {})
    assert isinstance(coordinator.get("context"), SimpleContextManager)
    assert isinstance(coordinator.get("context"), ContextManager)


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, amplifier_context_simple; print({'pydantic', 'asyncio'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"
