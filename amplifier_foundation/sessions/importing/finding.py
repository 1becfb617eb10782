"""Find the sessions of other programs on this machine, and tell the format of a file or folder."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...paths import data_home, project_of
from ..exporting import SCHEMA
from ..session_folders import TRANSCRIPT_FILENAME
from .json_lines import JsonLines, Notes
from .session_folder import describe_folder, read_metadata
from .sources import AMPLIFIER, CLAUDE_CODE, CODEX, PROGRAMS, SourceSession, make_id, shorten_name, text_at

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = 4 * 2**20
"""Bytes at the beginning of a file that are read for its name, its folder and its format."""

_CODEX_ID = re.compile(r"rollout-.*?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$")


class Found(NamedTuple):
    """A session of another program: a file, or a folder. `changed` is UTC, `size` in bytes."""

    program: str
    path: Path
    session_id: str
    """Its id here, once it is imported."""
    changed: datetime
    size: int
    is_own: bool
    """Whether it lies where the person's own programs keep their sessions; else anybody may have written it."""


class Described(NamedTuple):
    """What the beginning of a session says of it."""

    folder: str
    name: str


def find_sessions(program: str | None = None) -> list[Found]:
    """Return the sessions of a program, or of all programs, in the places where they keep them, newest first."""
    found: list[Found] = []
    for each in PROGRAMS if program is None else (program,):
        for path in _list_paths(each):
            try:
                found.append(_find(each, path, is_own=True))
            except OSError:
                continue
    return sorted(found, key=lambda each: (each.changed, str(each.path)), reverse=True)


def find_in(place: Path, program: str | None = None) -> list[Found]:
    """Return the sessions at a place: a file, a session's folder, or a folder with sessions at any depth.

    Only those where a program keeps its sessions are the person's own. Files of other kinds are passed over in a
    folder. Raises `ValueError` for a file of no known format, `OSError`.
    """
    kind, roots = detect(place, program), _resolve_roots()
    if kind is not None:
        path = place.parent if place.name == TRANSCRIPT_FILENAME else place
        return [_find(kind, path, is_own=_is_below(place, roots))]
    if not place.is_dir():
        known = "a file of Claude Code or Codex, a session's folder, and an export as JSON lines can be imported"
        raise ValueError(f"{place}: this is no session of {', '.join(PROGRAMS)}: {known}")
    found: list[Found] = []
    for folder, names, files in os.walk(place):
        names.sort()
        if TRANSCRIPT_FILENAME in files:
            names.clear()
            files = [TRANSCRIPT_FILENAME]
        for file in sorted(files):
            path = Path(folder, file)
            if file.endswith(".jsonl") and not file.startswith("agent-") and (kind := detect(path, program)):
                whole = path.parent if file == TRANSCRIPT_FILENAME else path
                found.append(_find(kind, whole, is_own=_is_below(path, roots)))
    return sorted(found, key=lambda each: (each.changed, str(each.path)), reverse=True)


def detect(path: Path, program: str | None = None) -> str | None:
    """Return the program of a file or of a session's folder; None for anything else. Raises `OSError`."""
    if path.is_dir():
        return AMPLIFIER if (path / TRANSCRIPT_FILENAME).is_file() and program in (None, AMPLIFIER) else None
    if path.name == TRANSCRIPT_FILENAME and program in (None, AMPLIFIER):
        return AMPLIFIER
    if not path.is_file():
        path.stat()
        return None
    if program not in (None, AMPLIFIER):
        return program
    for line in JsonLines(path, HEAD).read_all(Notes()):
        data = line.data
        if data.get("schema") == SCHEMA:
            return AMPLIFIER
        if program is not None:
            return None
        if "sessionId" in data or "parentUuid" in data or "leafUuid" in data:
            return CLAUDE_CODE
        if "payload" in data or "record_type" in data or ("instructions" in data and "id" in data):
            return CODEX
    return None


def read_sessions(found: Found, notes: Notes) -> Iterator[SourceSession]:
    """Yield the histories of a session, a parent before its children. Raises `OSError`."""
    if found.program == CLAUDE_CODE:
        from .claude_code import read_sessions
    elif found.program == CODEX:
        from .codex import read_sessions
    else:
        from .session_folder import read_sessions
    for source in read_sessions(found.path, notes):
        yield source if found.is_own else source.from_a_file()


def is_of_project(found: Found, project: str) -> bool:
    """Return whether a session worked in a folder, or below it."""
    if found.program == CLAUDE_CODE and found.path.parent.parent.name == "projects":
        name = re.sub(r"[^A-Za-z0-9]", "-", project)
        if found.path.parent.name != name and not found.path.parent.name.startswith(f"{name}-"):
            return False
    folder = describe(found).folder
    return bool(folder) and Path(project_of(folder)).is_relative_to(project)


def describe(found: Found) -> Described:
    """Return the folder and the name of a session as far as its beginning tells them; '' for what it does not."""
    from .claude_code import Facts as FactsOfClaudeCode
    from .codex import Facts as FactsOfCodex

    if found.program == AMPLIFIER:
        return Described(*describe_folder(found.path))
    facts = FactsOfClaudeCode() if found.program == CLAUDE_CODE else FactsOfCodex()
    with suppress(OSError):
        for line in JsonLines(found.path, HEAD).read_all(Notes()):
            facts.note(line.data)
            if facts.folder and facts.name:
                break
    return Described(facts.folder, shorten_name(facts.name))


def _find(program: str, path: Path, *, is_own: bool) -> Found:
    is_folder = program == AMPLIFIER and path.is_dir()
    stat = (path / TRANSCRIPT_FILENAME if is_folder else path).stat()
    stem = path.name if is_folder else path.stem
    if program == AMPLIFIER and not is_folder:
        stem = text_at(read_metadata(path, Notes()), "session_id") or stem
    if program == CODEX and (named := _CODEX_ID.fullmatch(stem)) is not None:
        stem = named[1]
    return Found(program, path, make_id(stem), datetime.fromtimestamp(stat.st_mtime, UTC), stat.st_size, is_own)


def _list_paths(program: str) -> list[Path]:
    roots = _roots(program)
    if program == CLAUDE_CODE:
        return [path for path in roots[0].glob("*/*.jsonl") if not path.name.startswith("agent-")]
    if program == CODEX:
        return [path for root in roots for path in root.glob("**/rollout-*.jsonl")]
    return [path.parent for path in roots[0].glob(f"*/sessions/*/{TRANSCRIPT_FILENAME}")]


def _roots(program: str) -> list[Path]:
    """Return the folders where a program keeps its sessions."""
    if program == CLAUDE_CODE:
        return [_expand(os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude") / "projects"]
    if program == CODEX:
        root = _expand(os.environ.get("CODEX_HOME") or "~/.codex")
        return [root / "sessions", root / "archived_sessions"]
    return [_expand("~/.amplifier/projects"), data_home() / "projects"]


def _resolve_roots() -> list[Path]:
    """Return the folders of all programs with their links followed."""
    return [root.resolve() for program in PROGRAMS for root in _roots(program)]


def _is_below(path: Path, roots: list[Path]) -> bool:
    """Return whether a path, with its links followed, lies in one of the roots."""
    real = path.resolve()
    return any(real.is_relative_to(root) for root in roots)


def _expand(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 - a user may have no home
