"""Translate errors of PostgreSQL into errors of the store."""

from __future__ import annotations

import json
import re
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

import psycopg

from amplifier_core.errors import (
    DeliveryConflict,
    DeliveryNotFound,
    DocumentConflict,
    SessionConflict,
    SessionExists,
    SessionNotFound,
    StaleEpoch,
    StoreDamaged,
    StoreUnavailable,
)

from .values import unplain

if TYPE_CHECKING:
    from collections.abc import Callable


class DamageError(Exception):
    """Report data differing from the written data; the text completes "is damaged (…)"."""


class LateWrite(Exception):
    """Report a write that came after a later one of its slot."""


RESTORE = (
    "Stop all hosts and restore a backup of the schema: rename what is left of it (ALTER SCHEMA … RENAME TO …), then "
    "pg_restore --single-transaction -d DATABASE FILE"
)

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_UNAVAILABLE = {
    "28": "refuses this user. Check the user and the password of the connection string",
    "3D": "has no such database. Create it with: createdb",
    "3F": f"its schema is gone. {RESTORE}",
    "42501": "the role may not do this. Grant it the right to create a schema, or make the schema for it",
    "42P01": f"its tables are gone. {RESTORE}",
    "42883": f"its functions are gone. {RESTORE}",
    "25006": "takes no writes: it is a standby, or read-only (default_transaction_read_only). Connect to the primary "
    "server, or allow writes there",
    "53100": "its disk is full; what was acknowledged is kept. Free some space and try again",
    "53300": "has no free connection. Allow more (max_connections), or fewer in the store's pool",
    "53": "has no room for this. Look into the server's log",
    "55P03": "a lock was not free in time. Try again",
    "57014": "did not finish in time. Try again, or allow more with the store's timeout",
    "57P": "is shutting down or starting. Try again",
    "54": "cannot keep a value this large",
}
_OF_CONNECTING = (  # libpq tells no code for a connection that was not made
    (r"too many (?:clients|connections)|connection slots", "53300"),
    (r'authentication failed|no password|pg_hba\.conf|role "[^"]*" (?:does not exist|is not permitted)', "28"),
    (r'database "[^"]*" does not exist', "3D"),
    (r"session is read-only|hot standby", "25006"),
    (r"is starting up|is shutting down|in recovery mode|not yet accepting connections", "57P"),
)
_BROKEN_PAGES = ("XX001", "XX002")
AGAIN = ("40001", "40P01")
"""Codes of transactions that were undone for the sake of another one."""


def store_error(place: str, error: Exception) -> Exception:
    """Return the error to raise for `error`: one of the contract for what PostgreSQL or the store's functions say."""
    if isinstance(error, psycopg.Error):
        return _from_postgres(place, error)
    if isinstance(error, DamageError):
        return damage_error(place, f"is damaged ({error})")
    if isinstance(error, JSONDecodeError):
        return damage_error(place, f"is damaged (a value is not JSON: {error})")
    if isinstance(error, LateWrite):
        return StoreUnavailable(place, "the write came too late. Try again")
    return error


def damage_error(place: str, what: str) -> StoreDamaged:
    """Return the error for a damaged store; `what` completes "<place>: "."""
    return StoreDamaged(place, f"{what}. {RESTORE}")


def closed_error(place: str) -> StoreUnavailable:
    """Return the error for a use after `close`."""
    return StoreUnavailable(place, "the store is closed. Open it again to use it")


def replaced_error(place: str) -> StoreUnavailable:
    """Return the error for a use of tables that are not those that were opened."""
    return StoreUnavailable(
        place, "was replaced by another store while in use. Stop everything that uses it, and start again"
    )


def lost_error(place: str, cause: Exception, seconds: float) -> StoreUnavailable:
    """Return the error for a write whose answer did not come."""
    return StoreUnavailable(
        place,
        f"the connection was lost during a write, and no answer came for {seconds:g} s ({_text(cause)}): it may or may "
        f"not be stored. Check the network and the server, and look before writing it again",
    )


def connect_error(place: str, cause: Exception) -> Exception:
    """Return the error for a connection that was not made."""
    told, text = _from_code(place, cause), _text(cause)
    if told is not None:
        return told
    for words, code in _OF_CONNECTING:
        if re.search(words, text):
            return StoreUnavailable(place, _UNAVAILABLE[code])
    return StoreUnavailable(place, f"cannot be reached ({text}). Check that the server runs and is reachable")


def _from_postgres(place: str, error: psycopg.Error) -> Exception:
    code = error.sqlstate or ""
    if code in _REFUSALS:
        return _REFUSALS[code](json.loads(error.diag.message_detail or "{}"))
    if code in _BROKEN_PAGES:
        return damage_error(place, f"is damaged ({_text(error)})")
    told = _from_code(place, error)
    if told is not None:
        return told
    if code.startswith("23"):  # None where a record must have a value; ids are checked before
        return ValueError(_text(error))
    if code.startswith("22"):
        return ValueError(f"PostgreSQL cannot keep a value: {_text(error)}")
    return StoreUnavailable(place, f"PostgreSQL failed: {_text(error)}")


def _from_code(place: str, error: Exception) -> StoreUnavailable | None:
    code = getattr(error, "sqlstate", None) or ""
    for beginning in (code, code[:3], code[:2]):
        if code and beginning in _UNAVAILABLE:
            return StoreUnavailable(place, _UNAVAILABLE[beginning])
    return None


def _text(error: Exception) -> str:
    """Return a message in one line; libpq names no password in it."""
    return " ".join(str(error).split())[:500] or type(error).__name__


def _conflict(facts: Any) -> SessionConflict:
    session = facts["session"]
    if "parent" in facts:
        return SessionConflict(
            session,
            f"session '{session}' cannot have the parent '{facts['parent']}', which is the session itself or descends "
            f"from it. Choose another id",
        )
    return SessionConflict(
        session,
        f"session '{session}' has {facts['count']} messages, not {facts['at']}: somebody else wrote it. Resume it to "
        f"go on",
    )


_REFUSALS: dict[str, Callable[[Any], Exception]] = {
    "AM000": lambda facts: LateWrite(),
    "AM001": lambda facts: StaleEpoch(unplain(facts["id"]), facts["epoch"], facts.get("kind", "delivery")),
    "AM002": _conflict,
    "AM003": lambda facts: SessionExists(facts["session"]),
    "AM004": lambda facts: SessionNotFound(facts["session"]),
    "AM005": lambda facts: IndexError(f"fork point {facts['at']} is not within 0 and {facts['count']}"),
    "AM006": lambda facts: DocumentConflict(unplain(facts["collection"]), unplain(facts["key"])),
    "AM007": lambda facts: DeliveryNotFound(unplain(facts["id"])),
    "AM008": lambda facts: DeliveryConflict(unplain(facts["id"]), facts["state"], facts["what"]),
    "AM009": lambda facts: DamageError(f"the record of session {facts['session']!r} is not what was written"),
}
