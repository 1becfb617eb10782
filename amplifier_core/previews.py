"""Show a person what a tool call would change, before they answer a question about it.

A tool may have `async def preview(self, input) -> str`: a unified diff, or plain text, of what a call with this input
would change. The same text means the same change: when the text is another one after the answer, the call is refused.
A preview changes nothing. One that raises, takes too long or is no text shows nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from .permissions.hidden import replace_unprintable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .coordinator import ModuleCoordinator

logger = logging.getLogger(__name__)

TIME_LIMIT = 2.0
"""Seconds for one preview."""
LONGEST = 20_000
"""Characters of a preview that are shown; the digest of a longer one follows."""
MOST_COMPARED = 500
"""Lines that are compared with each other: 2,000 of them may take a second."""
CHANGED = "what the call would change is not what was shown: it has changed meanwhile. Look again, and call it again"


def compare_lines(old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> list[str]:
    """Return a unified diff of lines, in a time that grows with their number.

    Of two texts with more than `MOST_COMPARED` lines between their common beginning and end, all of these are one hunk.
    """
    most = min(len(old), len(new))
    start = next((at for at in range(most) if old[at] != new[at]), most)
    end = next((at for at in range(most - start) if old[-1 - at] != new[-1 - at]), most - start)
    if max(len(old), len(new)) - start - end <= MOST_COMPARED:
        from difflib import unified_diff

        return list(unified_diff(old, new, old_name, new_name, lineterm=""))
    gone, come = old[start : len(old) - end], new[start : len(new) - end]
    head = f"@@ -{start + 1},{len(gone)} +{start + 1},{len(come)} @@"
    return [f"--- {old_name}", f"+++ {new_name}", head, *(f"-{line}" for line in gone), *(f"+{line}" for line in come)]


async def preview_call(coordinator: ModuleCoordinator, data: dict[str, Any] | None) -> str:
    """Return what the call of a `tool:pre` event would change, for a person; "" where its tool does not say.

    It is bounded, without secrets, and has no control characters besides newlines and tabs.
    """
    given = data or {}
    preview = getattr((coordinator.get("tools") or {}).get(given.get("tool_name")), "preview", None)
    if not inspect.iscoroutinefunction(preview):
        return ""
    try:
        async with asyncio.timeout(TIME_LIMIT):
            text = await preview(given.get("tool_input") or {})
    except Exception as error:
        logger.debug("no preview of %s: %s: %s", given.get("tool_name"), type(error).__name__, error)
        return ""
    return make_safe(text) if isinstance(text, str) else ""


def make_safe(text: str) -> str:
    """Return a text for a person: bounded, without secrets, with its control characters escaped."""
    from .utils.command_secrets import redact_commands

    shown = replace_unprintable(redact_commands(text), lambda each: each if each in "\n\t" else repr(each)[1:-1])
    if len(shown) <= LONGEST:
        return shown
    from hashlib import sha256

    cut = shown[:LONGEST].rpartition("\n")[0] or shown[:LONGEST]
    digest = sha256(shown.encode()).hexdigest()[:32]
    return f"{cut}\n[{len(shown) - len(cut)} of {len(shown)} characters are not shown; sha256 of all: {digest}]"
