"""Read, write, fork and find sessions in folders with `metadata.json` and `transcript.jsonl`.

Published programs keep them so, and so does `storage-jsonl`, in `<data folder>/projects/<project>/sessions/<id>`. The
folder of a fork in that storage holds its own messages alone; here it is read with the shared ones.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionExists
from amplifier_core.frozen import frozen
from amplifier_core.ids import new_session_id as make_id
from amplifier_core.ids import validate_session_id
from amplifier_core.text_search import fold_text

from ..documents.files import write_whole
from ..paths import data_home
from .diagnosis import LINE, diagnose_transcript, strip_lines
from .transcripts import count_turns, find_orphaned_tool_calls, find_turn, settle_orphans, slice_to_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amplifier_core.transcript import Message

    from .history import Orphans

TRANSCRIPT_FILENAME = "transcript.jsonl"
METADATA_FILENAME = "metadata.json"
EVENTS_FILENAME = "events.jsonl"

_NOT_OF_FORKS = ("fork_of", "fork_at", "whole", "counted", "event_id", "process", "usage", "duration", "error", "once")
"""Members of a session's metadata that say nothing of a copy of it."""


@frozen
class ForkResult:
    """A fork: of a folder (`session_dir`), or of messages in memory (`messages`)."""

    session_id: str
    session_dir: Path | None
    parent_id: str | None
    forked_from_turn: int
    message_count: int
    messages: list[Message] | None = None
    events_count: int = 0


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines; other lines are left out."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry


def write_jsonl(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write a file of JSON lines, whole or not at all."""
    write_whole(path, "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries))


def load_transcript(session_dir: Path) -> list[Message]:
    """Return the messages of a session, the shared ones of a fork included. Raises `FileNotFoundError`."""
    messages: list[Message] = []
    folder, end, passed = Path(session_dir), sys.maxsize, set[Path]()
    while folder not in passed:  # a damaged fork may be its own source
        passed.add(folder)
        own = list(read_jsonl(_require_transcript(folder)))
        metadata = load_metadata(folder) if (folder / METADATA_FILENAME).is_file() else {}
        source, start = metadata.get("fork_of"), metadata.get("fork_at")
        shared = start if source and isinstance(start, int) and not metadata.get("whole") else 0
        messages = [*own[: max(0, end - shared)], *messages]
        if shared:
            folder, end = folder.parent / validate_session_id(source), min(shared, end)
    return messages


def load_transcript_with_lines(session_dir: Path) -> list[Message]:
    """Return the entries of a session's own file with their `line_num`, from 1. Raises `ValueError` for a bad line."""
    entries = []
    text = _require_transcript(session_dir).read_text(encoding="utf-8")
    for number, line in enumerate(text.split("\n"), 1):  # messages may have other ends of lines
        try:
            entries += [{**json.loads(line), LINE: number}] if line.strip() else []
        except (TypeError, ValueError) as error:
            raise ValueError(f"Malformed JSON at line {number}: {error}") from error
    return entries


def write_transcript(session_dir: Path, entries: Sequence[Message]) -> None:
    """Write the messages of a session, without `line_num`."""
    write_jsonl(session_dir / TRANSCRIPT_FILENAME, strip_lines(entries))


def load_metadata(session_dir: Path) -> dict[str, Any]:
    """Return the metadata of a session. Raises `FileNotFoundError`, `ValueError`."""
    metadata = json.loads((session_dir / METADATA_FILENAME).read_text(encoding="utf-8"))
    if not isinstance(metadata, dict):
        raise ValueError(f"{session_dir / METADATA_FILENAME}: the metadata of a session is a mapping")
    return metadata


def write_metadata(session_dir: Path, metadata: Mapping[str, Any]) -> None:
    """Write the metadata of a session, whole or not at all."""
    write_whole(session_dir / METADATA_FILENAME, json.dumps(metadata, ensure_ascii=False, indent=2) + "\n")


def backup(filepath: Path, label: str) -> Path | None:
    """Copy a file to `<name>.bak-<label>-<YYYYMMDDHHMMSS>` beside it; return the copy, None when there is no file."""
    if not filepath.exists():
        return None
    copy = filepath.with_name(f"{filepath.name}.bak-{label}-{datetime.now(UTC):%Y%m%d%H%M%S}")
    shutil.copy2(filepath, copy)
    return copy


def fork_session(
    parent_session_dir: Path,
    *,
    turn: int | None = None,
    new_session_id: str | None = None,
    target_dir: Path | None = None,
    include_events: bool = True,
    handle_orphaned_tools: Orphans = "complete",
) -> ForkResult:
    """Copy a session up to the end of a turn (None: all turns) into a new folder beside it, or in `target_dir`.

    The source is only read. The fork keeps the source's metadata, and resumes as the source would. Files are
    copied and plugins not asked; `fork_stored` shares the messages of a store. Raises `ValueError` for a turn out of
    range and an id that is unfit for a folder, `SessionExists`, `FileNotFoundError`.
    """
    source = Path(parent_session_dir)
    preview = get_fork_preview(source, turn)
    messages = slice_to_turn(load_transcript(source), preview["turn"], handle_orphaned_tools=handle_orphaned_tools)
    fork_id = validate_session_id(new_session_id or make_id(f"{source.name[:40]}-fork"))
    folder = (Path(target_dir) if target_dir is not None else source.parent) / fork_id
    if folder.exists():
        raise SessionExists(fork_id)
    kept = {key: value for key, value in load_metadata(source).items() if key not in _NOT_OF_FORKS}
    now = datetime.now(UTC).isoformat()
    about = {"session_id": fork_id, "parent_id": preview["parent_id"], "created": now, "updated": now}
    about |= {"forked_from_turn": preview["turn"], "forked_at": now, "turn_count": preview["turn"], "status": "idle"}
    events = list(_events_until(source, messages)) if include_events else []
    # The folder gets its name when it is whole: half a fork would be listed as a session.
    making = folder.with_name(f".{fork_id}.new")
    making.mkdir(parents=True, mode=0o700)
    try:
        write_transcript(making, messages)
        write_metadata(making, {**kept, **about})
        if events:
            write_jsonl(making / EVENTS_FILENAME, events)
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return ForkResult(fork_id, folder, preview["parent_id"], preview["turn"], len(messages), None, len(events))


def fork_session_in_memory(
    messages: Sequence[Message],
    *,
    turn: int | None = None,
    parent_id: str | None = None,
    handle_orphaned_tools: Orphans = "complete",
) -> ForkResult:
    """Return a fork of messages up to the end of a turn (None: all of them). Raises `ValueError`."""
    turns = count_turns(messages)
    kept = (
        slice_to_turn(messages, turn, handle_orphaned_tools=handle_orphaned_tools)
        if turn is not None
        else settle_orphans(messages, handle_orphaned_tools)
    )
    return ForkResult(make_id("fork"), None, parent_id, turns if turn is None else turn, len(kept), kept)


def get_fork_preview(session_dir: Path, turn: int | None = None) -> dict[str, Any]:
    """Describe a fork without making it: `parent_id`, `turn`, `max_turns`, `message_count`, `has_orphaned_tools`.

    Raises `ValueError` for a turn out of range.
    """
    messages = load_transcript(session_dir)
    turns = count_turns(messages)
    if not turns:
        raise ValueError("Cannot fork: session has no user messages")
    chosen = turns if turn is None else turn
    if not 1 <= chosen <= turns:
        raise ValueError(f"Turn {chosen} out of range. Valid range: 1-{turns}")
    kept = messages[: find_turn(messages, chosen).stop]
    return {
        "parent_id": str(load_metadata(session_dir).get("session_id") or Path(session_dir).name),
        "turn": chosen,
        "max_turns": turns,
        "message_count": len(kept),
        "has_orphaned_tools": bool(find_orphaned_tool_calls(kept)),
    }


def list_session_forks(session_dir: Path) -> list[dict[str, Any]]:
    """Return the metadata of this session's children and forks beside it, oldest first."""
    session_id = load_metadata(session_dir).get("session_id") or Path(session_dir).name
    beside = (metadata for _, metadata in _sessions_in(Path(session_dir).parent))
    return sorted(
        (metadata for metadata in beside if session_id in (metadata.get("parent_id"), metadata.get("fork_of"))),
        key=lambda metadata: str(metadata.get("created") or ""),
    )


def get_session_lineage(session_dir: Path) -> dict[str, Any]:
    """Return `session_id`, `parent_id`, `ancestors` (the nearest first), `depth` and `children` of a session."""
    metadata = load_metadata(session_dir)
    known = {str(each.get("session_id") or path.name): each for path, each in _sessions_in(Path(session_dir).parent)}
    session_id = str(metadata.get("session_id") or Path(session_dir).name)
    ancestors: list[str] = []
    above = metadata.get("parent_id")
    while above and above != session_id and above not in ancestors:
        ancestors.append(str(above))
        above = known.get(str(above), {}).get("parent_id")
    return {
        "session_id": session_id,
        "parent_id": metadata.get("parent_id"),
        "ancestors": ancestors,
        "depth": len(ancestors),
        "children": [name for name, each in known.items() if each.get("parent_id") == session_id],
    }


def forget_logs(session_ids: Iterable[str]) -> None:
    """Delete the logs of deleted sessions from the data folder, where `hooks-logging` writes them.

    A folder with more than logs is left: it is a session of another program.
    """
    ids, projects = {*session_ids}, data_home() / "projects"
    for project in os.listdir(projects) if projects.is_dir() else ():  # noqa: PTH208 - names, of which few are wanted
        folder = projects / project / "sessions"
        with suppress(OSError):  # most have none
            for session_id in ids.intersection(os.listdir(folder)):  # noqa: PTH208
                logs = folder / session_id
                if all(each.name.startswith(EVENTS_FILENAME) for each in logs.iterdir()):
                    shutil.rmtree(logs)


def resolve_session(reference: str, *, sessions_root: Path | None = None, project: str | None = None) -> Path:
    """Return the folder of a session: by its path, its id or the beginning of its id.

    Raises `FileNotFoundError` for none, `ValueError` for several.
    """
    if (Path(reference) / TRANSCRIPT_FILENAME).is_file():
        return Path(reference)
    folders = [path for path, _ in _all_sessions(sessions_root, project) if path.name.startswith(reference)]
    exact = [path for path in folders if path.name == reference]
    if len(exact or folders) > 1:
        raise ValueError(f"Ambiguous session '{reference}': {', '.join(path.name for path in folders[:5])}")
    if not folders:
        raise FileNotFoundError(f"No session '{reference}' in {sessions_root or data_home() / 'projects'}")
    return (exact or folders)[0]


def find_sessions(
    *,
    sessions_root: Path | None = None,
    project: str | None = None,
    after: str | None = None,
    before: str | None = None,
    keyword: str | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Return sessions, newest first: `session_id`, `path`, `project`, `created`, `bundle`, `model`.

    `project` is a folder of `sessions_root` (default: `projects` of the data folder); `after` and `before` are dates or
    times as ISO 8601; `keyword` stands in the transcript, in any case of letters.
    """
    found = [_describe(path, metadata) for path, metadata in _all_sessions(sessions_root, project)]
    dated = [
        each
        for each in sorted(found, key=lambda each: str(each["created"]), reverse=True)
        if (after is None or str(each["created"]) >= after) and (before is None or str(each["created"]) < before)
    ]
    if keyword:
        dated = [each for each in dated if _has_word(each["path"], fold_text(keyword))]
    return dated[:limit]


def session_info(session_dir: Path) -> dict[str, Any]:
    """Return a row of `find_sessions` for one session, with its `turn_count`, and its `status` and `failure_modes`."""
    messages = load_transcript(session_dir)
    diagnosis = diagnose_transcript(messages)
    return {
        **_describe(Path(session_dir), load_metadata(session_dir)),
        "turn_count": count_turns(messages),
        "status": diagnosis["status"],
        "failure_modes": diagnosis["failure_modes"],
    }


def _require_transcript(session_dir: Path) -> Path:
    path = Path(session_dir) / TRANSCRIPT_FILENAME
    if not path.is_file():
        raise FileNotFoundError(
            f"No {TRANSCRIPT_FILENAME} in {session_dir}. This doesn't appear to be a valid session directory."
        )
    return path


def _events_until(session_dir: Path, messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Yield the logged events up to the time of the last message with a time."""
    times = [each.get("timestamp") or (each.get("metadata") or {}).get("timestamp") for each in messages]
    last = max((str(time) for time in times if time), default="")
    path = session_dir / EVENTS_FILENAME
    for event in read_jsonl(path) if last and path.is_file() else ():
        if str(event.get("ts") or "") <= last:
            yield event


def _all_sessions(root: Path | None, project: str | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    base = root if root is not None else data_home() / "projects"
    folders = [base / project] if project is not None else sorted(base.iterdir()) if base.is_dir() else []
    for folder in folders:
        yield from _sessions_in(folder / "sessions")


def _sessions_in(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the sessions of a folder with their metadata; other folders and damaged ones are passed over."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            yield path, load_metadata(path)
        except (OSError, ValueError):
            continue


def _describe(path: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    known = {"session_id": metadata.get("session_id") or path.name, "path": path, "project": path.parent.parent.name}
    return {**known, **{name: metadata.get(name) for name in ("created", "bundle", "model")}}


def _has_word(session_dir: Path, word: str) -> bool:
    try:
        return word in fold_text(json.dumps(load_transcript(session_dir), ensure_ascii=False))
    except (OSError, ValueError):
        return False
