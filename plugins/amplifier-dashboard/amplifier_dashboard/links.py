"""Name the pages of things: stable addresses that can be pasted."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from amplifier_core.errors import InvalidSessionId, SessionNotFound
from amplifier_core.ids import session_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_core.storage import SessionStore


def background_key(project: str, queue: str) -> str:
    """Return the name of a background session in addresses: the same in every process, whether it runs or not."""
    place = f"{project}\0{queue}".encode(errors="surrogateescape")
    return session_id_of(queue.rpartition("/")[2], sha256(place).hexdigest()[:10])


def background_path(project: str, queue: str) -> str:
    """Return the page of a background session."""
    return f"/background/{background_key(project, queue)}"


async def find_stored(store: SessionStore, ids: Iterable[str | None]) -> set[str]:
    """Return the sessions that have a page.

    A delivery may be given up before its session is made; the source of an event may be no session, or one of another
    site.
    """
    found = set()
    for each in {each for each in ids if each}:
        with suppress(InvalidSessionId, SessionNotFound):
            found.add((await store.get(each)).session_id)
    return found
