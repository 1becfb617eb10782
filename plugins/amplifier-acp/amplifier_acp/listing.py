"""List the sessions of the store for the editor, page by page."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound

from .contents import make_title
from .options import EPHEMERAL, chosen_of
from .peer import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from amplifier_core.storage import SessionRecord, SessionStore

PAGE, LONGEST_LIST = 50, 1 << 32


class Lists:
    """The lists of one editor: each page goes on reading the store where the one before has ended."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._project: str | None = None
        self._found: list[SessionRecord] = []
        self._rest: AsyncIterator[Sequence[SessionRecord]] | None = None
        self._lock = asyncio.Lock()

    async def take_page(self, project: str | None, cursor: str | None) -> dict[str, Any]:
        """Return one page of the sessions of a folder, or of all, the last changed first. Raises `RpcError`.

        Sessions without a message, and forks that their editor has not kept, are left out, as are those of agents: they
        are part of the session above them.
        """
        from amplifier_foundation.sessions.store_views import read_in_steps

        start = _read_cursor(cursor)
        async with self._lock:  # of two requests at once, one reads after the other
            if start == 0 or project != self._project or not self._found:
                self._project, self._found, self._rest = project, [], read_in_steps(self._store, project)
            await self._read_up_to(start + PAGE + 1)
            wanted, has_more = self._found[start : start + PAGE], len(self._found) > start + PAGE
            if not has_more:
                self._found = []
        page = []
        for record in wanted:
            with suppress(SessionNotFound):  # it is gone since it was read
                page.append(await _show(self._store, record))
        told: dict[str, Any] = {"sessions": page}
        if has_more:
            told["nextCursor"] = base64.urlsafe_b64encode(str(start + PAGE).encode()).decode()
        return told

    async def _read_up_to(self, count: int) -> None:
        """Read the store until so many sessions of the list are known, or to its end."""
        while self._rest is not None and len(self._found) < count:
            try:
                step = await anext(self._rest, None)
            except BaseException:  # it is closed by then, and would end here: the next page reads anew
                self._found, self._rest = [], None
                raise
            if step is None:
                self._rest = None
            else:
                self._found += filter(_is_shown, step)


def _is_shown(record: SessionRecord) -> bool:
    from amplifier_foundation.sessions.records import agent_of

    is_hidden = chosen_of(record).get(EPHEMERAL) or agent_of(record)
    return bool(record.message_count and record.project) and not is_hidden


async def _show(store: SessionStore, record: SessionRecord) -> dict[str, Any]:
    return {
        "sessionId": record.session_id,
        "cwd": record.project,
        "title": await read_title(store, record),
        "updatedAt": record.updated.isoformat(),
        "_meta": {"amplifier": describe_lineage(record)},
    }


async def read_title(store: SessionStore, record: SessionRecord) -> str:
    """Return the title of a stored session; a fork says so."""
    from amplifier_foundation.sessions.history import is_user_turn, text_of

    prompt = ""
    if not record.name or record.name == record.bundle:
        first = await store.read(record.session_id, 0, min(4, record.message_count))
        prompt = next((text_of(each) for each in first if is_user_turn(each)), "")
    title = make_title(record.name, record.bundle, prompt) or record.name or record.session_id
    return f"{title} (fork)" if record.fork_of else title


def describe_lineage(record: SessionRecord) -> dict[str, Any]:
    """Return where a session comes from, and how it is."""
    from amplifier_foundation.sessions.presence import status_of

    told = {
        "status": status_of(record),
        "bundle": record.bundle,
        "turns": record.turn_count,
        "parentId": record.parent_id,
        "forkOf": record.fork_of,
        "forkAt": f"m{record.fork_at}" if record.fork_at else None,
        "eventId": record.event_id,
    }
    return {name: value for name, value in told.items() if value is not None}


def _read_cursor(cursor: str | None) -> int:
    if cursor is None:
        return 0
    try:
        start = int(base64.urlsafe_b64decode(cursor.encode()).decode())
    except ValueError:
        start = -1
    if not 0 <= start < LONGEST_LIST:
        raise RpcError(INVALID_PARAMS, "cursor: it is none of this agent", {"cursor": cursor[:100]})
    return start
