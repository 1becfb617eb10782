"""Provide a store in a file of its own, and Python in a process of its own."""

from __future__ import annotations

import gzip
import itertools
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from amplifier_storage_sqlite import open_sqlite
from amplifier_storage_sqlite.opening import connect

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Iterator

    from amplifier_storage_sqlite.store import SqliteStore

    Start: TypeAlias = Callable[..., subprocess.Popen[str]]
    Unpack: TypeAlias = Callable[[int], Path]
    Steps: TypeAlias = Callable[[Callable[[sqlite3.Connection], object]], int]

PRELUDE = """
import asyncio, os, signal, sys
from amplifier_core.storage import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import open_sqlite
from amplifier_storage_sqlite.opening import connect
import amplifier_storage_sqlite.store

def say(*words):
    print(*words, flush=True)

"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def unpack(path: Path) -> Unpack:
    """Put a file that an earlier schema wrote in the place of the store."""

    def write(version: int) -> Path:
        path.touch(0o600)
        path.write_bytes(gzip.decompress((Path(__file__).parent / "stores" / f"version{version}.db.gz").read_bytes()))
        return path

    return write


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = open_sqlite({"path": path})
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


@pytest.fixture
def steps(path: Path) -> Steps:
    """Count the instructions of SQLite's virtual machine that a query takes: its cost, without a clock."""

    def count(query: Callable[[sqlite3.Connection], object]) -> int:
        taken = itertools.count()
        db = connect(path, 1)
        db.set_progress_handler(lambda: 0 * next(taken), 1)
        query(db)
        db.close()
        return next(taken)

    return count
