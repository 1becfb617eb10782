"""Read the items of a session of Codex: messages, reasoning, calls of tools and their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .building import Answer, Prompt, Result, read_arguments, read_image, read_text
from .json_lines import Notes
from .sources import text_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .building import Block, Entry

WRAPPERS = ("session_meta", "response_item", "compacted", "turn_context", "event_msg")
OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
CALLS = ("function_call", "custom_tool_call", "local_shell_call")
SILENT = ("ghost_snapshot", "state", "other")
KNOWN = ("message", "reasoning", *CALLS, *OUTPUTS)
INJECTED = ("<environment_context", "<user_instructions", "# AGENTS.md instructions", "<turn_aborted", "<skill>")


def unwrap(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type of a line and its payload; a line of an older file is its own payload."""
    kind, payload = data.get("type"), data.get("payload")
    if kind in WRAPPERS:
        return str(kind), payload if isinstance(payload, dict) else {}
    if kind is None and "record_type" not in data:
        return ("session_meta" if "id" in data else "None"), data
    if "record_type" in data:
        return "response_item", {"type": "state"}
    return ("response_item" if payload is None else str(kind)), data


class ItemReader:
    """Reads the items of a history; what has no place in one is noted."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def read_entries(self, lines: Iterable[dict[str, Any]]) -> Iterator[Entry]:
        """Yield the entries of a history. The items of one response are parts of one answer."""
        model, answers = "", 0
        last: Answer | None = None
        for data in lines:
            kind, payload = unwrap(data)
            time = text_at(data, "timestamp")
            if kind == "turn_context":
                model = text_at(payload, "model") or model
            elif kind == "event_msg":
                usage = _read_usage(payload)
                if usage is not None and last is not None:
                    yield last._replace(blocks=[], usage=usage)
                    last = None
            elif kind == "compacted":
                yield from self._read_compaction(payload, time)
            else:
                entry = self._read_item(payload, time, f"answer-{answers}", model)
                if isinstance(entry, Answer):
                    last = entry
                elif entry is not None:
                    answers += 1
                if entry is not None:
                    yield entry

    def _read_compaction(self, payload: dict[str, Any], time: str) -> Iterator[Entry]:
        """Yield what stands in place of the history before a compaction."""
        items = payload.get("replacement_history")
        if not isinstance(items, list) or not items:
            yield Prompt(text_at(payload, "message"), time, is_injected=True)
            return
        for number, item in enumerate(items):
            entry = self._read_item(item, time, f"kept-{number}", "") if isinstance(item, dict) else None
            if entry is not None:
                yield entry

    def _read_item(self, item: dict[str, Any], time: str, key: str, model: str) -> Entry | None:
        """Return the entry of an item; None for one that has no place in a history."""
        kind = item.get("type")
        model = f"openai/{model}" if model else ""
        if kind == "message":
            return self._read_message(item, time, key, model)
        if kind == "reasoning":
            block = _read_reasoning(item)
            return Answer(key, [block], time, model) if block is not None else None
        if kind in CALLS:
            call_id = text_at(item, "call_id") or text_at(item, "id")
            given = item.get(
                "action" if kind == "local_shell_call" else "input" if kind == "custom_tool_call" else "arguments"
            )
            arguments = {"input": given} if kind == "custom_tool_call" else read_arguments(given)
            call = {"type": "tool_call", "id": call_id, "name": name_of(item), "input": arguments}
            return Answer(key, [call], time, model) if call_id else None
        if kind in OUTPUTS:
            return Result(text_at(item, "call_id"), self._read_output(item.get("output")), time)
        if kind not in (*SILENT, "web_search_call"):
            self._notes.left_out[f"item of the type {str(kind)[:40]!r}"] += 1
        return None

    def _read_message(self, item: dict[str, Any], time: str, key: str, model: str) -> Entry | None:
        role = item.get("role")
        if role == "assistant":
            phase = {"phase": item["phase"]} if text_at(item, "phase") else {}
            return Answer(key, [{"type": "text", "text": text_of(item), **phase}], time, model)
        if role != "user":
            self._notes.left_out["instruction of Codex"] += 1  # the bundle that resumes the session has its own
            return None
        blocks = read_blocks(item.get("content"), self._notes)
        text = blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else ""
        return Prompt(text or blocks, time, is_injected=text_of(item).lstrip().startswith(INJECTED))

    def _read_output(self, output: Any) -> str | list[Block]:
        if isinstance(output, dict) and "content" in output:
            output = output.get("content_items") or output["content"]
        if not isinstance(output, list):
            return read_text(output)
        blocks = read_blocks(output, self._notes)
        if all(block["type"] == "text" for block in blocks):
            return "\n".join(block["text"] for block in blocks)
        return blocks


def _read_reasoning(item: dict[str, Any]) -> Block | None:
    """Return reasoning that its service takes back: encrypted, with its id. None for any other."""
    encrypted, item_id = text_at(item, "encrypted_content"), text_at(item, "id")
    if not encrypted or not item_id:
        return None
    parts = item.get("summary")
    summary = [text_at(each, "text") for each in parts] if isinstance(parts, list) else []
    return {"type": "thinking", "thinking": "\n\n".join(filter(None, summary)), "content": [encrypted, item_id]}


def _read_usage(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return the usage of the last request in an event, as stored messages have it."""
    info = event.get("info") if event.get("type") == "token_count" else None
    last = info.get("last_token_usage") if isinstance(info, dict) else None
    if not isinstance(last, dict):
        return None
    names = {
        "input_tokens": "input_tokens",
        "output_tokens": "output_tokens",
        "cached_input_tokens": "cache_read_tokens",
    }
    counts = {ours: last.get(theirs) for theirs, ours in names.items()}
    known = {name: count for name, count in counts.items() if type(count) is int and count >= 0}
    return {**known, "requests": 1} if known else None


def name_of(item: dict[str, Any]) -> str:
    """Return the tool of a call."""
    if item.get("type") == "local_shell_call":
        return "local_shell"
    return text_at(item, "namespace") + text_at(item, "name")


def text_of(item: dict[str, Any]) -> str:
    """Return the text of a message."""
    return "\n".join(block["text"] for block in read_blocks(item.get("content"), Notes()) if block["type"] == "text")


def read_blocks(content: Any, notes: Notes) -> list[Block]:
    """Return the blocks of a message or of an output; other parts are noted."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks: list[Block] = []
    for part in content if isinstance(content, list) else ():
        kind = text_at(part, "type")
        image = read_image(part.get("image_url")) if kind == "input_image" else None
        if kind in ("input_text", "output_text", "text"):
            blocks.append({"type": "text", "text": text_at(part, "text")})
        elif image is not None:
            blocks.append(image)
        else:
            notes.left_out[f"part of the type {kind[:40]!r}"] += 1
    return blocks
