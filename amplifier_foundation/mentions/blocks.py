"""Mentioned files as a model reads them, behind the text that mentions them."""

from __future__ import annotations

import logging
import re
from html import escape
from typing import TYPE_CHECKING

from ..bundles.positions import show_file
from .files import ContentDeduplicator
from .loading import load_mentions_sync

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .files import ContextFile
    from .loading import MentionResult
    from .resolver import MentionResolver

logger = logging.getLogger(__name__)

SHOWN = 3
"""Mentions that one warning names."""

_OWN_TAG = re.compile(r"<(?=\s*+/?+\s*+context_file)", re.IGNORECASE)


def context_block(files: Iterable[ContextFile]) -> str:
    """Return `files` as blocks: `<context_file paths="@a, @b → path">`, the text, `</context_file>`.

    A text can neither close its block nor open another one: in tags of that name, `<` becomes `&lt;`. Everything else
    of it stays, but for empty lines around it.
    """
    return "\n\n".join(map(_block, files))


def _block(file: ContextFile) -> str:
    sides = (", ".join(file.mentions), ", ".join(map(show_file, file.paths)))
    paths = escape(_printable(" → ".join(filter(None, sides))))
    content = _OWN_TAG.sub("&lt;", file.content.strip("\r\n"))
    return f'<context_file paths="{paths}">\n{content}\n</context_file>'


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


async def expand_mentions_in_instruction(
    instruction: str,
    resolver: MentionResolver,
    deduplicator: ContentDeduplicator | None = None,
    relative_to: Path | None = None,
    max_depth: int = 3,
) -> str:
    """Do what `expand_mentions_sync` does, in a thread."""
    if "@" not in instruction:
        return instruction
    import asyncio

    return await asyncio.to_thread(expand_mentions_sync, instruction, resolver, deduplicator, relative_to, max_depth)


def expand_mentions_sync(
    instruction: str,
    resolver: MentionResolver,
    deduplicator: ContentDeduplicator | None = None,
    relative_to: Path | None = None,
    max_depth: int = 3,
) -> str:
    """Return `instruction` as it is, and behind it the files that it mentions.

    A text that `deduplicator` holds already is not repeated. What cannot be had is left out, with one warning in the
    log. The rest is as with `load_mentions_sync`.
    """
    kept = ContentDeduplicator() if deduplicator is None else deduplicator
    known = {file.content_hash for file in kept.get_unique_files()}
    warn(load_mentions_sync(instruction, resolver, kept, relative_to, max_depth))
    new = [file for file in kept.get_unique_files() if file.content_hash not in known]
    return "\n\n".join(filter(None, [instruction, context_block(new)]))


def warn(results: list[MentionResult]) -> None:
    """Say in the log what was left out, in one warning."""
    failed = [result for result in results if result.error]
    if failed:
        shown = "; ".join(f"{result.mention}: {result.error}" for result in failed[:SHOWN])
        more = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
        logger.warning("mentions are left out: %s%s", _printable(shown), more)
