"""Measure the page over a large store: the first view of a new server, and every view."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from amplifier_core import load_plugins
from amplifier_dashboard.config import read_config
from amplifier_dashboard.desk import Desk
from amplifier_dashboard.links import background_key
from amplifier_dashboard.pages import find_views
from amplifier_dashboard.server import make_link, serving
from amplifier_storage_sqlite import open_sqlite

from .measure import Row, timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.storage import DurableStore

FILLED = Path(__file__).parents[2] / "plugins" / "amplifier-dashboard" / "tests" / "filled.py"
SESSIONS, DELIVERIES = 10_000, 100_000
ROUNDS = 3
NOT_ALL = b"still being read"
FIRST_AT_MOST = 0.3  # goal: seconds
VIEW_AT_MOST = 0.5  # goal: seconds
AGAIN_AT_MOST = 0.05  # goal: seconds, when nothing has changed


async def rows() -> AsyncIterator[Row]:
    """Measure every view of a large store."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        async for row in measure(Path(folder), SESSIONS, DELIVERIES):
            yield row


async def measure(folder: Path, sessions: int, deliveries: int) -> AsyncIterator[Row]:
    """Fill a store with so much; yield a row for each view with an address of its own, read from a new server."""
    store = open_sqlite({"folder": folder})
    try:
        await _load_filler().fill_large(store, sessions=sessions, deliveries=deliveries)
        known = await _find_ids(store)
        what = f"{sessions:,} sessions and {deliveries:,} deliveries"
        for path in [each.path for each in find_views()]:
            if not set(re.findall(r"{(\w+)}", path)) <= known.keys():
                continue
            cold, again = [], []
            for _ in range(ROUNDS):
                async with _serving(store) as client:
                    cold.append(await asyncio.to_thread(client.read, path.format(**known)))
                    if path == "/cost":
                        await asyncio.to_thread(client.read_all, path)
                        again.append(await asyncio.to_thread(client.read, path))
            if path in ("/", "/cost"):
                yield timed(f"{path}, the first view of a new server, {what}", median(cold), FIRST_AT_MOST)
            else:
                yield timed(f"{path}, {what}", median(cold), VIEW_AT_MOST)
            if path == "/cost":
                yield timed(f"{path} again, nothing has changed", median(again), AGAIN_AT_MOST)
    finally:
        await store.close()


def _load_filler() -> Any:
    """Return the module with the stores that the page is tested with."""
    spec = spec_from_file_location("amplifier_dashboard_filled", FILLED)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def _find_ids(store: DurableStore) -> dict[str, str]:
    """Return ids for the variables of paths."""
    [delivery] = await store.deliveries(state="dead", limit=1)
    place = {"delivery_id": delivery.delivery_id, "background_id": background_key(delivery.project, delivery.queue)}
    return {**place, "session_id": str(delivery.session_id)}


class _Client:
    """A browser that was let in."""

    def __init__(self, link: str) -> None:
        place = urlsplit(link)
        self._connection = HTTPConnection(place.netloc)
        self._connection.request("GET", f"{place.path}?{place.query}")
        answer = self._connection.getresponse()
        answer.read()
        self._text = b""
        self._cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]

    def read(self, path: str) -> float:
        """Return the seconds that a page took."""
        start = perf_counter()
        self._connection.request("GET", path, headers={"Cookie": self._cookie})
        answer = self._connection.getresponse()
        self._text = answer.read()
        assert answer.status < 500, f"{path}: {answer.status}"
        return perf_counter() - start

    def read_all(self, path: str) -> None:
        """Read a page until it is complete: costs come round by round."""
        while NOT_ALL in self._text:
            self.read(path)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


@asynccontextmanager
async def _serving(store: DurableStore) -> AsyncIterator[_Client]:
    """Serve a store while the block runs, as a new server that has read nothing yet."""
    desk = Desk(store, load_plugins(), "ada", "/work")
    async with serving(desk, read_config({"port": 0})) as address:
        client = await asyncio.to_thread(_Client, make_link(address))
        try:
            yield client
        finally:
            client.close()
