"""Make names of tools that every provider takes, and that stand for one tool each."""

from __future__ import annotations

import re
from hashlib import sha256

LONGEST, LONGEST_SLUG = 64, 30
"""Characters of a tool's name that all providers take, and of a server's in it."""
PREFIX = "mcp"


def make_tool_name(server: str, tool: str, taken: dict[str, str]) -> str:
    """Return `mcp__SERVER__TOOL` in letters, digits, `_` and `-`; `taken` holds the tools by their names so far.

    A name that is too long, or that another tool has, ends with a part of the digest of the tool's own name.
    """
    return _make_unique(f"{PREFIX}__{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}", tool, taken, LONGEST)


def make_slug(server: str, taken: dict[str, str]) -> str:
    """Return the name of a server in those of its tools: it never has the `__` that ends it there."""
    plain = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9-]", "_", server)).strip("_")
    return _make_unique(plain or "server", server, taken, LONGEST_SLUG)


def _make_unique(name: str, original: str, taken: dict[str, str], longest: int) -> str:
    if len(name) > longest or taken.get(name, original) != original:
        digest = sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"{name[: longest - 9]}_{digest}"
    taken[name] = original
    return name
