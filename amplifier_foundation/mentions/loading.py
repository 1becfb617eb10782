"""Load the files mentioned in a text, and the files mentioned in those, nearest first."""

from __future__ import annotations

import os
from collections import deque
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.frozen import frozen
from amplifier_core.permissions.protected import is_secret

from .files import ContentDeduplicator, read_text
from .mention_resolver import BaseMentionResolver
from .parsing import parse_mentions

if TYPE_CHECKING:
    from .mention_resolver import MentionResolver

MAX_FILE_BYTES = 2**20
"""Of one file."""
MAX_BYTES = 8 * 2**20
"""Of all files of one text together."""
MAX_FILES = 500
"""Files opened for one text."""
MAX_MENTIONS = 10_000
"""Mentions resolved for one text; one result stands for all further ones."""
HINTS = 20
"""Failed mentions of one text with a suggestion; each searches a folder."""

SECRET = "its name says that it holds secrets, so it is not read"
"""The error of such a file."""
PROSE = frozenset({"", ".markdown", ".md", ".mdx", ".rst", ".txt"})
"""Suffixes of files searched for mentions; in code, `@` begins a decorator."""


@frozen
class MentionResult:
    """The outcome of one mention.

    `content` is None with an `error`, and for a file loaded by an earlier mention.
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
    """Run `load_mentions_sync` in a thread."""
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
    """Read the files mentioned in `text` into `deduplicator`; return one result per mention, those of `text` first.

    Prose files are searched for mentions in turn: relative to their own folder, `max_depth` files deep. Each file is
    read once. Nothing raises: an unreadable file, or one beyond a limit of this module, is a result with an error.
    `relative_to` and the folders of files count for a `BaseMentionResolver`; other resolvers get each mention as
    written.
    """
    if relative_to is not None and isinstance(resolver, BaseMentionResolver):
        resolver = resolver.beginning_in(relative_to)
    loading = _Loading(ContentDeduplicator() if deduplicator is None else deduplicator, max_depth)
    return loading.run(text, resolver)


class _Waiting(NamedTuple):
    """A mention found and not yet resolved; `depth` is 1 in the text itself."""

    mention: str
    resolver: MentionResolver
    depth: int


class _Loading:
    """The results of one text so far, and its waiting mentions."""

    def __init__(self, deduplicator: ContentDeduplicator, max_depth: int) -> None:
        self._deduplicator = deduplicator
        self._max_depth = max_depth
        self._results: list[MentionResult] = []
        self._waiting: deque[_Waiting] = deque()
        self._opened: dict[Path, str | None] = {}
        """The error of each opened file, or None."""
        self._bytes = 0
        self._hints = 0

    def run(self, text: str, resolver: MentionResolver) -> list[MentionResult]:
        """Return the results of `text`; can be called once."""
        self._add_mentions(text, resolver, 1)
        while self._waiting and len(self._results) < MAX_MENTIONS:
            self._results.append(self._follow(self._waiting.popleft()))
        if self._waiting:
            error = f"this and all further mentions are left out: the limit is {MAX_MENTIONS:,}"
            self._results.append(MentionResult(self._waiting[0].mention, error=error))
        return self._results

    def _add_mentions(self, text: str, resolver: MentionResolver, depth: int) -> None:
        room = MAX_MENTIONS + 1 - len(self._results) - len(self._waiting)
        found = islice(parse_mentions(text), max(room, 0))
        self._waiting.extend(_Waiting(mention, resolver, depth) for mention in found)

    def _follow(self, waiting: _Waiting) -> MentionResult:
        mention, resolver, depth = waiting
        try:
            named = resolver.resolve(mention)
            path = None if named is None else Path(os.path.realpath(named))
        except (OSError, RuntimeError, ValueError) as error:  # pathlib raises each of them for some path
            return MentionResult(mention, error=_reason(error))
        if path is None:
            return MentionResult(mention, error=self._explain(mention, resolver))
        if is_secret(f"{named}") or is_secret(f"{path}"):
            return MentionResult(mention, path, error=SECRET)
        self._deduplicator.add_mention(path, mention)
        if path in self._opened:
            return MentionResult(mention, path, error=self._opened[path])
        if depth > self._max_depth:
            limit = f"mentions are followed {self._max_depth} files deep; mention it nearer to the instruction"
        elif len(self._opened) >= MAX_FILES:
            limit = f"only {MAX_FILES} files are read for one instruction; mention fewer"
        else:
            return self._load(path, waiting)
        return MentionResult(mention, path, error=limit)

    def _explain(self, mention: str, resolver: MentionResolver) -> str:
        if not isinstance(resolver, BaseMentionResolver):
            return "no such file"
        self._hints += 1
        return resolver.explain(mention, hint=self._hints <= HINTS) or "no such file"

    def _load(self, path: Path, waiting: _Waiting) -> MentionResult:
        try:
            content = self._read(path)
        except (OSError, ValueError) as error:
            self._opened[path] = _reason(error)
            return MentionResult(waiting.mention, path, error=self._opened[path])
        self._opened[path] = None
        self._deduplicator.add_file(path, content)
        if path.suffix.lower() in PROSE:
            resolver = waiting.resolver
            inner = resolver.within(path) if isinstance(resolver, BaseMentionResolver) else resolver
            self._add_mentions(content, inner, waiting.depth + 1)
        return MentionResult(waiting.mention, path, content)

    def _read(self, path: Path) -> str:
        content = read_text(path, MAX_FILE_BYTES)
        size = len(content.encode())
        if self._bytes + size > MAX_BYTES:
            raise ValueError(f"only {MAX_BYTES // 2**20} MiB are read for one instruction; mention less")
        self._bytes += size
        return content


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
