"""Name the pages of things: stable addresses that can be pasted."""

from __future__ import annotations

from hashlib import sha256

from amplifier_core.ids import session_id_of


def background_key(project: str, queue: str) -> str:
    """Return the name of a background session in addresses: the same in every process, whether it runs or not."""
    place = f"{project}\0{queue}".encode(errors="surrogateescape")
    return session_id_of(queue.rpartition("/")[2], sha256(place).hexdigest()[:10])


def background_path(project: str, queue: str) -> str:
    """Return the page of a background session."""
    return f"/background/{background_key(project, queue)}"
