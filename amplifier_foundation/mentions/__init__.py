"""Mentions: `@file` in an instruction, found, read and put behind it.

`@path`, `@./path` and `@../path` are files of the working folder, `@~/path` of the user's home, `@name:path` of a
folder that is registered by name, such as a bundle's. `@"a path"` may hold spaces and brackets.
"""

from __future__ import annotations

from .blocks import context_block, expand_mentions_in_instruction, expand_mentions_sync, warn
from .files import ContentDeduplicator, ContextFile
from .loading import MentionResult, load_mentions, load_mentions_sync
from .parsing import parse_mentions
from .resolver import BaseMentionResolver, MentionResolver

__all__ = [
    "BaseMentionResolver",
    "ContentDeduplicator",
    "ContextFile",
    "MentionResolver",
    "MentionResult",
    "context_block",
    "expand_mentions_in_instruction",
    "expand_mentions_sync",
    "load_mentions",
    "load_mentions_sync",
    "parse_mentions",
    "warn",
]
