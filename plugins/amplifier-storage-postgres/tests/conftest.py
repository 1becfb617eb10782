"""Provide a store in a database of its own, and Python in a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, TypeAlias

import psycopg
import pytest

from amplifier_storage_postgres import open_postgres
from tests.postgres import Postgres, database, postgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from amplifier_storage_postgres.store import PostgresStore

    Start: TypeAlias = Callable[..., subprocess.Popen[str]]

__all__ = ["database", "postgres"]

PRELUDE = """
import asyncio, os, signal, sys
from datetime import timedelta
from amplifier_core.errors import AmplifierError, StaleEpoch, StoreUnavailable
from amplifier_core.events import SessionEvent
from amplifier_core.storage import Admission, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_postgres import open_postgres

def say(*words):
    print(*words, flush=True)

def event(**fields):
    return TriggerEvent(TriggerType.CUSTOM, "test", **fields)

"""


@pytest.fixture(scope="session")
def tables(postgres: Postgres) -> str:
    """The dsn of a database with tables."""
    dsn = postgres.create("tables")
    asyncio.run(open_postgres({"dsn": dsn}).close())
    return dsn


@pytest.fixture
def dsn(tables: str) -> str:
    """The dsn of a database with empty tables: they are faster emptied than made."""
    with psycopg.connect(tables, autocommit=True) as db:
        names = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'amplifier'").fetchall()
        kept = ("version", "log")
        db.execute("; ".join(f"DELETE FROM amplifier.{name}" for (name,) in names if name not in kept).encode())
        db.execute("UPDATE amplifier.log SET last = 0")
    return tables


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
    store = open_postgres({"dsn": dsn})
    yield store
    await store.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that runs a script, whose `sys.argv[1:]` are the arguments; it is killed when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def run(script: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
