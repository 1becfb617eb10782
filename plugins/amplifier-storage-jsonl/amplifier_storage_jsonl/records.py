"""`metadata.json`: a session's record under the names that other amplifier tools use, beside what they keep there."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from amplifier_core.storage import SessionRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

_BUNDLE = "bundle:"
"""What other tools put before a bundle's name."""
_TEXT = ("name", "bundle_source", "bundle_digest", "project")
_TIMES = ("created", "updated")
_NAMES = {"project": "working_dir"}
_OURS = {_NAMES.get(field.name, field.name) for field in fields(SessionRecord)} - {"message_count"} | {"whole"}


def to_document(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a record as the members of `metadata.json`. Raises `TypeError` for one of another type."""
    return {_NAMES.get(name, name): _encoded(name, value) for name, value in changes.items() if name != "message_count"}


def to_record(
    document: Mapping[str, Any], session_id: str, *, count: int, written: float, appended: float | None
) -> SessionRecord:
    """Return the record of a folder.

    What another tool left out is empty, its times are those of the files (`written`: `metadata.json`, `appended`: the
    transcript, both in seconds since 1970), and what it keeps besides is `metadata`.
    """
    created = _time(document.get("created")) or _moment(written)
    updated = _time(document.get("updated")) or (_moment(written) if appended is None else created)
    metadata = document.get("metadata")
    return SessionRecord(
        session_id=session_id,
        parent_id=_optional(document.get("parent_id")),
        fork_of=_optional(document.get("fork_of")),
        fork_at=_number(document["fork_at"]) if document.get("fork_of") else None,
        **{name: _text(document.get(_NAMES.get(name, name))) for name in _TEXT},
        bundle=_text(document.get("bundle")).removeprefix(_BUNDLE),
        status=document.get("status") or "idle",
        event_id=_optional(document.get("event_id")),
        created=created,
        updated=updated if appended is None else max(updated, _moment(appended)),
        message_count=count,
        turn_count=_number(document.get("turn_count")),
        error=_optional(document.get("error")),
        config=_mapping(document.get("config")),
        metadata=metadata if isinstance(metadata, dict) else others(document),
    )


def others(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are another tool's."""
    return {name: value for name, value in document.items() if name not in _OURS}


def start_of(document: Mapping[str, Any]) -> int:
    """Return the position of the first message in the folder's own transcript."""
    shares = document.get("fork_of") and not document.get("whole")
    return _number(document.get("fork_at")) if shares else 0


def _encoded(name: str, value: Any) -> Any:
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
    except ValueError:
        return None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _optional(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
