"""Find documents by their words, one function for each operation on a connection, as in `documents`.

The row of a text in `document_texts` has its words, and `document_index`, of SQLite's FTS5, finds them. The upper bits
of a row's id say the place (a project and a collection), the lower ones grow with each change: so the texts of one
place lie together, the newest last. A SQLite without FTS5 keeps the texts, and cannot search.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.documents import DocumentMatch
from amplifier_core.text_search import cut_snippet, fold_words, has_prefixes, join_members, rank

from .schema import make_search_index
from .trigrams import NO_INDEX
from .values import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.documents import Document, DocumentChange

    from .values import Column

PLACE_BITS = 40
"""The lower bits of an id: the number of a text within its place."""
MOST_MATCHES = 1000
"""Texts looked at for one word, the newest ones."""

_THIS = "project = :project AND collection = :collection AND key = :key"
_ANY = "SELECT id FROM document_texts WHERE project = :project AND collection = :collection LIMIT 1"
_LAST = "SELECT id FROM document_texts WHERE id < ? ORDER BY id DESC LIMIT 1"
_INSERT = """INSERT INTO document_texts (id, project, collection, key, members, words)
    VALUES (:id, :project, :collection, :key, :members, :words)"""
_MATCHES = """SELECT rowid FROM document_index WHERE document_index MATCH ? AND rowid BETWEEN ? AND ?
    ORDER BY rowid DESC LIMIT ?"""


class Text(NamedTuple):
    """Hold what a search looks in: the names of members as JSON, and their words."""

    members: Column
    words: str


def encode_text(change: DocumentChange) -> Text | None:
    """Return the text of a change, None for a document that no search finds. Raises `TypeError`."""
    if change.data is None or not change.searched:
        return None
    return Text(dumps(list(change.searched), "searched"), fold_words(join_members(change.data, change.searched)))


def has_index(db: sqlite3.Connection) -> bool:
    """Return whether a file has the index."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = 'document_index'").fetchone())


def rebuild_index(db: sqlite3.Connection) -> None:
    """Make the index anew from the texts, where there is one, or can be."""
    make_search_index(db)
    if has_index(db):
        db.execute("INSERT INTO document_index (document_index) VALUES ('rebuild')")


def forget(db: sqlite3.Connection, place: Mapping[str, Column]) -> None:
    """Remove the text of a document, if it has one."""
    row = db.execute(f"SELECT id, words FROM document_texts WHERE {_THIS}", place).fetchone()
    if row is not None:
        if has_index(db):
            db.execute("INSERT INTO document_index (document_index, rowid, words) VALUES ('delete', ?, ?)", row)
        db.execute("DELETE FROM document_texts WHERE id = ?", row[:1])


def keep(db: sqlite3.Connection, place: Mapping[str, Column], text: Text) -> None:
    """Add the text of a document that has none."""
    ids = _ids_of(db, place)
    if ids is None:
        last = db.execute("SELECT coalesce(max(id), 0) FROM document_texts").fetchone()[0]
        number = (last >> PLACE_BITS) + 1 << PLACE_BITS
    else:
        number = ids[1] + 1
    db.execute(_INSERT, {**place, "id": number, **text._asdict()})
    if has_index(db):
        db.execute("INSERT INTO document_index (rowid, words) VALUES (?, ?)", (number, text.words))


def search(
    db: sqlite3.Connection, place: Mapping[str, Column], words: Sequence[str], limit: int
) -> list[DocumentMatch]:
    """Return the best documents of a place with any of the words."""
    ids = _ids_of(db, place)
    if ids is None or not words:
        return []
    if not has_index(db):
        raise sqlite3.NotSupportedError(NO_INDEX)

    def match(expression: str) -> list[int]:
        return [row for (row,) in db.execute(_MATCHES, (expression, *ids, MOST_MATCHES))]

    terms = [f'"{word}"{" *" if has_prefixes(word) else ""}' for word in words]
    whole = match(" AND ".join(terms)) if len(terms) > 1 else ()
    best = rank([match(term) for term in terms], whole, limit)
    return [found for number in best for found in _find(db, number, words)]


def _ids_of(db: sqlite3.Connection, place: Mapping[str, Column]) -> tuple[int, int] | None:
    """Return the lowest id that a text of a place may have, and the highest that one has; None without any."""
    row = db.execute(_ANY, place).fetchone()
    if row is None:
        return None
    first = row[0] >> PLACE_BITS << PLACE_BITS
    return first, db.execute(_LAST, (first + (1 << PLACE_BITS),)).fetchone()[0]


def _find(db: sqlite3.Connection, number: int, words: Sequence[str]) -> list[DocumentMatch]:
    """Return the document of a text; none for a text whose document is lost."""
    from .documents import READ, read_row

    query = f"SELECT {READ}, members FROM document_texts JOIN documents USING (project, collection, key) WHERE id = ?"
    with closing(db.execute(query, (number,))) as rows:
        return [_match(read_row(row), loads(members), words) for *row, members in rows]


def _match(document: Document, members: Sequence[str], words: Sequence[str]) -> DocumentMatch:
    return DocumentMatch(document, cut_snippet(join_members(document.data, members), words))
