"""What holds for the answers of every service, with its own provider and SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from amplifier_core.llm_errors import LLMError, ProviderUnavailableError, StreamError
from amplifier_core.message_models import TextBlock
from amplifier_foundation.background.outages import is_of_service
from amplifier_providers import streaming
from amplifier_providers.provider import BROKEN_OFF
from tests.wire import anthropic
from tests.wire import openai as wire
from tests.wire.mounted import Service as Mounted
from tests.wire.mounted import mounting
from tests.wire.server import Answer, json_answer
from tests.wire.services import SERVICES, Service

CALL = ("c1", "look", {"at": "a.py"})
ENDED = {name: service for name, service in SERVICES.items() if name != "gemini"}
"""Those with a piece that ends an answer."""


@pytest.fixture(params=SERVICES.values(), ids=SERVICES)
def service(request: pytest.FixtureRequest) -> Service:
    found = request.param
    assert isinstance(found, Service)
    return found


@asynccontextmanager
async def serving(
    service: Service, monkeypatch: pytest.MonkeyPatch, *script: Answer, **more: Any
) -> AsyncIterator[Mounted]:
    """Serve a script to the provider of a service."""
    mount = import_module(f"amplifier_provider_{service.provider}").mount
    async with mounting(monkeypatch, mount, service.provider, **service.config) as serve:
        yield await serve(*script, **more)


def make_ends(whole: Answer) -> dict[str, Answer]:
    """Return what may stand behind a whole answer."""
    count = len(whole.pieces)
    broken = replace(whole, pieces=(*whole.pieces, b'data: {"error": {"message": "gone"}}\n\n'))
    return {"cut": whole.cut(count), "reset": whole.reset(count), "held": whole.stall(count), "error": broken}


@pytest.mark.parametrize("end", ["cut", "reset", "held", "error"])
@pytest.mark.parametrize("service", ENDED.values(), ids=ENDED)
async def test_what_comes_behind_the_end_of_an_answer_changes_nothing(
    service: Service, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LAST_WAIT", 0.05)
    whole = service.say(["Good", " day"], [CALL])
    async with serving(service, monkeypatch, make_ends(whole)[end], whole) as mounted:
        first, second = await mounted.ask(), await mounted.ask()
        assert first.content[0] == TextBlock(text="Good day")
        assert [each.arguments for each in first.tool_calls or ()] == [CALL[2]]
        assert first.usage is not None
        assert (first.finish_reason, first.usage) == (second.finish_reason, second.usage)
        assert mounted.heard("llm:stream_aborted") == []


async def test_a_reason_and_a_usage_with_each_piece_end_no_answer_in_chat_completions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat = SERVICES["chat"]
    whole = chat.say(["Good", " day"], [])
    usage = b', "usage": {"completion_tokens": 5, "prompt_tokens": 10, "total_tokens": 15}}'
    ended = whole.pieces[1].replace(b"null", b'"stop"').replace(b"}]}", b"}]" + usage)
    repeated = replace(whole, pieces=(whole.pieces[0], ended, *whole.pieces[2:]))
    async with serving(chat, monkeypatch, repeated.cut(2), repeated) as mounted:
        with pytest.raises(StreamError):
            await mounted.ask()
        assert (await mounted.ask()).content == [TextBlock(text="Good day")]


async def test_an_answer_without_its_end_is_none(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = service.say(["Good", " day"], [])
    missing = 3 if service.name == "chat" else 1  # behind the reason of its end: the usage, and [DONE]
    async with serving(service, monkeypatch, whole.cut(len(whole.pieces) - missing)) as mounted:
        with pytest.raises(LLMError):
            await mounted.ask()
        assert mounted.heard("llm:stream_aborted")


def break_off(reason: str, *parts: Any) -> Answer:
    """Return an answer in Chat Completions that ends with a word of its service alone."""
    whole = wire.says(*parts, api="chat", stop="length")
    return replace(whole, pieces=tuple(each.replace(b'"length"', json.dumps(reason).encode()) for each in whole.pieces))


@pytest.mark.parametrize("reason", BROKEN_OFF)
async def test_an_answer_that_its_service_broke_off_is_asked_for_again(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = SERVICES["chat"]
    broken = break_off(reason, "half of an ans", wire.raw_call("c1", "look", '{"at": "a'))
    async with serving(chat, monkeypatch, broken, chat.say(["Good day"], []), max_retries=1) as mounted:
        answer = await mounted.ask()
        assert answer.content == [TextBlock(text="Good day")]
        [retry] = mounted.heard("provider:retry")
        assert retry["error_message"] == f"the service broke the answer off ({reason})"
        assert len(mounted.heard("llm:stream_aborted")) == 1
        [told] = mounted.heard("llm:response")
        assert told["usage"]["requests"] == 2


async def test_a_service_that_breaks_off_every_answer_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = break_off("insufficient_system_resource", "half of an ans")
    async with serving(SERVICES["chat"], monkeypatch, broken) as mounted:
        with pytest.raises(ProviderUnavailableError) as caught:
            await mounted.ask()
        assert is_of_service(caught.value)


def halve(answer: Answer) -> Answer:
    """Return an answer with the halves of a surrogate pair in place of `<1>` and `<2>`."""
    pieces = (each.replace(b"<1>", b"\\ud83d").replace(b"<2>", b"\\ude00") for each in answer.pieces)
    return replace(answer, pieces=tuple(pieces))


async def test_a_character_in_two_pieces_is_one(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    said = halve(service.say(["smile <1>", "<2> done", " <1>"], []))
    async with serving(service, monkeypatch, said) as mounted:
        answer = await mounted.ask()
        assert [block.text for block in answer.content if block.type == "text"] == ["smile \U0001f600 done \ufffd"]
        deltas = [each["text"] for each in mounted.heard("llm:stream_block_delta")]
        assert "".join(deltas) == "smile \U0001f600 done "


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("anthropic", anthropic.says(anthropic.raw_call("c1", "look", '{"at": "<1><2>123456"}'))),
        ("chat", wire.says(wire.raw_call("c1", "look", '{"at": "<1><2>123456"}'), api="chat")),
    ],
)
async def test_a_character_in_two_pieces_of_an_input_is_one(
    name: str, said: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(SERVICES[name], monkeypatch, halve(said)) as mounted:
        [call] = (await mounted.ask()).tool_calls or ()
        assert call.arguments == {"at": "\U0001f600123456"}


ODD_USAGES: dict[str, tuple[str, list[Any]]] = {
    "anthropic": ("usage", [5, {"input_tokens": 10, "output_tokens": 5.5}, {"output_tokens": "5"}]),
    "responses": (
        "usage",
        [{}, {"input_tokens": None, "output_tokens": 5}, {"input_tokens": 10, "output_tokens": 5.5}],
    ),
    "chat": ("usage", [5, {}, {"prompt_tokens": None, "completion_tokens": 5}, {"prompt_tokens": 1.5}]),
    "gemini": ("usageMetadata", [{}]),
}


def count(answer: Answer, key: str, usage: Any) -> Answer:
    """Return an answer with another usage in place of its own."""

    def change(data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: usage if name == key and value else change(value) for name, value in data.items()}

    lines = [line for piece in answer.pieces for line in piece.decode().splitlines(keepends=True)]
    changed = [
        f"data: {json.dumps(change(json.loads(line[6:])))}\n" if line.startswith("data: {") else line for line in lines
    ]
    return replace(answer, pieces=tuple(line.encode() for line in changed))


@pytest.mark.parametrize(
    ("name", "key", "usage"), [(name, key, usage) for name, (key, odd) in ODD_USAGES.items() for usage in odd]
)
async def test_an_answer_counts_whose_usage_is_none(
    name: str, key: str, usage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = count(SERVICES[name].say(["Good day"], []), key, usage)
    async with serving(SERVICES[name], monkeypatch, said) as mounted:
        answer = await mounted.ask()
        assert (answer.content, answer.usage) == ([TextBlock(text="Good day")], None)
        [told] = mounted.heard("llm:response")
        assert (told["status"], told["usage"]) == ("ok", {})


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("responses", {"input_tokens": 10, "output_tokens": 5}),
        ("chat", {"prompt_tokens": 10, "completion_tokens": 5}),
    ],
)
async def test_tokens_without_their_sum_are_added_up(name: str, usage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said = count(SERVICES[name].say(["Good day"], []), "usage", usage)
    async with serving(SERVICES[name], monkeypatch, said) as mounted:
        counted = (await mounted.ask()).usage
        assert counted is not None
        assert counted.total_tokens == 15


BREAKS = "a\u0085b\u2028c\u2029d\u000be\u000cf\u001cg\u001dh\u001ei"
"""Characters at which `str.splitlines` breaks; JSON may have some of them as they are."""


def write_as_utf8(line: str) -> str:
    """Return a line with all characters of its JSON as they are."""
    start = line.find("{")
    return line if start < 0 else line[:start] + json.dumps(json.loads(line[start:]), ensure_ascii=False)


async def test_a_text_may_have_any_character(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    said = service.say([BREAKS], [])
    pieces = ("\n".join(map(write_as_utf8, each.decode().split("\n"))).encode() for each in said.pieces)
    async with serving(service, monkeypatch, replace(said, pieces=tuple(pieces)).slowly(7)) as mounted:
        assert (await mounted.ask()).content == [TextBlock(text=BREAKS)]


@pytest.mark.parametrize("between", [": ping\n\n", ": ping\n", "id: 1\n", "retry: 10\n\n", "\n", "\r\n"])
async def test_what_is_no_piece_of_an_answer_is_passed_over(
    service: Service, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = service.say(["Good", " day"], [CALL])
    noise = between.encode() if service.name != "ollama" else b"\n"
    async with serving(
        service, monkeypatch, replace(said, pieces=tuple(noise + each for each in said.pieces))
    ) as mounted:
        answer = await mounted.ask()
        assert answer.content[0] == TextBlock(text="Good day")
        assert [each.arguments for each in answer.tool_calls or ()] == [CALL[2]]


async def test_data_needs_no_blank_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = SERVICES["gemini"].say(["Good day"], [])
    close = replace(said, pieces=tuple(each.replace(b"data: ", b"data:") for each in said.pieces))
    async with serving(SERVICES["gemini"], monkeypatch, close) as mounted:
        assert (await mounted.ask()).content == [TextBlock(text="Good day")]


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, 529, "Overloaded"),
        ({"type": "authentication_error", "message": "Invalid API key"}, 401, "Invalid API key"),
        ({"code": 429, "message": "slow down"}, 429, "slow down"),
        ({"code": "429", "message": "slow down"}, 429, "slow down"),
        ({"message": "boom"}, 500, "boom"),
    ],
)
async def test_an_error_with_the_status_of_a_success_is_that_error(
    service: Service, error: Any, status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(service, monkeypatch, json_answer({"error": error})) as mounted:
        with pytest.raises(LLMError) as caught:
            await mounted.ask()
        assert str(caught.value) == f"{status}: {words}"
        assert caught.value.retryable == (status != 401)


async def test_an_error_of_words_alone_with_the_status_of_a_success_is_told(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(service, monkeypatch, json_answer({"error": "boom"})) as mounted:
        with pytest.raises(ProviderUnavailableError, match="500: boom"):
            await mounted.ask()


async def test_a_redirect_to_nowhere_is_an_error_of_the_service(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(service, monkeypatch, json_answer({"error": {"message": "x"}}, 301)) as mounted:
        with pytest.raises(LLMError):
            await mounted.ask()
