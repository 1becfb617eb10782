"""Read the sessions of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, one file of JSON lines each.

A line is `{timestamp, type, payload}`; in older files it is the payload itself. The items for the model are the history
(`response_item`). An event `thread_rolled_back` takes turns back: they become a fork. A compaction (`compacted`) begins
anew: what was before it is a session of its own, and the parent of the one that goes on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .building import build_history
from .codex_items import CALLS, INJECTED, KNOWN, OUTPUTS, SILENT, WRAPPERS, ItemReader, name_of, text_of, unwrap
from .json_lines import JsonLines, Notes
from .sources import CODEX, SourceSession, find_strangers, make_id, read_time, shorten_name, text_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from amplifier_core.transcript import Message


MOST_BRANCHES = 32
WEB_TOOLS = ("web_search", "web.run", "web_fetch")

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
        kind, payload = unwrap(data)
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
        if kind in CALLS:
            self.tools.add(name_of(item))
        elif kind == "web_search_call":
            self.tools.add("web_search")
        elif kind == "message" and item.get("role") == "user":
            text = text_of(item)
            if not self.folder and (found := _FOLDER.search(text)) is not None:
                self.folder = (found[1] or found[2]).strip()
            if not self.prompt and not text.lstrip().startswith(INJECTED):
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
        kind, payload = unwrap(data)
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
        elif kind == "response_item" and item not in SILENT:
            if item not in KNOWN:
                self._notes.left_out[f"item of the type {str(item)[:40]!r}"] += 1
                return
            is_person = item == "message" and payload.get("role") == "user"
            begins = is_person and not text_of(payload).lstrip().startswith(INJECTED)
            is_answer = not is_person and item not in OUTPUTS and payload.get("role") in (None, "assistant")
            self._segments[-1].append(_Mark(offset, begins, is_answer))
        elif kind not in WRAPPERS:  # "session_meta" is noted above
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
            return build_history(ItemReader(notes).read_entries(self._file.read_at(iter(offsets))), notes)

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
