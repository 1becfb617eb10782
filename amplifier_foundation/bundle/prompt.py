"""Build the system prompt of a session: the bundle's instruction, its context files, and files mentioned in those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .. import mentions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ..mentions import BaseMentionResolver, MentionResult
    from .model import Bundle

RESOLVED = "mentions:resolved"
"""The event with the mentions and their files."""

Stamp = tuple[int, int, int]


class SystemPrompt:
    """The factory of a session's system prompt; called for each request.

    Files are read at the first call; with `session.reload_context` in the bundle, again after one of them has changed.
    `tell` is awaited with the data of `mentions:resolved` after each reading.
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
        """Return the prompt, empty for a bundle without instruction and context."""
        bundle = self._bundle
        if not bundle.context and "@" not in (bundle.instruction or ""):
            return bundle.instruction or ""
        if self._text is not None and not (self._reloads and self._has_changed()):
            return self._text
        import asyncio

        read = await asyncio.to_thread(self._read)
        self._text, self._stamps = read.text, {path: _stamp(path) for path in read.paths}
        if self._tell is not None:
            mentions = [
                {"mention": each.mention, "path": str(each.resolved_path or ""), "error": each.error}
                for each in read.results
            ]
            await self._tell({"mentions": mentions, "files": [str(path) for path in read.paths]})
        return read.text

    def _read(self) -> _Read:
        from amplifier_core.permissions import is_secret

        from ..mentions import ContentDeduplicator, MentionResult, context_block, load_mentions_sync, warn
        from ..mentions.files import read_text
        from ..mentions.loading import MAX_FILE_BYTES, SECRET

        bundle, kept = self._bundle, ContentDeduplicator()
        resolver = mention_resolver(bundle, self._working_dir)
        results: list[MentionResult] = []
        for name, path in bundle.context.items():
            try:
                real = path.resolve()
                if is_secret(f"{path}") or is_secret(f"{real}"):
                    raise ValueError(SECRET)
                content = read_text(real, MAX_FILE_BYTES)
            except (OSError, RuntimeError, ValueError) as error:
                reason = f"{path}: {getattr(error, 'strerror', None) or error}"
                results.append(MentionResult(f"context '{name}'", path, error=reason))
                continue
            kept.add_mention(real, name)
            kept.add_file(real, content)
            results += load_mentions_sync(content, resolver.within(real), kept)
        results += load_mentions_sync(bundle.instruction or "", resolver, kept)
        warn(results)
        files = kept.get_unique_files()
        paths = [path for file in files for path in file.paths]
        paths += [each.resolved_path for each in results if each.resolved_path and each.resolved_path not in paths]
        paths += [path for path in bundle.context.values() if path not in paths]
        text = "\n\n".join(filter(None, [bundle.instruction, context_block(files)]))
        return _Read(text, paths, results)

    def _has_changed(self) -> bool:
        return any(_stamp(path) != stamp for path, stamp in self._stamps.items())


class _Read(NamedTuple):
    text: str
    paths: list[Path]
    results: list[MentionResult]


def mention_resolver(bundle: Bundle, working_dir: Path) -> BaseMentionResolver:
    """Return the resolver of a session's mentions: in its folder, then in the bundle's."""
    base = bundle.base_path or working_dir
    return mentions.BaseMentionResolver(bundle.source_base_paths, base, relative_to=working_dir)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
