"""Keep sessions, their messages, events and deliveries in PostgreSQL: the store of many hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.hookspecs import Register, StorageFactory

    from .administration import PostgresAdministration
    from .store import PostgresStore
    from .transfer import PostgresTransfer

__all__ = ["administer_postgres", "amplifier_register_storage", "open_postgres", "transfer_postgres"]


def administer_postgres(config: Mapping[str, Any]) -> PostgresAdministration:
    """Return the administration of the store that `open_postgres` would open. Raises `ValueError`."""
    from .administration import PostgresAdministration
    from .settings import read_settings

    return PostgresAdministration(read_settings(config))


def transfer_postgres(config: Mapping[str, Any]) -> PostgresTransfer:
    """Return the transfer of the store that `open_postgres` would open. Raises `ValueError`."""
    from .settings import read_settings
    from .transfer import PostgresTransfer

    return PostgresTransfer(read_settings(config))


def open_postgres(config: Mapping[str, Any]) -> PostgresStore:
    """Open the store in the database `config["dsn"]`; make missing tables.

    The README lists the keys. Raises `ValueError` for a bad configuration, `StoreUnavailable`, `StoreDamaged`.
    """
    from .settings import read_settings  # not at import: whoever lists plugins needs neither psycopg nor asyncio
    from .store import PostgresStore

    return PostgresStore(read_settings(config))


open_postgres.administer = administer_postgres  # type: ignore[attr-defined]  # as amplifier_core.store_administration says
open_postgres.transfer = transfer_postgres  # type: ignore[attr-defined]  # as amplifier_core.store_transfer says


@hookimpl
def amplifier_register_storage(register: Register[StorageFactory]) -> None:
    """Offer the store as `storage-postgres`."""
    register("storage-postgres", open_postgres)
