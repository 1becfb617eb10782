"""Measure the page: the first view of a new server and every view, from small to large stores, and how soon a commit
is shown.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from socket import SHUT_RDWR
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from amplifier_core import load_plugins
from amplifier_core.events import SessionEvent
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_dashboard.config import read_config
from amplifier_dashboard.desk import Desk
from amplifier_dashboard.links import background_key
from amplifier_dashboard.pages import find_views
from amplifier_dashboard.server import make_link, serving
from amplifier_storage_sqlite import open_sqlite

from .kept_stores import COMMON, SIZES, keep_store
from .measure import Figure, Row, curve, in_turns
from .startup import NOTHING, run_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from amplifier_core.storage import DurableStore

    from .measure import Sample

ROUNDS = 5
NOT_ALL = b"still being read"
FIRST_RATIO, VIEW_RATIO, AGAIN_RATIO = 8.0, 10.0, 3.0
"""Goals, in times of a Python that does nothing: the first view of a new server, any view, one that has not changed."""
LIVE_RATIO = 3.0
"""Goal: times a thread that asks the file every 50 ms for commits, from a commit until it is shown."""
FULL_RATIO = 3.0
"""Goal for views of more than 50 rows: times the same view where it is just full."""
FULL = ("/dead", "/flows", "/lineage")
"""Views of up to 2,000 dead letters, of the runs among 1,000 sessions, or of 500 sessions: a small store does not fill
them."""
COMMITS, PAUSE = 20, 0.4
POLL = 0.05


async def rows_of_view(path: str) -> AsyncIterator[Row]:
    """Measure a view on each kept store."""
    files = [(sessions, (await keep_store(sessions, deliveries)).path) for sessions, deliveries in SIZES]
    async for row in measure_view(path, files):
        yield row


async def rows_of_commits() -> AsyncIterator[Row]:
    """Measure how soon a commit is shown, on a copy of a kept store."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        path = Path(folder) / "store.db"
        shutil.copyfile((await keep_store(*SIZES[2])).path, path)
        path.chmod(0o600)
        async for row in measure_commits(path, f"{SIZES[2][0]:,} sessions"):
            yield row


VIEWS = (*(each.path for each in find_views()), f"/search?q={COMMON}")
PARTS = (*(partial(rows_of_view, path) for path in VIEWS), rows_of_commits)


async def measure_view(path: str, files: Sequence[tuple[int, Path]]) -> AsyncIterator[Row]:
    """Yield rows for a view, unless its address needs more than is known, read from a new server each time.

    `files` are stores by their numbers of sessions.
    """
    stores = [open_sqlite({"path": file}) for _, file in files]
    sizes = [size for size, _ in files]
    try:
        known = [await _find_ids(store) for store in stores]
        if not set(re.findall(r"{(\w+)}", path)) <= known[0].keys():
            return
        samples = [_view(store, path.format(**ids)) for store, ids in zip(stores, known, strict=True)]
        *taken, nothing = await in_turns(*samples, run_command(*NOTHING), rounds=ROUNDS)
        name = f"{path}, the first view of a new server" if path in ("/", "/cost") else path
        if path in FULL:
            what = f"{name}, {sizes[-1]:,} sessions / {sizes[-2]:,}"
            yield Row(what, taken[-1], taken[-2], at_most_ratio=FULL_RATIO)
        else:
            yield curve(f"{name}, of sessions", list(zip(sizes, taken, strict=True)))
        ratio = FIRST_RATIO if path == "/" else VIEW_RATIO
        yield Row(f"{name}, {sizes[-1]:,} sessions / python -c pass", taken[-1], nothing, at_most_ratio=ratio)
        if path == "/cost":
            again, nothing = await in_turns(_unchanged(stores[-2], path), run_command(*NOTHING), rounds=ROUNDS)
            what = f"{path} again, nothing has changed, {sizes[-2]:,} sessions / python -c pass"
            yield Row(what, again, nothing, at_most_ratio=AGAIN_RATIO)
    finally:
        for store in stores:
            await store.close()


async def measure_commits(file: Path, what: str) -> AsyncIterator[Row]:
    """Yield rows for the time from a commit through another connection to the event that shows it."""
    store = open_sqlite({"path": file})
    try:
        known = await _find_ids(store)
        for path in ("/log", f"/background/{known['background_id']}"):
            shown, noticed = await _seconds_until_shown(store, file, path)
            name = f"/{path.split('/')[1]}: a commit of another process until it is shown, {what}"
            yield Row(f"{name} / a poll each 50 ms", shown, noticed, at_most_ratio=LIVE_RATIO)
    finally:
        await store.close()


def _view(store: DurableStore, path: str) -> Sample:
    """Return a sample of a view of a new server."""

    async def sample() -> float:
        async with _serving(store) as client:
            return await asyncio.to_thread(client.read, path)

    return sample


def _unchanged(store: DurableStore, path: str) -> Sample:
    """Return a sample of a complete view that is read once more."""

    async def sample() -> float:
        async with _serving(store) as client:
            await asyncio.to_thread(client.read_all, path)
            return await asyncio.to_thread(client.read, path)

    return sample


async def _seconds_until_shown(store: DurableStore, file: Path, path: str) -> tuple[Figure, Figure]:
    """Return the times from commits to their events, and to the poll of the file that notices them."""
    shown, noticed, other = [], [], open_sqlite({"path": file})
    [dead] = await store.deliveries(state="dead", limit=1)
    async with _serving(store) as client:
        events = await asyncio.to_thread(client.follow, path)
        with _polling(file) as polled:
            for number in range(COMMITS):
                await asyncio.sleep(PAUSE)  # a person's pace: what came before is shown
                events.clear()
                polled.clear()
                start = perf_counter()
                await other.emit(SessionEvent(f"work:{number}", {}))
                await other.enqueue(dead.project, dead.queue, dead.trigger, TriggerEvent(TriggerType.MANUAL, "bench"))
                while not (events and polled):
                    await asyncio.sleep(0.001)
                shown.append(events[0] - start)
                noticed.append(polled[0] - start)
    await other.close()
    return Figure(shown), Figure(noticed)


@contextmanager
def _polling(file: Path) -> Iterator[list[float]]:
    """Return a list that gets the time of each change of a file, by a thread that looks every `POLL` seconds."""
    ended, times = Event(), list[float]()

    def run() -> None:
        with closing(sqlite3.connect(file)) as db:
            last = None
            while not ended.wait(POLL):
                [(version,)] = db.execute("PRAGMA data_version")
                if last not in (None, version):
                    times.append(perf_counter())
                last = version

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield times
    finally:
        ended.set()
        thread.join()


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
        self._root = (answer.headers["Location"] or "").rstrip("/")
        self._cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]

    def read(self, path: str) -> float:
        """Return the seconds that a page took."""
        start = perf_counter()
        self._connection.request("GET", self._root + path, headers={"Cookie": self._cookie})
        answer = self._connection.getresponse()
        self._text = answer.read()
        assert answer.status < 500, f"{path}: {answer.status}"
        return perf_counter() - start

    def read_all(self, path: str) -> None:
        """Read a page until it is complete: costs come round by round."""
        while NOT_ALL in self._text:
            self.read(path)

    def follow(self, path: str) -> list[float]:
        """Return a list that gets the time of each event of a shown page, from now on."""
        live = f"{self._root}/live?page={quote(path)}"
        self._connection.request("GET", live, headers={"Cookie": self._cookie})
        answer, times = self._connection.getresponse(), list[float]()

        def read() -> None:
            with suppress(OSError, ValueError, AttributeError):  # http.client, when it is closed while it reads
                while line := answer.readline():
                    if line.startswith(b"data: "):
                        times.append(perf_counter())

        self._reading = Thread(target=read, daemon=True)
        self._reading.start()
        return times

    def close(self) -> None:
        """End the connection."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(SHUT_RDWR)
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
