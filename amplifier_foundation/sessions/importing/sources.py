"""Describe a session of another program, before it is stored here."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import InvalidSessionId
from amplifier_core.frozen import frozen
from amplifier_core.ids import validate_session_id
from amplifier_core.permissions.hidden import replace_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from amplifier_core.transcript import Message

CLAUDE_CODE, CODEX, AMPLIFIER = PROGRAMS = ("claude-code", "codex", "amplifier")

LONGEST_NAME = 80
FROM_A_FILE = "it was imported from a file that anybody may have written"


@frozen
class SourceSession:
    """One history of another program.

    Histories with one `session_id` are branches of one session. `folder` is the working folder, '' for the current one.
    `strangers` says how the session has read text of strangers, '' if it has not. `is_own` says that the person's own
    program wrote it here. `read` yields the messages; each call begins anew.
    """

    program: str
    source_id: str
    path: Path
    session_id: str
    read: Callable[[], Iterator[Message]]
    parent_id: str | None = None
    folder: str = ""
    name: str = ""
    created: datetime | None = None
    agent: str = ""
    strangers: str = ""
    is_own: bool = True

    def with_parent(self, parent_id: str) -> SourceSession:
        """Return this session below another one."""
        return replace(self, parent_id=parent_id)

    def from_a_file(self) -> SourceSession:
        """Return this session as one of an unknown author: without a folder, and asked before it acts."""
        return replace(self, folder="", strangers=FROM_A_FILE, is_own=False)


def make_id(*parts: str) -> str:
    """Return the id of a session here: the parts joined, or a hash in place of what no id can hold."""
    joined = "-".join(filter(None, parts))
    try:
        return validate_session_id(joined)
    except InvalidSessionId:
        stem = re.sub(r"[^A-Za-z0-9_]+", "-", joined).strip("-_")[:64]
        return f"{stem or 'session'}-{sha256(joined.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def read_time(value: Any) -> datetime | None:
    """Return the time of a text in ISO 8601; without a zone it is UTC. None for anything else."""
    if not isinstance(value, str) or not value:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def text_at(data: Any, *keys: str) -> str:
    """Return the text at a path of keys; '' if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, str) else ""


def shorten_name(text: str) -> str:
    """Return a name from a title or a prompt: one printable line without secrets, of at most `LONGEST_NAME`."""
    from amplifier_core.utils.secrets import redact_text

    line = " ".join(redact_text(text[:2000]).split())
    line = replace_unprintable(line, lambda each: "")
    return line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + "…"


def find_strangers(tools: Iterable[str], web: Iterable[str]) -> str:
    """Return how a session has read text of strangers: by a tool for the `web`, or by one of an MCP server."""
    called = sorted({each for each in tools if each in {*web} or each.startswith("mcp__")})
    return f"it read text of strangers with {', '.join(called[:3])} before it was imported" if called else ""
