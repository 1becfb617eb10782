"""Play a model at the protocol of each service: the rules of a playbook choose what it says.

A bundle with a playbook gets the same words from the playbook, and from each service with a model of the same rules. As
the services themselves, a model refuses a conversation with an open tool call, with a result for no call, or with its
own message at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amplifier_core.message_models import Message, TextBlock, ToolCallBlock
from amplifier_provider_playbook.rules import Playbook
from amplifier_provider_playbook.steps import read_steps
from tests.wire import anthropic, gemini, ollama, openai
from tests.wire.server import Answer, Request

KEY = "the-key-of-the-tests"
_PIECES = re.compile(r"\S+\s*|\s+")


class Reading:
    """A conversation as it is read from a request."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def say(self, role: str, text: str | None) -> None:
        """Add a text of a user or of the model."""
        if role == "assistant":
            self._answer().extend([TextBlock(text=text)] if text else [])
        elif role == "user" and text:
            self.messages.append(Message(role="user", content=text))

    def call(self, call_id: str, name: str, given: Any) -> None:
        """Add a tool call to the model's message."""
        given = json.loads(given or "{}") if isinstance(given, str) else given
        self._answer().append(ToolCallBlock(id=call_id, name=name, input=given))

    def result(self, call_id: str, output: str) -> None:
        """Add the result of a tool call."""
        self.messages.append(Message(role="tool", tool_call_id=call_id, content=output))

    def _answer(self) -> list[Any]:
        if not self.messages or self.messages[-1].role != "assistant":
            self.messages.append(Message(role="assistant", content=[]))
        content = self.messages[-1].content
        assert isinstance(content, list)
        return content

    def find_fault(self) -> str | None:
        """Return why a service would refuse the conversation; None for a sound one."""
        awaited: set[str] = set()
        for message in self.messages:
            if message.role == "tool" and message.tool_call_id not in awaited:
                return f"a result for no call: {message.tool_call_id}"
            if message.role != "tool" and awaited:
                return f"a call without a result: {', '.join(sorted(awaited))}"
            awaited.discard(message.tool_call_id or "")
            if message.role == "assistant" and not isinstance(message.content, str):
                awaited = {block.id for block in message.content if block.type == "tool_call"}
        if not self.messages or self.messages[-1].role == "assistant":
            return "the conversation must end with a message of the user"
        return f"a call without a result: {', '.join(sorted(awaited))}" if awaited else None


def _read_anthropic(body: Any) -> Reading:
    reading = Reading()
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "text":
                reading.say(message["role"], block["text"])
            elif block["type"] == "tool_use":
                reading.call(block["id"], block["name"], block["input"])
            elif block["type"] == "tool_result":
                reading.result(block["tool_use_id"], block["content"])
    return reading


def _read_responses(body: Any) -> Reading:
    reading = Reading()
    for item in body["input"]:
        if item["type"] == "function_call":
            reading.call(item["call_id"], item["name"], item["arguments"])
        elif item["type"] == "function_call_output":
            reading.result(item["call_id"], item["output"])
        elif item["type"] == "message":
            content = item["content"]
            for text in [content] if isinstance(content, str) else [part["text"] for part in content]:
                reading.say(item["role"], text)
    return reading


def _read_chat(body: Any) -> Reading:
    reading = Reading()
    for message in body["messages"]:
        if message["role"] == "tool":
            reading.result(message["tool_call_id"], message["content"])
            continue
        reading.say(message["role"], message["content"])
        for call in message.get("tool_calls") or ():
            reading.call(call["id"], call["function"]["name"], call["function"]["arguments"])
    return reading


def _read_ollama(body: Any) -> Reading:
    """Return the conversation; its calls have no ids, and their results come in the same order."""
    reading, waiting = Reading(), list[str]()
    for message in body["messages"]:
        if message["role"] == "tool":
            reading.result(waiting.pop(0) if waiting else "none", message["content"])
            continue
        reading.say(message["role"], message.get("content"))
        for call in message.get("tool_calls") or ():
            waiting.append(f"call_{len(reading.messages)}_{len(waiting)}")
            reading.call(waiting[-1], call["function"]["name"], call["function"]["arguments"])
    return reading


def _read_gemini(body: Any) -> Reading:
    reading = Reading()
    for content in gemini.read(body)["contents"]:
        for part in content["parts"]:
            if "functionCall" in part:
                reading.call(part["functionCall"]["id"], part["functionCall"]["name"], part["functionCall"]["args"])
            elif "functionResponse" in part:
                reading.result(part["functionResponse"]["id"], part["functionResponse"]["response"]["output"])
            elif not part.get("thought"):
                reading.say("assistant" if content["role"] == "model" else "user", part.get("text"))
    return reading


Calls = list[tuple[str, str, dict[str, Any]]]
"""Tool calls: the id, the tool and its input."""


class Said(NamedTuple):
    """What a model says."""

    text: str
    calls: Calls


@dataclass(frozen=True)
class Service:
    """A service: its provider, how it reads a request, and how it answers."""

    name: str
    provider: str
    read: Callable[[Any], Reading]
    say: Callable[[list[str], Calls], Answer]
    fail: Callable[..., Answer]
    """Return an error with a status and a message; headers by their names."""
    find_schema: Callable[[Any], Any]
    """Return the schema that a request wants its answer to have; None without one."""
    config: Mapping[str, Any] = field(default_factory=lambda: {"api_key": KEY})
    """The configuration of its provider, besides the address."""

    def configure(self, url: str, **more: Any) -> dict[str, Any]:
        """Return the configuration of its provider at this address, which is then the one that answers."""
        return {"base_url": url, "priority": 0, "min_retry_delay": 0, **self.config, **more}


def _say_anthropic(pieces: list[str], calls: Calls) -> Answer:
    made = [anthropic.call(call_id, name, **given) for call_id, name, given in calls]
    return anthropic.says(*([anthropic.text(*pieces)] if pieces else []), *made)


def _say_openai(pieces: list[str], calls: Calls, api: str = "responses") -> Answer:
    made = [openai.call(call_id, name, **given) for call_id, name, given in calls]
    return openai.says(*([openai.text(*pieces)] if pieces else []), *made, api=api)


def _say_chat(pieces: list[str], calls: Calls) -> Answer:
    return _say_openai(pieces, calls, "chat")


def _say_ollama(pieces: list[str], calls: Calls) -> Answer:
    made = [ollama.call(name, **given) for _, name, given in calls]
    return ollama.says(*([ollama.text(*pieces)] if pieces else []), *made)


def _say_gemini(pieces: list[str], calls: Calls) -> Answer:
    made = [gemini.call(name, call_id=call_id, **given) for call_id, name, given in calls]
    return gemini.says(*([gemini.text(*pieces)] if pieces else []), *made)


def _fail_anthropic(status: int, message: str, **headers: str) -> Answer:
    return anthropic.fails(status, "api_error", message, **headers)


def _fail_openai(status: int, message: str, **headers: str) -> Answer:
    return openai.fails(status, None, message, **headers)


def _fail_gemini(status: int, message: str, **headers: str) -> Answer:
    return gemini.fails(status, "UNAVAILABLE", message, **headers)


def _schema_at(*path: str) -> Callable[[Any], Any]:
    """Return a function that returns what stands at a path of keys in a request; None if nothing does."""

    def find(body: Any) -> Any:
        for key in path:
            body = (body or {}).get(key)
        return body

    return find


def _find_gemini_schema(body: Any) -> Any:
    return _schema_at("generationConfig", "responseJsonSchema")(gemini.read(body))


def _openai_config(api: str) -> dict[str, str]:
    return {"api_key": KEY, "api": api}


SERVICES = {
    service.name: service
    for service in (
        Service(
            *("anthropic", "anthropic", _read_anthropic, _say_anthropic, _fail_anthropic),
            _schema_at("output_config", "format", "schema"),
        ),
        Service(
            *("responses", "openai", _read_responses, _say_openai, _fail_openai),
            _schema_at("text", "format", "schema"),
            _openai_config("responses"),
        ),
        Service(
            *("chat", "openai", _read_chat, _say_chat, _fail_openai),
            _schema_at("response_format", "json_schema", "schema"),
            _openai_config("chat"),
        ),
        Service("ollama", "ollama", _read_ollama, _say_ollama, ollama.fails, _schema_at("format"), {}),
        Service("gemini", "gemini", _read_gemini, _say_gemini, _fail_gemini, _find_gemini_schema),
    )
}


class Model:
    """A model behind a service: it answers by the rules of a playbook, `{rules: […], otherwise: {…}}`."""

    def __init__(self, service: Service, playbook: Mapping[str, Any]) -> None:
        self.service = service
        self._playbook = Playbook.model_validate(playbook)
        self.refused: list[str] = []
        """Why it refused conversations."""

    def choose(self, request: Request) -> Said | None:
        """Return what the model says to a request; None to a conversation that a service would refuse."""
        reading = self.service.read(request.json)
        fault = reading.find_fault()
        if fault is not None:
            self.refused.append(fault)
            return None
        steps = read_steps(reading.messages)
        chosen = self._playbook.choose(steps[-1])
        assert chosen is not None, f"no rule for {steps[-1]}"
        say, wanted = chosen[1].fill(self._playbook.collect_names(steps))
        calls = [(f"call_{len(steps)}_{number}", tool, given) for number, (tool, given) in enumerate(wanted)]
        return Said(say or "", calls)

    def send(self, said: Said | None) -> Answer:
        """Return the answer of the service, word by word; its error if the model says nothing."""
        if said is None:
            return self.service.fail(400, self.refused[-1])
        return self.service.say(_PIECES.findall(said.text), said.calls)

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""
        return self.send(self.choose(request))
