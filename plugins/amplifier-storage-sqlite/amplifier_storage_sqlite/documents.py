"""Store documents, one function for each operation on a connection; the caller runs each in one transaction.

A row holds the document and a checksum. Its key is the bytes of the text: so keys sort by their code points.
"""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.documents import Document, check_document_names, has_members
from amplifier_core.errors import DocumentConflict

from . import searching
from .faults import DamageError
from .rows import Table, pause_collection
from .values import Column, checksum, plain, unplain

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_core.documents import DocumentChange

    from .searching import Text

DOCUMENTS = Table(Document)
COLUMNS = f"{DOCUMENTS.columns}, digest"
READ = COLUMNS.replace("data", "CAST(data AS BLOB)")
_AFTER = b"\xff"
"""Appended to a prefix, this sorts after every key with the prefix: no UTF-8 has this byte."""

_THIS = "project = :project AND collection = :collection AND key = :key"
_MARKS = ", ".join(f":{name}" for name in (*DOCUMENTS.names, "digest"))
_INSERT = f"INSERT INTO documents ({COLUMNS}) VALUES ({_MARKS}) ON CONFLICT DO NOTHING"
_UPDATE = f"""UPDATE documents SET data = :data, version = :version, updated = :updated, digest = :digest
    WHERE {_THIS} AND version = :replaced"""
_DELETE = f"DELETE FROM documents WHERE {_THIS} AND version = :replaced"
_WITHIN = "project = :project AND collection = :collection AND key >= :first AND key < :after"


class Change(NamedTuple):
    """Hold a statement for one change, with its values."""

    change: DocumentChange
    statement: str
    values: Mapping[str, Column]
    text: Text | None

    def make(self, db: sqlite3.Connection) -> None:
        """Change the document, and what a search finds of it. Raises `DocumentConflict`."""
        if not db.execute(self.statement, self.values).rowcount:
            raise DocumentConflict(self.change.collection, self.change.key)
        if self.change.version:
            searching.forget(db, self.values)
        if self.text is not None:
            searching.keep(db, self.values, self.text)


def encode_change(change: DocumentChange) -> Change:
    """Return a change as a statement. Raises `ValueError`, and `TypeError` for data without a JSON form."""
    check_document_names(change.collection, change.key)
    document = Document(change.project, change.collection, change.key, change.data or {}, change.version + 1)
    row = {**DOCUMENTS.row(document), "key": encode_key(change.key)}
    values = {**row, "digest": checksum(*row.values()), "replaced": change.version}
    statement = _DELETE if change.data is None else _UPDATE if change.version else _INSERT
    return Change(change, statement, values, searching.encode_text(change))


def encode_key(key: str) -> bytes:
    """Return the bytes of a key."""
    return key.encode("utf-8", "surrogatepass")


def get(db: sqlite3.Connection, values: Mapping[str, Column]) -> Document | None:
    """Return one document, None without it."""
    row = db.execute(f"SELECT {READ} FROM documents WHERE {_THIS}", values).fetchone()
    return None if row is None else read_row(row)


def find(
    db: sqlite3.Connection,
    place: Mapping[str, Column],
    where: Mapping[str, Sequence[str]],
    prefix: bytes,
    *,
    newest: bool,
    limit: int | None,
) -> list[Document]:
    """Return documents of a collection in the order of their keys; at most `limit` of them are decoded."""
    condition, values = _narrow(where)
    order = "DESC" if newest else "ASC"
    query = f"SELECT {READ} FROM documents WHERE {_WITHIN}{condition} ORDER BY key {order}"
    given = {**place, **values, "first": prefix, "after": prefix + _AFTER}
    with closing(db.execute(query, given)) as rows, pause_collection():
        return list(islice(_documents(rows, where), limit))


def _narrow(where: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, Column]]:
    """Return a condition that keeps at least the wanted rows, with its values; names and texts are values alone.

    SQLite 3.44 ends a text at its first NUL, and a text with lone surrogates has no form here: `_documents` compares.
    """
    condition, values = "", dict[str, Column]()
    for number, (name, texts) in enumerate(where.items()):
        if all(isinstance(plain(text), str) and "\0" not in text for text in texts):
            wanted = {f"text{number}_{at}": text for at, text in enumerate(texts)}
            marks = ", ".join(f":{each}" for each in wanted)
            condition += f" AND json_extract(CAST(data AS TEXT), :name{number}) IN ({marks})"
            values |= {f"name{number}": f'$."{name}"', **wanted}
    return condition, values


def _documents(rows: sqlite3.Cursor, where: Mapping[str, Sequence[str]]) -> Iterator[Document]:
    for row in rows:
        document = read_row(row)
        if has_members(document.data, where):
            yield document


def read_row(row: Sequence[Any]) -> Document:
    """Return the document of a row. Raises `DamageError`."""
    *columns, digest = row
    if digest != checksum(*columns):
        raise DamageError(f"document {unplain(columns[2])!r} of {unplain(columns[1])!r} differs from the written row")
    return DOCUMENTS.item(columns)
