"""Test that a request reads only the end of a long history, and sends the same as with all of it measured."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

import amplifier_context_simple
from amplifier_context_simple import SimpleContextManager
from amplifier_context_simple.cut import tokens_of
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.models import HookResult, ProviderInfo
from amplifier_core.transcript import Transcript

Message = dict[str, Any]

LONG = 100_000


def message(role: str, tokens: int = 10, **more: Any) -> Message:
    return {"role": role, "content": "x" * (4 * (tokens - 1)), "metadata": {"timestamp": "then"}, **more}


class Recorded(Sequence[Message]):
    """A history that knows which positions were read."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.read: set[int] = set()

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, index: Any) -> Any:
        chosen = range(len(self.messages))[index]
        self.read.update(chosen if isinstance(chosen, range) else [chosen])
        return self.messages[index]


class Mounted:
    """A context that was mounted on a transcript, and the cuts that it announced."""

    def __init__(self, transcript: Any = None) -> None:
        self.coordinator = ModuleCoordinator(session_id="s")
        if transcript is not None:
            self.coordinator.register_capability("session.transcript", transcript)
        self.cuts: list[dict[str, Any]] = []
        self.coordinator.hooks.register("context:compaction", self._note)

    async def _note(self, event: str, data: dict[str, Any]) -> HookResult:
        self.cuts.append(data)
        return HookResult()

    async def context(self) -> SimpleContextManager:
        await amplifier_context_simple.mount(self.coordinator, {"compact_threshold": 1, "target_usage": 0.75})
        context: SimpleContextManager = self.coordinator.get("context")
        return context


def turns(count: int) -> list[Message]:
    return [message(role) for _ in range(count // 2) for role in ("user", "assistant")]


async def test_the_first_request_of_a_long_history_reads_its_end_and_the_second_no_more() -> None:
    history = Recorded(turns(LONG))
    context = await Mounted(Transcript.over(history)).context()
    assert history.read == set()
    first = await context.get_messages_for_request(token_budget=500)
    assert len(first) == 36
    assert len(history.read) < 150
    read = set(history.read)
    await context.add_message(message("user"))
    await context.add_message(message("assistant"))
    assert len(await context.get_messages_for_request(token_budget=500)) == 38
    assert history.read == read


async def test_a_larger_budget_reads_further_back_and_a_smaller_one_no_more() -> None:
    history = Recorded(turns(LONG))
    context = await Mounted(Transcript.over(history)).context()
    await context.get_messages_for_request(token_budget=500)
    assert len(await context.get_messages_for_request(token_budget=50_000)) == 3_750
    assert 5_000 < len(history.read) < 7_000
    read = set(history.read)
    assert len(await context.get_messages_for_request(token_budget=100)) == 6
    assert history.read == read


async def test_without_any_budget_everything_is_sent() -> None:
    history = Recorded(turns(LONG))
    context = await Mounted(Transcript.over(history)).context()
    assert len(await context.get_messages_for_request()) == LONG
    await context.add_message(message("user"))
    assert len(await context.get_messages_for_request(token_budget=500)) == 37


async def test_a_long_last_turn_is_read_to_where_it_begins() -> None:
    turn = [message("user"), *[message("assistant"), message("tool", tool_call_id="1")] * 500]
    history = Recorded([*turns(LONG), *turn])
    mounted = Mounted(Transcript.over(history))
    context = await mounted.context()
    sent = await context.get_messages_for_request(token_budget=500)
    assert sent == [turn[0], *turn[-36:]]
    assert len(history.read) < 1.5 * len(turn)
    assert mounted.cuts[0]["tokens_after"] == 10 * len(sent)


async def test_a_long_opening_is_read_once_and_sent_with_the_end() -> None:
    rules = [message("system")] * 100
    history = Recorded([*rules, *turns(LONG)])
    context = await Mounted(Transcript.over(history)).context()
    sent = await context.get_messages_for_request(token_budget=1_500)
    assert [each["role"] for each in sent] == ["system"] * 100 + ["user", "assistant"] * 18
    assert len(history.read) < 300


async def test_a_cut_says_exactly_what_it_dropped_and_at_least_how_long_the_history_was() -> None:
    mounted = Mounted(Transcript.over(Recorded([message("system"), *turns(LONG)])))
    context = await mounted.context()
    await context.get_messages_for_request(token_budget=510)
    (cut,) = mounted.cuts
    assert (cut["dropped_messages"], cut["kept_messages"], cut["tokens_after"]) == (LONG - 36, 37, 370)
    assert 510 < cut["tokens_before"] <= 1_010


class Reference:
    """What is sent of a history that is measured as a whole, and where it was cut."""

    def __init__(self) -> None:
        self.budget = 0
        self.head: list[Message] = []
        self.first = 0
        self.cuts: list[dict[str, int]] = []

    def request(self, history: list[Message], budget: int) -> list[Message]:
        opening = 0
        while opening < len(history) and history[opening]["role"] == "system":
            opening += 1
        room = budget - tokens(history[:opening])
        if tokens(history) <= budget:
            return history
        if self.budget != budget or self.first < opening:
            self.head, first = [], opening
        else:
            first = self.first
        was = first
        if tokens([*self.head, *history[first:]]) > room:
            self.head, first = self.cut(history, opening, room)
            self.budget, self.first = budget, first
        sent = [*history[:opening], *self.head, *history[first:]]
        if first != was:
            self.cuts.append(
                {
                    "dropped_messages": len(history) - len(sent),
                    "kept_messages": len(sent),
                    "tokens_before": tokens(history),
                    "tokens_after": tokens(sent),
                    "budget": budget,
                }
            )
        return sent

    def cut(self, history: list[Message], opening: int, room: int) -> tuple[list[Message], int]:
        starts = [at for at in range(opening, len(history)) if begins_turn(history, at)]
        fitting = [at for at in starts if tokens(history[at:]) <= room * 0.75]
        start = (fitting[:1] or starts[-1:] or [opening])[0]
        if tokens(history[start:]) <= room:
            return [], start
        steps = [at for at in range(start, len(history)) if history[at]["role"] == "assistant"]
        heads = {at: [each for each in history[start:at] if is_said(each)] for at in steps}
        fitting = [at for at in steps if tokens([*heads[at], *history[at:]]) <= room * 0.75]
        for at in fitting[:1] or steps[-1:]:
            return (heads[at], at) if len(heads[at]) < at - start else ([], start)
        return [], start


def is_said(message: Message) -> bool:
    return bool(message["role"] == "user" and message["metadata"].get("source") != "hook")


def tokens(messages: list[Message]) -> int:
    return sum(map(tokens_of, messages))


def begins_turn(history: list[Message], at: int) -> bool:
    return is_said(history[at]) and [each["role"] for each in history[at + 1 : at + 2]] != ["tool"]


def any_message(chance: random.Random) -> Message:
    role = chance.choice(["user", "hook", "assistant", "assistant", "tool", "tool", "assistant"])
    if role == "hook":
        return message("user", chance.randint(1, 20), metadata={"source": "hook", "timestamp": "then"})
    return message(role, chance.randint(1, 20))


def any_history(chance: random.Random) -> list[Message]:
    opening = [message("system", chance.randint(1, 20)) for _ in range(chance.choice([0, 0, 1, 3, 80]))]
    return [*opening, *(any_message(chance) for _ in range(chance.choice([0, 1, 10, 70, 400])))]


@pytest.mark.parametrize("kind", ["stored", "fork of a stored", "list"])
@pytest.mark.parametrize("seed", range(100))
async def test_what_is_sent_is_what_measuring_everything_would_send(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    history, reference = any_history(chance), Reference()
    stored = Transcript.over(Recorded([*history]))
    mounted = Mounted({"stored": stored, "fork of a stored": stored.fork(), "list": None}[kind])
    context = await mounted.context()
    if kind == "list":
        await context.set_messages(history)
    budgets = [chance.randint(1, 2 + int(tokens(history) * chance.choice([0.1, 0.5, 1.1]))) for _ in range(2)]
    for _ in range(12):
        added = [any_message(chance) for _ in range(chance.randint(0, 8))]
        added = [message("system")] if not added and all(each["role"] == "system" for each in history) else added
        for each in added:
            await context.add_message(each)
        history += added
        budget = budgets[chance.random() < 0.2]
        sent = await context.get_messages_for_request(token_budget=budget)
        assert [*map(without_cut, sent)] == reference.request([*history], budget)
    assert_told_alike(mounted.cuts, reference.cuts)


def without_cut(message: Message) -> Message:
    """Return a message without the cut that it may remember."""
    return {**message, "metadata": {key: each for key, each in message["metadata"].items() if key != "compaction"}}


def assert_told_alike(told: list[dict[str, Any]], expected: list[dict[str, int]]) -> None:
    assert len(told) == len(expected)
    for cut, whole in zip(told, expected, strict=True):
        assert whole["budget"] < cut["tokens_before"] <= whole["tokens_before"]
        assert {key: cut[key] for key in whole if key != "tokens_before"} == {
            key: value for key, value in whole.items() if key != "tokens_before"
        }


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 66, 127, 128, 129, 130])
async def test_a_history_of_any_length_is_sent_whole_just_when_it_fits(length: int) -> None:
    context = await Mounted(Transcript.over(Recorded([message("user")] * length))).context()
    assert len(await context.get_messages_for_request(token_budget=10 * length)) == length
    sent = await context.get_messages_for_request(token_budget=10 * length - 1)
    assert len(sent) == max(1, (30 * length - 3) // 40)


async def test_a_result_stays_with_its_call_wherever_they_stand() -> None:
    for position in range(2, 199):
        history = [message("assistant")] * 200
        history[0] = history[position] = message("user")
        history[position - 1] = message("assistant", tool_calls=[{"id": "1", "tool": "read", "arguments": {}}])
        history[position + 1] = message("tool", tool_call_id="1")
        context = await Mounted(Transcript.over(Recorded(history))).context()
        sent = await context.get_messages_for_request(token_budget=500)
        assert sent[0]["role"] == "user"
        assert history[position] in sent
        roles = [("call" if each.get("tool_calls") else each["role"]) for each in sent]
        assert roles.count("call") == roles.count("tool")
        if "call" in roles:
            at = roles.index("call")
            assert roles[at : at + 3] == ["call", "user", "tool"]


# what the messages remember


@pytest.mark.parametrize("inside_of_a_turn", [False, True])
async def test_a_resumed_session_and_a_fork_send_the_same_beginning(inside_of_a_turn: bool) -> None:
    first = Mounted(Transcript())
    context = await first.context()
    for number in range(40):
        asks = number % 7 == 0 if not inside_of_a_turn else number in (0, 5)
        await context.add_message(message("user" if asks else "assistant", said=number))
        sent = await context.get_messages_for_request(token_budget=200)
    await context.add_message(message("assistant", said=40))
    assert len(first.cuts) >= 2
    for history in (Transcript.over(Recorded([*context.transcript])), context.transcript.fork()):
        second = Mounted(history)
        again = await second.context()
        resumed = await again.get_messages_for_request(token_budget=200)
        assert resumed[: len(sent)] == sent
        assert second.cuts == []


@pytest.mark.parametrize(
    "cut",
    [
        {"first": 99, "head": []},
        {"first": "0", "head": []},
        {"first": 2, "head": [7, "x"]},
        {"first": 2, "head": [], "most": "few", "model": 7},
        {},
        None,
    ],
)
async def test_a_cut_that_cannot_be_does_no_harm(cut: Any) -> None:
    history = [message("user") for _ in range(10)]
    history[5] = message("assistant", metadata={"compaction": cut, "usage": {"input_tokens": "many"}})
    context = await Mounted(Transcript.over(Recorded(history))).context()
    assert (await context.get_messages_for_request(token_budget=55))[-1] == history[-1]


@pytest.mark.parametrize("odd", [10**400, 0, -5, True, float("inf")], ids=["huge", "none", "negative", "bool", "inf"])
async def test_a_number_of_tokens_that_cannot_be_does_no_harm(odd: Any) -> None:
    history = [message("user") for _ in range(10)]
    cut = {"budget": 10_000, "first": 0, "head": [], "most": odd, "model": "p/m"}
    history[5] = message("assistant", metadata={"compaction": cut})
    history[7] = message("assistant", metadata={"usage": {"input_tokens": 7.5, "requests": odd}})
    history[8] = message("assistant", metadata={"usage": {"input_tokens": odd}})
    context = await Mounted(Transcript.over(Recorded(history))).context()
    assert await context.get_messages_for_request(10_000, Named("m")) == history


class Named:
    """A provider with a model, and with a context window or none."""

    def __init__(self, model: str, **limits: int) -> None:
        self.model, self.limits = model, limits

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="p", display_name="P", defaults={"model": self.model, **self.limits})


async def refuse_and_answer(mounted: Mounted, provider: Named, turns: int) -> SimpleContextManager:
    """Return a context of 80 messages whose first request was refused, after `turns` answers to shorter ones."""
    context = await mounted.context()
    for number in range(79):
        await context.add_message(message("assistant" if number % 2 else "user", said=number))
    for number in range(turns):
        await context.add_message(message("user"))
        await context.get_messages_for_request(provider=provider)
        if number == 0:
            context.compact_harder()
            await context.get_messages_for_request(provider=provider)
        await mounted.coordinator.hooks.emit("provider:response", {"provider": "p"})
        await context.add_message(message("assistant"))
    return context


@pytest.mark.parametrize("limits", [{}, {"context_window": 2_000}])
@pytest.mark.parametrize("turns", [1, 4, 30])
async def test_what_a_refusal_taught_holds_in_a_resumed_session_and_a_fork(limits: dict[str, int], turns: int) -> None:
    context = await refuse_and_answer(Mounted(Transcript()), Named("small", **limits), turns)
    resumed, fork = Transcript.over(Recorded([*context.transcript])), context.transcript.fork()
    await context.add_message(message("user"))
    expected = await context.get_messages_for_request(provider=Named("small", **limits))
    again = [await context.get_messages_for_request(provider=Named("small", **limits)) for _ in range(2)]
    assert again == [expected, expected]
    for history in (resumed, fork):
        second = await Mounted(history).context()
        await second.add_message(message("user"))
        assert await second.get_messages_for_request(provider=Named("small", **limits)) == expected
    assert len(expected) < len(context.transcript)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Named("small"), Named("large")),
        (Named("small"), Named("small", context_window=9_000)),
        (Named("small", context_window=2_000), Named("large", context_window=2_000)),
        (Named("small", context_window=2_000), Named("small", context_window=9_000)),
    ],
)
async def test_a_refusal_says_nothing_of_another_model_or_window(before: Named, after: Named) -> None:
    context = await refuse_and_answer(Mounted(Transcript()), before, 2)
    second = await Mounted(context.transcript.fork()).context()
    assert len(await second.get_messages_for_request(provider=after)) == len(context.transcript)
    assert len(await second.get_messages_for_request(provider=before)) < len(context.transcript)


async def test_a_provider_may_stand_for_one_model_and_then_for_another() -> None:
    context = await Mounted(Transcript()).context()
    for _ in range(40):
        await context.add_message(message("user"))
    provider, large, small = Named(""), Named("large", context_window=9_000), Named("small", context_window=300)
    lengths = []
    for described in (large, small, small, large):
        provider.get_info = described.get_info  # type: ignore[method-assign]
        lengths.append(len(await context.get_messages_for_request(provider=provider)))
        context.compact_harder()
    whole, fitted, shorter, again = lengths
    assert shorter < fitted < whole == again == 40


# what the model counts


async def test_the_tokens_that_the_model_reports_count() -> None:
    mounted = Mounted(Transcript())
    context = await mounted.context()
    for _ in range(10):
        await context.add_message(message("user"))
    assert len(await context.get_messages_for_request(token_budget=200)) == 10
    usage = {"input_tokens": 400, "output_tokens": 1}
    await mounted.coordinator.hooks.emit("provider:response", {"provider": "p", "usage": usage})
    sent = await context.get_messages_for_request(token_budget=200)
    assert 4 * tokens(sent) <= 200 * 0.75
    await mounted.coordinator.hooks.emit("provider:response", {"provider": "p", "usage": {"input_tokens": 1}})
    assert len(await context.get_messages_for_request(token_budget=201)) == 10


async def test_a_resumed_session_knows_what_its_model_has_counted() -> None:
    history = [message("user") for _ in range(10)]
    usage = {"input_tokens": 800, "requests": 2}
    history.append(message("assistant", metadata={"timestamp": "then", "usage": usage}))
    mounted = Mounted(Transcript.over(Recorded(history)))
    sent = await (await mounted.context()).get_messages_for_request(token_budget=200)
    assert 4 * tokens(sent) <= 200 * 0.75
    assert sent[-1] == history[-1]


async def test_a_cut_for_another_window_is_none_in_what_a_model_has_counted() -> None:
    history = [message("user", said=number) for number in range(80)]
    for tokens_told, cut in ((60, {"compaction": {"budget": 100, "first": 78, "head": []}}), (2_460, {})):
        history.append(message("assistant", metadata={"usage": {"input_tokens": tokens_told}, **cut}))
        history.append(message("user"))
    context = await Mounted(Transcript.over(Recorded(history))).context()
    sent = await context.get_messages_for_request(provider=Named("large", context_window=4_000))
    assert len(sent) == len(history)


@pytest.mark.parametrize("budget", [None, 1000])
async def test_a_refused_request_is_followed_by_shorter_ones(budget: int | None) -> None:
    context = await Mounted(Transcript()).context()
    for _ in range(40):
        await context.add_message(message("user"))
    lengths = [len(await context.get_messages_for_request(token_budget=budget))]
    for _ in range(3):
        context.compact_harder()
        lengths.append(len(await context.get_messages_for_request(token_budget=budget)))
    assert lengths == [40, 27, 18, 12]


@pytest.mark.parametrize("budget", [None, 1000])
async def test_after_a_refusal_each_answer_lets_the_next_request_be_longer(budget: int | None) -> None:
    mounted = Mounted(Transcript())
    context = await mounted.context()
    for number in range(40):
        await context.add_message(message("user", said=number))
    await context.get_messages_for_request(token_budget=budget)
    for _ in range(3):
        context.compact_harder()
        sent = await context.get_messages_for_request(token_budget=budget)
    cuts = len(mounted.cuts)
    for number in range(40, 100):
        await mounted.coordinator.hooks.emit("provider:response", {"provider": "p"})
        await context.add_message(message("user", said=number))
        before, sent = sent, await context.get_messages_for_request(token_budget=budget)
        if len(mounted.cuts) == cuts:  # whatever would fit again
            assert [each["said"] for each in sent[: len(before)]] == [each["said"] for each in before]
        cuts = len(mounted.cuts)
    assert cuts <= 5
    assert len(sent) > 40


async def test_a_history_that_is_far_too_long_is_sent_shorter_with_each_turn_until_it_is_answered() -> None:
    mounted = Mounted(Transcript())
    context = await mounted.context()
    for _ in range(200):
        await context.add_message(message("user"))
    lengths = []
    for _ in range(2):
        lengths.append(len(await context.get_messages_for_request()))
        for _ in range(3):
            context.compact_harder()
            lengths.append(len(await context.get_messages_for_request()))
        await mounted.coordinator.hooks.emit("provider:error", {"error": {"type": "ContextLengthError"}})
    assert lengths == [200, 135, 91, 61, 200, 41, 27, 18]
    await context.get_messages_for_request()
    context.compact_harder()
    assert len(await context.get_messages_for_request()) == 12
