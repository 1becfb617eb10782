"""Encode documents for the database, and read their rows."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.documents import Document, DocumentMatch, check_document_names, has_members
from amplifier_core.text_search import cut_snippet, fold_words, has_prefixes, join_members, rank

from .faults import DamageError
from .rows import DOCUMENTS
from .values import checksum, dumps, escape, loads, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.documents import DocumentChange

    from .connections import Pool
    from .projects import Projects

COLUMNS = f"{DOCUMENTS.columns}, digest"
MOST_MATCHES = 1000
"""Texts looked at for one word, the newest ones."""

_GET = f"SELECT {COLUMNS} FROM @.documents WHERE project = %s AND collection = %s AND key = %s"
_FIND = f"""SELECT {COLUMNS} FROM @.documents
    WHERE project = %(project)s AND collection = %(collection)s AND key >= %(first)s AND key < %(after)s {{narrow}}
    ORDER BY key {{order}} LIMIT %(limit)s"""
_AFTER = b"\xff"
"""Appended to a prefix, this sorts after every key with the prefix: no UTF-8 has this byte."""

# each query of words is answered by itself, so that the number of its texts is known
_MATCHES = """SELECT ARRAY(
        SELECT t.id FROM @.document_texts t
        WHERE t.lexemes @@ asked.query::tsquery AND t.project = %(project)s AND t.collection = %(collection)s
            AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements_text(asked.phrases) p
                WHERE strpos(' ' || t.words || ' ', ' ' || p || ' ') = 0)
        ORDER BY t.id DESC LIMIT %(most)s
    ) FROM unnest(%(queries)s::text[], %(phrases)s::jsonb[]) WITH ORDINALITY AS asked (query, phrases, n) ORDER BY n"""
_TEXTS = f"""SELECT {", ".join("d." + name for name in (*DOCUMENTS.names, "digest"))}, t.members, t.id
    FROM @.document_texts t JOIN @.documents d USING (project, collection, key) WHERE t.id = ANY (%s)"""


def encode_key(key: str) -> bytes:
    """Return the bytes of a key."""
    return key.encode("utf-8", "surrogatepass")


def encode_change(change: DocumentChange, projects: Projects) -> dict[str, Any]:
    """Return a change for the database. Raises `ValueError`, and `TypeError` for data without a JSON form."""
    check_document_names(change.collection, change.key)
    project, collection = escape(projects.to_stored(change.project)), escape(change.collection)
    key = encode_key(change.key).hex()
    encoded: dict[str, Any] = {"project": project, "collection": collection, "key": key, "version": change.version}
    encoded["said"] = {"collection": collection, "key": plain(change.key)}
    if change.data is None:
        return encoded
    data = dumps(change.data, "data")
    encoded |= {"data": data, "digest": checksum(project, collection, key, data, change.version + 1)}
    if change.searched:
        words = fold_words(join_members(change.data, change.searched))
        members = dumps(list(change.searched), "searched")
        encoded |= {"members": members, "words": words, "place": lexeme_of(project, collection)}
    return encoded


def get(pool: Pool, projects: Projects, project: str, collection: str, key: str) -> Document | None:
    """Return one document, None without it."""
    place = escape(projects.to_stored(project)), escape(collection)
    rows = pool.read(_GET, (*place, encode_key(key)))
    return decode_row(rows[0], projects) if rows else None


def find(
    pool: Pool,
    projects: Projects,
    place: tuple[str, str],
    where: Mapping[str, Sequence[str]],
    prefix: str,
    *,
    newest: bool,
    limit: int | None,
) -> list[Document]:
    """Return documents of a collection in the order of their keys."""
    narrow, values = _narrow(where)
    first = encode_key(prefix)
    values |= {"project": escape(projects.to_stored(place[0])), "collection": escape(place[1])}
    values |= {"first": first, "after": first + _AFTER, "limit": None if where else limit}
    rows = pool.read(_FIND.format(narrow=narrow, order="DESC" if newest else "ASC"), values)
    found = (decode_row(row, projects) for row in rows)
    return [each for each in found if has_members(each.data, where)][: None if limit is None else max(limit, 0)]


def search(
    pool: Pool, projects: Projects, place: tuple[str, str], words: Sequence[str], limit: int
) -> list[DocumentMatch]:
    """Return the best documents of a place with any of the words."""
    if not words:
        return []
    project, collection = escape(projects.to_stored(place[0])), escape(place[1])
    asked = [[word] for word in words] + ([list(words)] if len(words) > 1 else [])
    values = {
        "project": project,
        "collection": collection,
        "most": MOST_MATCHES,
        "queries": [_query(each, lexeme_of(project, collection)) for each in asked],
        "phrases": [json.dumps([word for word in each if " " in word]) for each in asked],
    }
    found = [row[0] for row in pool.read(_MATCHES, values)]
    best = rank(found[: len(words)], found[len(words)] if len(words) > 1 else (), limit)
    texts = {number: row for *row, number in pool.read(_TEXTS, (best,))}
    return [_match(texts[number], words, projects) for number in best if number in texts]


def decode_row(row: Sequence[Any], projects: Projects) -> Document:
    """Return the document of a row. Raises `DamageError`."""
    project, collection, key, data, version, updated, digest = row
    if digest != checksum(project, collection, key.hex(), data, version):
        raise DamageError(f"document {key!r} of {collection!r} differs from the written row")
    text = key.decode("utf-8", "surrogatepass")
    return DOCUMENTS.item((project, collection, plain(text), data, version, updated), projects)


def _match(row: Sequence[Any], words: Sequence[str], projects: Projects) -> DocumentMatch:
    *columns, members = row
    document = decode_row(columns, projects)
    return DocumentMatch(document, cut_snippet(join_members(document.data, loads(members)), words))


def _query(words: Sequence[str], place: str) -> str:
    """Return a query of lexemes, as PostgreSQL reads it without a dictionary; words are letters and digits alone."""
    terms = [f"'{sign}'{':*' if has_prefixes(word) else ''}" for word in words for sign in word.split()]
    return " & ".join([f"'{place}'", *terms])


def lexeme_of(project: str, collection: str) -> str:
    """Return the lexeme that stands for a place; no word begins with '_'."""
    return "_" + sha256(f"{project}\0{collection}".encode(errors="surrogateescape")).hexdigest()[:32]


def _narrow(where: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, Any]]:
    """Return a condition that keeps at least the wanted rows: their JSON has each of these members somewhere."""
    condition, values = "", dict[str, Any]()
    for number, (name, texts) in enumerate(where.items()):
        condition += f" AND EXISTS (SELECT 1 FROM unnest(%(text{number})s::text[]) x WHERE strpos(data, x) > 0)"
        values[f"text{number}"] = [dumps({name: text})[1:-1] for text in texts]
    return condition, values
