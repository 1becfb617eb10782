"""Requests as the service gets them: roles, signatures, thinking, media, formats and limits."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from amplifier_core.llm_errors import InvalidRequestError
from tests.wire import gemini as wire
from tests.wire.mounted import HALVES, INVENTED, SENT_NAMES, require_marks

TOOL = {
    "name": "look",
    "description": "Look",
    "parameters": {"type": "object", "properties": {"at": {"type": "object"}}},
}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
SKIPPED = b64encode(b"skip_thought_signature_validator").decode()


def result(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": "look", "content": content}


def recorded(response: Any) -> dict[str, Any]:
    """Return a response as the loop records it."""
    calls = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in response.tool_calls or ()]
    message = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in response.content]}
    return {**message, **({"tool_calls": calls} if calls else {})}


async def sent(serve: Any, *messages: Any, config: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    service = await serve(wire.says("ok"), **(config or {}))
    await service.ask(*messages, **more)
    body: dict[str, Any] = service.bodies[0]
    return body


async def test_each_role_has_its_place(serve: Any) -> None:
    answer = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Ok."}],
              "tool_calls": [{"id": "1", "tool": "look", "arguments": {"at": "a"}}]}  # fmt: skip
    body = await sent(
        serve, {"role": "system", "content": "You write."}, {"role": "developer", "content": "Be brief."}, "Hello",
        answer, result("1", "seen"), {"role": "system", "content": "Mind the style."},
        {"role": "assistant", "content": " "}, "Go on",
        config={"model": "gemini-2.5-pro"},
    )  # fmt: skip
    assert body["systemInstruction"]["parts"] == [{"text": "You write.\n\nBe brief."}]
    call = {"id": "1", "name": "look", "args": {"at": "a"}}
    seen = {"id": "1", "name": "look", "response": {"output": "seen"}}
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {"role": "model", "parts": [{"text": "Ok."}, {"functionCall": call}]},
        {"role": "user", "parts": [
            {"functionResponse": seen},
            {"text": "<system-reminder>\nMind the style.\n</system-reminder>"},
            {"text": "Go on"},
        ]},
    ]  # fmt: skip


async def test_a_result_may_be_blocks_or_data(serve: Any) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    outputs = [{"type": "tool_result", "tool_call_id": "1", "output": [{"type": "text", "text": "a"}, image]},
               {"type": "tool_result", "tool_call_id": "2", "output": {"n": 1}}]  # fmt: skip
    body = await sent(serve, {"role": "user", "content": outputs})
    picture, data = [part["functionResponse"] for part in body["contents"][0]["parts"]]
    assert picture["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]
    assert (picture["response"], data["response"]) == ({"output": "a"}, {"output": {"n": 1}})


# thinking


async def test_signatures_go_back_with_their_parts(serve: Any) -> None:
    parts = (wire.thinking("hm"), wire.text("I look.", signature=b"one"), wire.call("look", signature=b"two"))
    service = await serve(wire.says(*parts, wire.call("look")), wire.says("done"))
    first = await service.ask("Go")
    ids = [call.id for call in first.tool_calls]
    await service.ask("Go", recorded(first), *(result(each, "seen") for each in ids))
    answer, results = service.bodies[1]["contents"][1:]
    assert [part.get("thoughtSignature") for part in answer["parts"]] == ["b25l", "dHdv", None]
    assert [part["functionCall"]["id"] for part in answer["parts"][1:]] == ids
    assert [part["functionResponse"]["id"] for part in results["parts"]] == ids


async def test_calls_of_another_model_get_the_mark_of_the_service(serve: Any) -> None:
    calls = [{"id": each, "tool": "look", "arguments": {}} for each in ("1", "2")]
    messages = ("Go", {"role": "assistant", "content": "", "tool_calls": calls}, result("1", "a"), result("2", "b"))
    body = await sent(serve, *messages)
    assert [part.get("thoughtSignature") for part in body["contents"][1]["parts"]] == [SKIPPED, None]
    body = await sent(serve, *messages, config={"model": "gemini-2.5-flash"})
    assert "thoughtSignature" not in str(body)


async def test_signatures_that_the_service_refuses_are_left_out_and_told(serve: Any) -> None:
    refusal = wire.fails(400, "INVALID_ARGUMENT", "Thought signature is not valid.")
    service = await serve(refusal, wire.says("on we go"), refusal, refusal)
    earlier = {"role": "assistant", "content": [
        {"type": "tool_call", "id": "1", "name": "look", "input": {}, "thought_signature": "b25l"}]}  # fmt: skip
    response = await service.ask("Go", earlier, result("1", "seen"))
    marks = [body["contents"][1]["parts"][0]["thoughtSignature"] for body in service.bodies]
    assert marks == ["b25l", SKIPPED]
    assert (response.content[0].text, response.degradation.requested) == ("on we go", "earlier thinking")
    with pytest.raises(InvalidRequestError):
        await service.ask("Go", earlier, result("1", "seen"))


@pytest.mark.parametrize(
    ("config", "effort", "thinking"),
    [
        ({}, None, {"includeThoughts": True}),
        ({"thoughts": False}, None, None),
        ({"model": "gemma-4-27b-it"}, None, None),
        ({"effort": "low"}, None, {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ({"effort": "low"}, "max", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ({"effort": "none"}, None, {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ({"model": "gemini-2.5-flash"}, "none", {"includeThoughts": True, "thinkingBudget": 0}),
    ],
)
async def test_how_the_model_thinks_is_configured_or_requested(
    serve: Any, config: Any, effort: Any, thinking: Any
) -> None:
    body = await sent(serve, config=config, reasoning_effort=effort)
    assert body["generationConfig" if thinking else "contents"] is not None
    assert body.get("generationConfig", {}).get("thinkingConfig") == thinking


# media


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "AAAA"},
         {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
        ({"url": "data:image/webp;base64,AAAA"}, {"inlineData": {"mimeType": "image/webp", "data": "AAAA"}}),
        ({"media_type": "application/pdf", "data": "JVBERg=="},
         {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}}),
        ({"type": "text", "media_type": "text/plain", "data": "Notes"},
         {"inlineData": {"mimeType": "text/plain", "data": "Tm90ZXM="}}),
        ({"type": "url", "url": "https://example.test/a.png"},
         {"fileData": {"fileUri": "https://example.test/a.png", "mimeType": "image/png"}}),
        ({"type": "file", "file_id": "https://example.test/files/a"},
         {"fileData": {"fileUri": "https://example.test/files/a"}}),
    ],
)  # fmt: skip
async def test_images_and_documents_are_sent_by_their_kind(serve: Any, source: Any, part: Any) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image", "source": source}]}
    assert (await sent(serve, message))["contents"] == [{"role": "user", "parts": [{"text": "See"}, part]}]


async def test_data_that_is_no_base64_is_a_wrong_request(serve: Any) -> None:
    service = await serve()
    image = {"type": "image", "source": {"media_type": "image/png", "data": "AAAAA"}}
    with pytest.raises(InvalidRequestError, match="is not base64"):
        await service.ask({"role": "user", "content": [image]})


# tools, formats and limits


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "look"}}, {"mode": "ANY", "allowedFunctionNames": ["look"]}),
    ],
)
async def test_tools_are_sent_with_their_whole_schema_and_the_choice(serve: Any, choice: Any, config: Any) -> None:
    body = await sent(serve, tools=[TOOL], tool_choice=choice)
    declared = {"name": "look", "description": "Look", "parametersJsonSchema": TOOL["parameters"]}
    assert body["tools"] == [{"functionDeclarations": [declared]}]
    assert body["toolConfig"] == {"functionCallingConfig": config}


@pytest.mark.parametrize("schema", [SCHEMA, {"name": "count", "schema": SCHEMA}, None])
async def test_a_format_is_enforced_by_the_service(serve: Any, schema: Any) -> None:
    wanted = {"type": "json_schema", "json_schema": schema} if schema else {"type": "json"}
    config = (await sent(serve, response_format=wanted))["generationConfig"]
    assert (config["responseMimeType"], config.get("responseJsonSchema")) == (
        "application/json",
        SCHEMA if schema else None,
    )


@pytest.mark.parametrize(("model", "takes_both"), [("gemini-2.5-flash", False), ("gemini-3.8-flash", True)])
async def test_a_model_that_takes_tools_or_a_format_gets_the_tools(serve: Any, model: str, takes_both: bool) -> None:
    service = await serve(wire.says("ok"))
    wanted = {"type": "json_schema", "json_schema": SCHEMA}
    response = await service.ask(model=model, tools=[TOOL], response_format=wanted)
    body = wire.read(service.bodies[0])
    assert body["tools"]
    assert ("responseJsonSchema" in body.get("generationConfig", {})) is takes_both
    assert (response.degradation is None) is takes_both


async def test_limits_are_sent(serve: Any) -> None:
    config = (await sent(serve, config={"max_tokens": 500}, temperature=0.5, top_p=0.9, stop=["END"]))[
        "generationConfig"
    ]
    assert (config["maxOutputTokens"], config["temperature"], config["topP"]) == (500, 0.5, 0.9)
    assert config["stopSequences"] == ["END"]


async def test_half_a_surrogate_pair_is_sent_as_a_mark(serve: Any) -> None:
    require_marks(await sent(serve, *HALVES, tools=[TOOL]))


async def test_the_name_of_a_tool_that_a_model_made_up_is_sent_as_the_service_takes_it(serve: Any) -> None:
    body = await sent(serve, "Look", *INVENTED)
    names = [
        part["functionCall"]["name"] for each in body["contents"] for part in each["parts"] if "functionCall" in part
    ]
    assert names == SENT_NAMES
