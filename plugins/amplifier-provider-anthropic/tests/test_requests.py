"""Requests as the service gets them: roles, thinking, media, formats, and the marks of the prompt cache."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core.llm_errors import InvalidRequestError
from tests.wire import anthropic as wire
from tests.wire.mounted import HALVES, INVENTED, NAMELESS, SENT_NAMES, calls_of_one_id, require_marks

TOOL = {"name": "look", "description": "Look", "parameters": {"type": "object", "properties": {}}}
STAMP = {"timestamp": "2026-11-01T00:00:00Z"}
MARK = {"type": "ephemeral"}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "metadata": STAMP}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": "look", "content": content, "metadata": STAMP}


def recorded(response: Any) -> dict[str, Any]:
    """Return a response as the loop records it."""
    calls = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in response.tool_calls or ()]
    message = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in response.content]}
    return {**message, "metadata": STAMP, **({"tool_calls": calls} if calls else {})}


def plain(body: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the messages of a request without marks."""
    return [
        (message["role"], [{k: v for k, v in block.items() if k != "cache_control"} for block in message["content"]])
        for message in body["messages"]
    ]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


async def sent(serve: Any, *messages: Any, config: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    service = await serve(wire.says("ok"), **(config or {}))
    await service.ask(*messages, **more)
    body: dict[str, Any] = service.bodies[0]
    return body


# roles


async def test_each_role_has_its_place(serve: Any) -> None:
    asking = {"role": "assistant", "content": [{"type": "text", "text": "I look."}],
              "tool_calls": [{"id": "call.1", "tool": "look", "arguments": {"at": "a"}}]}  # fmt: skip
    body = await sent(
        serve, system("You write."), {"role": "developer", "content": "Be brief."}, "Hello", asking,
        result("call.1", "seen"), "Go on", tools=[TOOL],
    )  # fmt: skip
    assert [block["text"] for block in body["system"]] == ["You write.", "Be brief."]
    assert plain(body) == [
        ("user", [text("Hello")]),
        ("assistant", [text("I look."), {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "a"}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "call_1", "content": "seen"}, text("Go on")]),
    ]


async def test_an_instruction_in_the_middle_stays_there(serve: Any) -> None:
    body = await sent(serve, "Hello", system("Mind the style."))
    reminder = "<system-reminder>\nMind the style.\n</system-reminder>"
    assert plain(body) == [("user", [text("Hello"), text(reminder)])]
    assert "system" not in body


async def test_empty_texts_are_left_out(serve: Any) -> None:
    blank = {"role": "assistant", "content": [{"type": "text", "text": " \n"}]}
    assert plain(await sent(serve, "Hello", blank, "Again")) == [("user", [text("Hello"), text("Again")])]


async def test_results_of_several_calls_are_one_message(serve: Any) -> None:
    service = await serve(wire.says(wire.call("1", "look"), wire.call("2", "look")), wire.says("done"))
    first = await service.ask("Go")
    await service.ask("Go", recorded(first), result("1", "a"), result("2", "b"))
    assert plain(service.bodies[1])[-1] == (
        "user",
        [{"type": "tool_result", "tool_use_id": each, "content": said} for each, said in (("1", "a"), ("2", "b"))],
    )


async def test_a_result_may_be_blocks_or_data(serve: Any) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    blocks = [{"type": "tool_result", "tool_call_id": "1", "output": [{"type": "text", "text": "a"}, image]},
              {"type": "tool_result", "tool_call_id": "2", "output": {"n": 1}}]  # fmt: skip
    body = await sent(serve, {"role": "user", "content": blocks})
    assert [block["content"] for block in plain(body)[0][1]] == [[text("a"), image], '{"n": 1}']


# thinking


async def test_thinking_goes_back_as_it_came(serve: Any) -> None:
    service = await serve(
        wire.says(wire.thinking("h", "m", signature="sig"), wire.redacted("secret"), wire.call("1", "look")),
        wire.says("done"),
    )
    first = await service.ask("Go")
    await service.ask("Go", recorded(first), result("1", "a"))
    assert plain(service.bodies[1])[1][1][:2] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "secret"},
    ]


@pytest.mark.parametrize("said", [[], [wire.text("I write.")]])
async def test_thinking_goes_not_back_as_the_end_of_an_answer(serve: Any, said: list[Any]) -> None:
    first = [*said, wire.thinking("hm", signature="sig"), wire.redacted("secret"), wire.raw_call("1", "write", "")]
    service = await serve(wire.says(*first, stop="max_tokens"), wire.says("done"))
    response = await service.ask()
    assert response.tool_calls is None
    await service.ask("Hello", recorded(response), "Go on")
    answers = [blocks for role, blocks in plain(service.bodies[1]) if role == "assistant"]
    assert [[block["type"] for block in blocks] for blocks in answers] == ([["text"]] if said else [])


async def test_thinking_of_another_service_is_left_out(serve: Any) -> None:
    other = {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "unsigned"}, {"type": "reasoning", "content": [], "summary": []},
        {"type": "text", "text": "Hi"}]}  # fmt: skip
    assert plain(await sent(serve, "Hello", other, "Again"))[1] == ("assistant", [text("Hi")])


REFUSALS = [
    "messages.1.content.0: Invalid `signature` in `thinking` block",
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
    "messages.1.content.0: `thinking` blocks in the latest assistant message cannot be modified.",
]


@pytest.mark.parametrize("said", REFUSALS)
async def test_thinking_that_the_service_refuses_is_left_out_and_told(serve: Any, said: str) -> None:
    service = await serve(wire.fails(400, "invalid_request_error", said), wire.says("on we go"))
    earlier = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
               {"type": "text", "text": "Hi"}]}  # fmt: skip
    response = await service.ask("Hello", earlier, "Again")
    assert [each["type"] for each in plain(service.bodies[0])[1][1]] == ["thinking", "text"]
    assert [each["type"] for each in plain(service.bodies[1])[1][1]] == ["text"]
    assert response.content[0].text == "on we go"
    assert response.degradation.requested == "earlier thinking"


async def test_a_second_refusal_is_an_error(serve: Any) -> None:
    service = await serve(answer=lambda _: wire.fails(400, "invalid_request_error", REFUSALS[0]))
    with pytest.raises(InvalidRequestError):
        await service.ask("Hello")
    assert len(service.server.requests) == 2


@pytest.mark.parametrize(
    ("config", "thinking"),
    [
        ({}, {"type": "adaptive", "display": "summarized"}),
        ({"model": "claude-haiku-4-5"}, None),
        ({"model": "unknown"}, None),
        ({"thinking": "between_tools"}, {"type": "between_tools"}),
        ({"thinking": "disabled"}, {"type": "disabled"}),
        ({"thinking": 2048}, {"type": "enabled", "budget_tokens": 2048}),
    ],
)
async def test_how_the_model_thinks_is_configured(serve: Any, config: Any, thinking: Any) -> None:
    assert (await sent(serve, "Hello", config=config)).get("thinking") == thinking


async def test_the_effort_of_a_request_goes_before_that_of_the_configuration(serve: Any) -> None:
    assert (await sent(serve, config={"effort": "low"}))["output_config"] == {"effort": "low"}
    assert (await sent(serve, config={"effort": "low"}, reasoning_effort="max"))["output_config"] == {"effort": "max"}
    service = await serve(wire.says("ok"))
    response = await service.ask(reasoning_effort="minimal")
    assert service.bodies[0]["output_config"] == {"effort": "low"}
    assert response.degradation.requested == "effort minimal"


# media


@pytest.mark.parametrize(
    ("source", "block"),
    [
        (
            {"type": "base64", "media_type": "image/png", "data": "AAAA"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        ),
        (
            {"type": "url", "url": "https://example.test/a.png"},
            {"type": "image", "source": {"type": "url", "url": "https://example.test/a.png"}},
        ),
        (
            {"url": "data:image/webp;base64,AAAA"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": "AAAA"}},
        ),
        (
            {"media_type": "application/pdf", "data": "JVBERg=="},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
        ),
        (
            {"type": "url", "url": "https://example.test/a.PDF"},
            {"type": "document", "source": {"type": "url", "url": "https://example.test/a.PDF"}},
        ),
        (
            {"type": "text", "media_type": "text/markdown", "data": "# Notes"},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "# Notes"}},
        ),
        (
            {"type": "file", "file_id": "file_01"},
            {"type": "image", "source": {"type": "file", "file_id": "file_01"}},
        ),
    ],
)
async def test_images_and_documents_are_sent_by_their_kind(serve: Any, source: Any, block: Any) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image", "source": source}]}
    assert plain(await sent(serve, message)) == [("user", [text("See"), block])]


# formats and limits


async def test_a_schema_is_enforced_by_the_service(serve: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    for given in (schema, {"name": "count", "schema": schema, "strict": True}):
        body = await sent(serve, response_format={"type": "json_schema", "json_schema": given})
        assert body["output_config"]["format"] == {"type": "json_schema", "schema": schema}


async def test_what_the_service_cannot_enforce_of_a_schema_is_described(serve: Any) -> None:
    count = {"type": "integer", "minimum": 1, "description": "How many."}
    schema = {"type": "object", "properties": {"n": count}, "additionalProperties": False, "required": ["n"]}
    tool = {"name": "look", "parameters": {"type": "object", "properties": {}}}
    body = await sent(serve, tools=[tool], response_format={"type": "json_schema", "json_schema": schema})
    described = {"type": "integer", "description": 'How many. JSON Schema: {"minimum": 1}'}
    assert body["output_config"]["format"]["schema"] == {**schema, "properties": {"n": described}}
    assert body["tools"]


async def test_a_schema_that_allows_any_members_is_left_out_and_told(serve: Any) -> None:
    service = await serve(wire.says("{}"))
    wanted = {"type": "json_schema", "json_schema": {"type": "object", "required": ["n"]}}
    response = await service.ask(response_format=wanted)
    assert "output_config" not in service.bodies[0]
    assert response.degradation.requested == "response_format json_schema"


async def test_json_without_a_schema_becomes_an_instruction(serve: Any) -> None:
    service = await serve(wire.says("{}"))
    response = await service.ask(system("Count."), "Hello", response_format={"type": "json"})
    assert [block["text"] for block in service.bodies[0]["system"]][1].startswith("Answer with one JSON value")
    assert response.degradation.requested == "response_format json"


async def test_what_the_service_does_not_take_is_left_out_and_told(serve: Any) -> None:
    service = await serve(wire.says("ok"))
    response = await service.ask(temperature=0.5, stop=["END"], max_output_tokens=99, metadata={"user_id": "u1"})
    body = service.bodies[0]
    assert {"temperature", "top_p", "top_k"}.isdisjoint(body)
    assert (body["stop_sequences"], body["max_tokens"], body["metadata"]) == (["END"], 99, {"user_id": "u1"})
    assert response.degradation.requested == "temperature, top_p"


# the prompt cache


def marks(body: dict[str, Any]) -> list[str]:
    """Return the places of the marks."""
    found = [f"tools.{n}" for n, tool in enumerate(body.get("tools", ())) if "cache_control" in tool]
    found += [f"system.{n}" for n, block in enumerate(body.get("system", ())) if "cache_control" in block]
    for number, message in enumerate(body["messages"]):
        found += [f"{number}.{n}" for n, block in enumerate(message["content"]) if "cache_control" in block]
    return found


async def test_the_instruction_and_the_last_two_messages_of_the_user_are_marked(serve: Any) -> None:
    answer = {"role": "assistant", "content": "ok", "metadata": STAMP}
    body = await sent(serve, system("Write."), user("1"), answer, user("2"), answer, user("3"), tools=[TOOL])
    assert marks(body) == ["system.0", "2.0", "4.0"]
    assert body["system"][0]["cache_control"] == MARK
    assert marks(await sent(serve, user("1"), tools=[TOOL])) == ["tools.0", "0.0"]


async def test_the_cache_may_last_an_hour_or_be_off(serve: Any) -> None:
    body = await sent(serve, user("1"), config={"prompt_cache": "1h"})
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    for off in ("none", False):
        assert marks(await sent(serve, user("1"), config={"prompt_cache": off})) == []


async def test_what_is_added_for_one_request_is_not_marked(serve: Any) -> None:
    body = await sent(serve, user("1"), system("Only now."), {"role": "user", "content": "And this."})
    assert marks(body) == ["0.0"]
    assert len(body["messages"][0]["content"]) == 3


async def converse(service: Any, history: list[Any], turns: int, topic: str = "question") -> None:
    """Have some turns with a tool call each, each with a reminder for one request."""
    for _ in range(turns):
        history.append(user(f"{topic} {len(history)}"))
        while True:
            response = await service.ask(*history, system(f"now it is {len(history)}"), tools=[TOOL])
            history.append(recorded(response))
            if not response.tool_calls:
                break
            history += [result(call.id, "seen") for call in response.tool_calls]


def answering(request: Any) -> Any:
    """Call the tool 25 times at once after a question, and answer after its results."""
    last = request.json["messages"][-1]["content"][0]
    if last["type"] == "tool_result":
        return wire.says(wire.thinking("hm", signature="s"), "It is so.")
    number = len(request.json["messages"])
    return wire.says(*(wire.call(f"c{number}_{each}", "look") for each in range(25)))


async def test_every_request_finds_its_beginning_in_the_cache(serve: Any) -> None:
    service = await serve(answer=answering)
    await converse(service, [system("Write.")], 3)
    cache = wire.PromptCache()
    found = [cache.read(body) for body in service.bodies]
    assert found[0] == 0
    ends = [sum(1 for each in wire._blocks_of(body)) - 1 for body in service.bodies]  # without the reminder
    assert found[1:] == ends[:-1]


async def test_a_fork_finds_what_its_source_left_in_the_cache(serve: Any) -> None:
    source = await serve(answer=answering)
    history: list[Any] = [system("Write.")]
    await converse(source, history, 2)
    cache = wire.PromptCache()
    for body in source.bodies:
        cache.read(body)
    shared = len(wire._blocks_of(source.bodies[-1])) - 1
    for fork_point, expected in ((len(history), shared), (1, 2)):
        fork = await serve(answer=answering)
        await converse(fork, history[:fork_point], 1, topic="fork")
        assert cache.read(fork.bodies[0]) == expected


async def test_half_a_surrogate_pair_is_sent_as_a_mark(serve: Any) -> None:
    require_marks(await sent(serve, *HALVES, tools=[TOOL]))


async def test_the_name_of_a_tool_that_a_model_made_up_is_sent_as_the_service_takes_it(serve: Any) -> None:
    body = await sent(serve, "Look", *INVENTED)
    names = [
        block["name"]
        for each in body["messages"]
        for block in each["content"]
        if isinstance(block, dict) and block["type"] == "tool_use"
    ]
    assert names == SENT_NAMES


@pytest.mark.parametrize("call_id", ["call_0", ""])
async def test_calls_with_one_id_are_sent_with_ids_of_their_own_as_are_their_results(serve: Any, call_id: str) -> None:
    body = await sent(serve, "Look", *calls_of_one_id(call_id))
    blocks = [block for each in body["messages"] for block in each["content"]]
    calls = {block["id"]: block["input"]["at"] for block in blocks if block["type"] == "tool_use"}
    results = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    assert {results[each]: at for each, at in calls.items()} == {f"saw {at}": at for at in (0, 10, 1, 11)}


async def test_a_call_without_a_name_is_sent_with_one(serve: Any) -> None:
    body = await sent(serve, "Look", *NAMELESS)
    assert [block["name"] for block in body["messages"][1]["content"]] == ["_"]
