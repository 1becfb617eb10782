"""Answers as Ollama sends them: text, tools, thinking, and what they cost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from amplifier_core.message_models import ChatRequest
from amplifier_core.testing import check_provider
from amplifier_core.testing.stream_checks import check_stream
from tests.wire import ollama as wire
from tests.wire.server import Answer

STREAM = ("llm:stream_block_start", "llm:stream_block_delta", "llm:stream_block_end")


async def test_the_blocks_of_an_answer_are_told_in_their_order(serve: Any) -> None:
    service = await serve(
        wire.says(wire.thinking("h", "m"), wire.text("I ", "look."), wire.call("look", at="a"), wire.call("see"))
    )
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
    assert len({each.id for each in response.tool_calls}) == 2
    assert (service.bodies[0]["stream"], service.server.requests[0].target) == (True, "/api/chat")


async def test_a_request_without_a_stream_emits_no_pieces(serve: Any) -> None:
    service = await serve(wire.says("quiet"))
    assert (await service.ask("Hello", metadata={"stream": False})).content[0].text == "quiet"
    assert [event for event, _ in service.events] == ["llm:request", "llm:response"]


async def test_the_contracts_of_providers_and_their_streams_are_kept(serve: Any) -> None:
    def answer(request: Any) -> Answer:
        if request.method == "GET":
            return wire.models(wire.MODEL)
        return wire.shows("completion") if request.target == "/api/show" else wire.says(wire.text("Good", " day"))

    service = await serve(answer=answer)
    await check_provider(service.provider)
    await check_stream(service.provider, service.coordinator)


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
async def test_a_call_with_a_number_that_json_cannot_hold_is_asked_for_again(serve: Any, number: bytes) -> None:
    pieces = [piece.replace(b'"number"', number) for piece in wire.says(wire.call("look", at="number")).pieces]
    service = await serve(wire.stream(pieces), wire.says(wire.call("look", at=1)), max_retries=1)
    assert [call.arguments for call in (await service.ask()).tool_calls] == [{"at": 1}]
    assert [retry["error_type"] for retry in service.heard("provider:retry")] == ["InvalidToolCallError"]
    assert len(service.heard("llm:stream_aborted")) == 1


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_the_reason_of_the_end_is_told(serve: Any, reason: str) -> None:
    service = await serve(wire.says("So far", reason=reason))
    assert (await service.ask()).finish_reason == reason


# tokens and dollars


@pytest.mark.parametrize(
    ("model", "cost"), [("qwen3:8b", Decimal(0)), ("gpt-oss:120b-cloud", None), ("glm-5:cloud", None)]
)
async def test_a_local_answer_costs_nothing_and_one_of_the_cloud_an_unknown_amount(
    serve: Any, model: str, cost: Any
) -> None:
    service = await serve(wire.says("x", prompt_eval_count=51_000, eval_count=2_000), model=model)
    usage = (await service.ask()).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (51_000, 2_000, 53_000)
    assert usage.cost_usd == cost


async def test_unknown_tokens_are_unknown(serve: Any) -> None:
    service = await serve(wire.says("x", prompt_eval_count=None, eval_count=None))
    assert (await service.ask()).usage is None


async def test_tokens_are_estimated(serve: Any) -> None:
    service = await serve()
    image = {"type": "image", "source": {"media_type": "image/png", "data": "A" * 4000}}
    content = [{"type": "text", "text": "Hello " * 100}, image]
    request = ChatRequest.model_validate({"messages": [{"role": "user", "content": content}]})
    assert 150 < await service.provider.count_tokens(request) < 200


# models


async def test_the_models_of_the_server_are_listed_with_what_they_can(serve: Any) -> None:
    def answer(request: Any) -> Answer:
        if request.method == "GET":
            return wire.models("qwen3:8b", "llava:7b", "gone")
        name = request.json["model"]
        shown = {"qwen3:8b": wire.shows("completion", "tools", "thinking"),
                 "llava:7b": wire.shows("completion", "vision", context=4096)}  # fmt: skip
        return shown.get(name) or wire.fails(404, f"model '{name}' not found")

    service = await serve(answer=answer, max_tokens=8000)
    qwen, llava, gone = await service.provider.list_models()
    assert qwen.capabilities == ["tools", "streaming", "thinking", "json_mode", "local"]
    assert llava.capabilities == ["streaming", "vision", "json_mode", "local"]
    assert [(each.context_window, each.max_output_tokens) for each in (qwen, llava, gone)] == [
        (32_768, 8_000), (4_096, 4_096), (32_768, 8_000)
    ]  # fmt: skip
    assert (qwen.pricing.input_per_million, qwen.pricing.output_per_million) == (0, 0)


async def test_an_alias_names_a_model(serve: Any) -> None:
    service = await serve(*[wire.says("x")] * 3, model="strong", aliases={"best": "llama4"})
    for name in (None, "fast", "best"):
        await service.ask(model=name)
    assert [body["model"] for body in service.bodies] == ["gpt-oss:20b", "qwen3:4b", "llama4"]
    assert service.provider.get_info().defaults == {
        "model": "gpt-oss:20b", "context_window": 32_768, "max_output_tokens": 32_768
    }  # fmt: skip
