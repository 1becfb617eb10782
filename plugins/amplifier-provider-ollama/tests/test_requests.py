"""Requests as Ollama gets them: roles, tools, thinking, images, formats and limits."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core.llm_errors import InvalidRequestError
from tests.wire import ollama as wire
from tests.wire.mounted import HALVES, require_marks

TOOL = {"name": "look", "description": "Look", "parameters": {"type": "object", "properties": {}}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
SEE = {"type": "text", "text": "See"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


async def sent(serve: Any, *messages: Any, config: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    service = await serve(wire.says("ok"), **(config or {}))
    await service.ask(*messages, **more)
    body: dict[str, Any] = service.bodies[0]
    return body


def asks(call_id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"id": call_id, "tool": name, "arguments": given}


async def test_each_role_has_its_place(serve: Any) -> None:
    answer = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Ok."}],
              "tool_calls": [asks("1", "look", at="a"), asks("2", "see")]}  # fmt: skip
    body = await sent(
        serve, {"role": "system", "content": "You write."}, "Hello", answer,
        {"role": "tool", "tool_call_id": "1", "content": "seen"},
        {"role": "user", "content": [{"type": "tool_result", "tool_call_id": "2", "output": {"n": 1}}]},
        {"role": "developer", "content": "Be brief."}, {"role": "assistant", "content": " "}, "Go on",
    )  # fmt: skip
    calls = [{"function": {"name": "look", "arguments": {"at": "a"}}}, {"function": {"name": "see", "arguments": {}}}]
    assert body["messages"] == [
        {"role": "system", "content": "You write."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Ok.", "thinking": "hm", "tool_calls": calls},
        {"role": "tool", "content": "seen", "tool_name": "look"},
        {"role": "tool", "content": '{"n": 1}', "tool_name": "see"},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go on"},
    ]


async def test_thinking_of_another_service_is_left_out(serve: Any) -> None:
    other = [{"type": "thinking", "thinking": "signed", "signature": "s"}, {"type": "text", "text": "Hi"}]
    body = await sent(serve, "Hello", {"role": "assistant", "content": other}, "Again")
    assert body["messages"][1] == {"role": "assistant", "content": "Hi"}


# tools


async def test_no_part_of_a_tools_schema_is_lost(serve: Any) -> None:
    at = {"type": "object", "description": "Where", "properties": {"line": {"type": "integer"}}, "required": ["line"]}
    properties = {"at": at, "kind": {"enum": ["a", "b"], "type": "string"}, "count": {"type": "integer", "minimum": 1}}
    parameters = {"type": "object", "properties": properties, "required": ["at"], "additionalProperties": False}
    body = await sent(serve, tools=[{"name": "look", "description": "Look", "parameters": parameters}])
    told = '{"properties": {"line": {"type": "integer"}}, "required": ["line"]}'
    assert body["tools"] == [{"type": "function", "function": {"name": "look", "description": "Look", "parameters": {
        "type": "object", "required": ["at"], "properties": {
            "at": {"type": "object", "description": f"Where JSON Schema: {told}"},
            "kind": {"enum": ["a", "b"], "type": "string"},
            "count": {"type": "integer", "description": 'JSON Schema: {"minimum": 1}'},
        }}}}]  # fmt: skip


async def test_a_choice_of_tools_is_kept_as_far_as_ollama_can(serve: Any) -> None:
    assert not (await sent(serve, tools=[TOOL], tool_choice="none")).get("tools")
    service = await serve(wire.says("ok"))
    response = await service.ask(tools=[TOOL], tool_choice="required")
    assert response.degradation.requested == "tool_choice required"


async def test_a_model_without_tools_is_told_with_a_remedy(serve: Any) -> None:
    service = await serve(wire.fails(400, "registry.ollama.ai/library/gemma:2b does not support tools"))
    with pytest.raises(InvalidRequestError) as caught:
        await service.ask(tools=[TOOL])
    assert "https://ollama.com/search?c=tools" in caught.value.remedy


# thinking


@pytest.mark.parametrize(
    ("config", "effort", "think"),
    [
        ({}, None, None),
        ({"thinking": True}, None, True),
        ({"thinking": "low"}, None, "low"),
        ({"thinking": True}, "none", False),
        ({}, "minimal", "low"),
        ({}, "max", "high"),
    ],
)
async def test_how_the_model_thinks_is_configured_or_requested(
    serve: Any, config: Any, effort: Any, think: Any
) -> None:
    assert (await sent(serve, config=config, reasoning_effort=effort)).get("think") == think


async def test_a_model_that_does_not_think_is_asked_without_and_that_is_told(serve: Any) -> None:
    service = await serve(wire.fails(400, '"gemma3" does not support thinking'), wire.says("ok"), thinking=True)
    response = await service.ask()
    assert ["think" in body for body in service.bodies] == [True, False]
    assert (response.content[0].text, response.degradation.requested) == ("ok", "thinking True")


# images


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        {"url": "data:image/webp;base64,AAAA"},
    ],
)
async def test_images_are_sent_as_data(serve: Any, source: Any) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image", "source": source}]}
    service = await serve(wire.shows("completion", "vision"), wire.says("ok"), wire.says("ok"))
    await service.ask(message)
    await service.ask(message)
    seen = [{"role": "user", "content": "See", "images": ["AAAA"]}]
    assert [body.get("messages") for body in service.bodies] == [None, seen, seen]  # the model is asked about once


async def test_the_image_of_a_result_is_sent(serve: Any) -> None:
    service = await serve(wire.shows("completion", "vision"), wire.says("ok"))
    await service.ask({"role": "tool", "tool_call_id": "1", "name": "look", "content": [SEE, IMAGE]})
    [message] = service.bodies[1]["messages"]
    assert message == {"role": "tool", "tool_name": "look", "content": "See", "images": ["AAAA"]}


async def test_a_model_without_vision_gets_a_text_in_place_of_an_image(serve: Any) -> None:
    service = await serve(wire.shows("completion", "tools"), wire.says("ok"))
    response = await service.ask({"role": "tool", "tool_call_id": "1", "name": "look", "content": [SEE, IMAGE]})
    [message] = service.bodies[1]["messages"]
    assert message["content"] == "See\n\n[An image is left out here: the model sees no images.]"
    assert "images" not in message and response.degradation.requested == "images"


@pytest.mark.parametrize("kind", ["text", "base64"])
async def test_documents_of_text_are_text(serve: Any, kind: str) -> None:
    data = "# Notes" if kind == "text" else "IyBOb3Rlcw=="
    source = {"type": kind, "media_type": "text/markdown", "data": data}
    body = await sent(serve, {"role": "user", "content": [{"type": "image", "source": source}]})
    assert body["messages"] == [{"role": "user", "content": "# Notes"}]


async def test_what_ollama_cannot_see_is_left_out_and_told(serve: Any) -> None:
    service = await serve(wire.says("ok"))
    sources = [{"type": "url", "url": "https://example.test/a.png"}, {"media_type": "application/pdf", "data": "AAAA"}]
    content = [{"type": "text", "text": "See"}, *({"type": "image", "source": each} for each in sources)]
    response = await service.ask({"role": "user", "content": content})
    assert service.bodies[0]["messages"] == [{"role": "user", "content": "See"}]
    assert response.degradation.requested == "an image by its address; application/pdf"


async def test_data_that_is_no_base64_is_a_wrong_request(serve: Any) -> None:
    service = await serve()
    image = {"type": "image", "source": {"media_type": "image/png", "data": "AAAAA"}}
    with pytest.raises(InvalidRequestError, match="is not base64"):
        await service.ask({"role": "user", "content": [image]})


# formats and limits


@pytest.mark.parametrize(
    ("wanted", "format"),
    [
        ({"type": "json_schema", "json_schema": SCHEMA}, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "count", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json"}, "json"),
    ],
)
async def test_a_format_is_enforced_by_ollama(serve: Any, wanted: Any, format: Any) -> None:
    assert (await sent(serve, response_format=wanted))["format"] == format


async def test_of_tools_and_a_format_a_model_gets_the_tools(serve: Any) -> None:
    service = await serve(wire.says("ok"))
    tool = {"name": "look", "parameters": {"type": "object", "properties": {}}}
    response = await service.ask(tools=[tool], response_format={"type": "json"})
    assert service.bodies[0]["tools"]
    assert "format" not in service.bodies[0]
    assert response.degradation.requested == "response_format json"


async def test_limits_and_options_are_sent(serve: Any) -> None:
    config = {"context_window": 8192, "max_tokens": 500, "options": {"seed": 7, "top_p": 0.1}, "keep_alive": "30m"}
    body = await sent(serve, config=config, temperature=0.5, stop=["END"], top_p=0.9)
    assert body["options"] == {
        "num_ctx": 8192, "num_predict": 500, "seed": 7, "temperature": 0.5, "top_p": 0.9, "stop": ["END"]
    }  # fmt: skip
    assert body["keep_alive"] == "30m"


async def test_half_a_surrogate_pair_is_sent_as_a_mark(serve: Any) -> None:
    require_marks(await sent(serve, *HALVES, tools=[TOOL]))
