"""Index messages when somebody searches, and find them by their words, one function for each operation on a connection.

`message_index`, of SQLite's FTS5, has the words of a message under the rowid of its row in `messages`. `message_spans`
names the ranges of rowids that are indexed. Whoever appends a message does nothing for this: a rowid above all ranges
is a message to index. Whoever deletes messages takes their words away, and ends the ranges at the last rowid, since
SQLite gives those above it out again.

The index may be behind or wrong, and nobody loses anything: what it finds is compared with the message.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.store_views import MessageMatch, MessageMatches, quote_words
from amplifier_core.text_search import contains, fold_words, has_prefixes, rank
from amplifier_core.transcript import text_of

from . import histories, message_words
from .message_words import LISTED, PROJECT
from .schema import make_message_index
from .sessions import load_row
from .trigrams import NO_INDEX
from .values import checksum, loads, unplain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .values import Column

MOST_MATCHES = 1000
"""Messages looked at for one word, the newest ones."""

_MATCHES = "SELECT rowid FROM message_index WHERE message_index MATCH ? ORDER BY rowid DESC LIMIT ?"
_ROWS = """SELECT rowid, history, position, CAST(body AS BLOB), digest FROM messages
    WHERE rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?"""
_OF_HISTORY = """SELECT rowid, history, position, CAST(body AS BLOB), digest FROM messages
    WHERE history = ? AND position >= ?"""

_SHARING = """
WITH RECURSIVE sharing (id) AS (
    VALUES (:history) UNION SELECT histories.id FROM histories JOIN sharing ON source = sharing.id
    WHERE shared > :position
)
SELECT {} FROM sharing JOIN sessions ON history = sharing.id WHERE message_count > :position {}
"""
# the session that goes on with the history of a message, or else the oldest of those that share the message
_SESSION = _SHARING.format("session_id, project", "ORDER BY sharing.id LIMIT 1")
_ALL_SHARING = _SHARING.format("session_id", "LIMIT :limit")
_OWN_SESSION = "SELECT session_id, project FROM sessions WHERE history = :history AND message_count > :position"


class Plan(NamedTuple):
    """Hold a range of rowids to index, with the checksums and the words of its messages."""

    low: int
    high: int
    digests: dict[int, int]
    words: dict[int, str]
    projects: dict[int, Column]
    """The project of each history."""


def has_index(db: sqlite3.Connection) -> bool:
    """Return whether a file has the index."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = 'message_index'").fetchone())


def clear_index(db: sqlite3.Connection) -> None:
    """Empty the index: later searches make it anew."""
    make_message_index(db)
    if has_index(db):
        db.execute("INSERT INTO message_index (message_index) VALUES ('delete-all')")
    db.execute("DELETE FROM message_spans")
    db.execute("DELETE FROM message_projects")
    message_words.clear_words(db)


def plan(db: sqlite3.Connection, limit: int) -> Plan | None:
    """Return the newest messages to index, at most `limit`; None if all are indexed. Raises `NotSupportedError`."""
    if not has_index(db):
        raise sqlite3.NotSupportedError(NO_INDEX)
    gap = _newest_gap(db)
    if gap is None:
        return None
    rows = db.execute(_ROWS, (*gap, limit)).fetchall()
    low = rows[-1][0] if len(rows) == limit else gap[0]
    sound = [row for row in rows if row[4] == checksum(*row[1:4])]
    projects = {history: _project_of(db, history) for history in {row[1] for row in sound}}
    words = {rowid: _words_of(body, projects[history]) for rowid, history, _, body, _ in sound}
    return Plan(low, gap[1], {row[0]: row[4] for row in rows}, words, projects)


def carry_out(db: sqlite3.Connection, planned: Plan) -> int:
    """Index the messages of a plan; return the number of rows, 0 if the messages have changed meanwhile."""
    low, high = planned.low, planned.high
    known = db.execute("SELECT 1 FROM message_spans WHERE low <= ? AND high >= ?", (high, low)).fetchone()
    present = dict(db.execute("SELECT rowid, digest FROM messages WHERE rowid BETWEEN ? AND ?", (low, high)))
    if known or not present.items() <= planned.digests.items():
        return 0
    texts = [(rowid, words) for rowid, words in sorted(planned.words.items()) if rowid in present]
    db.executemany("INSERT INTO message_index (rowid, words) VALUES (?, ?)", texts)
    db.executemany("INSERT OR IGNORE INTO message_projects VALUES (?, ?)", planned.projects.items())
    message_words.add_words(db, texts)
    message_words.forget_words(db, max(len(texts), message_words.DELETED_STEP))
    beside = "SELECT low, high, listed FROM message_spans WHERE high = ? OR low = ?"
    spans = [(low, high, LISTED), *db.execute(beside, (low - 1, high + 1))]
    whole = min(each[0] for each in spans), max(each[1] for each in spans)
    db.execute("DELETE FROM message_spans WHERE low BETWEEN ? AND ?", whole)
    listed = min(each[2] for each in spans)
    db.execute("INSERT INTO message_spans (low, high, listed) VALUES (?, ?, ?)", (*whole, listed))
    return len(present)


def forget(db: sqlite3.Connection, history: int, start: int) -> None:
    """Take away the words of the messages of a history from position `start` on, which are deleted next."""
    spans = db.execute("SELECT low, high FROM message_spans").fetchall()
    if not spans:
        return
    project = _project_of(db, history)
    rows = db.execute(_OF_HISTORY, (history, start)).fetchall()
    words = [
        (rowid, _words_of(body, project))
        for rowid, *columns, body, digest in rows
        if digest == checksum(*columns, body) and any(low <= rowid <= high for low, high in spans)
    ]
    db.executemany("INSERT INTO message_index (message_index, rowid, words) VALUES ('delete', ?, ?)", words)
    message_words.note_deleted(db, [rowid for rowid, _ in words])
    if not start:
        db.execute("DELETE FROM message_projects WHERE history = ?", (history,))


def end_spans(db: sqlite3.Connection) -> None:
    """End the ranges at the last rowid, after messages were deleted."""
    last = db.execute("SELECT coalesce(max(rowid), 0) FROM messages").fetchone()[0]
    db.execute("DELETE FROM message_spans WHERE low > ?", (last,))
    db.execute("UPDATE message_spans SET high = ? WHERE high > ?", (last, last))


def search(db: sqlite3.Connection, project: Column, words: Sequence[str], limit: int) -> MessageMatches:
    """Return the best indexed messages with any of the words."""
    place = [] if project is None else [f'"{_lexeme_of(project)}"']

    def match(terms: Sequence[str]) -> list[int]:
        return [row for (row,) in db.execute(_MATCHES, (" AND ".join([*place, *terms]), MOST_MATCHES))]

    def match_word(word: str) -> list[int]:
        found = match([f'"{word}"'])  # whole words first: of a common one all beginnings are many
        if len(found) == MOST_MATCHES or not has_prefixes(word):
            return found
        return match([f'"{word}" *'])

    terms = [f'"{word}"{" *" if has_prefixes(word) else ""}' for word in words]
    whole = match(terms) if len(terms) > 1 else ()
    matches = list[MessageMatch]()
    for number in rank([match_word(word) for word in words], whole):
        if len(matches) == limit:
            break
        matches += read_match(db, number, project, words)
    return MessageMatches(matches, _newest_gap(db) is None)


def find_words(db: sqlite3.Connection, part: str, limit: int) -> list[str]:
    """Return indexed words with a text in them."""
    if not has_index(db):
        return []
    if (found := message_words.find(db, part, limit)) is not None:
        return found
    db.execute("PRAGMA query_only = OFF")  # a table that reads the index is temporary, and a change all the same
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.message_terms USING fts5vocab('main', 'message_index', 'row')")
    db.execute("PRAGMA query_only = ON")
    query = "SELECT term FROM message_terms WHERE instr(term, ?) AND substr(term, 1, 1) <> ? LIMIT ?"
    return [term for (term,) in db.execute(query, (part, PROJECT, limit))]


def find_sharing(db: sqlite3.Connection, session_id: str, position: int, limit: int) -> list[str]:
    """Return the ids of sessions that have a message of a session. Raises `SessionNotFound`, `DamageError`."""
    history = histories.find_owner(db, load_row(db, session_id)["history"], position)
    place = {"history": history, "position": position, "limit": limit}
    return [unplain(each) for (each,) in db.execute(_ALL_SHARING, place)]


def _newest_gap(db: sqlite3.Connection) -> tuple[int, int] | None:
    """Return the range of rowids above which all messages are indexed, None if all are."""
    ends = "SELECT (SELECT min(rowid) FROM messages), (SELECT max(rowid) FROM messages)"  # both at once read all rows
    first, high = db.execute(ends).fetchone()
    if high is None:
        return None
    for low, end in db.execute("SELECT low, high FROM message_spans ORDER BY low DESC"):
        if end < high:
            return end + 1, high
        high = low - 1
    return (first, high) if high >= first else None


def read_match(db: sqlite3.Connection, number: int, project: Column, words: Sequence[str]) -> Iterator[MessageMatch]:
    """Yield the message of a row, unless it is gone, damaged, or of another project, or lacks the words."""
    row = db.execute(_ROWS, (number, number, 1)).fetchone()
    if row is None or row[4] != checksum(*row[1:4]):
        return
    _, history, position, body, _ = row
    place = {"history": history, "position": position}
    session = db.execute(_OWN_SESSION, place).fetchone() or db.execute(_SESSION, place).fetchone()
    message = loads(body)
    text = text_of(message)
    folded = fold_words(text)
    if session is None or project not in (None, session[1]) or not any(contains(folded, word) for word in words):
        return
    role = str(message.get("role") or "")
    yield MessageMatch(session[0], unplain(session[1]), position, role, quote_words(text, words))


def _project_of(db: sqlite3.Connection, history: int) -> Any:
    """Return the project under which messages of a history are indexed: as it was at the first of them."""
    known = db.execute("SELECT project FROM message_projects WHERE history = ?", (history,)).fetchone()
    if known is None:
        place = {"history": history, "position": 0}
        known = db.execute(_OWN_SESSION.replace("message_count > :position", "TRUE"), place).fetchone()
        known = (known or db.execute(_SESSION, place).fetchone() or ("", ""))[1:]
    return known[0]


def _words_of(body: bytes, project: Column) -> str:
    """Return what the index has of a message: the lexeme of its project, and its words."""
    try:
        words = fold_words(text_of(json.loads(body)))
    except (ValueError, AttributeError):
        words = ""
    return f"{_lexeme_of(project)} {words}"


def _lexeme_of(project: Column) -> str:
    """Return the word that stands for a project."""
    return PROJECT + blake2b(str(unplain(project)).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
