"""Provide a store in a folder of its own, the files of a session, and Python in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, TypeAlias

import pytest

from amplifier_storage_jsonl import open_jsonl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from amplifier_storage_jsonl.store import JsonlStore

    Start: TypeAlias = Callable[..., subprocess.Popen[str]]

PRELUDE = """
import asyncio, os, signal, sys
from amplifier_core.errors import SessionConflict, StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_jsonl import open_jsonl

def say(*words):
    print(*words, flush=True)

"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "base"


@pytest.fixture
def folder(base: Path) -> Path:
    """Where the session `s` of the project `/work/app` lies."""
    return base / "projects" / "-work-app" / "sessions" / "s"


@pytest.fixture
async def store(base: Path) -> AsyncIterator[JsonlStore]:
    store = open_jsonl({"path": base})
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
