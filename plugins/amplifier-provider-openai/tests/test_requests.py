"""Requests as the services get them, by both APIs: roles, reasoning, media, formats, and what makes them alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amplifier_core.llm_errors import InvalidRequestError
from tests.wire import openai as wire
from tests.wire.mounted import HALVES, INVENTED, NAMELESS, SENT_NAMES, calls_of_one_id, require_marks

both = pytest.mark.parametrize("api", ["responses", "chat"])
TOOL = {"name": "look", "description": "Look", "parameters": {"type": "object", "properties": {}}}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def result(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": "look", "content": content}


def recorded(response: Any) -> dict[str, Any]:
    """Return a response as the loop records it."""
    calls = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in response.tool_calls or ()]
    message = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in response.content]}
    stored: dict[str, Any] = json.loads(json.dumps({**message, **({"tool_calls": calls} if calls else {})}))
    return stored


async def sent(serve: Any, *messages: Any, api: str = "responses", config: Any = None, **more: Any) -> dict[str, Any]:
    service = await serve(wire.says("ok", api=api), api=api, **(config or {}))
    await service.ask(*messages, **more)
    body: dict[str, Any] = service.bodies[0]
    return body


ASKING = {"role": "assistant", "content": [{"type": "text", "text": "I look."}],
          "tool_calls": [{"id": "c1", "tool": "look", "arguments": {"at": "ä"}}]}  # fmt: skip
TALK = (system("You write."), {"role": "developer", "content": "Be brief."}, "Hello", ASKING, result("c1", "seen"),
        system("Mind the style."), "Go on")  # fmt: skip


# roles


async def test_each_role_is_an_item_of_the_responses_api(serve: Any) -> None:
    body = await sent(serve, *TALK, tools=[TOOL])
    assert body["instructions"] == "You write.\n\nBe brief."
    assert body["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "ä"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "seen"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Mind the style."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on"}]},
    ]
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert "previous_response_id" not in body
    [tool] = body["tools"]
    assert (tool["type"], tool["name"], tool["parameters"]) == ("function", "look", TOOL["parameters"])


async def test_each_role_is_a_message_of_chat(serve: Any) -> None:
    body = await sent(serve, *TALK, api="chat", tools=[TOOL])
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "ä"}'}}
    assert body["messages"] == [
        {"role": "system", "content": "You write."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        {"role": "system", "content": "Mind the style."},
        {"role": "user", "content": "Go on"},
    ]
    assert body["tools"][0]["function"]["name"] == "look"
    assert body["stream_options"] == {"include_usage": True}


@both
async def test_empty_texts_are_left_out(serve: Any, api: str) -> None:
    blank = {"role": "assistant", "content": [{"type": "text", "text": " \n"}]}
    body = await sent(serve, "Hello", blank, "Again", api=api)
    assert len(body["messages" if api == "chat" else "input"]) == 2


@both
async def test_a_result_may_be_blocks_or_data(serve: Any, api: str) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    blocks = [{"type": "tool_result", "tool_call_id": "1", "output": [{"type": "text", "text": "a"}, image]},
              {"type": "tool_result", "tool_call_id": "2", "output": {"n": 1}}]  # fmt: skip
    body = await sent(serve, {"role": "user", "content": blocks}, api=api)
    outputs = [each.get("output", each.get("content")) for each in body["messages" if api == "chat" else "input"]]
    picture = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"}
    parts = [{"type": "input_text", "text": "a"}, picture]
    if api == "responses":
        assert outputs == [parts, '{"n": 1}']
        return
    place = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    told = {"type": "text", "text": "The images of the result 1:"}
    assert outputs == ["a\n[image]", '{"n": 1}', [told, place]]  # Chat Completions takes no image in a result


async def test_images_of_results_come_after_the_last_result_in_a_row(serve: Any) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    results = [{"role": "tool", "tool_call_id": each, "content": [image]} for each in ("1", "2")]
    body = await sent(serve, *results, {"role": "assistant", "content": "seen"}, "Go on", api="chat")
    assert [each["role"] for each in body["messages"]] == ["tool", "tool", "user", "assistant", "user"]
    assert len(body["messages"][2]["content"]) == 4


async def test_a_service_without_vision_can_be_named(serve: Any) -> None:
    seeing, blind = [await serve(**more) for more in ({}, {"vision": False})]
    assert "vision" in seeing.provider.get_info().capabilities
    assert "vision" not in blind.provider.get_info().capabilities


@both
@pytest.mark.parametrize(
    ("choice", "word"),
    [("auto", "auto"), ("none", "none"), ("required", "required"), ("any", "required"), ({"type": "none"}, "none")],
)
async def test_a_choice_of_tools_may_be_a_word(serve: Any, api: str, choice: Any, word: str) -> None:
    assert (await sent(serve, api=api, tools=[TOOL], tool_choice=choice))["tool_choice"] == word


@both
@pytest.mark.parametrize("choice", ["look", {"type": "tool", "name": "look"}, {"function": {"name": "look"}}])
async def test_a_choice_of_tools_may_be_one_tool(serve: Any, api: str, choice: Any) -> None:
    named = {"name": "look"} if api == "responses" else {"function": {"name": "look"}}
    body = await sent(serve, api=api, tools=[TOOL], tool_choice=choice)
    assert body["tool_choice"] == {"type": "function", **named}


# reasoning


async def test_reasoning_goes_back_as_it_came(serve: Any) -> None:
    parts = (
        wire.thinking("h", "m", encrypted="secret"),
        wire.text("I look.", phase="commentary"),
        wire.call("1", "look"),
    )
    service = await serve(wire.says(*parts), wire.says("done"))
    first = await service.ask("Go")
    await service.ask("Go", recorded(first), result("1", "a"))
    assert service.bodies[1]["input"][1:4] == [
        {"type": "reasoning", "id": "rs_0", "encrypted_content": "secret",
         "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": "I look.", "phase": "commentary"},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "said", [[], [wire.text("I write.")], [wire.call("1", "look"), wire.thinking("on", encrypted="y")]]
)
async def test_reasoning_goes_not_back_without_the_call_that_the_limit_cut_off(serve: Any, said: list[Any]) -> None:
    cut = wire.raw_call("2", "write", '{"text": "once upon a')
    parts = [wire.thinking("hm", encrypted="x"), *said, wire.thinking("so", encrypted="z"), cut]
    service = await serve(wire.says(*parts, reason="max_output_tokens"), wire.says("done"))
    response = await service.ask()
    results = [result(call.id, "seen") for call in response.tool_calls or ()]
    await service.ask("Hello", recorded(response), *results, "Go on")
    kinds = [each["type"] for each in service.bodies[1]["input"]]
    kept = {0: [], 1: ["reasoning", "message"], 2: ["reasoning", "function_call", "function_call_output"]}[len(said)]
    assert kinds == ["message", *kept, "message"]
    assert len(service.bodies) == 2


async def test_reasoning_without_a_summary_is_kept_too(serve: Any) -> None:
    service = await serve(wire.says(wire.thinking("", encrypted="secret"), "Hi"), wire.says("done"))
    first = await service.ask("Go")
    await service.ask("Go", recorded(first), "Again")
    assert service.bodies[1]["input"][1]["encrypted_content"] == "secret"


@both
async def test_thinking_of_another_service_is_left_out(serve: Any, api: str) -> None:
    other = {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "signed elsewhere"},
        {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Hi"}]}  # fmt: skip
    body = await sent(serve, "Hello", other, "Again", api=api)
    assert [each["content"] for each in body["messages" if api == "chat" else "input"]][1] == "Hi"
    assert "elsewhere" not in json.dumps(body)


async def test_reasoning_that_the_service_refuses_is_left_out_and_told(serve: Any) -> None:
    said = "The encrypted content for item rs_0 could not be verified."
    service = await serve(wire.fails(400, "invalid_encrypted_content", said), wire.says("on we go"))
    earlier = {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "content": ["x", "rs_0"]},
               {"type": "text", "text": "Hi"}]}  # fmt: skip
    response = await service.ask("Hello", earlier, "Again")
    assert [each["type"] for each in service.bodies[0]["input"]] == ["message", "reasoning", "message", "message"]
    assert [each["type"] for each in service.bodies[1]["input"]] == ["message", "message", "message"]
    assert (response.content[0].text, response.degradation.requested) == ("on we go", "earlier reasoning")


async def test_a_second_refusal_is_an_error(serve: Any) -> None:
    service = await serve(answer=lambda _: wire.fails(400, "x", "The encrypted content could not be verified."))
    with pytest.raises(InvalidRequestError):
        await service.ask("Hello")
    assert len(service.server.requests) == 2


@both
async def test_the_effort_of_a_request_goes_before_that_of_the_configuration(serve: Any, api: str) -> None:
    for more, effort in (({}, "low"), ({"reasoning_effort": "max"}, "max")):
        body = await sent(serve, api=api, config={"effort": "low"}, **more)
        assert (body["reasoning_effort"] if api == "chat" else body["reasoning"]["effort"]) == effort


async def test_a_summary_is_asked_for_if_configured(serve: Any) -> None:
    assert "reasoning" not in await sent(serve)
    assert (await sent(serve, config={"reasoning_summary": "auto"}))["reasoning"] == {"summary": "auto"}


# media


MEDIA = [
    ({"type": "base64", "media_type": "image/png", "data": "AAAA"}, True, "data:image/png;base64,AAAA"),
    ({"type": "url", "url": "https://example.test/a.png"}, True, "https://example.test/a.png"),
    ({"url": "data:image/webp;base64,AAAA"}, True, "data:image/webp;base64,AAAA"),
    ({"media_type": "application/pdf", "data": "JVBERg=="}, False, "data:application/pdf;base64,JVBERg=="),
    ({"type": "text", "media_type": "text/plain", "data": "Notes"}, False, "data:text/plain;base64,Tm90ZXM="),
]


@both
@pytest.mark.parametrize(("source", "is_image", "url"), MEDIA)
async def test_images_and_documents_are_sent_by_their_kind(
    serve: Any, api: str, source: Any, is_image: bool, url: str
) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image", "source": source}]}
    body = await sent(serve, message, api=api)
    [given] = body["messages" if api == "chat" else "input"]
    file = {"filename": "document", "file_data": url}
    expected = {
        ("responses", True): {"type": "input_image", "detail": "auto", "image_url": url},
        ("responses", False): {"type": "input_file", **file},
        ("chat", True): {"type": "image_url", "image_url": {"url": url}},
        ("chat", False): {"type": "file", "file": file},
    }
    assert given["content"][1] == expected[api, is_image]


async def test_a_document_may_be_an_address_or_a_file_of_the_service(serve: Any) -> None:
    sources = [{"type": "url", "url": "https://example.test/a.PDF"},
               {"type": "file", "file_id": "file-1", "media_type": "application/pdf"},
               {"type": "file", "file_id": "file-2"}]  # fmt: skip
    body = await sent(serve, {"role": "user", "content": [{"type": "image", "source": each} for each in sources]})
    assert body["input"][0]["content"] == [
        {"type": "input_file", "file_url": "https://example.test/a.PDF"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_image", "detail": "auto", "file_id": "file-2"},
    ]


# formats and limits


@both
async def test_a_schema_is_enforced_by_the_service(serve: Any, api: str) -> None:
    count = {"n": {"type": "integer"}}
    schema = {"type": "object", "properties": count, "required": ["n"], "additionalProperties": False}
    named = {"name": "count it", "schema": schema, "strict": False}
    for given, name, strict in ((schema, "answer", True), (named, "count_it", False)):
        body = await sent(serve, api=api, response_format={"type": "json_schema", "json_schema": given})
        told = body["response_format"]["json_schema"] if api == "chat" else body["text"]["format"]
        assert (told["name"], told["schema"], told["strict"]) == (name, schema, strict)


OPEN = {"type": "object", "required": ["n"]}


@both
@pytest.mark.parametrize(
    ("part", "is_strict"),
    [
        ({"type": "integer", "minimum": 1}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"type": "array", "items": {"$ref": "#/$defs/open"}}, True),
        ({"type": "array", "items": OPEN}, False),
        ({"type": "object", "properties": {"m": {"type": "null"}}, "additionalProperties": False}, False),
        ({"type": "string", "maxLength": 3}, False),
        ({}, False),
        (True, False),
    ],
)
async def test_a_schema_that_the_strict_mode_refuses_is_asked_for_without_it(
    serve: Any, api: str, part: Any, is_strict: bool
) -> None:
    schema = {"type": "object", "properties": {"n": part}, "required": ["n"], "additionalProperties": False}
    body = await sent(serve, api=api, response_format={"type": "json_schema", "json_schema": schema})
    told = body["response_format"]["json_schema"] if api == "chat" else body["text"]["format"]
    assert (told["schema"], told["strict"]) == (schema, is_strict)


@both
async def test_of_tools_and_a_format_a_service_beside_openai_gets_the_tools(serve: Any, api: str) -> None:
    service = await serve(wire.says("ok", api=api), api=api)
    tool = {"name": "look", "parameters": {"type": "object", "properties": {}}}
    response = await service.ask(tools=[tool], response_format={"type": "json_schema", "json_schema": OPEN})
    body = service.bodies[0]
    assert body["tools"]
    if api == "chat":
        assert "response_format" not in body
        assert response.degradation.requested == "response_format json_schema"
    else:
        assert body["text"]["format"]["schema"] == OPEN


@both
async def test_json_without_a_schema_is_known_to_the_service(serve: Any, api: str) -> None:
    body = await sent(serve, api=api, response_format={"type": "json"})
    assert (body["response_format"] if api == "chat" else body["text"]["format"]) == {"type": "json_object"}


@both
async def test_a_model_that_reasons_takes_no_temperature(serve: Any, api: str) -> None:
    service = await serve(*[wire.says("ok", api=api)] * 3, api=api)
    response = await service.ask(temperature=0.5)
    await service.ask(temperature=0.5, reasoning_effort="none")
    await service.ask(temperature=0.5, model="local-7b")
    assert [body.get("temperature") for body in service.bodies] == [None, 0.5, 0.5]
    assert response.degradation.requested == "temperature"


async def test_stop_sequences_are_known_to_chat_only(serve: Any) -> None:
    assert (await sent(serve, api="chat", stop=["END"]))["stop"] == ["END"]
    service = await serve(wire.says("ok"))
    assert (await service.ask(stop=["END"])).degradation.requested == "stop"
    assert "stop" not in service.bodies[0]


async def test_the_length_of_an_answer_has_its_name_in_each_api(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await sent(serve, max_output_tokens=99))["max_output_tokens"] == 99
    assert (await sent(serve, api="chat", config={"max_tokens": 99}))["max_tokens"] == 99


# what begins alike


async def test_a_session_and_its_forks_have_one_key_for_the_cache(serve: Any) -> None:
    service = await serve(answer=lambda _: wire.says("ok"))
    start = (system("Write."), "Hello")
    for talk in (start, (*start, ASKING, result("c1", "a")), (*start, {"role": "assistant", "content": "ok"}, "Fork")):
        await service.ask(*talk, tools=[TOOL])
    await service.ask(system("Write."), "Another", tools=[TOOL])
    keys = [body["prompt_cache_key"] for body in service.bodies]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    whole = [json.dumps(body["input"]) for body in service.bodies]
    assert all(each.startswith(whole[0][:-1]) for each in whole[1:3])


@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_half_a_surrogate_pair_is_sent_as_a_mark(serve: Any, api: str) -> None:
    require_marks(await sent(serve, *HALVES, api=api, tools=[TOOL]))


async def test_the_name_of_a_tool_that_a_model_made_up_is_sent_as_the_service_takes_it(serve: Any) -> None:
    body = await sent(serve, "Look", *INVENTED)
    assert [item["name"] for item in body["input"] if item.get("type") == "function_call"] == SENT_NAMES
    body = await sent(serve, "Look", *INVENTED, api="chat")
    calls = [call for message in body["messages"] for call in message.get("tool_calls", ())]
    assert [call["function"]["name"] for call in calls] == SENT_NAMES


@pytest.mark.parametrize("call_id", ["call_0", ""])
async def test_calls_with_one_id_are_sent_with_ids_of_their_own_as_are_their_results(serve: Any, call_id: str) -> None:
    items = (await sent(serve, "Look", *calls_of_one_id(call_id)))["input"]
    calls = {each["call_id"]: each["arguments"] for each in items if each.get("type") == "function_call"}
    results = {each["call_id"]: each["output"] for each in items if each.get("type") == "function_call_output"}
    expected = {f"saw {at}": f'{{"at": {at}}}' for at in (0, 10, 1, 11)}
    assert {results[each]: given for each, given in calls.items()} == expected
    messages = (await sent(serve, "Look", *calls_of_one_id(call_id), api="chat"))["messages"]
    named = [call for each in messages for call in each.get("tool_calls", ())]
    calls = {each["id"]: each["function"]["arguments"] for each in named}
    results = {each["tool_call_id"]: each["content"] for each in messages if each["role"] == "tool"}
    assert {results[each]: given for each, given in calls.items()} == expected


async def test_a_call_without_a_name_is_sent_with_one(serve: Any) -> None:
    assert (await sent(serve, "Look", *NAMELESS))["input"][1]["name"] == "_"
    body = await sent(serve, "Look", *NAMELESS, api="chat")
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == "_"
