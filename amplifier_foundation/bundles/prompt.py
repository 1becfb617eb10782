"""The system prompt of a session: the bundle's instruction, its context files, and the files that those mention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ..mentions import BaseMentionResolver, ContentDeduplicator, MentionResult
    from .model import Bundle

RESOLVED = "mentions:resolved"
"""The event that tells what was mentioned and found."""

Stamp = tuple[int, int, int]


class SystemPrompt:
    """What a session's model is told first; called for each request.

    Files are read when it is called for the first time and, if the bundle says `session.reload_context`, again when one
    of them has changed since. `tell` is awaited with the data of `mentions:resolved` whenever files were read.
    """

    def __init__(
        self,
        bundle: Bundle,
        working_dir: Path,
        tell: Callable[[dict[str, Any]], Awaitable[object]] | None = None,
    ) -> None:
        self._bundle = bundle
        self._working_dir = working_dir
        self._tell = tell
        self._reloads = bool(bundle.session.get("reload_context"))
        self._text: str | None = None
        self._stamps: dict[Path, Stamp | None] = {}

    async def __call__(self) -> str:
        """Return the prompt, empty when the bundle says nothing."""
        bundle = self._bundle
        if not bundle.context and "@" not in (bundle.instruction or ""):
            return bundle.instruction or ""
        if self._text is not None and not (self._reloads and self._changed()):
            return self._text
        import asyncio

        read = await asyncio.to_thread(_read, bundle, mention_resolver(bundle, self._working_dir))
        self._text, self._stamps = read.text, {path: _stamp(path) for path in read.paths}
        if self._tell is not None:
            await self._tell(_told(read))
        return read.text

    def _changed(self) -> bool:
        return any(_stamp(path) != stamp for path, stamp in self._stamps.items())


class _Read(NamedTuple):
    text: str
    paths: list[Path]
    results: list[MentionResult]


def mention_resolver(bundle: Bundle, working_dir: Path) -> BaseMentionResolver:
    """Return what finds the files that a session's texts mention: of its folder, then of the bundle's."""
    from ..mentions import BaseMentionResolver

    base = bundle.base_path or working_dir
    return BaseMentionResolver(bundle.source_base_paths, base, relative_to=working_dir)


def _read(bundle: Bundle, resolver: BaseMentionResolver) -> _Read:
    from ..mentions import ContentDeduplicator, context_block, load_mentions_sync, warn

    kept = ContentDeduplicator()
    results = [each for name, path in bundle.context.items() for each in _context(name, path, resolver, kept)]
    results += load_mentions_sync(bundle.instruction or "", resolver, kept)
    warn(results)
    files = kept.get_unique_files()
    paths = [path for file in files for path in file.paths]
    paths += [each.resolved_path for each in results if each.resolved_path and each.resolved_path not in paths]
    paths += [path for path in bundle.context.values() if path not in paths]
    text = "\n\n".join(filter(None, [bundle.instruction, context_block(files)]))
    return _Read(text, paths, results)


def _context(name: str, path: Path, resolver: BaseMentionResolver, kept: ContentDeduplicator) -> list[MentionResult]:
    """Keep one context file, and what it mentions."""
    from ..mentions import MentionResult, load_mentions_sync
    from ..mentions.files import read_text
    from ..mentions.loading import MAX_FILE_BYTES

    try:
        path = path.resolve()
        content = read_text(path, MAX_FILE_BYTES)
    except (OSError, RuntimeError, ValueError) as error:
        return [MentionResult(f"context '{name}'", path, error=f"{path}: {getattr(error, 'strerror', None) or error}")]
    kept.add_mention(path, name)
    kept.add_file(path, content)
    return load_mentions_sync(content, resolver.within(path), kept)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _told(read: _Read) -> dict[str, Any]:
    mentions = [
        {"mention": each.mention, "path": str(each.resolved_path or ""), "error": each.error} for each in read.results
    ]
    return {"mentions": mentions, "files": [str(path) for path in read.paths]}
