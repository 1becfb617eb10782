"""Follow the turns of sessions that processes of this data folder run."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from ..sessions.lock import running_owners
from .asking import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

LONGEST_LINE = 8 * 1024 * 1024
"""Bytes."""


async def follow_session(session_id: str, project: str) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield the facts of a running session as they come; the last one is `{"type": "end"}`.

    The first one is `session`: who reads the history after it misses nothing. Then come those of `FactReporter`: text
    (with `partial`, a piece of a later text), waiting, tool, tool_result, child, usage, fallback. `lagged` says that
    this reader was too slow and lost `lost` facts, partial text first: the history has them. Known secrets are hidden.
    The end comes when the turn has ended, when its process has, and at once for a session that no `up` of this data
    folder runs; the one of `project` is asked first.
    """
    owners = await asyncio.to_thread(running_owners)
    owners.sort(key=lambda owner: project not in (owner.get("projects") or ()))
    for owner in owners:
        is_found = False
        async with aclosing(_follow(str(owner.get("socket") or ""), session_id)) as facts:
            async for fact in facts:
                is_found = True
                if fact.get("type") != "end":
                    yield fact
        if is_found:
            break
    yield {"type": "end"}


async def _follow(socket: str, session_id: str) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield what the process at a socket tells; nothing for a session that it does not run, or without an answer."""
    with suppress(OSError, ValueError):
        async with asyncio.timeout(AT_ONCE):
            reader, writer = await asyncio.open_unix_connection(socket, limit=LONGEST_LINE)
        try:
            writer.write(json.dumps({"operation": "follow", "session_id": session_id}).encode() + b"\n")
            answer = json.loads(await asyncio.wait_for(reader.readline(), AT_ONCE))
            while answer.get("answer") and (line := await reader.readline()).endswith(b"\n"):
                yield json.loads(line)
        finally:
            writer.close()
