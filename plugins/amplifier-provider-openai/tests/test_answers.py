"""Answers as the services send them, by both APIs: text, tools, reasoning, refusals, and what they cost."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from amplifier_core.llm_errors import InvalidToolCallError, StreamError
from amplifier_core.message_models import ChatRequest
from tests.wire import openai as wire
from tests.wire.server import json_answer, sse, stream_answer

STREAM = ("llm:stream_block_start", "llm:stream_block_delta", "llm:stream_block_end")
both = pytest.mark.parametrize("api", ["responses", "chat"])


@both
async def test_text_comes_piece_by_piece_and_whole_at_the_end(serve: Any, api: str) -> None:
    service = await serve(wire.says(wire.text("Good", " ", "day"), api=api), api=api)
    response = await service.ask("Hello")
    assert [block.text for block in response.content] == ["Good day"]
    assert (response.finish_reason, response.tool_calls) == ("stop", None)
    assert [data["text"] for data in service.heard("llm:stream_block_delta")] == ["Good", " ", "day"]
    assert service.bodies[0]["stream"] is True
    assert service.server.requests[0].target == ("/chat/completions" if api == "chat" else "/responses")


@both
async def test_the_blocks_of_an_answer_are_told_in_their_order(serve: Any, api: str) -> None:
    parts = (
        wire.thinking("h", "m", encrypted="x"),
        wire.text("I look."),
        wire.call("1", "look"),
        wire.call("2", "see"),
    )
    service = await serve(wire.says(*parts, api=api), api=api)
    response = await service.ask()
    shown = [(event.removeprefix("llm:stream_block_"), data["block_index"], data["block_type"]) for event, data in
             service.events if event in STREAM]  # fmt: skip
    assert shown == [
        ("start", 0, "thinking"), ("delta", 0, "thinking"), ("delta", 0, "thinking"), ("end", 0, "thinking"),
        ("start", 1, "text"), ("delta", 1, "text"), ("end", 1, "text"),
        ("start", 2, "tool_use"), ("end", 2, "tool_use"), ("start", 3, "tool_use"), ("end", 3, "tool_use"),
    ]  # fmt: skip
    assert [data.get("name") for data in service.heard("llm:stream_block_start")] == [None, None, "look", "see"]
    assert len({data["request_id"] for data in service.heard(*STREAM, "llm:request", "llm:response")}) == 1
    assert [block.type for block in response.content] == ["thinking", "text", "tool_call", "tool_call"]
    assert response.content[0].thinking == "hm"


@both
async def test_a_request_without_a_stream_emits_no_pieces(serve: Any, api: str) -> None:
    service = await serve(wire.says("quiet", api=api), api=api)
    assert (await service.ask("Hello", metadata={"stream": False})).content[0].text == "quiet"
    assert [event for event, _ in service.events] == ["llm:request", "llm:response"]


@both
async def test_the_contract_of_a_stream_is_kept(serve: Any, api: str) -> None:
    testing = pytest.importorskip("amplifier_core.testing.stream_checks")
    parts = (wire.thinking("hm", encrypted="x"), wire.text("Good", " day"))
    service = await serve(answer=lambda _: wire.says(*parts, api=api), api=api)
    await testing.check_stream(service.provider, service.coordinator)


@both
async def test_the_contract_of_a_provider_is_kept(serve: Any, api: str) -> None:
    from amplifier_core.testing import check_provider

    def answer(request: Any) -> Any:
        return wire.models() if request.method == "GET" else wire.says("Hello", api=api)

    service = await serve(answer=answer, api=api)
    await check_provider(service.provider)


@both
async def test_tools_are_called_side_by_side_with_their_inputs(serve: Any, api: str) -> None:
    calls = (wire.call("1", "read", path="a.py", lines=[1, 2]), wire.call("2", "list"))
    service = await serve(wire.says("I look.", *calls, api=api), api=api)
    response = await service.ask("Look")
    assert response.finish_reason == "tool_calls"
    assert [(call.id, call.name, call.arguments) for call in service.provider.parse_tool_calls(response)] == [
        ("1", "read", {"path": "a.py", "lines": [1, 2]}),
        ("2", "list", {}),
    ]


LOOK = {"index": 0, "id": "1", "function": {"name": "look", "arguments": '{"n"'}}
LOOK_ON = {"index": 0, "function": {"arguments": ": 1}"}}
SEE = {"index": 1, "id": "2", "function": {"name": "see", "arguments": '{"n": 2}'}}


@pytest.mark.parametrize(
    "calls",
    [[LOOK, SEE, LOOK_ON], [LOOK, LOOK_ON, {**SEE, "index": 0}], [LOOK, {**LOOK_ON, "id": "1"}, {**SEE, "index": 0}]],
    ids=["by turns", "all with index 0", "with their ids in each piece"],
)
async def test_the_pieces_of_calls_come_as_services_send_them(serve: Any, calls: list[dict[str, Any]]) -> None:
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]} for call in calls]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    service = await serve(stream_answer([sse({**about, **chunk}) for chunk in chunks]), api="chat")
    response = await service.ask()
    assert [(call.name, call.arguments) for call in response.tool_calls] == [("look", {"n": 1}), ("see", {"n": 2})]
    assert (response.finish_reason, response.usage) == ("tool_calls", None)


@both
@pytest.mark.parametrize("given", ['{"text": "once upon a', ""])
async def test_a_call_that_the_limit_cut_off_is_left_out(serve: Any, api: str, given: str) -> None:
    cut = wire.raw_call("1", "write", given)
    ending: Any = {"stop": "length"} if api == "chat" else {"reason": "max_output_tokens"}
    service = await serve(wire.says("I write.", cut, api=api, **ending), api=api)
    response = await service.ask()
    assert (response.finish_reason, response.tool_calls) == ("length", None)
    assert [block.type for block in response.content] == ["text"]


@both
@pytest.mark.parametrize("given", ['{"text": nonsense}', '["a list"]', '{"n": NaN}', '{"n": -1e999}'])
async def test_a_call_with_an_input_that_is_no_object_is_an_error_that_may_pass(
    serve: Any, api: str, given: str
) -> None:
    service = await serve(wire.says(wire.raw_call("1", "write", given), api=api), api=api)
    with pytest.raises(InvalidToolCallError, match="^the model called write with an input") as caught:
        await service.ask()
    assert (caught.value.retryable, caught.value.tool_name) == (True, "write")
    assert len(service.heard("llm:stream_aborted")) == 1
    [told] = service.heard("llm:response")
    assert told["usage"]["input_tokens"] > 0


@both
async def test_a_refusal_is_told_with_its_text(serve: Any, api: str) -> None:
    service = await serve(wire.says(wire.refusal("I ", "will not."), api=api), api=api)
    response = await service.ask()
    assert (response.finish_reason, response.content[0].text) == ("refusal", "I will not.")


@pytest.mark.parametrize(
    ("api", "ending", "reason"),
    [
        ("responses", {"reason": "max_output_tokens"}, "length"),
        ("responses", {"reason": "content_filter"}, "content_filter"),
        ("responses", {"reason": "max_messages"}, "incomplete"),
        ("chat", {"stop": "length"}, "length"),
        ("chat", {"stop": "content_filter"}, "content_filter"),
    ],
)
async def test_the_reason_of_the_end_is_told(serve: Any, api: str, ending: Any, reason: str) -> None:
    service = await serve(wire.says("So far", api=api, **ending), api=api)
    assert (await service.ask()).finish_reason == reason


async def test_an_answer_with_an_end_and_no_reason_is_whole(serve: Any) -> None:
    chunks = [each.replace(b'"stop"', b"null") for each in wire.chunks_of(wire.text("Good day"))]
    response = await (await serve(stream_answer(chunks), api="chat")).ask()
    assert (response.content[0].text, response.finish_reason) == ("Good day", "stop")


async def test_an_empty_answer_with_an_end_and_no_reason_is_whole(serve: Any) -> None:
    role, _, usage, end = wire.chunks_of()
    service = await serve(stream_answer([role, usage, end]), stream_answer([usage, end]), api="chat")
    response = await service.ask()
    assert (response.content, response.finish_reason, response.usage.output_tokens) == ([], "stop", 5)
    with pytest.raises(StreamError):  # nothing of the model came
        await service.ask()


@pytest.mark.parametrize("parts", [2, 0])
async def test_a_usage_before_the_end_of_an_answer_is_no_end(serve: Any, parts: int) -> None:
    *first, end, usage, _ = wire.chunks_of(wire.text("Good", " day"))
    chunks = [*first[:parts], usage, *first[parts:]]
    service = await serve(stream_answer(chunks), stream_answer([*chunks, end]), api="chat")
    with pytest.raises(StreamError):
        await service.ask()
    assert (await service.ask()).content[0].text == "Good day"


async def test_items_of_an_answer_without_a_list_at_its_end_are_kept(serve: Any) -> None:
    events = wire.events_of(wire.text("Good day"))
    end = json.loads(events[-1].split(b"data: ")[1])
    end["response"]["output"] = []
    service = await serve(stream_answer([*events[:-1], sse(end, event="response.completed")]))
    assert (await service.ask()).content[0].text == "Good day"


# tokens and dollars


async def test_all_tokens_of_the_input_are_counted_and_cached_ones_apart(serve: Any) -> None:
    usage = {"input_tokens": 51_000, "output_tokens": 2_000, "cached_tokens": 40_000, "cache_write_tokens": 10_000}
    service = await serve(wire.says("x", usage={**usage, "reasoning_tokens": 500}))
    counted = (await service.ask()).usage
    assert (counted.input_tokens, counted.output_tokens, counted.total_tokens) == (51_000, 2_000, 53_000)
    assert (counted.cache_read_tokens, counted.cache_write_tokens, counted.reasoning_tokens) == (40_000, 10_000, 500)
    # 1,000 at $1, 40,000 at $0.05, 10,000 at $1.25 and 2,000 at $5 a million
    assert counted.cost_usd == Decimal("0.0255")


async def test_chat_counts_the_same_way(serve: Any) -> None:
    usage = {"prompt_tokens": 51_000, "completion_tokens": 2_000,
             "prompt_tokens_details": {"cached_tokens": 40_000, "cache_write_tokens": 10_000},
             "completion_tokens_details": {"reasoning_tokens": 500}}  # fmt: skip
    service = await serve(wire.says("x", api="chat", usage=usage), api="chat")
    counted = (await service.ask()).usage
    assert (counted.input_tokens, counted.cache_read_tokens, counted.reasoning_tokens) == (51_000, 40_000, 500)
    assert counted.cost_usd == Decimal("0.0255")


async def test_a_long_prompt_has_its_own_price(serve: Any) -> None:
    usages = [{"input_tokens": tokens, "output_tokens": 1_000_000} for tokens in (272_000, 272_001)]
    service = await serve(*(wire.says("x", usage=usage) for usage in usages))
    assert (await service.ask()).usage.cost_usd == Decimal("5.272")
    assert (await service.ask()).usage.cost_usd == Decimal("8.044002")


@pytest.mark.parametrize("odd", [{"model": "gpt-next"}, {"service_tier": "priority"}])
async def test_an_unknown_price_is_unknown_and_not_zero(serve: Any, odd: Any) -> None:
    service = await serve(wire.says("x", **odd))
    assert (await service.ask()).usage.cost_usd is None


async def test_a_dated_model_has_the_price_of_its_name(serve: Any) -> None:
    usage = {"input_tokens": 1_000, "output_tokens": 0}
    service = await serve(wire.says("x", model="gpt-6.1-terra-2026-10-26", usage=usage))
    assert (await service.ask()).usage.cost_usd == Decimal("0.001")


@both
async def test_tokens_are_counted_by_the_service_or_estimated(serve: Any, api: str) -> None:
    service = await serve(json_answer({"object": "response.input_tokens", "input_tokens": 42}), api=api)
    request = ChatRequest.model_validate({"messages": [{"role": "user", "content": "Hello " * 100}]})
    counted = await service.provider.count_tokens(request)
    assert counted == 42 if api == "responses" else 150 < counted < 250
    assert len(service.server.requests) == (api == "responses")


async def test_the_models_of_the_account_are_listed(serve: Any) -> None:
    service = await serve(wire.models("gpt-6.1-terra", "local-7b"))
    known, other = await service.provider.list_models()
    assert (known.context_window, known.pricing.output_per_million) == (1_050_000, 5)
    assert (other.id, other.context_window, other.pricing) == ("local-7b", 128_000, None)


def test_models_that_do_other_work_are_not_offered() -> None:
    from amplifier_provider_openai.models import converses

    names = ("gpt-6.1-sol", "o3", "gpt-realtime-2", "text-embedding-3-large", "gpt-image-2", "whisper-1", "gpt-5-nano")
    assert [name for name in names if converses(name)] == ["gpt-6.1-sol", "o3", "gpt-5-nano"]


async def test_an_alias_names_a_model(serve: Any) -> None:
    service = await serve(*[wire.says("x")] * 3, model="strong", aliases={"best": "gpt-6-astra"})
    for name in (None, "fast", "best"):
        await service.ask(model=name)
    assert [body["model"] for body in service.bodies] == ["gpt-6.1-sol", "gpt-6-luna", "gpt-6-astra"]
    assert service.provider.get_info().defaults == {
        "model": "gpt-6.1-sol", "context_window": 1_050_000, "max_output_tokens": 128_000
    }  # fmt: skip
