"""Map a session's record to `metadata.json`, under the names of other amplifier tools and beside their members."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

from amplifier_core.storage import SessionRecord, Status

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

_BUNDLE = "bundle:"
"""What other tools put before a bundle's name."""
_TIMES = ("created", "updated")
_NAMES = {"project": "working_dir"}
_TEXTS = ("name", "bundle", "bundle_source", "bundle_digest", _NAMES["project"])
_STATUSES: dict[str, Status] = {status: status for status in get_args(Status)}
_OPTIONAL = ("parent_id", "fork_of", "event_id", "error")
COUNTED = "counted"
"""The member with the number of messages, valid for a transcript with the size and time stored beside it."""
_OURS = {_NAMES.get(field.name, field.name) for field in fields(SessionRecord)} - {"message_count"} | {"whole", COUNTED}


def to_document(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a record as the members of `metadata.json`. Raises `TypeError` for one of another type."""
    return {
        _NAMES.get(name, name): _to_member(name, value) for name, value in changes.items() if name != "message_count"
    }


def to_record(
    document: Mapping[str, Any],
    session_id: str,
    count: int,
    transcript: os.stat_result,
    written: Callable[[], float],
) -> SessionRecord:
    """Return the record of a folder with `count` messages.

    Members missing or with another meaning are empty; missing times are those of the files (`written`: of
    `metadata.json`, in seconds since 1970). Members of other tools become `metadata`.
    """
    get = document.get
    created, updated = _time(get("created")), _time(get("updated"))
    status, config, metadata = get("status"), get("config"), get("metadata")
    appended = _moment(transcript.st_mtime) if transcript.st_size else None
    if created is None:
        created = _moment(written())
    if updated is None:
        updated = created if appended is not None else _moment(written())
    name, bundle, source, digest, project = [value if type(value) is str else "" for value in map(get, _TEXTS)]
    parent_id, fork_of, event_id, error = [value if type(value) is str else None for value in map(get, _OPTIONAL)]
    return SessionRecord(
        session_id,
        parent_id,
        fork_of,
        _number(get("fork_at")) if fork_of else None,
        name,
        bundle.removeprefix(_BUNDLE),
        source,
        digest,
        project,
        _STATUSES.get(status, "idle") if type(status) is str else "idle",
        event_id,
        created,
        updated if appended is None or appended < updated else appended,
        start_of(document) + count if fork_of else count,
        _number(get("turn_count")),
        error,
        config if isinstance(config, dict) else {},
        metadata if isinstance(metadata, dict) else others(document),
    )


def to_counted(count: int, transcript: os.stat_result) -> dict[str, Any]:
    """Return the member with the transcript's number of messages, valid until the next write."""
    return {COUNTED: {"messages": count, "bytes": transcript.st_size, "modified": transcript.st_mtime_ns}}


def known_count(document: Mapping[str, Any], transcript: os.stat_result) -> int | None:
    """Return the number of messages from `metadata.json`, None after a change of the transcript."""
    known = document.get(COUNTED)
    if not isinstance(known, dict) or known.get("bytes") != transcript.st_size:
        return None
    count = known.get("messages")
    return count if isinstance(count, int) and known.get("modified") == transcript.st_mtime_ns else None


def others(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of other tools."""
    return {name: value for name, value in document.items() if name not in _OURS}


def start_of(document: Mapping[str, Any]) -> int:
    """Return the position of the first message in the folder's own transcript."""
    shares = document.get("fork_of") and not document.get("whole")
    return _number(document.get("fork_at")) if shares else 0


def _to_member(name: str, value: Any) -> Any:
    if name in _TIMES:
        return value.astimezone(UTC).isoformat()
    if name in ("fork_at", "turn_count"):
        return None if value is None else int(value)
    if name in ("config", "metadata"):
        return dict(value)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name}: {type(value).__name__} is not text")
    return _BUNDLE + value if name == "bundle" and value else value


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _time(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is UTC:
            return time
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _number(value: Any) -> int:
    return max(0, value) if isinstance(value, int) else 0
