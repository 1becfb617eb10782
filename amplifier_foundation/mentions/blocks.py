"""Format mentioned files for a model, after the text with the mentions."""

from __future__ import annotations

import logging
import re
from html import escape
from typing import TYPE_CHECKING

from amplifier_core.permissions.hidden import replace_unprintable

from ..documents.positions import show_file
from .files import ContentDeduplicator
from .loading import load_mentions_sync

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .files import ContextFile
    from .loading import MentionResult
    from .mention_resolver import MentionResolver

logger = logging.getLogger(__name__)

SHOWN = 3
"""Mentions named in one warning."""

_OWN_TAG = re.compile(r"<(?=\s*+/?+\s*+context_file)", re.IGNORECASE)


def context_block(files: Iterable[ContextFile]) -> str:
    """Return `files` as blocks: `<context_file paths="@a, @b → path">`, the text, `</context_file>`.

    A text can neither close its block nor open another one: in tags of the same name, `<` becomes `&lt;`. Empty lines
    around a text are removed; the rest stays.
    """
    blocks = []
    for file in files:
        sides = (", ".join(file.mentions), ", ".join(map(show_file, file.paths)))
        paths = escape(_to_printable(" → ".join(filter(None, sides))))
        content = _OWN_TAG.sub("&lt;", file.content.strip("\r\n"))
        blocks.append(f'<context_file paths="{paths}">\n{content}\n</context_file>')
    return "\n\n".join(blocks)


def _to_printable(text: str) -> str:
    return replace_unprintable(text, lambda each: "\N{REPLACEMENT CHARACTER}")


async def expand_mentions_in_instruction(
    instruction: str,
    resolver: MentionResolver,
    deduplicator: ContentDeduplicator | None = None,
    relative_to: Path | None = None,
    max_depth: int = 3,
) -> str:
    """Run `expand_mentions_sync` in a thread."""
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
    """Return `instruction` followed by its mentioned files.

    A text already in `deduplicator` is not repeated. Unreadable files are left out, with one warning in the log. See
    `load_mentions_sync` for the rest.
    """
    kept = ContentDeduplicator() if deduplicator is None else deduplicator
    known = {file.content_hash for file in kept.get_unique_files()}
    warn(load_mentions_sync(instruction, resolver, kept, relative_to, max_depth))
    new = [file for file in kept.get_unique_files() if file.content_hash not in known]
    return "\n\n".join(filter(None, [instruction, context_block(new)]))


def warn(results: list[MentionResult]) -> None:
    """Log one warning about all failed mentions."""
    failed = [result for result in results if result.error]
    if failed:
        shown = "; ".join(f"{result.mention}: {result.error}" for result in failed[:SHOWN])
        more = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
        logger.warning("mentions are left out: %s%s", _to_printable(shown), more)
