"""Keep the words of indexed messages, and find those with a part in them.

A row of `message_words` has a word of `message_index`, and `word_index` has the trigrams of the words. `listed` of a
range of `message_spans` says how far its words are there: a process of an earlier version that indexes messages lists
no words, and makes a range whose words are listed later, by those who look for a part, `word_cursor` at a time.

A word may be there that no message has any more: each found one is looked up in `message_index`.
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
STEP = 500
"""Words that one transaction lists."""
UNLISTED, BEGUN, LISTED = 0, 1, 2
"""States of a range: no words are listed, those up to the cursor are, all are."""

PROJECT = "\ue000"
"""The first sign of the words that stand for projects; no word of a text begins with it."""

_INDEX = "word_index"


def add_words(db: sqlite3.Connection, texts: Iterable[str]) -> None:
    """List the words of texts as `message_index` has them."""
    if trigrams.has_index(db, _INDEX):
        words = {word for text in texts for word in text.split() if word[0] != PROJECT}
        [(last,)] = db.execute("SELECT coalesce(max(id), 0) FROM message_words")
        db.executemany("INSERT OR IGNORE INTO message_words (word) VALUES (?)", [(word,) for word in sorted(words)])
        db.execute(f"INSERT INTO {_INDEX} (rowid, word) SELECT id, word FROM message_words WHERE id > ?", (last,))


def forget_words(db: sqlite3.Connection, texts: Iterable[str]) -> None:
    """Take away the words of texts, which are no longer in `message_index`, that no other message has."""
    words = {word for text in texts for word in text.split() if word[0] != PROJECT}
    for word in sorted(words):
        row = db.execute("SELECT id, word FROM message_words WHERE word = ?", (word,)).fetchone()
        if row and not _is_used(db, word):
            db.execute("DELETE FROM message_words WHERE id = ?", row[:1])
            db.execute(f"INSERT INTO {_INDEX} ({_INDEX}, rowid, word) VALUES ('delete', ?, ?)", row)


def is_behind(db: sqlite3.Connection) -> bool:
    """Return whether words of indexed messages are not listed yet."""
    unlisted = f"SELECT 1 FROM message_spans WHERE listed <> {LISTED}"
    return trigrams.has_index(db, _INDEX) and bool(db.execute(unlisted).fetchone())


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
    add_words(db, words)
    if words:
        db.execute("UPDATE word_cursor SET after = ?", words[-1:])
    else:
        db.execute("DELETE FROM word_cursor")
        db.execute(f"UPDATE message_spans SET listed = {LISTED} WHERE listed = {BEGUN}")
    return len(words)


def find(db: sqlite3.Connection, part: str, limit: int) -> list[str] | None:
    """Return words of indexed messages with a part, sorted; of very many, some. None while not all are listed."""
    if is_behind(db) or not trigrams.has_index(db, _INDEX):
        return None
    found = (word for word in _candidates(db, part) if part in word and _is_used(db, word))
    return list(islice(found, limit))


def clear_words(db: sqlite3.Connection) -> None:
    """Empty the list, with the index of messages."""
    make_word_index(db)
    if trigrams.has_index(db, _INDEX):
        db.execute(f"INSERT INTO {_INDEX} ({_INDEX}) VALUES ('delete-all')")
    db.execute("DELETE FROM message_words")
    db.execute("DELETE FROM word_cursor")


def make_word_index(db: sqlite3.Connection) -> None:
    """Make the index of `message_words` where there is none."""
    trigrams.make_index(db, _INDEX, "message_words", "word")


def _candidates(db: sqlite3.Connection, part: str) -> Iterator[str]:
    ids = trigrams.find(db, _INDEX, part, MOST_FOUND)
    if ids is None:  # a short part: most often, many words have it
        rows = db.execute("SELECT word FROM message_words WHERE instr(word, ?) ORDER BY word", (part,))
    else:
        rows = db.execute(f"SELECT word FROM message_words WHERE id IN ({', '.join(map(str, ids))}) ORDER BY word")
    return (word for (word,) in rows)


def _is_used(db: sqlite3.Connection, word: str) -> bool:
    query = "SELECT 1 FROM message_index WHERE message_index MATCH ? LIMIT 1"
    return bool(db.execute(query, (f'"{word}"',)).fetchone())


MESSAGE_WORDS = (
    "CREATE TABLE message_words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE)",
    "CREATE TABLE word_cursor (after TEXT NOT NULL)",
    f"ALTER TABLE message_spans ADD COLUMN listed INTEGER NOT NULL DEFAULT {UNLISTED}",
    make_word_index,
)
"""The last steps from schema 17 to 18. Released ones are never changed."""
