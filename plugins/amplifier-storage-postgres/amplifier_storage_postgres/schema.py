"""Make the tables, and migrate those of an older version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from amplifier_core.errors import StoreConflict, StoreUnavailable

from .connections import connect
from .faults import store_error

if TYPE_CHECKING:
    from .connections import Pool, TimedConnection

MIGRATIONS = ("version1.sql", "version2.sql", "version3.sql", "version4.sql")
"""The n-th brings tables of version n - 1 to version n. Released ones are never changed.

Functions are made anew with each version: a change of `functions.sql` is a version, too, perhaps without a table.
"""

_VERSIONS = """SELECT current_setting('server_version_num')::int, EXISTS (
    SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = %s AND relname = 'version')"""
# not to_regclass: it locks nothing, and so it may answer from a cache what was true before a wait for a lock

_OLDEST = 130000
_LONGEST = 600.0
"""Seconds that a migration may take."""


UNFINISHED_COPY = "unfinished_copy"
"""The table with the state of a copy into this schema; it is there until the copy is finished."""


def migrate(pool: Pool, *, copying: bool = False) -> None:
    """Bring the schema to this version, in one transaction; of several processes one does it.

    Raises `StoreConflict` for a newer schema, `StoreUnavailable` for a server that is too old and, unless `copying`,
    for an unfinished copy.
    """
    if _read_version(pool, copying=copying) == len(MIGRATIONS):
        return
    settings = pool.settings._replace(timeout=_LONGEST, lock_timeout=_LONGEST)
    with connect(settings) as db:
        try:
            with db.transaction():
                db.execute("SET LOCAL idle_in_transaction_session_timeout = 60000")
                db.execute("SELECT pg_advisory_xact_lock(hashtextextended('migrate ' || %s, 0))", (settings.schema,))
                # read again: another process may have done it while this one waited for the lock
                _upgrade(pool, db, _read_version(pool))
        except psycopg.Error as error:
            raise store_error(settings.place, error) from error


def check_version(pool: Pool) -> None:
    """Raise `StoreUnavailable` unless the tables are those of this version."""
    found = _read_version(pool)
    if found != len(MIGRATIONS):
        what = "has no tables yet" if not found else f"is of an older version (schema {found})"
        raise StoreUnavailable(pool.settings.place, f"{what}. Tables are made when the store is first used")


def _upgrade(pool: Pool, db: TimedConnection, start: int) -> None:
    if start == len(MIGRATIONS):
        return
    if not start:
        if not db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (pool.settings.schema,)).fetchone():
            db.execute(f'CREATE SCHEMA "{pool.settings.schema}"'.encode())
        db.execute(pool.expand("CREATE TABLE @.version (version bigint NOT NULL)"))
        db.execute(pool.expand("INSERT INTO @.version (version) VALUES (0)"))
    for name in (*MIGRATIONS[start:], "functions.sql"):
        db.execute(pool.expand(Path(__file__).with_name(name).read_text(encoding="utf-8")))
    db.execute(pool.expand("UPDATE @.version SET version = %s"), (len(MIGRATIONS),))


def _read_version(pool: Pool, *, copying: bool = True) -> int:
    """Return the version of the tables, 0 without any."""
    place = pool.settings.place
    [(server, found)] = pool.read(_VERSIONS, (pool.settings.schema,))
    if server < _OLDEST:
        raise StoreUnavailable(place, "the server is too old. Use PostgreSQL 13 or newer")
    if not found:
        return 0
    [(version, is_unfinished)] = pool.read(
        f"SELECT version, to_regclass('@.{UNFINISHED_COPY}') IS NOT NULL FROM @.version"
    )
    if is_unfinished and not copying:
        raise StoreUnavailable(
            place, "holds an unfinished copy. Finish it with: amplifier store copy FROM TO; or drop the schema"
        )
    if version > len(MIGRATIONS):
        raise StoreConflict(
            place,
            f"was written by a newer version (schema {version}, this one knows {len(MIGRATIONS)}). Update with: pip "
            f"install -U amplifier amplifier-storage-postgres",
        )
    return int(version)
