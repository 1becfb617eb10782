"""Answers as the service sends them: text, tools, thinking, signatures, and what they cost."""

from __future__ import annotations

import warnings
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from amplifier_core.llm_errors import ContentFilterError, InvalidToolCallError
from amplifier_core.message_models import ChatRequest
from amplifier_core.testing import check_provider
from amplifier_core.testing.stream_checks import check_stream
from amplifier_provider_gemini.models import converses, find_price
from tests.wire import gemini as wire
from tests.wire.server import json_answer, stream_answer

STREAM = ("llm:stream_block_start", "llm:stream_block_delta", "llm:stream_block_end")


async def test_the_blocks_of_an_answer_are_told_in_their_order(serve: Any) -> None:
    parts = (wire.thinking("h", "m"), wire.text("I ", "look."), wire.call("look", call_id="1", at="a"))
    service = await serve(wire.says(*parts, wire.call("see")))
    response = await service.ask()
    shown = [(event.removeprefix("llm:stream_block_"), data["block_index"], data["block_type"]) for event, data in
             service.events if event in STREAM]  # fmt: skip
    assert shown == [
        ("start", 0, "thinking"), ("delta", 0, "thinking"), ("delta", 0, "thinking"), ("end", 0, "thinking"),
        ("start", 1, "text"), ("delta", 1, "text"), ("delta", 1, "text"), ("end", 1, "text"),
        ("start", 2, "tool_use"), ("end", 2, "tool_use"), ("start", 3, "tool_use"), ("end", 3, "tool_use"),
    ]  # fmt: skip
    assert [data.get("name") for data in service.heard("llm:stream_block_start")] == [None, None, "look", "see"]
    assert len({data["request_id"] for data in service.heard(*STREAM, "llm:request", "llm:response")}) == 1
    thought, said, *calls = response.content
    assert (thought.thinking, said.text, [each.input for each in calls]) == ("hm", "I look.", [{"at": "a"}, {}])
    assert (response.finish_reason, [each.name for each in response.tool_calls]) == ("tool_calls", ["look", "see"])
    assert service.provider.parse_tool_calls(response) == response.tool_calls
    assert response.tool_calls[0].id == "1"
    assert response.tool_calls[1].id.startswith("call_")
    assert service.server.requests[0].target == f"/v1/models/{wire.MODEL}:streamGenerateContent?alt=sse"


async def test_signatures_are_kept_with_their_blocks(serve: Any) -> None:
    parts = (wire.text("I look.", signature=b"one"), wire.call("look", signature=b"two"), wire.call("see"))
    response = await (await serve(wire.says(*parts))).ask()
    assert [getattr(each, "thought_signature", None) for each in response.content] == ["b25l", "dHdv", None]


async def test_a_request_without_a_stream_emits_no_pieces(serve: Any) -> None:
    service = await serve(wire.says("quiet"))
    assert (await service.ask("Hello", metadata={"stream": False})).content[0].text == "quiet"
    assert [event for event, _ in service.events] == ["llm:request", "llm:response"]


async def test_the_contracts_of_providers_and_their_streams_are_kept(serve: Any) -> None:
    def answer(request: Any) -> Any:
        return wire.models() if request.method == "GET" else wire.says(wire.text("Good", " day", signature=b"s"))

    service = await serve(answer=answer)
    await check_provider(service.provider)
    await check_stream(service.provider, service.coordinator)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("LANGUAGE", "language"),
        ("NEW_WORD", "new_word"),
    ],
)
async def test_the_reason_of_the_end_is_told(
    serve: Any, told: str, reason: str, recwarn: pytest.WarningsRecorder
) -> None:
    warnings.simplefilter("always")
    service = await serve(wire.says("So far", reason=told))
    recwarn.clear()  # the answer is made with the SDK, too
    assert (await service.ask()).finish_reason == reason
    assert [each for each in recwarn if "not a valid" in str(each.message)] == []


async def test_a_blocked_request_is_an_error(serve: Any) -> None:
    service = await serve(wire.blocked("PROHIBITED_CONTENT"), max_retries=3)
    with pytest.raises(ContentFilterError, match="the service blocked the request: PROHIBITED_CONTENT"):
        await service.ask()
    assert len(service.server.requests) == 1


async def test_a_broken_call_is_an_error_that_may_pass(serve: Any) -> None:
    service = await serve(wire.says("I look.", reason="MALFORMED_FUNCTION_CALL"))
    with pytest.raises(InvalidToolCallError, match="broken form: MALFORMED_FUNCTION_CALL") as caught:
        await service.ask()
    assert caught.value.retryable
    assert len(service.heard("llm:stream_aborted")) == 1
    [told] = service.heard("llm:response")
    assert told["usage"]["input_tokens"] > 0


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
async def test_a_call_with_a_number_that_json_cannot_hold_is_asked_for_again(serve: Any, number: bytes) -> None:
    pieces = [piece.replace(b'"number"', number) for piece in wire.says(wire.call("look", at="number")).pieces]
    service = await serve(stream_answer(pieces), wire.says(wire.call("look", at=1)), max_retries=1)
    assert [call.arguments for call in (await service.ask()).tool_calls] == [{"at": 1}]
    assert [retry["error_type"] for retry in service.heard("provider:retry")] == ["InvalidToolCallError"]
    assert len(service.heard("llm:stream_aborted")) == 1


# tokens and dollars


async def test_all_tokens_are_counted_and_cached_ones_and_thinking_apart(serve: Any) -> None:
    counts = {"prompt_token_count": 51_000, "cached_content_token_count": 40_000, "candidates_token_count": 1_500}
    service = await serve(wire.says("x", **counts, thoughts_token_count=500), model="gemini-3.5-flash")
    usage = (await service.ask()).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (51_000, 2_000, 53_000)
    assert (usage.cache_read_tokens, usage.reasoning_tokens) == (40_000, 500)
    # 11,000 at $1.50, 40,000 at $0.15 and 2,000 at $9 a million
    assert usage.cost_usd == Decimal("0.0405")


async def test_a_long_prompt_has_its_own_price(serve: Any) -> None:
    counts = [{"prompt_token_count": tokens, "candidates_token_count": 1_000_000} for tokens in (200_000, 200_001)]
    service = await serve(*(wire.says("x", **each) for each in counts), model="strong")
    assert (await service.ask()).usage.cost_usd == Decimal("12.4")
    assert (await service.ask()).usage.cost_usd == Decimal("18.800004")


def test_a_price_holds_until_the_day_of_the_next_one() -> None:
    prices = [find_price("gemini-3.8-flash", day) for day in (date(2026, 12, 31), date(2027, 1, 1))]
    assert [str(each.output) for each in prices if each] == ["3.75", "7.50"]


async def test_an_unknown_price_is_unknown_and_not_zero(serve: Any) -> None:
    service = await serve(wire.says("x"), model="gemini-next")
    assert (await service.ask()).usage.cost_usd is None


async def test_tokens_are_counted_by_the_service(serve: Any) -> None:
    service = await serve(json_answer({"totalTokens": 42}))
    tool = {"name": "look", "parameters": {"type": "object"}}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    request = ChatRequest.model_validate({"messages": messages, "tools": [tool]})
    assert await service.provider.count_tokens(request) == 42
    instruction, tools, hello = [each["parts"][0]["text"] for each in service.bodies[0]["contents"]]
    assert (instruction, hello) == ("Be brief.", "Hello")
    assert '"look"' in tools


# models


async def test_the_models_of_the_account_are_listed(serve: Any) -> None:
    service = await serve(wire.models("gemini-3.8-flash", "gemma-4-27b-it", "gemini-2.5-flash-image"))
    flash, gemma = await service.provider.list_models()
    assert (flash.id, flash.context_window, flash.max_output_tokens) == ("gemini-3.8-flash", 1_000_000, 8_000)
    assert "thinking" in flash.capabilities
    assert (gemma.id, gemma.pricing, "thinking" in gemma.capabilities) == ("gemma-4-27b-it", None, False)
    service = await serve(wire.models("text-model", actions=("embedContent",)))
    assert await service.provider.list_models() == []


def test_models_that_do_other_work_are_not_offered() -> None:
    names = ("gemini-3.8-flash", "gemini-embedding-2", "gemini-3.8-flash-tts", "veo-3.1", "gemini-4-argon")
    assert [name for name in names if converses(name)] == ["gemini-3.8-flash", "gemini-4-argon"]


async def test_an_alias_names_a_model(serve: Any) -> None:
    service = await serve(*[wire.says("x")] * 3, model="strong", aliases={"best": "models/gemini-4-argon"})
    for name in (None, "fast", "best"):
        await service.ask(model=name)
    names = [each.target.split("/")[-1].split(":")[0] for each in service.server.requests]
    assert names == ["gemini-3.1-pro-preview", "gemini-3.5-flash-lite", "gemini-4-argon"]
    assert service.provider.get_info().defaults == {
        "model": "gemini-3.1-pro-preview", "context_window": 1_048_576, "max_output_tokens": 65_536
    }  # fmt: skip
