"""Keep the notes of a project in the documents of the store; each change is one transaction."""

from __future__ import annotations

from dataclasses import asdict, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, DocumentConflict
from amplifier_core.frozen import frozen
from amplifier_core.permissions.hidden import is_printable
from amplifier_core.utils.secrets import redact_all

from .tool import MOST_NOTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from amplifier_core.documents import Document, DocumentChange, Documents

NOTES, COUNTS = "memory.notes", "memory.counts"
"""The collections of documents: the notes, and one document with the last number and the number of notes."""
SEARCHED = ("title", "tags", "text")
TITLE, TEXT = 200, 20_000
"""Characters of the longest title and text."""
TAGS, TAG = 10, 64
"""Tags of a note, and characters of each, at most."""
TRIES = 100
"""Attempts at a change while others change the same: each conflict is somebody's success."""


class NoteError(AmplifierError, ValueError):
    """A note cannot be kept in this way; the text says why, and the remedy."""


class NoteNotFound(AmplifierError, LookupError):
    """No note of this project has the number."""

    def __init__(self, number: object) -> None:
        super().__init__(f"there is no note {number} here; list shows those there are")


@frozen
class Note:
    """One note of a project."""

    id: int
    title: str
    text: str = ""
    tags: list[str] = field(default_factory=list)
    created: str = ""
    """RFC 3339 in UTC, as `updated`."""
    updated: str = ""
    created_by: str | None = None
    """The session that saved it; None: a person."""
    untrusted: str = ""
    """Why its text is not trusted: a session that has read text of strangers wrote some of it."""

    @classmethod
    def of(cls, document: Document) -> Note:
        """Return the note of a document; members of other versions are left out."""
        return cls(**{name: value for name, value in document.data.items() if name in _FIELDS})

    def facts(self) -> dict[str, Any]:
        """Return its facts, for a document and for JSON."""
        return asdict(self)


_FIELDS = frozenset(each.name for each in fields(Note))


@frozen
class Match:
    """One note that a search has found, and one line of it around the first of the words."""

    note: Note
    snippet: str


def read_number(given: object) -> int:
    """Return the number of a note from `3`, `"3"` or `"#3"`. Raises `NoteError`."""
    text = given.strip().lstrip("#") if isinstance(given, str) else str(given) if type(given) is int else ""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text)):
        raise NoteError(f"id: {given!r:.60} is no number of a note; give one such as 3")
    return int(text)


def check_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked values of a note's facts. Raises `NoteError` with the fact, the fault and the remedy."""
    checks = {"title": _check_title, "text": _check_text, "tags": _check_tags}
    return {name: checks[name](value) for name, value in values.items()}


def _check_title(value: object) -> str:
    title = " ".join(value.split()) if isinstance(value, str) else ""
    if not 0 < len(title) <= TITLE or not is_printable(title):
        raise NoteError(f"title: must be one line of 1 to {TITLE} printable characters")
    return title


def _check_text(value: object) -> str:
    if not isinstance(value, str) or len(value) > TEXT:
        size = f"; this one has {len(value):,}. Keep the gist, or split it" if isinstance(value, str) else ""
        raise NoteError(f"text: must be text of at most {TEXT:,} characters{size}")
    return value.strip()


def _check_tags(value: object) -> list[str]:
    each_is_text = isinstance(value, list | tuple) and all(isinstance(tag, str) for tag in value)
    tags = list(dict.fromkeys(tag.strip().lower() for tag in value)) if each_is_text else [""]  # type: ignore[attr-defined]
    if len(tags) > TAGS or not all(0 < len(tag) <= TAG and is_printable(tag) for tag in tags):
        raise NoteError(f"tags: must be a list of at most {TAGS} texts of 1 to {TAG} printable characters")
    return tags


class Notes:
    """The notes of a project, for a session or a person. Errors are `NoteError`, `NoteNotFound`, the store's."""

    def __init__(self, documents: Documents, untrusted: str = "", most: int = MOST_NOTES) -> None:
        """`untrusted` says why the text that is written here is not trusted, if so."""
        self._documents = documents
        self._untrusted = untrusted
        self._most = most
        self.has_read_untrusted = False
        """Whether a returned note has text that is not trusted."""

    async def save(self, title: str, text: str = "", tags: Sequence[str] = ()) -> Note:
        """Keep a new note. The same title and text again give the first one: a killed session repeats its last call."""
        values = redact_all(check_values({"title": title, "text": text, "tags": tags}))
        for match in await self._look_for(values["title"], 10):
            if (match.note.title, match.note.text) == (values["title"], values["text"]):
                return match.note

        async def make() -> tuple[Note, list[DocumentChange]]:
            counts = await self._documents.get(COUNTS, "notes")
            last, count = (counts.data["last"], counts.data["count"]) if counts is not None else (0, 0)
            if count >= self._most:
                raise NoteError(f"there are {count:,} notes, the most that are kept here; delete some first")
            now = _present()
            about: dict[str, Any] = {
                "created": now,
                "created_by": self._documents.session_id,
                "untrusted": self._untrusted,
            }
            note = Note(last + 1, **values, updated=now, **about)
            counted = {"last": last + 1, "count": count + 1}
            version = counts.version if counts is not None else 0
            return note, [self._documents.change(COUNTS, "notes", counted, version), self._change(note)]

        return await self._write(make)

    async def update(self, number: int, **changes: Any) -> Note:
        """Replace the title, the text or the tags of a note."""
        values = check_values(changes)
        if not values:
            raise NoteError("nothing to change; give a title, a text or tags")

        async def make() -> tuple[Note, list[DocumentChange]]:
            note, version = await self._get(number)
            note = replace(note, **values, updated=_present(), untrusted=note.untrusted or self._untrusted)
            return note, [self._change(note, version)]

        return await self._write(make)

    async def delete(self, number: int) -> Note:
        """Forget a note, and return it as it was."""

        async def make() -> tuple[Note, list[DocumentChange]]:
            note, version = await self._get(number)
            counts = await self._documents.get(COUNTS, "notes")
            assert counts is not None  # there is a note
            counted = {**counts.data, "count": counts.data["count"] - 1}
            return note, [
                self._documents.change(NOTES, _key(number), None, version),
                self._documents.change(COUNTS, "notes", counted, counts.version),
            ]

        return await self._write(make)

    async def get(self, number: int) -> Note:
        """Return a note. Raises `NoteNotFound`."""
        note, _ = await self._get(number)
        self._mark([note])
        return note

    async def find(self, tag: str | None = None, limit: int | None = None) -> list[Note]:
        """Return notes, the newest first; those with a tag alone, if there is one."""
        found = await self._documents.find(NOTES, newest=True, limit=None if tag else limit)
        notes = [note for note in map(Note.of, found) if tag is None or tag.strip().lower() in note.tags][:limit]
        self._mark(notes)
        return notes

    async def search(self, query: str, limit: int = 10) -> list[Match]:
        """Return notes with words of a query, the best first. Raises `NoteError` where the store has no search."""
        matches = await self._look_for(query, limit)
        self._mark([match.note for match in matches])
        return matches

    async def _look_for(self, query: str, limit: int) -> list[Match]:
        try:
            found = await self._documents.search(NOTES, query, limit=limit)
        except NotImplementedError as error:
            raise NoteError(str(error)) from error
        return [Match(Note.of(each.document), each.snippet) for each in found]

    async def count(self) -> int:
        """Return the number of notes."""
        counts = await self._documents.get(COUNTS, "notes")
        return int(counts.data["count"]) if counts is not None else 0

    async def _get(self, number: int) -> tuple[Note, int]:
        document = await self._documents.get(NOTES, _key(number))
        if document is None:
            raise NoteNotFound(number)
        return Note.of(document), document.version

    def _change(self, note: Note, version: int = 0) -> DocumentChange:
        return self._documents.change(NOTES, _key(note.id), note.facts(), version, SEARCHED)

    async def _write(self, make: Callable[[], Awaitable[tuple[Note, list[DocumentChange]]]]) -> Note:
        """Make a change and write it; again while others change the same."""
        for attempt in range(TRIES):
            note, changes = await make()
            try:
                await self._documents.write(changes)
            except DocumentConflict:
                if attempt == TRIES - 1:
                    raise
            else:
                return note
        raise AssertionError("unreachable")

    def _mark(self, notes: Iterable[Note]) -> None:
        self.has_read_untrusted = self.has_read_untrusted or any(note.untrusted for note in notes)


def _key(number: int) -> str:
    """Return the key of a note's document: documents sort by their keys."""
    return f"{number:010}"


def _present() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
