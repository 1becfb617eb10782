"""Read the sessions of Claude Code: one file of JSON lines each, in `~/.claude/projects/<folder>/<id>.jsonl`.

The lines are a tree: each names the line above it (`parentUuid`). The history ends at the newest line of the
conversation; the other ends are what was left by going back, and become forks. A compaction begins anew with a summary:
what was before it is a session of its own, and the parent of the one that goes on. Lines of sub-agents (`isSidechain`)
are in the same file or in files of their own, and become child sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .building import build_history
from .claude_lines import LineReader, blocks_of, find_prompt
from .json_lines import JsonLines, Notes
from .sources import CLAUDE_CODE, SourceSession, find_strangers, make_id, read_time, shorten_name, text_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from amplifier_core.transcript import Message

    from .json_lines import Line

MOST_BRANCHES, MOST_ENDS = 32, 1000
WEB_TOOLS = ("WebFetch", "WebSearch")

_SAID = ("user", "assistant")
_LINKS = ("system", "attachment", "progress")
"""Types of lines that stand in the tree and say nothing."""
_SILENT = (
    *("summary", "custom-title", "ai-title", "agent-name", "agent-color", "tag", "mode", "permission-mode"),
    *("file-history-snapshot", "queue-operation", "last-prompt", "pr-link", "worktree-state", "speculation-accept"),
)
"""Types of lines that are no part of a conversation."""
_BOUNDARY = "compact_boundary"


class _Node:
    """A line of the tree."""

    __slots__ = (
        "above",
        "calls",
        "has_child",
        "is_boundary",
        "is_read",
        "is_said",
        "is_side",
        "key",
        "offset",
        "results",
        "uuid",
    )

    def __init__(self, line: Line) -> None:
        data = line.data
        self.offset = line.offset
        self.uuid = text_at(data, "uuid")
        self.is_boundary = data.get("type") == "system" and data.get("subtype") == _BOUNDARY
        self.above = text_at(data, "logicalParentUuid" if self.is_boundary else "parentUuid")
        self.is_said = data.get("type") in _SAID and not data.get("isApiErrorMessage")
        self.is_read = self.is_said or data.get("type") == "attachment"
        self.is_side = data.get("isSidechain") is True
        self.has_child = False
        is_answer = self.is_said and data.get("type") == "assistant"
        self.key = (text_at(data, "message", "id") or self.uuid) if is_answer else ""
        blocks = blocks_of(data) if self.is_said else []
        self.calls = tuple(text_at(each, "id") for each in blocks if each["type"] == "tool_use")
        self.results = tuple(text_at(each, "tool_use_id") for each in blocks if each["type"] == "tool_result")


class Facts:
    """What the lines of a file say of the whole session."""

    def __init__(self) -> None:
        self.session_id = self.folder = self.title = self.summary = self.prompt = self.agent = self.agent_id = ""
        self.first_time = ""
        self.tools: set[str] = set()

    @property
    def name(self) -> str:
        """The title that a person or the program gave, else the first prompt."""
        return self.title or self.summary or self.prompt

    def note(self, data: dict[str, Any]) -> None:
        """Note what a line says of the session."""
        kind = data.get("type")
        if kind in ("custom-title", "ai-title"):
            own = text_at(data, "customTitle")
            self.title = own or self.title or text_at(data, "aiTitle") or text_at(data, "title")
        elif kind == "summary":
            self.summary = text_at(data, "summary") or self.summary
        if kind not in _SAID:
            return
        self.session_id = text_at(data, "sessionId") or self.session_id
        self.agent_id = text_at(data, "agentId") or self.agent_id
        self.folder = self.folder or text_at(data, "cwd")
        self.first_time = self.first_time or text_at(data, "timestamp")
        if kind == "assistant":
            self.tools.update(text_at(each, "name") for each in blocks_of(data) if each["type"] == "tool_use")
        elif not self.prompt and not data.get("isMeta"):
            self.prompt = find_prompt(data)


def read_sessions(path: Path, notes: Notes) -> Iterator[SourceSession]:
    """Yield the histories of a file, and those of its sub-agents: a parent before its children. Raises `OSError`."""
    tree = _Tree(path, notes)
    yield from tree.sessions()
    for file in find_agent_files(path, tree.facts.session_id):
        for session in _Tree(file, notes).sessions():
            yield session if session.parent_id else session.with_parent(tree.base_id)


class _Tree:
    """The tree of one file; texts stay in the file until they are asked for."""

    def __init__(self, path: Path, notes: Notes) -> None:
        self.path = path
        self.facts = Facts()
        self._notes = notes
        self._file = JsonLines(path)
        self._nodes: list[_Node] = []
        self._by_uuid: dict[str, int] = {}
        self._by_key: dict[str, list[int]] = {}
        self._by_result: dict[str, list[int]] = {}
        self._roots: dict[int, int] = {}
        """The first line of the sub-agent of each of its lines."""
        for line in self._file.read_all(notes):
            self._add(line)
        self._is_agent = bool(self._nodes) and all(node.is_side for node in self._nodes if node.is_said)
        source_id = self.facts.session_id or path.stem
        own = f"agent-{self.facts.agent_id or path.stem.removeprefix('agent-')}" if self._is_agent else ""
        self.base_id = make_id(source_id, own)
        self._parent_id = make_id(source_id) if self._is_agent else None

    def _add(self, line: Line) -> None:
        kind = line.data.get("type")
        self.facts.note(line.data)
        if kind in _SILENT:
            return
        if kind not in (*_SAID, *_LINKS):
            self._notes.left_out[f"line of the type {str(kind)[:40]!r}"] += 1
            return
        node, index = _Node(line), len(self._nodes)
        if node.uuid in self._by_uuid:
            self._notes.left_out["repeated line"] += 1
            return
        self._nodes.append(node)
        if node.uuid:
            self._by_uuid[node.uuid] = index
        if node.key:
            self._by_key.setdefault(node.key, []).append(index)
        for call_id in node.results:
            self._by_result.setdefault(call_id, []).append(index)
        above = self._above(index)
        if node.is_side and node.is_said:
            self._roots[index] = index if above is None else self._roots.get(above, index)
        if above is not None and node.is_said:
            self._nodes[above].has_child = True

    def sessions(self) -> Iterator[SourceSession]:
        """Yield the histories: the segments of the newest one, its branches, and the sub-agents in the same file."""
        mains = [index for index, node in enumerate(self._nodes) if node.is_said and self._is_agent == node.is_side]
        if not mains:
            return
        covered: set[int] = set()
        segments = self._split(self._walk(mains[-1]))
        for position, segment in enumerate(segments):
            before = self._id_of(segments[position - 1]) if position else self._parent_id
            covered.update(chain := self._complete(segment))
            yield self._make(self._id_of(segment), chain, before)
        yield from self._branches(mains, covered)
        if not self._is_agent:
            yield from self._agents()

    def _branches(self, mains: Sequence[int], covered: set[int]) -> Iterator[SourceSession]:
        ends = [each for each in reversed(mains) if not self._nodes[each].has_child and each not in covered]
        made, prompt = 0, "abandoned prompt without an answer"
        for number, end in enumerate(ends):
            if number >= MOST_ENDS:  # a walk to the root for each would take the square of the time
                is_prompt = not self._nodes[end].key and ((above := self._above(end)) is None or above in covered)
                self._notes.left_out[prompt if is_prompt else "further branch"] += end not in covered
                continue
            segment = self._split(self._walk(end))[-1]
            own = [index for index in segment if index not in covered]
            if end in covered or not any(self._nodes[index].key for index in own):
                self._notes.left_out[prompt] += end not in covered
            elif made == MOST_BRANCHES:
                self._notes.left_out["further branch"] += 1
            else:
                made += 1
                covered.update(chain := self._complete(segment))
                yield self._make(self._id_of(segment), chain, self._parent_id)

    def _agents(self) -> Iterator[SourceSession]:
        """Yield the sub-agents whose lines stand among those of the session."""
        ends = {root: end for end, root in self._roots.items()}
        for root, end in ends.items():
            chain = self._complete(self._walk(end))
            session_id = make_id(self.base_id, f"agent-{self._nodes[root].uuid[:8] or root}")
            yield self._make(session_id, chain, self.base_id, is_agent=True)

    def _above(self, index: int) -> int | None:
        """Return the line above another; where that is lost, the one before it in the file that it can follow."""
        node = self._nodes[index]
        if not node.above:
            return None
        found = self._by_uuid.get(node.above)
        if found is None:
            before = range(index - 1, -1, -1)
            return next((each for each in before if self._nodes[each].is_side == node.is_side), None)
        return found if found < index else None  # a circle is no tree

    def _walk(self, end: int) -> list[int]:
        """Return the way from the beginning to a line."""
        way, current = [end], self._above(end)
        while current is not None and self._nodes[current].is_side == self._nodes[end].is_side:
            way.append(current)
            current = self._above(current)
        return way[::-1]

    def _split(self, way: Sequence[int]) -> list[list[int]]:
        """Split a way at its compactions."""
        segments: list[list[int]] = [[]]
        for index in way:
            if self._nodes[index].is_boundary and any(self._nodes[each].is_said for each in segments[-1]):
                segments.append([])
            segments[-1].append(index)
        return segments

    def _id_of(self, segment: Sequence[int]) -> str:
        first = self._nodes[segment[0]]
        return make_id(self.base_id, f"after-{first.uuid[:8]}") if first.is_boundary else self.base_id

    def _complete(self, segment: Iterable[int]) -> list[int]:
        """Return the lines of a segment, with the parts of its answers and the results beside the way.

        Calls that ran side by side have their results below different parts of one answer.
        """
        chain = set(segment)
        for key in {self._nodes[index].key for index in chain} - {""}:
            chain.update(self._by_key[key])
        answered = {call_id for index in chain for call_id in self._nodes[index].results}
        for call_id in {call_id for index in chain for call_id in self._nodes[index].calls} - answered:
            chain.update(self._by_result.get(call_id, ())[:1])
        return sorted(chain)

    def _make(
        self, session_id: str, chain: Sequence[int], parent_id: str | None, *, is_agent: bool = False
    ) -> SourceSession:
        offsets = [self._nodes[index].offset for index in chain if self._nodes[index].is_read]
        is_agent = is_agent or self._is_agent
        facts = self.facts
        first = next(iter(self._file.read_at(iter(offsets))), {})
        title = "" if is_agent else facts.name
        uncounted = Notes()  # a history is read several times, and what is left out of it is counted once
        reads = iter([self._notes])

        def read() -> Iterator[Message]:
            notes = next(reads, uncounted)
            lines = self._file.read_at(iter(offsets))
            return build_history(LineReader(notes).read_entries(lines), notes)

        return SourceSession(
            program=CLAUDE_CODE,
            source_id=facts.session_id or self.path.stem,
            path=self.path,
            session_id=session_id,
            read=read,
            parent_id=parent_id,
            folder=facts.folder,
            name=shorten_name(title or find_prompt(first)),
            created=read_time(text_at(first, "timestamp") or facts.first_time),
            agent=facts.agent_id if is_agent else "",
            strangers=find_strangers(facts.tools, WEB_TOOLS),
        )


def find_agent_files(path: Path, session_id: str) -> Iterator[Path]:
    """Yield the files of a session's sub-agents."""
    if path.name.startswith("agent-"):
        return
    own = path.parent / (session_id or path.stem) / "subagents"
    if own.is_dir():
        yield from sorted(own.rglob("agent-*.jsonl"))
    for file in sorted(path.parent.glob("agent-*.jsonl")):
        first = next(iter(JsonLines(file).read_all(Notes())), None)
        if first is not None and text_at(first.data, "sessionId") == session_id:
            yield file
