"""Read the lines of a session of Claude Code: answers, prompts, and results of tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .building import Answer, Prompt, Result, read_arguments, read_image, read_text
from .sources import text_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .building import Block, Entry
    from .json_lines import Notes

_INJECTED = ("<local-command-", "<bash-", "<task-notification", "[Request interrupted by user", "Caveat: The messages")
_COMMAND = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_COMMAND_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)


class LineReader:
    """Reads the lines of a history; what has no place in one is noted."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def read_entries(self, lines: Iterable[dict[str, Any]]) -> Iterator[Entry]:
        """Yield what the lines say, in their order."""
        for data in lines:
            yield from self._read_line(data)

    def _read_line(self, data: dict[str, Any]) -> Iterator[Entry]:
        time = text_at(data, "timestamp")
        kind = data.get("type")
        if kind == "assistant":
            yield self._read_answer(data, time)
        elif kind == "user":
            blocks = blocks_of(data)
            for block in blocks:
                if block["type"] == "tool_result":
                    yield Result(text_at(block, "tool_use_id"), self._read_result(block.get("content")), time)
            rest = [each for block in blocks if (each := self._user_block(block)) is not None]
            if rest:
                content: Any = rest[0]["text"] if len(rest) == 1 and rest[0]["type"] == "text" else rest
                yield Prompt(content, time, is_injected=bool(data.get("isMeta")) or is_injected(content, data))
        elif kind == "attachment" and text_at(data, "attachment", "type") == "queued_command":
            prompt = data["attachment"].get("prompt")
            yield Prompt(prompt if isinstance(prompt, str) else self._read_result(prompt), time)
        elif kind == "attachment":
            self._notes.left_out[f"attachment {text_at(data, 'attachment', 'type')[:40]!r}"] += 1

    def _read_answer(self, data: dict[str, Any], time: str) -> Answer:
        message = data["message"] if isinstance(data.get("message"), dict) else {}
        blocks = [each for block in blocks_of(data) if (each := self._assistant_block(block)) is not None]
        model = text_at(message, "model")
        usage = message.get("usage")
        is_model = bool(model) and model != "<synthetic>"
        return Answer(
            key=text_at(message, "id") or text_at(data, "uuid"),
            blocks=blocks,
            time=time,
            model=f"anthropic/{model}" if is_model else "",
            usage=_read_usage(usage) if is_model and isinstance(usage, dict) else None,
        )

    def _assistant_block(self, block: Block) -> Block | None:
        """Return a block of an answer. Thinking needs its signature: no provider takes it back without."""
        kind = block["type"]
        if kind == "text":
            return {"type": "text", "text": text_at(block, "text")}
        if kind == "tool_use" and text_at(block, "id"):
            given = read_arguments(block.get("input"))
            return {"type": "tool_call", "id": block["id"], "name": block.get("name"), "input": given}
        if kind == "thinking":
            signature = text_at(block, "signature")
            thinking = {"type": "thinking", "thinking": text_at(block, "thinking"), "signature": signature}
            return thinking if signature else None
        if kind == "redacted_thinking" and text_at(block, "data"):
            return {"type": "redacted_thinking", "data": block["data"]}
        self._notes.left_out[f"block of the type {kind[:40]!r}"] += 1
        return None

    def _user_block(self, block: Block) -> Block | None:
        kind = block["type"]
        if kind == "tool_result":
            return None
        if kind == "text":
            text = text_at(block, "text")
            return {"type": "text", "text": text} if text.strip() else None
        image = read_image(block.get("source")) if kind in ("image", "document") else None
        if image is None:
            self._notes.left_out[f"block of the type {kind[:40]!r}"] += 1
        return image

    def _read_result(self, content: Any) -> str | list[Block]:
        if not isinstance(content, list):
            return read_text(content)
        given = [each for each in content if isinstance(each, dict) and isinstance(each.get("type"), str)]
        blocks = [each for block in given if (each := self._user_block(block)) is not None]
        if all(block["type"] == "text" for block in blocks):
            return "\n".join(block["text"] for block in blocks)
        return blocks


def _read_usage(usage: dict[str, Any]) -> dict[str, Any]:
    """Return a usage as stored messages have it: cached tokens are among those of the input."""
    read, written = (_count(usage.get(f"cache_{kind}_input_tokens")) for kind in ("read", "creation"))
    return {
        "input_tokens": _count(usage.get("input_tokens")) + read + written,
        "output_tokens": _count(usage.get("output_tokens")),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "requests": 1,
    }


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def blocks_of(data: dict[str, Any]) -> list[Block]:
    """Return the blocks of the message in a line; blocks without a type are left out."""
    message = data.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else []
    return [each for each in blocks if isinstance(each, dict) and isinstance(each.get("type"), str)]


def is_injected(content: Any, data: dict[str, Any]) -> bool:
    """Return whether the program wrote a message of the role user, and no person."""
    texts = [content] if isinstance(content, str) else [text_at(block, "text") for block in content]
    return bool(data.get("isCompactSummary")) or texts[0].lstrip().startswith(_INJECTED)


def find_prompt(data: dict[str, Any]) -> str:
    """Return the words of a person in a line; '' if the program wrote it."""
    text = next((text_at(block, "text") for block in blocks_of(data) if text_at(block, "text").strip()), "")
    if not text or is_injected(text, data) or text.lstrip().startswith("<system-reminder"):
        return ""
    if (command := _COMMAND.search(text)) is not None:
        arguments = _COMMAND_ARGUMENTS.search(text)
        return f"{command[1]} {arguments[1] if arguments else ''}".strip()
    return text
