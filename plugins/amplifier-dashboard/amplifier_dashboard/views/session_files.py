"""Show the files that a session changed, as diffs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen
from amplifier_core.previews import compare_lines
from amplifier_foundation.sessions.file_changes import digest_file, read_changes, read_content

from ..messages import mark_lines
from ..pages import Act, Page, View
from ..rendering import render_block
from .session import find_record, render_state, title_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_foundation.sessions.file_changes import FileChange

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "files.html"
SHOWN = 50
"""The last changes that are shown."""
LARGEST = 200_000
"""Bytes of a content that is compared."""


@frozen
class ShownChange:
    """A change with the lines of its diff, or why there are none."""

    change: FileChange
    lines: list[tuple[str, str]]
    problem: str = ""


async def files(desk: Desk, place: Place) -> Page:
    """Return the last changes of files by a session, the newest first."""
    record = await find_record(desk, place)
    changes = await asyncio.to_thread(read_changes, record.session_id)
    shown = await asyncio.to_thread(lambda: [_show(each, changes) for each in reversed(changes[-SHOWN:])])
    values: dict[str, Any] = {"record": record, "changes": shown, "count_of_all": len(changes)}
    parts = {"state": render_state(desk, record), "files": render_block(TEMPLATE, "files", values)}
    return Page(title_of(record), TEMPLATE, parts, facts={"record": record, "tab": "files"})


def _show(change: FileChange, changes: Sequence[FileChange]) -> ShownChange:
    """Return a change with its diff; what it left is kept by the change after it, or is in the file still."""
    if change.lost:
        return ShownChange(change, [], f"what it held before is not kept: {change.lost}")
    before = b"" if change.before is None else read_content(change.session_id, change.before)
    after = b"" if change.after is None else _read_after(change, changes)
    if before is None or after is None:
        return ShownChange(change, [], "its content is no longer kept")
    if max(len(before), len(after)) > LARGEST:
        return ShownChange(change, [], f"{len(before):,} bytes became {len(after):,}")
    try:
        old, new = before.decode().splitlines(), after.decode().splitlines()
    except UnicodeDecodeError:
        return ShownChange(change, [], f"it is no text; {len(before):,} bytes became {len(after):,}")
    return ShownChange(change, mark_lines("\n".join(compare_lines(old, new, change.path, change.path))))


def _read_after(change: FileChange, changes: Sequence[FileChange]) -> bytes | None:
    if any(each.path == change.path and each.before == change.after for each in changes):
        return read_content(change.session_id, str(change.after))
    try:
        if digest_file(change.path) != change.after:
            return None
        return Path(change.path).read_bytes()
    except OSError:
        return None


VIEWS = [View("/sessions/{session_id}/files", files)]
ACTS: list[Act] = []
