"""Keep the words of indexed messages, and find those with a part in them.

A row of `message_words` has a word of `message_index` with the rowid of one of its messages, and `word_index` has the
trigrams of the words. Whoever deletes messages notes their rowids in `deleted_messages`: whoever indexes or looks for a
part gives their words other messages, or takes them away.

`listed` of a range of `message_spans` says whether its words are there: a process of an earlier version that indexes
messages lists none. Those who look for a part list them later, from `word_cursor` on. A word may be there that no
message has any more: each found one is looked up in `message_index`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from . import trigrams

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

MOST_FOUND = 1000
"""Candidates that are compared with a part."""
STEP = 200
"""Words that one transaction lists: others wait for it no longer than for another writer."""
MOST_LATE, DELETED_STEP = 64, 20
"""Deleted messages whose words are left to those who index, and those whose words one transaction forgets."""
UNLISTED, BEGUN, LISTED = 0, 1, 2
"""States of a range: no words are listed, those up to the cursor are, all are."""

PROJECT = "\ue000"
"""The first sign of the words that stand for projects; no word of a text begins with it."""

_INDEX = "word_index"


def add_words(db: sqlite3.Connection, texts: Iterable[tuple[int, str]]) -> None:
    """List the words of messages, by their rowids, as `message_index` has them."""
    if trigrams.has_index(db, _INDEX):
        words = {word: rowid for rowid, text in texts for word in text.split() if word[0] != PROJECT}
        [(last,)] = db.execute("SELECT coalesce(max(id), 0) FROM message_words")
        db.executemany("INSERT OR IGNORE INTO message_words (word, message) VALUES (?, ?)", sorted(words.items()))
        db.execute(f"INSERT INTO {_INDEX} (rowid, word) SELECT id, word FROM message_words WHERE id > ?", (last,))


def note_deleted(db: sqlite3.Connection, rowids: Iterable[int]) -> None:
    """Note messages that are deleted next, as far as words are listed with them."""
    noted = "INSERT OR IGNORE INTO deleted_messages SELECT message FROM message_words WHERE message = ? LIMIT 1"
    db.executemany(noted, [(rowid,) for rowid in rowids])


def forget_words(db: sqlite3.Connection, limit: int) -> None:
    """Take away the words of some deleted messages that no other message has."""
    deleted = db.execute("SELECT message FROM deleted_messages LIMIT ?", (limit,)).fetchall()
    db.executemany("DELETE FROM deleted_messages WHERE message = ?", deleted)
    for place in deleted:
        rows = db.execute("SELECT id, word FROM message_words WHERE message = ?", place).fetchall()
        for row in rows:
            other = _find_message(db, row[1])
            if other is not None:
                db.execute("UPDATE message_words SET message = ? WHERE id = ?", (other, row[0]))
            else:
                db.execute("DELETE FROM message_words WHERE id = ?", row[:1])
                db.execute(f"INSERT INTO {_INDEX} ({_INDEX}, rowid, word) VALUES ('delete', ?, ?)", row)


def is_behind(db: sqlite3.Connection) -> bool:
    """Return whether words of indexed messages are not listed yet, or those of many deleted ones still are."""
    deleted = "SELECT count(*) FROM (SELECT 1 FROM deleted_messages LIMIT ?)"
    return trigrams.has_index(db, _INDEX) and (
        not _is_listed(db) or db.execute(deleted, (MOST_LATE + 1,)).fetchone()[0] > MOST_LATE
    )


def catch_up(db: sqlite3.Connection) -> None:
    """List or forget some words."""
    if _is_listed(db):
        forget_words(db, DELETED_STEP)
    else:
        list_words(db)


def list_words(db: sqlite3.Connection) -> int:
    """List some more words of `message_index`; return their number, 0 after the last one."""
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.message_terms USING fts5vocab('main', 'message_index', 'row')")
    begun = db.execute("SELECT after FROM word_cursor").fetchone()
    if begun is None:  # from here on, ranges of other processes are new ones
        db.execute(f"UPDATE message_spans SET listed = {BEGUN} WHERE listed = {UNLISTED}")
        db.execute("INSERT INTO word_cursor VALUES ('')")
    after = begun[0] if begun else ""
    terms = "SELECT term FROM message_terms WHERE term > ? ORDER BY term LIMIT ?"
    words = [term for (term,) in db.execute(terms, (after, STEP))]
    add_words(db, [(rowid, word) for word in words if (rowid := _find_message(db, word)) is not None])
    if words:
        db.execute("UPDATE word_cursor SET after = ?", words[-1:])
    else:
        db.execute("DELETE FROM word_cursor")
        db.execute(f"UPDATE message_spans SET listed = {LISTED} WHERE listed = {BEGUN}")
    return len(words)


def find(db: sqlite3.Connection, part: str, limit: int) -> list[str] | None:
    """Return words of indexed messages with a part, sorted; of very many, some. None while not all are listed."""
    if not _is_listed(db) or not trigrams.has_index(db, _INDEX):
        return None
    found = (word for word in _candidates(db, part) if part in word and _find_message(db, word) is not None)
    return list(islice(found, limit))


def clear_words(db: sqlite3.Connection) -> None:
    """Empty the list, with the index of messages."""
    make_word_index(db)
    if trigrams.has_index(db, _INDEX):
        db.execute(f"INSERT INTO {_INDEX} ({_INDEX}) VALUES ('delete-all')")
    db.execute("DELETE FROM message_words")
    db.execute("DELETE FROM deleted_messages")
    db.execute("DELETE FROM word_cursor")


def make_word_index(db: sqlite3.Connection) -> None:
    """Make the index of `message_words` where there is none."""
    trigrams.make_index(db, _INDEX, "message_words", "word")


def _is_listed(db: sqlite3.Connection) -> bool:
    return not db.execute(f"SELECT 1 FROM message_spans WHERE listed <> {LISTED}").fetchone()


def _candidates(db: sqlite3.Connection, part: str) -> Iterator[str]:
    ids = trigrams.find(db, _INDEX, part, MOST_FOUND)
    if ids is None:  # a short part: most often, many words have it
        rows = db.execute("SELECT word FROM message_words WHERE instr(word, ?) ORDER BY word", (part,))
    else:
        rows = db.execute(f"SELECT word FROM message_words WHERE id IN ({', '.join(map(str, ids))}) ORDER BY word")
    return (word for (word,) in rows)


def _find_message(db: sqlite3.Connection, word: str) -> int | None:
    """Return the newest message with a word: of those that have it now, it may stay the longest."""
    query = "SELECT rowid FROM message_index WHERE message_index MATCH ? ORDER BY rowid DESC LIMIT 1"
    row = db.execute(query, (f'"{word}"',)).fetchone()
    return row[0] if row else None


MESSAGE_WORDS = (
    "CREATE TABLE message_words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE, message INTEGER NOT NULL)",
    "CREATE INDEX message_words_by_message ON message_words (message)",
    "CREATE TABLE deleted_messages (message INTEGER PRIMARY KEY)",
    "CREATE TABLE word_cursor (after TEXT NOT NULL)",
    f"ALTER TABLE message_spans ADD COLUMN listed INTEGER NOT NULL DEFAULT {UNLISTED}",
    make_word_index,
)
"""The last steps from schema 17 to 18. Released ones are never changed."""
