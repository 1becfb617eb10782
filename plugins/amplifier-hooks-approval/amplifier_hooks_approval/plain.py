"""Decide about calls where a kernel has no permissions: by the texts of their arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from .config import SHELL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .config import ApprovalConfig, RuleConfig

_JOINED = r"&&|\|\||[;&|\n\r]"
_SYNTAX = r"[;&|<>\r\n`$()\\{}]"
"""What makes a command more than its words: no rule lets it through."""


def decide(config: ApprovalConfig, tool: str, arguments: Mapping[str, Any]) -> Literal["allow", "ask", "deny"] | None:
    """Return what the rules say about a call; None: nothing."""
    texts = list(_find_texts(arguments))
    for rule in config.ordered:
        if _fit(rule.tool or SHELL, tool) and (rule.pattern is None or _fits(rule, tool, texts)):
            return rule.effect
    return "ask" if any(_fit(each, tool) for each in config.asked_tools) else None


def _fits(rule: RuleConfig, tool: str, texts: list[str]) -> bool:
    pattern = rule.pattern or ""
    if rule.effect == "allow":
        return bool(texts) and all(_fit(pattern, each) and not re.search(_SYNTAX, each) for each in texts)
    parts = [part.strip() for each in texts for part in (each, *re.split(_JOINED, each))]
    return any(_fit(pattern, part) for part in parts)


def _fit(pattern: str, text: str) -> bool:
    """Return whether a text fits a pattern with `*`, in a time that grows with both lengths alone."""
    pieces = [re.sub(r"\\(.)", r"\1", each) for each in re.split(r"(?<!\\)\*", pattern)]
    first, *between = pieces
    if not between:
        return text == first
    last = between.pop()
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    place, end = len(first), len(text) - len(last)
    for piece in between:
        place = text.find(piece, place, end)
        if place < 0:
            return False
        place += len(piece)
    return True


def _find_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _find_texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _find_texts(each)
