"""Make the tables, and migrate those of an older version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg

from amplifier_core.errors import StoreConflict, StoreUnavailable

from .connections import connect
from .faults import damage_error, store_error
from .known_stores import remember, require_known

if TYPE_CHECKING:
    from .connections import Pool, TimedConnection

MIGRATIONS = ("version1.sql", "version2.sql", "version3.sql", "version4.sql", "version5.sql")
"""The n-th brings tables of version n - 1 to version n. Released ones are never changed.

Functions are made anew with each version: a change of `functions.sql` is a version, too, perhaps without a table.
"""

_VERSIONS = """SELECT current_setting('server_version_num')::int, EXISTS (
    SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = %s AND relname = 'version')"""
# not to_regclass: it locks nothing, and so it may answer from a cache what was true before a wait for a lock

_OLDEST = 130000
_ID = "store uuid NOT NULL DEFAULT gen_random_uuid()"
"""The column with the id of the store."""
_LONGEST = 600.0
"""Seconds that a migration may take."""
_SHORTEST = 1.0
"""Seconds to wait for the table that lacks an id: whoever reads it meanwhile waits, too."""
_KEEPS_NO_ID = ("42501", "25006", "55P03")
"""Codes of a role that does not own the table, of a server that takes no writes, and of a table in use (a dump)."""


UNFINISHED_COPY = "unfinished_copy"
"""The table with the state of a copy into this schema; it is there until the copy is finished."""


class Tables(NamedTuple):
    """The tables of a schema: their version, 0 without any, and the identity of the store.

    A dump keeps the id, and a restore makes another table `version`: both tell one store from another. Tables of
    an older version have no id.
    """

    version: int = 0
    store: str | None = None
    table: int = 0

    @property
    def are_current(self) -> bool:
        """Whether nothing is to be made."""
        return self.version == len(MIGRATIONS) and self.store is not None


def migrate(pool: Pool, *, copying: bool = False) -> None:
    """Bring the schema to this version, in one transaction; of several processes one does it.

    The pool then writes to this store alone; to one of this version without an id, which cannot be given it now, as
    before. Raises `StoreConflict` for a newer schema, `StoreDamaged` for the tables
    of two stores, `StoreUnavailable` for a server that is too old and, unless `copying`, for an unfinished copy and in
    place of a store that is known to have been there.
    """
    found = _read_tables(pool, copying=copying)
    if not copying:
        require_known(pool.settings, found.store, has_tables=bool(found.version))
    if not found.are_current:
        lacks_id = found.version == len(MIGRATIONS)
        settings = pool.settings._replace(timeout=_LONGEST, lock_timeout=_SHORTEST if lacks_id else _LONGEST)
        with connect(settings) as db:
            try:
                with db.transaction():
                    db.execute("SET LOCAL idle_in_transaction_session_timeout = 60000")
                    db.execute(
                        "SELECT pg_advisory_xact_lock(hashtextextended('migrate ' || %s, 0))", (settings.schema,)
                    )
                    # read again: another process may have done it while this one waited for the lock
                    _upgrade(pool, db, _read_tables(pool))
            except psycopg.Error as error:
                if not lacks_id or error.sqlstate not in _KEEPS_NO_ID:
                    raise store_error(settings.place, error) from error
        found = _read_tables(pool, copying=copying)
    if found.store is not None:
        pool.identity = found.store, found.table
        remember(pool.settings, found.store)


def check_version(pool: Pool) -> None:
    """Raise `StoreUnavailable` unless the tables are those of this version, `StoreDamaged` for those of two stores."""
    found = _read_tables(pool)
    require_known(pool.settings, found.store, has_tables=bool(found.version))
    if found.version != len(MIGRATIONS):
        what = f"is of an older version (schema {found.version})" if found.version else "has no tables yet"
        raise StoreUnavailable(pool.settings.place, f"{what}. Tables are made when the store is first used")


def _upgrade(pool: Pool, db: TimedConnection, found: Tables) -> None:
    if found.are_current:
        return
    if not found.version:
        if not db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (pool.settings.schema,)).fetchone():
            db.execute(f'CREATE SCHEMA "{pool.settings.schema}"'.encode())
        db.execute(pool.expand("CREATE TABLE @.version (version bigint NOT NULL)"))
        db.execute(pool.expand("INSERT INTO @.version (version) VALUES (0)"))
    if found.version < len(MIGRATIONS):
        for name in (*MIGRATIONS[found.version :], "functions.sql"):
            db.execute(pool.expand(Path(__file__).with_name(name).read_text(encoding="utf-8")))
        db.execute(pool.expand("UPDATE @.version SET version = %s"), (len(MIGRATIONS),))
    # no version of its own: programs without it go on with the store
    db.execute(pool.expand(f"ALTER TABLE @.version ADD COLUMN IF NOT EXISTS {_ID}"))


def _read_tables(pool: Pool, *, copying: bool = True) -> Tables:
    place = pool.settings.place
    [(server, found)] = pool.read(_VERSIONS, (pool.settings.schema,))
    if server < _OLDEST:
        raise StoreUnavailable(place, "the server is too old. Use PostgreSQL 13 or newer")
    if not found:
        return Tables()
    rows = pool.read(
        f"SELECT version, to_jsonb(v) ->> 'store', tableoid::bigint, to_regclass('@.{UNFINISHED_COPY}') IS NOT NULL "
        f"FROM @.version v"
    )
    if len(rows) != 1:
        raise damage_error(
            place,
            f"has {len(rows)} rows in its table `version`, and not one, as after a restore into a schema with tables",
        )
    [(version, store, table, is_unfinished)] = rows
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
    return Tables(int(version), store, table)
