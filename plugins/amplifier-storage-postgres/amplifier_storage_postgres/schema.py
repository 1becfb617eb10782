"""Make the tables, and migrate those of an older version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from amplifier_core.errors import StoreUnavailable

from .connections import connect
from .faults import store_error

if TYPE_CHECKING:
    from .connections import Pool, TimedConnection

MIGRATIONS = ("version1.sql",)
"""The n-th brings tables of version n - 1 to version n. Released ones are never changed."""

_OLDEST = 130000
_LONGEST = 600.0
"""Seconds that a migration may take."""


UNFINISHED_COPY = "unfinished_copy"
"""The table with the state of a copy into this schema; it is there until the copy is finished."""


def migrate(pool: Pool, *, copying: bool = False) -> None:
    """Bring the schema to this version, in one transaction; of several processes one does it.

    Raises `StoreUnavailable` for a newer schema, for a server that is too old and, unless `copying`, for an unfinished
    copy.
    """
    settings = pool.settings
    with connect(settings, patience=_LONGEST) as db:
        try:
            version = _checked_version(pool, db)
            if not copying:
                _refuse_copy(pool, db)
            if version == len(MIGRATIONS):
                return
            with db.transaction():
                db.execute(
                    f"SET LOCAL statement_timeout = {round(_LONGEST * 1000)}; SET LOCAL lock_timeout = "
                    f"{round(_LONGEST * 1000)}; SET LOCAL idle_in_transaction_session_timeout = 60000".encode()
                )
                db.execute("SELECT pg_advisory_xact_lock(hashtextextended('migrate ' || %s, 0))", (settings.schema,))
                # read again: another process may have done it while this one waited for the lock
                _upgrade(pool, db, _checked_version(pool, db))
        except psycopg.Error as error:
            raise store_error(settings.place, error) from error


def _refuse_copy(pool: Pool, db: TimedConnection) -> None:
    name = pool.expand(f"@.{UNFINISHED_COPY}").decode()
    if db.execute("SELECT to_regclass(%s)", (name,)).fetchall() != [(None,)]:
        raise StoreUnavailable(
            pool.settings.place,
            "holds an unfinished copy. Finish it with: amplifier store copy FROM TO; or drop the schema",
        )


def check_version(pool: Pool) -> None:
    """Raise `StoreUnavailable` unless the tables are those of this version."""
    settings = pool.settings
    with connect(settings) as db:
        found = _checked_version(pool, db)
    if found != len(MIGRATIONS):
        what = "has no tables yet" if not found else f"is of an older version (schema {found})"
        raise StoreUnavailable(settings.place, f"{what}. Tables are made when the store is first used")


def _upgrade(pool: Pool, db: TimedConnection, start: int) -> None:
    if start == len(MIGRATIONS):
        return
    if not start:
        if not db.execute("SELECT to_regnamespace(quote_ident(%s))", (pool.settings.schema,)).fetchone()[0]:  # type: ignore[index]  # one row
            db.execute(pool.expand("CREATE SCHEMA @.").rstrip(b"."))
        db.execute(pool.expand("CREATE TABLE @.version (version bigint NOT NULL)"))
        db.execute(pool.expand("INSERT INTO @.version (version) VALUES (0)"))
    for name in (*MIGRATIONS[start:], "functions.sql"):
        db.execute(pool.expand(Path(__file__).with_name(name).read_text(encoding="utf-8")))
    db.execute(pool.expand("UPDATE @.version SET version = %s"), (len(MIGRATIONS),))


def _checked_version(pool: Pool, db: TimedConnection) -> int:
    """Return the version of the tables, 0 without any."""
    place = pool.settings.place
    if db.info.server_version < _OLDEST:
        raise StoreUnavailable(place, "the server is too old. Use PostgreSQL 13 or newer")
    name = pool.expand("@.version").decode()
    [(found,)] = db.execute("SELECT to_regclass(%s)", (name,)).fetchall()
    if found is None:
        return 0
    [(version,)] = db.execute(pool.expand("SELECT version FROM @.version")).fetchall()
    if version > len(MIGRATIONS):
        raise StoreUnavailable(
            place,
            f"was written by a newer version (schema {version}, this one knows {len(MIGRATIONS)}). Update with: pip "
            f"install -U amplifier-storage-postgres",
        )
    return int(version)
