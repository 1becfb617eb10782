"""Reading what a text mentions, and what those files mention in turn, nearest first."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .files import ContentDeduplicator, read_text
from .parsing import parse_mentions
from .resolver import BaseMentionResolver

if TYPE_CHECKING:
    from .resolver import MentionResolver

MAX_FILE_BYTES = 2**20
"""Of one file."""
MAX_BYTES = 8 * 2**20
"""Of all files of one text together."""
MAX_FILES = 500
"""Files that are opened for one text."""
MAX_MENTIONS = 10_000
"""Mentions that are looked at for one text; one result stands for all further ones."""
HINTS = 20
"""Mentions of one text for which a folder is searched for the nearest name."""

PROSE = frozenset({"", ".markdown", ".md", ".mdx", ".rst", ".txt"})
"""Suffixes of files whose mentions count; in code, `@` begins a decorator."""


@dataclass(frozen=True, slots=True)
class MentionResult:
    """What became of one mention.

    `content` is None where `error` says why, and where an earlier mention brought that file already.
    """

    mention: str
    resolved_path: Path | None = None
    content: str | None = None
    error: str | None = None


async def load_mentions(
    text: str,
    resolver: MentionResolver,
    deduplicator: ContentDeduplicator | None = None,
    relative_to: Path | None = None,
    max_depth: int = 3,
) -> list[MentionResult]:
    """Do what `load_mentions_sync` does, in a thread."""
    if "@" not in text:
        return []
    import asyncio

    return await asyncio.to_thread(load_mentions_sync, text, resolver, deduplicator, relative_to, max_depth)


def load_mentions_sync(
    text: str,
    resolver: MentionResolver,
    deduplicator: ContentDeduplicator | None = None,
    relative_to: Path | None = None,
    max_depth: int = 3,
) -> list[MentionResult]:
    """Read what `text` mentions into `deduplicator` and return one result a mention, those of `text` first.

    Files that are prose are read for mentions in turn: relative to their own folder, `max_depth` files deep. Each file
    is read once. No content and no path raises: what cannot be had, or is beyond a limit of this module, is a result
    with an error. `relative_to` and the folders of files count for a `BaseMentionResolver`; any other resolver is asked
    for each mention as it is written.
    """
    if relative_to is not None and isinstance(resolver, BaseMentionResolver):
        resolver = resolver.beginning_in(relative_to)
    loading = _Loading(ContentDeduplicator() if deduplicator is None else deduplicator, max_depth)
    return loading.run(text, resolver)


class _Waiting(NamedTuple):
    """A mention that was met and not yet looked at; `depth` is 1 in the text itself."""

    mention: str
    resolver: MentionResolver
    depth: int


class _Loading:
    """What one text has brought so far, and what is still to be looked at."""

    def __init__(self, deduplicator: ContentDeduplicator, max_depth: int) -> None:
        self._deduplicator = deduplicator
        self._max_depth = max_depth
        self._results: list[MentionResult] = []
        self._waiting: deque[_Waiting] = deque()
        self._opened: dict[Path, str | None] = {}
        """Why a file that was opened is no good, or None."""
        self._bytes = 0
        self._hints = 0

    def run(self, text: str, resolver: MentionResolver) -> list[MentionResult]:
        """Return the results of `text`; can be called once."""
        self._meet(text, resolver, 1)
        while self._waiting and len(self._results) < MAX_MENTIONS:
            self._results.append(self._follow(self._waiting.popleft()))
        if self._waiting:
            error = f"this and all further mentions are left out: only {MAX_MENTIONS:,} are looked at"
            self._results.append(MentionResult(self._waiting[0].mention, error=error))
        return self._results

    def _meet(self, text: str, resolver: MentionResolver, depth: int) -> None:
        room = MAX_MENTIONS + 1 - len(self._results) - len(self._waiting)
        met = islice(parse_mentions(text), max(room, 0))
        self._waiting.extend(_Waiting(mention, resolver, depth) for mention in met)

    def _follow(self, waiting: _Waiting) -> MentionResult:
        mention, resolver, depth = waiting
        try:
            path = resolver.resolve(mention)
            path = None if path is None else Path(os.path.realpath(path))
        except (OSError, RuntimeError, ValueError) as error:  # pathlib raises each of them for some path
            return MentionResult(mention, error=_reason(error))
        if path is None:
            return MentionResult(mention, error=self._explanation(mention, resolver))
        self._deduplicator.add_mention(path, mention)
        if path in self._opened:
            return MentionResult(mention, path, error=self._opened[path])
        limit = self._limit_of(depth)
        return MentionResult(mention, path, error=limit) if limit else self._load(path, waiting)

    def _explanation(self, mention: str, resolver: MentionResolver) -> str:
        if not isinstance(resolver, BaseMentionResolver):
            return "no such file"
        self._hints += 1
        return resolver.explain(mention, hint=self._hints <= HINTS) or "no such file"

    def _limit_of(self, depth: int) -> str | None:
        if depth > self._max_depth:
            return f"mentions are followed {self._max_depth} files deep; mention it nearer to the instruction"
        if len(self._opened) >= MAX_FILES:
            return f"only {MAX_FILES} files are read for one instruction; mention fewer"
        return None

    def _load(self, path: Path, waiting: _Waiting) -> MentionResult:
        try:
            content = self._read(path)
        except (OSError, ValueError) as error:
            self._opened[path] = _reason(error)
            return MentionResult(waiting.mention, path, error=self._opened[path])
        self._opened[path] = None
        self._deduplicator.add_file(path, content)
        if path.suffix.lower() in PROSE:
            self._meet(content, _resolver_within(waiting.resolver, path), waiting.depth + 1)
        return MentionResult(waiting.mention, path, content)

    def _read(self, path: Path) -> str:
        content = read_text(path, MAX_FILE_BYTES)
        size = len(content.encode())
        if self._bytes + size > MAX_BYTES:
            raise ValueError(f"only {MAX_BYTES // 2**20} MiB are read for one instruction; mention less")
        self._bytes += size
        return content


def _resolver_within(resolver: MentionResolver, file: Path) -> MentionResolver:
    return resolver.within(file) if isinstance(resolver, BaseMentionResolver) else resolver


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
