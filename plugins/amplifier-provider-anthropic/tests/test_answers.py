"""Answers as the service sends them: text, tools, thinking, refusals, and what they cost."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.wire import anthropic as wire
from tests.wire.server import stream_answer

STREAM = ("llm:stream_block_start", "llm:stream_block_delta", "llm:stream_block_end")


async def test_text_comes_piece_by_piece_and_whole_at_the_end(serve: Any) -> None:
    service = await serve(wire.says(wire.text("Good", " ", "day")))
    response = await service.ask("Hello")
    assert [block.text for block in response.content] == ["Good day"]
    assert (response.finish_reason, response.tool_calls) == ("stop", None)
    assert [data["text"] for data in service.heard("llm:stream_block_delta")] == ["Good", " ", "day"]
    assert [data["sequence"] for data in service.heard("llm:stream_block_delta")] == [0, 1, 2]
    assert service.bodies[0]["stream"] is True


async def test_the_blocks_of_an_answer_are_told_in_their_order(serve: Any) -> None:
    service = await serve(
        wire.says(wire.thinking("hm", signature="s"), wire.redacted("x"), wire.text("I look."), wire.call("1", "look"))
    )
    response = await service.ask()
    shown = [(event.removeprefix("llm:stream_block_"), data["block_index"], data["block_type"]) for event, data in
             service.events if event in STREAM]  # fmt: skip
    assert shown == [
        ("start", 0, "thinking"), ("delta", 0, "thinking"), ("end", 0, "thinking"),
        ("start", 1, "thinking"), ("end", 1, "thinking"),
        ("start", 2, "text"), ("delta", 2, "text"), ("end", 2, "text"),
        ("start", 3, "tool_use"), ("end", 3, "tool_use"),
    ]  # fmt: skip
    assert [data.get("name") for data in service.heard("llm:stream_block_start")] == [None, None, None, "look"]
    assert len({data["request_id"] for data in service.heard(*STREAM, "llm:request", "llm:response")}) == 1
    assert [block.type for block in response.content] == ["thinking", "redacted_thinking", "text", "tool_call"]


async def test_a_request_without_a_stream_emits_no_pieces(serve: Any) -> None:
    service = await serve(wire.says("quiet"))
    response = await service.ask("Hello", metadata={"stream": False})
    assert response.content[0].text == "quiet"
    assert [event for event, _ in service.events] == ["llm:request", "llm:response"]


async def test_the_contract_of_a_stream_is_kept(serve: Any) -> None:
    testing = pytest.importorskip("amplifier_core.testing.stream_checks")
    service = await serve(answer=lambda _: wire.says(wire.thinking("hm", signature="s"), wire.text("Good", " day")))
    await testing.check_stream(service.provider, service.coordinator)


async def test_the_contract_of_a_provider_is_kept(serve: Any) -> None:
    from amplifier_core.testing import check_provider

    def answer(request: Any) -> Any:
        return wire.models() if request.method == "GET" else wire.says("Hello")

    service = await serve(answer=answer)
    await check_provider(service.provider)


async def test_tools_are_called_side_by_side_with_their_inputs(serve: Any) -> None:
    service = await serve(
        wire.says("I look.", wire.call("1", "read", path="a.py", lines=[1, 2]), wire.call("2", "list"))
    )
    tool = {"name": "read", "description": "Read a file", "parameters": {"type": "object", "properties": {}}}
    response = await service.ask("Look", tools=[tool], tool_choice="auto")
    assert response.finish_reason == "tool_calls"
    calls = service.provider.parse_tool_calls(response)
    assert [(call.id, call.name, call.arguments) for call in calls] == [
        ("1", "read", {"path": "a.py", "lines": [1, 2]}),
        ("2", "list", {}),
    ]
    [sent] = service.bodies[0]["tools"]
    assert (sent["name"], sent["input_schema"]) == ("read", {"type": "object", "properties": {}})
    assert service.bodies[0]["tool_choice"] == {"type": "auto"}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ("read", {"type": "tool", "name": "read"}),
        ({"type": "function", "function": {"name": "read"}}, {"type": "tool", "name": "read"}),
        ({"type": "any"}, {"type": "any"}),
    ],
)
async def test_a_choice_of_tools_is_spelled_as_the_service_spells_it(serve: Any, choice: Any, sent: Any) -> None:
    service = await serve(wire.says("ok"))
    await service.ask(tools=[{"name": "read", "parameters": {"type": "object"}}], tool_choice=choice)
    assert service.bodies[0]["tool_choice"] == sent


@pytest.mark.parametrize("given", ['{"text": "once upon a', ""])
async def test_a_call_that_the_limit_cut_off_is_left_out(serve: Any, given: str) -> None:
    cut = wire.raw_call("1", "write", given)
    service = await serve(wire.says("I write.", cut, stop="max_tokens"))
    response = await service.ask()
    assert (response.finish_reason, response.tool_calls) == ("length", None)
    assert [block.type for block in response.content] == ["text"]


@pytest.mark.parametrize("given", ['{"text": nonsense}', '["a list"]', '{"text": "open', '{"n": NaN}', '{"n": 1e999}'])
async def test_a_call_with_an_input_that_is_no_object_is_an_error_that_may_pass(serve: Any, given: str) -> None:
    from amplifier_core.llm_errors import InvalidToolCallError

    service = await serve(wire.says(wire.raw_call("1", "write", given)))
    with pytest.raises(InvalidToolCallError, match="^the model called write with an input") as caught:
        await service.ask()
    assert (caught.value.retryable, caught.value.tool_name) == (True, "write")
    assert len(service.heard("llm:stream_aborted")) == 1


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "context_length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
    ],
)
async def test_the_reason_of_the_end_is_told_in_the_words_of_the_kernel(serve: Any, stop: Any, reason: str) -> None:
    service = await serve(wire.says("So far", stop=stop))
    assert (await service.ask()).finish_reason == reason


async def test_an_end_without_a_reason_is_told_as_it_comes(serve: Any) -> None:
    events = [each.replace(b'"end_turn"', b"null") for each in wire.events_of(wire.text("So far"))]
    assert (await (await serve(stream_answer(events))).ask()).finish_reason == "null"


async def test_a_refusal_tells_its_category(serve: Any) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "No exploits."}
    service = await serve(wire.says(stop="refusal", stop_details=details))
    response = await service.ask()
    assert (response.finish_reason, response.content) == ("refusal", [])
    assert response.metadata["stop_details"] == details


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": None, "output_tokens": None}])
@pytest.mark.parametrize("where", ["message_start", "message_delta", "both"])
async def test_an_answer_without_usage_is_an_answer_with_an_unknown_one(serve: Any, usage: Any, where: str) -> None:
    events = []
    for each in wire.events_of(wire.text("Good day")):
        kind, data = each.decode().split("\ndata: ", 1)
        body = json.loads(data)
        for name in ("message_start", "message_delta"):
            if body["type"] == name and where in (name, "both"):
                body.get("message", body).update(usage=usage)
        events.append(f"{kind}\ndata: {json.dumps(body)}\n\n".encode())
    service = await serve(stream_answer(events), max_retries=0)
    response = await service.ask()
    assert response.content[0].text == "Good day"
    if where == "both":
        assert response.usage is None
        assert "input_tokens" not in service.heard("llm:response")[0]["usage"]


async def test_all_tokens_of_the_input_are_counted_and_cached_ones_apart(serve: Any) -> None:
    usage = {
        "input_tokens": 1_000,
        "output_tokens": 2_000,
        "cache_read_input_tokens": 40_000,
        "cache_creation_input_tokens": 10_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 4_000, "ephemeral_1h_input_tokens": 6_000},
        "output_tokens_details": {"thinking_tokens": 500},
    }
    service = await serve(wire.says("x", usage=usage))
    counted = (await service.ask()).usage
    assert (counted.input_tokens, counted.output_tokens, counted.total_tokens) == (51_000, 2_000, 53_000)
    assert (counted.cache_read_tokens, counted.cache_write_tokens, counted.reasoning_tokens) == (40_000, 10_000, 500)
    # 1,000 at $2, 40,000 at $0.10, 4,000 at $2.50, 6,000 at $4 and 2,000 at $10 a million
    assert counted.cost_usd == Decimal("0.060")


async def test_a_long_prompt_has_its_own_price(serve: Any) -> None:
    short, long = {"input_tokens": 100_000, "output_tokens": 0}, {"input_tokens": 100_001, "output_tokens": 0}
    service = await serve(
        *(wire.says("x", model="claude-haiku-5-5", usage=each) for each in (short, long)), model="fast"
    )
    assert (await service.ask()).usage.cost_usd == Decimal("0.01")
    assert (await service.ask()).usage.cost_usd == Decimal("0.0500005")


async def test_an_unknown_price_is_unknown_and_not_zero(serve: Any) -> None:
    service = await serve(wire.says("x", model="claude-next"), model="claude-next")
    assert (await service.ask()).usage.cost_usd is None


async def test_a_dated_model_has_the_price_of_its_name(serve: Any) -> None:
    usage = {"input_tokens": 1_000_000, "output_tokens": 0}
    service = await serve(wire.says("x", model="claude-haiku-4-5-20251001", usage=usage))
    assert (await service.ask()).usage.cost_usd == Decimal(1)


async def test_hooks_see_the_request_and_the_response(serve: Any) -> None:
    service = await serve(wire.says("x"))
    await service.ask()
    [request], [response] = service.heard("llm:request"), service.heard("llm:response")
    assert (request["provider"], request["model"], request["message_count"]) == ("anthropic", wire.MODEL, 1)
    assert (response["status"], response["usage"]["input_tokens"]) == ("ok", 10)
    json.dumps(response)


async def test_tokens_are_counted_by_the_service(serve: Any) -> None:
    from amplifier_core.message_models import ChatRequest
    from tests.wire.server import json_answer

    service = await serve(json_answer({"input_tokens": 42}))
    request = ChatRequest.model_validate({"messages": [{"role": "user", "content": "Hello"}]})
    assert await service.provider.count_tokens(request) == 42
    assert service.server.requests[0].target == "/v1/messages/count_tokens"
    assert "max_tokens" not in service.bodies[0]


async def test_the_models_of_the_account_are_listed_page_by_page(serve: Any) -> None:
    first = wire.model("claude-sonnet-5-5", context=1_000_000, output=128_000, features=("thinking", "image_input"))
    second = wire.model("claude-next", context=2_000_000, output=64_000)
    service = await serve(wire.models(first, has_more=True), wire.models(second))
    known, new = await service.provider.list_models()
    assert (known.context_window, known.max_output_tokens, known.pricing.output_per_million) == (1_000_000, 128_000, 10)
    assert known.capabilities == ["tools", "streaming", "thinking", "vision"]
    assert (new.id, new.context_window, new.pricing) == ("claude-next", 2_000_000, None)
    assert "after_id=claude-sonnet-5-5" in service.server.requests[1].target


async def test_an_alias_names_a_model(serve: Any) -> None:
    service = await serve(*[wire.says("x")] * 3, model="strong", aliases={"best": "claude-fable-5-1"})
    for name in (None, "fast", "best"):
        await service.ask(model=name)
    assert [body["model"] for body in service.bodies] == ["claude-opus-5-5", "claude-haiku-5-5", "claude-fable-5-1"]
    defaults = service.provider.get_info().defaults
    assert defaults == {"model": "claude-opus-5-5", "context_window": 1_000_000, "max_output_tokens": 32_000}


async def test_calls_without_an_id_get_ids_of_their_own(serve: Any) -> None:
    service = await serve(wire.says(wire.call("", "look", at=1), wire.call("", "look", at=2)))
    response = await service.ask("Look")
    assert [call.id for call in response.tool_calls] == ["call", "call_2"]
    assert [block.id for block in response.content] == ["call", "call_2"]


async def test_calls_with_one_id_get_ids_of_their_own(serve: Any) -> None:
    service = await serve(wire.says(wire.call("c", "look", at=1), wire.call("c", "look", at=2), wire.call("d", "look")))
    earlier = {"role": "assistant", "content": [{"type": "tool_call", "id": "d", "name": "look", "input": {}}]}
    response = await service.ask("Look", earlier, {"role": "tool", "tool_call_id": "d", "content": "seen"})
    assert [call.id for call in response.tool_calls] == ["c", "c_2", "d_2"]
    assert [block.id for block in response.content] == ["c", "c_2", "d_2"]
