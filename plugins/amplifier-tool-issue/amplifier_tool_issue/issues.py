"""Define an issue: a piece of work with a status, and others that it waits for."""

from __future__ import annotations

from dataclasses import asdict, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from amplifier_core.errors import AmplifierError
from amplifier_core.frozen import frozen
from amplifier_core.permissions.hidden import is_printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.documents import Document

ISSUES, COMMENTS, NUMBERS, CALLS = "issues", "issue.comments", "issue.numbers", "issue.calls"
"""The collections of documents: issues, their comments, the last numbers, and what sessions made."""
CREATED, UPDATED, UNBLOCKED, CLOSED = "issue:created", "issue:updated", "issue:unblocked", "issue:closed"
"""The events; their data is `Issue.told`, and `changed`, the names of the changed facts."""

Status = Literal["open", "in_progress", "escalated", "closed"]
"""`escalated`: a person has to decide; nobody works on it meanwhile."""
STATUSES: tuple[Status, ...] = get_args(Status)

LONGEST = {
    "title": 200,
    "description": 100_000,
    "text": 100_000,
    "result": 100_000,
    "reason": 10_000,
    "resolution": 200,
    "type": 64,
}
"""Characters of the texts of an issue, at most."""
LABELS, LABEL = 20, 64
"""Labels of an issue, and characters of each, at most."""
WAITS = 500
"""Issues that one waits for, and that wait for one, at most: each of them is in its document and its events."""
TOLD = 8_000
"""Characters of a text of an issue in an event, at most."""
PRIORITIES = 5
"""Priorities begin with 0, the most urgent."""


class IssueError(AmplifierError, ValueError):
    """An issue cannot be made or changed in this way; the text says why, and the remedy."""


class IssueNotFound(AmplifierError, LookupError):
    """No issue of this project has the number."""

    def __init__(self, number: object) -> None:
        super().__init__(f"there is no issue {number} here; `issue list` shows those there are")


@frozen
class Issue:
    """One issue of a project."""

    id: int
    title: str
    description: str = ""
    type: str = "task"
    priority: int = 2
    """0 is the most urgent, 4 the least."""
    status: Status = "open"
    labels: list[str] = field(default_factory=list)
    blocked_by: list[int] = field(default_factory=list)
    """The issues it waits for, closed ones included."""
    blocks: list[int] = field(default_factory=list)
    """The issues that wait for it."""
    blocked: bool = False
    """Whether one of `blocked_by` is not closed."""
    assignee: str | None = None
    """The session that works on it, or did last."""
    queue: str | None = None
    """The background session whose worker took it; None once somebody else has settled it: that work is not wanted."""
    failures: int = 0
    """How often a worker has given it up since a person changed it."""
    reason: str = ""
    """Why it is escalated, or why the last work on it failed."""
    resolution: str = ""
    """How it was closed: `completed`, `wontfix`, `duplicate` or any other word."""
    result: str = ""
    """What came of the work."""
    comments: int = 0
    created: str = ""
    """RFC 3339 in UTC, as `updated`."""
    updated: str = ""
    created_by: str | None = None
    """The session that made it; None: a person."""
    depth: int = 0
    """The length of the chain of causes behind it, for its events: an issue that was unblocked has its own chain."""
    untrusted: str = ""
    """Why its text is not trusted: a session that has read text of strangers wrote some of it."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Further facts for programs, such as `branch`."""

    @classmethod
    def of(cls, document: Document) -> Issue:
        """Return the issue of a document; members of other versions are left out."""
        return cls(**{name: value for name, value in document.data.items() if name in _FIELDS})

    @property
    def is_ready(self) -> bool:
        """Whether somebody may begin with it."""
        return self.status == "open" and not self.blocked

    @property
    def state(self) -> str:
        """Its status for a person: an open issue that waits for others is blocked."""
        return "blocked" if self.status == "open" and self.blocked else self.status

    def data(self) -> dict[str, Any]:
        """Return the data of its document."""
        return asdict(self)

    def facts(self) -> dict[str, Any]:
        """Return its facts for tools and JSON: its data, and `state`."""
        return {**asdict(self), "state": self.state}

    def told(self) -> dict[str, Any]:
        """Return its facts for events: long texts are cut, and `issue_id` is its number as text."""
        texts = {name: cut(getattr(self, name), TOLD) for name in ("description", "result", "reason")}
        return {"issue_id": str(self.id), **self.facts(), **texts}


_FIELDS = frozenset(each.name for each in fields(Issue))


def present() -> str:
    """Return the present time as issues keep it: RFC 3339 in UTC, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def cut(text: str, longest: int) -> str:
    """Return a text, or its beginning and a remark about the rest."""
    return text if len(text) <= longest else f"{text[:longest]}\n(cut; the issue has {len(text):,} characters)"


def key_of(number: int) -> str:
    """Return the key of an issue's document: documents sort by their keys."""
    return f"{number:010}"


def read_number(given: object) -> int:
    """Return the number of an issue from `3`, `"3"` or `"#3"`. Raises `IssueError`."""
    if isinstance(given, int) and not isinstance(given, bool) and 0 < given < 10**10:
        return given
    text = given.strip().lstrip("#") if isinstance(given, str) else ""
    if not (text.isascii() and text.isdecimal() and int(text[:10]) > 0 and len(text) <= 10):
        raise IssueError(f"{given!r:.60} is no number of an issue; give one such as 3")
    return int(text)


def check_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked values of an issue's facts. Raises `IssueError` with the fact, the fault and the remedy."""
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name == "priority":
            checked[name] = _check_priority(value)
        elif name == "labels":
            checked[name] = _check_labels(value)
        elif name == "status":
            if value not in STATUSES:
                raise IssueError(f"status: {value!r} is none of {', '.join(STATUSES)}")
            checked[name] = value
        else:
            checked[name] = check_text(name, value)
    return checked


def check_text(name: str, value: object) -> str:
    """Return a text of an issue. Raises `IssueError`."""
    longest = LONGEST[name]
    if not isinstance(value, str):
        raise IssueError(f"{name}: must be text, not {type(value).__name__}")
    text = value.strip()
    if name in ("title", "text", "type") and not text:
        raise IssueError(f"{name}: must not be empty")
    if len(text) > longest:
        raise IssueError(f"{name}: has {len(text):,} characters; at most {longest:,} are kept")
    if name in ("title", "type", "resolution") and not is_printable(text):
        raise IssueError(f"{name}: must be one line of printable characters")
    return text


def _check_priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < PRIORITIES:
        raise IssueError(f"priority: must be 0 (the most urgent) to {PRIORITIES - 1}, not {value!r}")
    return value


def _check_labels(value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise IssueError("labels: must be a list of texts")
    labels = list(dict.fromkeys(each.strip() for each in value))
    if len(labels) > LABELS or not all(0 < len(each) <= LABEL and is_printable(each) for each in labels):
        raise IssueError(f"labels: at most {LABELS}, each of 1 to {LABEL} printable characters")
    return labels
