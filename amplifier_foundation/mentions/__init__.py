"""Find the `@file` mentions of an instruction, read the files, and append their texts.

`@path`, `@./path` and `@../path` are files of the working folder, `@~/path` of the user's home, `@name:path` of a
folder registered by name, such as a bundle's. `@"a path"` may contain spaces and brackets.

Every name is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .blocks import context_block, expand_mentions_in_instruction, expand_mentions_sync, warn
    from .files import ContentDeduplicator, ContextFile
    from .loading import MentionResult, load_mentions, load_mentions_sync
    from .mention_resolver import BaseMentionResolver, MentionResolver
    from .parsing import parse_mentions

_HOMES = {
    ".blocks": "context_block expand_mentions_in_instruction expand_mentions_sync warn",
    ".files": "ContentDeduplicator ContextFile",
    ".loading": "MentionResult load_mentions load_mentions_sync",
    ".mention_resolver": "BaseMentionResolver MentionResolver",
    ".parsing": "parse_mentions",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

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


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value
