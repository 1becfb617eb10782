"""Read the sessions of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, one file of JSON lines each.

A line is `{timestamp, type, payload}`; in older files it is the payload itself. The items for the model are the history
(`response_item`). An event `thread_rolled_back` takes turns back: they become a fork. A compaction (`compacted`) begins
anew: what was before it is a session of its own, and the parent of the one that goes on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .building import Answer, Prompt, Result, build_history, read_arguments, read_image, read_text
from .json_lines import JsonLines, Notes
from .sources import CODEX, SourceSession, find_strangers, make_id, read_time, shorten_name, text_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from amplifier_core.transcript import Message

    from .building import Block, Entry

MOST_BRANCHES = 32
WEB_TOOLS = ("web_search", "web.run", "web_fetch")

_WRAPPERS = ("session_meta", "response_item", "compacted", "turn_context", "event_msg")
_ITEMS = ("message", "reasoning", "function_call", "function_call_output", "local_shell_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_SILENT = ("ghost_snapshot", "state", "other")
_KNOWN = (*_ITEMS, *_OUTPUTS)
_INJECTED = ("<environment_context", "<user_instructions", "# AGENTS.md instructions", "<turn_aborted", "<skill>")
_FOLDER = re.compile(r"<cwd>(.+?)</cwd>|Current working directory: (.+)")


class _Mark(NamedTuple):
    """A line of a history: its position, whether a person's turn begins there, and whether a model says something."""

    offset: int
    begins_turn: bool
    is_answer: bool


class Facts:
    """What the lines of a file say of the whole session."""

    def __init__(self) -> None:
        self.session_id = self.folder = self.prompt = self.created = self.above = ""
        self.tools: set[str] = set()

    @property
    def name(self) -> str:
        """The first prompt."""
        return self.prompt

    def note(self, data: dict[str, Any]) -> None:
        """Note what a line says of the session."""
        kind, payload = _unwrap(data)
        if kind == "session_meta":
            self._note_meta(payload)
        elif kind == "response_item":
            self._note_item(payload)

    def _note_meta(self, meta: dict[str, Any]) -> None:
        if not self.session_id:  # a fork repeats the description of its source
            self.session_id, self.created = text_at(meta, "id"), text_at(meta, "timestamp")
            self.folder = text_at(meta, "cwd")
            self.above = text_at(meta, "source", "subagent", "thread_spawn", "parent_thread_id")

    def _note_item(self, item: dict[str, Any]) -> None:
        kind = item.get("type")
        if kind in _CALLS:
            self.tools.add(_name_of(item))
        elif kind == "web_search_call":
            self.tools.add("web_search")
        elif kind == "message" and item.get("role") == "user":
            text = _text_of(item)
            if not self.folder and (found := _FOLDER.search(text)) is not None:
                self.folder = (found[1] or found[2]).strip()
            if not self.prompt and not text.lstrip().startswith(_INJECTED):
                self.prompt = text


def read_sessions(path: Path, notes: Notes) -> Iterator[SourceSession]:
    """Yield the histories of a file: its segments, the newest last, and then what was rolled back. Raises `OSError`."""
    yield from _Rollout(path, notes).sessions()


class _Rollout:
    """One file; texts stay in it until they are asked for."""

    def __init__(self, path: Path, notes: Notes) -> None:
        self.path = path
        self.facts = Facts()
        self._notes = notes
        self._file = JsonLines(path)
        self._segments: list[list[_Mark]] = [[]]
        self._rolled_back: list[tuple[int, list[_Mark]]] = []
        for line in self._file.read_all(notes):
            self._add(line.offset, line.data)
        self._base_id = make_id(self.facts.session_id or path.stem)

    def _add(self, offset: int, data: dict[str, Any]) -> None:
        kind, payload = _unwrap(data)
        item = payload.get("type")
        self.facts.note(data)
        if kind == "compacted":
            if any(mark.is_answer for mark in self._segments[-1]):
                self._segments.append([])
            self._segments[-1].append(_Mark(offset, begins_turn=False, is_answer=False))
        elif kind == "event_msg" and item == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))
        elif kind in ("turn_context", "event_msg"):
            self._segments[-1].append(_Mark(offset, begins_turn=False, is_answer=False))
        elif kind == "response_item" and item not in _SILENT:
            if item not in _KNOWN:
                self._notes.left_out[f"item of the type {str(item)[:40]!r}"] += 1
                return
            is_person = item == "message" and payload.get("role") == "user"
            begins = is_person and not _text_of(payload).lstrip().startswith(_INJECTED)
            is_answer = not is_person and item not in _OUTPUTS and payload.get("role") in (None, "assistant")
            self._segments[-1].append(_Mark(offset, begins, is_answer))
        elif kind not in _WRAPPERS:  # "session_meta" is noted above
            self._notes.left_out[f"line of the type {str(kind)[:40]!r}"] += 1

    def _roll_back(self, turns: Any) -> None:
        """Take the last turns of the newest segment back; those with an answer are kept as a branch."""
        marks = self._segments[-1]
        begins = [position for position, mark in enumerate(marks) if mark.begins_turn]
        if not isinstance(turns, int) or turns < 1 or not begins:
            return
        at = begins[-min(turns, len(begins))]
        if any(mark.is_answer for mark in marks[at:]):
            if len(self._rolled_back) < MOST_BRANCHES:
                self._rolled_back.append((len(self._segments) - 1, list(marks)))
            else:
                self._notes.left_out["further branch"] += 1
        del marks[at:]

    def sessions(self) -> Iterator[SourceSession]:
        """Yield the histories."""
        above = make_id(self.facts.above) if self.facts.above else None
        for number, marks in enumerate(self._segments):
            yield self._make(number, marks, self._id_of(number - 1) if number else above)
        for number, marks in self._rolled_back:
            yield self._make(number, marks, above)

    def _id_of(self, number: int) -> str:
        return make_id(self._base_id, f"part{number + 1}" if number else "")

    def _make(self, number: int, marks: Sequence[_Mark], parent_id: str | None) -> SourceSession:
        offsets = [mark.offset for mark in marks]
        uncounted = Notes()  # a history is read several times, and what is left out of it is counted once
        reads = iter([self._notes])

        def read() -> Iterator[Message]:
            notes = next(reads, uncounted)
            return build_history(_read_entries(self._file.read_at(iter(offsets)), notes), notes)

        return SourceSession(
            program=CODEX,
            source_id=self.facts.session_id or self.path.stem,
            path=self.path,
            session_id=self._id_of(number),
            read=read,
            parent_id=parent_id,
            folder=self.facts.folder,
            name=shorten_name(self.facts.name),
            created=read_time(self.facts.created),
            agent="sub-agent" if self.facts.above else "",
            strangers=find_strangers(self.facts.tools, WEB_TOOLS),
        )


def _unwrap(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type of a line and its payload; a line of an older file is its own payload."""
    kind, payload = data.get("type"), data.get("payload")
    if kind in _WRAPPERS:
        return str(kind), payload if isinstance(payload, dict) else {}
    if kind is None and "record_type" not in data:
        return ("session_meta" if "id" in data else "None"), data
    if "record_type" in data:
        return "response_item", {"type": "state"}
    return ("response_item" if payload is None else str(kind)), data


def _read_entries(lines: Iterator[dict[str, Any]], notes: Notes) -> Iterator[Entry]:
    """Yield the entries of a history. The items of one response are parts of one answer."""
    model, answers = "", 0
    last: Answer | None = None
    for data in lines:
        kind, payload = _unwrap(data)
        time = text_at(data, "timestamp")
        if kind == "turn_context":
            model = text_at(payload, "model") or model
        elif kind == "event_msg":
            usage = _read_usage(payload)
            if usage is not None and last is not None:
                yield last._replace(blocks=[], usage=usage)
                last = None
        elif kind == "compacted":
            yield from _read_compaction(payload, time, notes)
        else:
            entry = _read_item(payload, time, f"answer-{answers}", model, notes)
            if isinstance(entry, Answer):
                last = entry
            elif entry is not None:
                answers += 1
            if entry is not None:
                yield entry


def _read_compaction(payload: dict[str, Any], time: str, notes: Notes) -> Iterator[Entry]:
    """Yield what stands in place of the history before a compaction."""
    items = payload.get("replacement_history")
    if not isinstance(items, list) or not items:
        yield Prompt(text_at(payload, "message"), time, is_injected=True)
        return
    for number, item in enumerate(items):
        entry = _read_item(item, time, f"kept-{number}", "", notes) if isinstance(item, dict) else None
        if entry is not None:
            yield entry


def _read_item(item: dict[str, Any], time: str, key: str, model: str, notes: Notes) -> Entry | None:
    """Return the entry of an item; None for one that has no place in a history."""
    kind = item.get("type")
    model = f"openai/{model}" if model else ""
    if kind == "message":
        return _read_message(item, time, key, model, notes)
    if kind == "reasoning":
        block = _read_reasoning(item)
        return Answer(key, [block], time, model) if block is not None else None
    if kind in _CALLS:
        call_id = text_at(item, "call_id") or text_at(item, "id")
        given = item.get(
            "action" if kind == "local_shell_call" else "input" if kind == "custom_tool_call" else "arguments"
        )
        arguments = {"input": given} if kind == "custom_tool_call" else read_arguments(given)
        call = {"type": "tool_call", "id": call_id, "name": _name_of(item), "input": arguments}
        return Answer(key, [call], time, model) if call_id else None
    if kind in _OUTPUTS:
        return Result(text_at(item, "call_id"), _read_output(item.get("output"), notes), time)
    if kind not in (*_SILENT, "web_search_call"):
        notes.left_out[f"item of the type {str(kind)[:40]!r}"] += 1
    return None


def _read_message(item: dict[str, Any], time: str, key: str, model: str, notes: Notes) -> Entry | None:
    role = item.get("role")
    if role == "assistant":
        phase = {"phase": item["phase"]} if text_at(item, "phase") else {}
        return Answer(key, [{"type": "text", "text": _text_of(item), **phase}], time, model)
    if role != "user":
        notes.left_out["instruction of Codex"] += 1  # the bundle that resumes the session has its own
        return None
    blocks = _read_blocks(item.get("content"), notes)
    text = blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else ""
    return Prompt(text or blocks, time, is_injected=_text_of(item).lstrip().startswith(_INJECTED))


def _read_reasoning(item: dict[str, Any]) -> Block | None:
    """Return reasoning that its service takes back: encrypted, with its id. None for any other."""
    encrypted, item_id = text_at(item, "encrypted_content"), text_at(item, "id")
    if not encrypted or not item_id:
        return None
    parts = item.get("summary")
    summary = [text_at(each, "text") for each in parts] if isinstance(parts, list) else []
    return {"type": "thinking", "thinking": "\n\n".join(filter(None, summary)), "content": [encrypted, item_id]}


def _read_output(output: Any, notes: Notes) -> str | list[Block]:
    if isinstance(output, dict) and "content" in output:
        output = output.get("content_items") or output["content"]
    if not isinstance(output, list):
        return read_text(output)
    blocks = _read_blocks(output, notes)
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _read_blocks(content: Any, notes: Notes) -> list[Block]:
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


def _name_of(item: dict[str, Any]) -> str:
    if item.get("type") == "local_shell_call":
        return "local_shell"
    return text_at(item, "namespace") + text_at(item, "name")


def _text_of(item: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in _read_blocks(item.get("content"), Notes()) if block["type"] == "text")
