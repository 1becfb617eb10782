"""Make the messages of a history from what other programs have written down, so that every provider takes them.

A history keeps these rules, whatever it is made of. The results of an answer's calls follow it before anything else.
Each call has a result, an interrupted one if the source has none; the calls at the very end may still get theirs. The
ids of calls are unique and the names of tools valid for every provider. It begins with a message of a user. Nothing
empty is in it.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from ..history import INTERRUPTED
from ..serialising import sanitize_for_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_core.transcript import Message

    from .json_lines import Notes

Block = dict[str, Any]

BEGINNING = "[The beginning of this session is missing.]"

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_DATA_URL = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)


class Prompt(NamedTuple):
    """Text for the model: of a person, or injected by the program (`is_injected`)."""

    content: str | list[Block]
    time: str = ""
    is_injected: bool = False


class Answer(NamedTuple):
    """A part of a model's answer; parts with one `key` in a row are one message."""

    key: str
    blocks: list[Block]
    """Blocks `text`, `thinking`, `redacted_thinking` and `tool_call` (`id`, `name`, `input`). None: facts alone."""
    time: str = ""
    model: str = ""
    usage: dict[str, Any] | None = None


class Result(NamedTuple):
    """The result of a tool call."""

    call_id: str
    content: str | list[Block]
    time: str = ""


Entry = Prompt | Answer | Result


def build_history(entries: Iterable[Entry], notes: Notes) -> Iterator[Message]:
    """Yield the messages of a history. What has no place in it is noted."""
    builder = _Builder(notes)
    is_first = True
    for message in builder.build(entries):
        if is_first and message["role"] != "user":
            yield {"role": "user", "content": BEGINNING, "metadata": {"source": "hook"}}
        is_first = False
        yield message


class _Builder:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._used: set[str] = set()
        self._start("")

    def _start(self, key: str) -> None:
        self._key = key
        self._answer: Message = {"role": "assistant", "content": []}
        self._metadata: dict[str, Any] = {}
        self._calls: dict[str, tuple[str, str]] = {}
        """The calls of the answer: the source's id, ours, and the tool."""
        self._results: dict[str, Message] = {}
        self._waiting: list[Message] = []
        """What came while calls had no results yet."""

    def build(self, entries: Iterable[Entry]) -> Iterator[Message]:
        for entry in entries:
            if isinstance(entry, Result):
                self._add_result(entry)
            elif isinstance(entry, Answer) and not entry.blocks:
                if entry.key == self._key:
                    self._note(entry)
            elif isinstance(entry, Answer):
                if entry.key != self._key or self._waiting:
                    yield from self._finish()
                    self._start(entry.key)
                self._add_answer(entry)
            elif (message := _user_message(entry)) is not None:
                if self._calls.keys() > self._results.keys():
                    self._waiting.append(message)
                else:
                    yield from self._finish()
                    self._start("")
                    yield message
        yield from self._finish(at_end=not self._waiting)

    def _note(self, entry: Answer) -> None:
        if entry.time:
            self._metadata.setdefault("timestamp", entry.time)
        if entry.model:
            self._metadata["model"] = entry.model
        if entry.usage:
            self._metadata["usage"] = entry.usage

    def _add_answer(self, entry: Answer) -> None:
        self._note(entry)
        for block in entry.blocks:
            if block["type"] == "tool_call":
                source_id, name = block["id"], clean_name(block["name"])
                if source_id in self._calls:
                    continue
                call_id = self._make_id(source_id)
                self._calls[source_id] = call_id, name
                block = {"type": "tool_call", "id": call_id, "name": name, "input": block["input"]}
            self._answer["content"].append(block)

    def _add_result(self, entry: Result) -> None:
        if entry.call_id not in self._calls:
            self._notes.left_out["result without its call"] += 1
        elif entry.call_id not in self._results:
            call_id, name = self._calls[entry.call_id]
            result: Message = {"role": "tool", "tool_call_id": call_id, "name": name, "content": entry.content}
            self._results[entry.call_id] = _with_time(result, entry.time)

    def _finish(self, *, at_end: bool = False) -> Iterator[Message]:
        """Yield the answer, its results in the order of their arrival, and what has waited for them."""
        answer = self._answer
        said = _without_last_thinking(answer["content"])
        if said:
            answer["content"] = said
            calls = [block for block in said if block["type"] == "tool_call"]
            if calls:
                named = [{"id": each["id"], "tool": each["name"], "arguments": each["input"]} for each in calls]
                answer["tool_calls"] = named
            yield {**answer, "metadata": self._metadata} if self._metadata else answer
            yield from self._results.values()
        for source_id, (call_id, name) in self._calls.items():
            if source_id not in self._results and not at_end:
                content = json.dumps(INTERRUPTED)
                yield {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}
        yield from self._waiting

    def _make_id(self, source_id: str) -> str:
        """Return an id that no other call has."""
        call_id = source_id
        if not _ID.fullmatch(call_id):
            call_id = f"{_FOREIGN.sub('_', source_id)[:40]}-{_digest(source_id)}"
        number, stem = 1, call_id[:56]
        while call_id in self._used:
            number += 1
            call_id = f"{stem}-{number}"
        self._used.add(call_id)
        return call_id


def _user_message(prompt: Prompt) -> Message | None:
    content = prompt.content
    if isinstance(content, list):
        content = [block for block in content if block["type"] != "text" or block["text"].strip()]
    if not content or (isinstance(content, str) and not content.strip()):
        return None
    message = _with_time({"role": "user", "content": content}, prompt.time)
    if prompt.is_injected:
        message["metadata"] = {**message.get("metadata", {}), "source": "hook"}
    return message


def _without_last_thinking(blocks: list[Block]) -> list[Block]:
    """Return the blocks of an answer without empty text, and without thinking after which nothing came."""
    kept = [block for block in blocks if block["type"] != "text" or block["text"].strip()]
    while kept and kept[-1]["type"] in ("thinking", "redacted_thinking"):
        kept.pop()
    return kept


def _with_time(message: Message, time: str) -> Message:
    return {**message, "metadata": {"timestamp": time}} if time else message


def clean_name(name: Any) -> str:
    """Return the name of a tool with the letters that every provider takes."""
    text = str(name or "tool")
    if _NAME.fullmatch(text):
        return text
    plain = _FOREIGN.sub("_", text)[:55]
    return plain if _NAME.fullmatch(plain) and len(text) <= 55 else f"t_{plain[:50]}_{_digest(text)}"[:64]


def read_arguments(given: Any) -> dict[str, Any]:
    """Return the arguments of a call as a mapping; another value is its member `input`."""
    if isinstance(given, str):
        try:
            given = sanitize_for_json(json.loads(given)) if given.strip() else {}
        except (ValueError, RecursionError):
            return {"input": given}
    return given if isinstance(given, dict) else {} if given is None else {"input": given}


def read_image(source: Any) -> Block | None:
    """Return the block of an image or a document: of base64 data, or of a URL. None for anything else."""
    if isinstance(source, str):
        source = {"type": "url", "url": source}
    if not isinstance(source, dict):
        return None
    url = source.get("url")
    inline = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if inline is not None:
        source = {"type": "base64", **inline.groupdict()}
    data, media_type = source.get("data"), source.get("media_type")
    if isinstance(data, str) and data and isinstance(media_type, str):
        kind = "text" if source.get("type") == "text" else "base64"
        return {"type": "image", "source": {"type": kind, "media_type": media_type, "data": data}}
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return None


def read_text(value: Any) -> str:
    """Return a value as text: itself, or its JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
