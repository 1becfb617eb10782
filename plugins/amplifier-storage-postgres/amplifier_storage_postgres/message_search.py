"""Index messages when somebody searches, and find them by their words.

`message_texts` has the words of a message and a lexeme for its project, `message_ends` the end of what is indexed of
each history. What the index finds is compared with the message.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from amplifier_core.store_views import MessageMatch, MessageMatches, quote_words
from amplifier_core.text_search import contains, fold_words, has_prefixes, rank
from amplifier_core.transcript import text_of

from .documents import lexeme_of
from .values import checksum, loads, unplain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .connections import Pool
    from .projects import Projects

MOST_MATCHES = 1000
"""Messages looked at for one word, those of the newest sessions."""
INDEXED_FOR = 1.0
"""Seconds that a search indexes messages for, about."""
STEP = 1000
"""Messages that one transaction indexes."""
_POSITIONS = 2**24
"""Messages of one history, at most: a number says history and position."""
_READ_AT_ONCE = 100

# the histories with messages to index, those of the last changed sessions first
_LEFT = """SELECT left_over.* FROM (
        SELECT h.id, greatest(h.shared, coalesce(e.stop, 0)) AS start, coalesce(
            s.message_count, (SELECT max(f.shared) FROM @.histories f WHERE f.source = h.id), 0) AS stop, s.updated
        FROM @.histories h LEFT JOIN @.sessions s ON s.history = h.id LEFT JOIN @.message_ends e ON e.history = h.id
    ) left_over WHERE start < stop ORDER BY updated DESC NULLS LAST, id DESC LIMIT %s"""
_ROWS = """SELECT c.n, m.position, m.body, m.digest
    FROM unnest(%(ids)s::bigint[], %(starts)s::bigint[], %(stops)s::bigint[]) WITH ORDINALITY c (id, start, stop, n),
        LATERAL (
            SELECT * FROM @.messages m WHERE m.history = c.id AND m.position >= c.start AND m.position < c.stop
            ORDER BY m.position LIMIT %(limit)s
        ) m
    ORDER BY c.n, m.position LIMIT %(limit)s"""
_INDEX = """WITH there AS (
        SELECT g.* FROM unnest(%(histories)s::bigint[], %(positions)s::bigint[], %(words)s::text[])
            AS g (history, position, words)
        JOIN @.messages m USING (history, position) FOR KEY SHARE OF m
    ), indexed AS (
        INSERT INTO @.message_texts (history, position, lexemes)
        SELECT history, position, array_to_tsvector(array_remove(string_to_array(left(words, 250000), ' '), ''))
        FROM there ON CONFLICT DO NOTHING
    ), known AS (
        SELECT g.* FROM unnest(%(ids)s::bigint[], %(stops)s::bigint[]) AS g (id, stop)
        JOIN @.histories h USING (id) FOR KEY SHARE OF h
    ), ended AS (
        INSERT INTO @.message_ends AS e (history, stop) SELECT id, stop FROM known
        ON CONFLICT (history) DO UPDATE SET stop = greatest(e.stop, excluded.stop)
    ) SELECT count(*) FROM there"""
_MATCHES = f"""SELECT history * {_POSITIONS} + position FROM @.message_texts WHERE lexemes @@ %s::tsquery
    ORDER BY history DESC, position DESC LIMIT {MOST_MATCHES}"""
_FOUND = """SELECT m.history, m.position, m.body, m.digest, s.session_id, s.project
    FROM unnest(%s::bigint[], %s::bigint[]) AS g (history, position) JOIN @.messages m USING (history, position)
    LEFT JOIN @.sessions s ON s.history = m.history AND s.message_count > m.position"""

# the oldest session of those that share a message
_SHARING = """WITH RECURSIVE sharing (id) AS (
        SELECT %(history)s::bigint UNION
        SELECT h.id FROM @.histories h JOIN sharing ON h.source = sharing.id WHERE h.shared > %(position)s
    )
    SELECT session_id, project FROM sharing JOIN @.sessions s ON s.history = sharing.id
    WHERE message_count > %(position)s ORDER BY sharing.id LIMIT 1"""


def index(pool: Pool, limit: int) -> int:
    """Index at most `limit` messages, those of the last changed sessions first; return their number."""
    todo = pool.read(_LEFT, (_READ_AT_ONCE,))
    if not todo:
        return 0
    ids, starts, stops = ([row[at] for row in todo] for at in range(3))
    limit = min(limit, STEP)
    rows = pool.read(_ROWS, {"ids": ids, "starts": starts, "stops": stops, "limit": limit})
    if len(rows) == limit:  # of the last history the others are left
        last, position = rows[-1][:2]
        ids, stops = ids[:last], [*stops[: last - 1], position + 1]
    lexemes = dict[int, str]()
    for its_id, start in zip(ids, starts, strict=False):
        session = pool.read(_SHARING, {"history": its_id, "position": start})
        lexemes[its_id] = lexeme_of(session[0][1] if session else "", "")
    sound = [(ids[n - 1], position, body) for n, position, body, digest in rows if digest == checksum(position, body)]
    given = {
        "histories": [history for history, _, _ in sound],
        "positions": [position for _, position, _ in sound],
        "words": [f"{lexemes[history]} {fold_words(text_of(loads(body)))}" for history, _, body in sound],
        "ids": ids,
        "stops": stops,
    }
    pool.read(_INDEX, given)
    return max(1, len(rows))


def search(pool: Pool, projects: Projects, project: str | None, words: Sequence[str], limit: int) -> MessageMatches:
    """Index messages for about a second, and return the best ones with any of the words; `project` is stored so."""
    end = monotonic() + INDEXED_FOR
    while words and index(pool, STEP) and monotonic() < end:
        pass
    place = [] if project is None else [f"'{lexeme_of(project, '')}'"]

    def match(words: Sequence[str]) -> list[int]:
        signs = [(sign, has_prefixes(word)) for word in words for sign in word.split()]
        terms = [f"'{sign}'{':*' if is_prefix else ''}" for sign, is_prefix in signs]
        return [number for (number,) in pool.read(_MATCHES, (" & ".join([*place, *terms]),))]

    best = rank([match([word]) for word in words], match(words) if len(words) > 1 else ())
    matches = list[MessageMatch]()
    for at in range(0, len(best), _READ_AT_ONCE):
        if len(matches) < limit:
            matches += read_matches(pool, projects, best[at : at + _READ_AT_ONCE], project, words)
    return MessageMatches(matches[:limit], not pool.read(_LEFT, (1,)))


def read_matches(
    pool: Pool, projects: Projects, numbers: Sequence[int], project: str | None, words: Sequence[str]
) -> Iterator[MessageMatch]:
    """Yield the messages of numbers, unless they are gone, damaged, of another project, or lack the words."""
    places = [divmod(number, _POSITIONS) for number in numbers]
    histories, positions = ([place[at] for place in places] for at in range(2))
    found = {(row[0], row[1]): row for row in pool.read(_FOUND, (histories, positions))}
    for history, position, body, digest, *session in (found[place] for place in places if place in found):
        if session[0] is None:
            session = next(iter(pool.read(_SHARING, {"history": history, "position": position})), None)
        if session is None or digest != checksum(position, body) or project not in (None, session[1]):
            continue
        message = loads(body)
        text = text_of(message)
        folded = fold_words(text)
        if any(contains(folded, word) for word in words):
            where = projects.to_local(unplain(session[1]))
            role = str(message.get("role") or "")
            yield MessageMatch(session[0], where, position, role, quote_words(text, words))
