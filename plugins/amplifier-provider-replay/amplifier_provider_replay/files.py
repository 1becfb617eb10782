"""Write and read a recording: a folder with one file of JSON lines for each session.

    {"type": "session", "format": 1, "session_id": …, "parent_id": …, "working_dir": …, "bundle": …}
    {"type": "provider", "name": …, "priority": …, "info": {…}}
    {"type": "turn", "prompt": …}
    {"type": "exchange", "provider": …, "request": {…}, "events": [[NAME, {…}], …], "response": {…}, "calls": […]}
    {"type": "outcome", "status": …, "output": …, "error": …}

An exchange has a `response`, an `error`, or `cancelled`. Nothing is written with its secrets.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FORMAT = 1
DIFF_LINES = 60
"""Lines of a difference that are shown, at most."""
CONTEXT = 120
"""Characters of an equal line beside a difference, at most."""
_ID = re.compile(r"\b[A-Za-z0-9_-]+-[0-9a-f]{12}\b|\b[0-9a-f]{16}-[0-9a-f]{16}(?=_)")
"""The id of a session, and of an agent's session without its name."""
_SECONDS = re.compile(r'(?P<key>"duration": ?)[0-9.eE-]+')


class RecordingError(AmplifierError, ValueError):
    """A recording cannot be written or read; `path` is its folder or file."""

    def __init__(self, path: Path, message: str) -> None:
        self.path = path
        super().__init__(f"{path}: {message}")


@dataclass(slots=True)
class RecordedSession:
    """The lines of one file."""

    path: Path
    header: Mapping[str, Any]
    providers: list[Mapping[str, Any]] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    exchanges: list[Mapping[str, Any]] = field(default_factory=list)
    outcomes: list[Mapping[str, Any]] = field(default_factory=list)


def make_safe(value: Any) -> Any:
    """Return a value, or a model of pydantic, as JSON can hold it, without secrets."""
    from pydantic_core import to_jsonable_python

    from amplifier_core.utils.secrets import redact_all

    dump = getattr(value, "model_dump", None)
    plain = dump(mode="json", exclude_none=True) if callable(dump) else value
    return redact_all(to_jsonable_python(plain, fallback=str, bytes_mode="base64"))


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Append one line to a file; a new one, or one of the user, is made private. Raises `OSError`."""
    from amplifier_core.utils.private_files import close_to_others

    text = json.dumps(line, ensure_ascii=False) + "\n"
    with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        close_to_others(file.fileno())  # it may be there already
        file.write(text)


def read_recording(folder: Path) -> list[RecordedSession]:
    """Return the sessions of a recording in the order of their files. Raises `RecordingError`."""
    try:
        paths = sorted(folder.glob("*.jsonl"))
        sessions = [_read_session(path) for path in paths]
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(folder, f"it cannot be read: {error}") from None
    if not sessions:
        raise RecordingError(folder, "there is no recording in this folder. Make one with: amplifier run --record")
    return sessions


def _read_session(path: Path) -> RecordedSession:
    lines = list(_read_lines(path))
    header = lines[0] if lines else {}
    if header.get("type") != "session" or header.get("format") != FORMAT:
        raise RecordingError(path, f"its first line is not that of a recorded session in format {FORMAT}")
    session = RecordedSession(path, header)
    kept = {"provider": session.providers, "exchange": session.exchanges, "outcome": session.outcomes}
    for line in lines[1:]:
        if line.get("type") == "turn":
            session.turns.append(str(line.get("prompt", "")))
        elif line.get("type") in kept:
            kept[line["type"]].append(line)
    return session


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="\n") as file:  # a text may have other ends of lines
        lines = file.readlines()
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise RecordingError(path, f"line {number} is not a JSON object. Record the session again")
        yield line


def render_request(request: Mapping[str, Any], working_dir: str) -> list[str]:
    """Return a request in lines for a comparison.

    The working folder, the ids of sessions, durations, and metadata of messages differ from run to run: they are the
    same in all lines.
    """
    lines: list[str] = []
    for number, message in enumerate(request.get("messages") or (), 1):
        about = {key: value for key, value in message.items() if key not in ("role", "content", "metadata")}
        lines.append(f"[{number}] {message.get('role')} {_as_text(about) if about else ''}".rstrip())
        content = message.get("content")
        blocks = content if isinstance(content, list) else [content]
        for block in blocks:
            text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else block
            lines += [f"    {line}" for line in (text if isinstance(text, str) else _as_text(text)).split("\n")]
    lines += [f"tool {tool.get('name')} {_as_text(tool)}" for tool in request.get("tools") or ()]
    rest = {key: value for key, value in request.items() if key not in ("messages", "tools", "metadata")}
    lines += [f"{key}: {_as_text(value)}" for key, value in sorted(rest.items())]
    return [normalise(line, working_dir) for line in lines]


def normalise(text: str, working_dir: str) -> str:
    """Return a text without the facts that differ from run to run."""
    text = text.replace(working_dir, "{working_dir}") if working_dir else text
    return _SECONDS.sub(r"\g<key>0", _ID.sub("{id}", text))


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def compare(recorded: Sequence[str], actual: Sequence[str]) -> str:
    """Return the difference of two texts in lines, '' for none."""
    lines = [
        f"{line[:CONTEXT]}…" if line.startswith(" ") and len(line) > CONTEXT else line
        for line in unified_diff(recorded, actual, "recorded", "now", lineterm="", n=2)
    ]
    more = [f"… and {len(lines) - DIFF_LINES} lines more"] if len(lines) > DIFF_LINES else []
    return "\n".join([*lines[:DIFF_LINES], *more])
