"""Count what a store has and a backup has not, before the backup takes the place of the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from amplifier_core.store_administration import RestoreLosses

from .opening import raw_connection

if TYPE_CHECKING:
    from pathlib import Path

_WAITS = "state IN ('pending', 'claimed')"
_COUNTS = f"""SELECT
    (SELECT count(*) FROM main.deliveries AS now WHERE NOT {_WAITS} AND NOT EXISTS (
        SELECT 1 FROM before.deliveries AS old WHERE old.delivery_id = now.delivery_id AND NOT old.{_WAITS}))
    + (SELECT count(*) FROM before.deliveries AS old WHERE {_WAITS} AND NOT EXISTS (
        SELECT 1 FROM main.deliveries AS now WHERE now.delivery_id = old.delivery_id)),
    (SELECT count(*) FROM main.deliveries AS now WHERE {_WAITS} AND NOT EXISTS (
        SELECT 1 FROM before.deliveries AS old WHERE old.delivery_id = now.delivery_id)),
    (SELECT count(*) FROM main.sessions AS now WHERE NOT EXISTS (
        SELECT 1 FROM before.sessions AS old
        WHERE old.session_id = now.session_id AND old.message_count >= now.message_count)),
    (SELECT count(*) FROM before.sessions AS old WHERE NOT EXISTS (
        SELECT 1 FROM main.sessions AS now WHERE now.session_id = old.session_id))"""
"""Every version of the tables has these columns. A delivery that was purged after its end counts as handled."""


def count_losses(path: Path, backup: Path, busy_timeout: float) -> RestoreLosses | None:
    """Return the losses of a restore of `backup` in place of the store at `path`; None where either is unreadable."""
    if not backup.is_file():
        return None
    log = backup.with_name(f"{backup.name}-wal")
    how = "mode=ro" if log.exists() else "mode=ro&immutable=1"  # without a log, its folder need not be writable
    try:
        with closing(raw_connection(path, busy_timeout)) as db:
            db.execute("ATTACH ? AS before", (f"{backup.absolute().as_uri()}?{how}",))
            return RestoreLosses(*db.execute(_COUNTS).fetchone())
    except sqlite3.Error:
        return None
