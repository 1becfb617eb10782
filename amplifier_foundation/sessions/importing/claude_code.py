"""Read the sessions of Claude Code: one file of JSON lines each, in `~/.claude/projects/<folder>/<id>.jsonl`.

The lines are a tree: each names the line above it (`parentUuid`). The history ends at the newest line of the
conversation; the other ends are what was left by going back, and become forks. A compaction begins anew with a summary:
what was before it is a session of its own, and the parent of the one that goes on. Lines of sub-agents (`isSidechain`)
are in the same file or in files of their own, and become child sessions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .building import Answer, Prompt, Result, build_history, read_arguments, read_image, read_text
from .json_lines import JsonLines, Notes
from .sources import CLAUDE_CODE, SourceSession, find_strangers, make_id, read_time, shorten_name, text_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from amplifier_core.transcript import Message

    from .building import Block, Entry
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
_INJECTED = ("<local-command-", "<bash-", "<task-notification", "[Request interrupted by user", "Caveat: The messages")
_COMMAND = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_COMMAND_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)


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
        blocks = _blocks_of(data) if self.is_said else []
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
            self.tools.update(text_at(each, "name") for each in _blocks_of(data) if each["type"] == "tool_use")
        elif not self.prompt and not data.get("isMeta"):
            self.prompt = _find_prompt(data)


def read_sessions(path: Path, notes: Notes) -> Iterator[SourceSession]:
    """Yield the histories of a file, and those of its sub-agents: a parent before its children. Raises `OSError`."""
    tree = _Tree(path, notes)
    yield from tree.sessions()
    for file in _find_agent_files(path, tree.facts.session_id):
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
        made = 0
        for end in ends[:MOST_ENDS]:
            segment = self._split(self._walk(end))[-1]
            own = [index for index in segment if index not in covered]
            if end in covered or not any(self._nodes[index].key for index in own):
                self._notes.left_out["abandoned prompt without an answer"] += end not in covered
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
            return build_history((entry for data in lines for entry in _entries_of(data, notes)), notes)

        return SourceSession(
            program=CLAUDE_CODE,
            source_id=facts.session_id or self.path.stem,
            path=self.path,
            session_id=session_id,
            read=read,
            parent_id=parent_id,
            folder=facts.folder,
            name=shorten_name(title or _find_prompt(first)),
            created=read_time(text_at(first, "timestamp") or facts.first_time),
            agent=facts.agent_id if is_agent else "",
            strangers=find_strangers(facts.tools, WEB_TOOLS),
        )


def _entries_of(data: dict[str, Any], notes: Notes) -> Iterator[Entry]:
    time = text_at(data, "timestamp")
    kind = data.get("type")
    if kind == "assistant":
        yield _read_answer(data, time, notes)
    elif kind == "user":
        blocks = _blocks_of(data)
        for block in blocks:
            if block["type"] == "tool_result":
                yield Result(text_at(block, "tool_use_id"), _read_result(block.get("content"), notes), time)
        rest = [each for block in blocks if (each := _user_block(block, notes)) is not None]
        if rest:
            content: Any = rest[0]["text"] if len(rest) == 1 and rest[0]["type"] == "text" else rest
            yield Prompt(content, time, is_injected=bool(data.get("isMeta")) or _is_injected(content, data))
    elif kind == "attachment" and text_at(data, "attachment", "type") == "queued_command":
        prompt = data["attachment"].get("prompt")
        yield Prompt(prompt if isinstance(prompt, str) else _read_result(prompt, notes), time)
    elif kind == "attachment":
        notes.left_out[f"attachment {text_at(data, 'attachment', 'type')[:40]!r}"] += 1


def _read_answer(data: dict[str, Any], time: str, notes: Notes) -> Answer:
    message = data["message"] if isinstance(data.get("message"), dict) else {}
    blocks = [each for block in _blocks_of(data) if (each := _assistant_block(block, notes)) is not None]
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


def _assistant_block(block: Block, notes: Notes) -> Block | None:
    """Return a block of an answer. Thinking is kept with its signature alone: no provider takes it back without one."""
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
    notes.left_out[f"block of the type {kind[:40]!r}"] += 1
    return None


def _user_block(block: Block, notes: Notes) -> Block | None:
    kind = block["type"]
    if kind == "tool_result":
        return None
    if kind == "text":
        text = text_at(block, "text")
        return {"type": "text", "text": text} if text.strip() else None
    image = read_image(block.get("source")) if kind in ("image", "document") else None
    if image is None:
        notes.left_out[f"block of the type {kind[:40]!r}"] += 1
    return image


def _read_result(content: Any, notes: Notes) -> str | list[Block]:
    if not isinstance(content, list):
        return read_text(content)
    given = [each for each in content if isinstance(each, dict) and isinstance(each.get("type"), str)]
    blocks = [each for block in given if (each := _user_block(block, notes)) is not None]
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


def _blocks_of(data: dict[str, Any]) -> list[Block]:
    message = data.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else []
    return [each for each in blocks if isinstance(each, dict) and isinstance(each.get("type"), str)]


def _is_injected(content: Any, data: dict[str, Any]) -> bool:
    """Return whether the program wrote a message of the role user, and no person."""
    texts = [content] if isinstance(content, str) else [text_at(block, "text") for block in content]
    return bool(data.get("isCompactSummary")) or texts[0].lstrip().startswith(_INJECTED)


def _find_prompt(data: dict[str, Any]) -> str:
    """Return the words of a person in a line; '' if the program wrote it."""
    text = next((text_at(block, "text") for block in _blocks_of(data) if text_at(block, "text").strip()), "")
    if not text or _is_injected(text, data) or text.lstrip().startswith("<system-reminder"):
        return ""
    if (command := _COMMAND.search(text)) is not None:
        arguments = _COMMAND_ARGUMENTS.search(text)
        return f"{command[1]} {arguments[1] if arguments else ''}".strip()
    return text


def _find_agent_files(path: Path, session_id: str) -> Iterator[Path]:
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
