"""Keep shown pages live, by server-sent events.

After each change of the store the view is read again. A part that differs is sent as `part` {id, html}; new entries of
a feed as `feed` {id, html, keep}. The id of an event names the last entry of each feed, such as `events=41`. A browser
that comes back sends it, and gets the entries after it, each once; parts are sent anew.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from time import monotonic
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.routing import Match, Route

from amplifier_core.cancellation import own_failure
from amplifier_foundation.background.tasks import run_beside

from .navigation import PART
from .pages import Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from markupsafe import Markup
    from starlette.requests import Request
    from starlette.responses import Response

    from .desk import Desk
    from .guard import Guard
    from .navigation import Navigation
    from .pages import Page, View

logger = logging.getLogger(__name__)

APART = 0.1
"""Seconds between two readings of a view, at least; a view that takes long is read less often (`SHARE`)."""
SHARE = 3
"""A view rests this many times as long as its last reading took."""
QUIET = 15.0
"""Seconds without an event after which a comment is sent: it finds a browser that is gone."""
AGAIN = 2.0
"""Seconds after which a view that could not be read is read again: the store may tell of no change."""
BURST = 100
"""Entries of a feed sent at once; of more, the last ones, and their number."""
MOST = 64
"""Pages that are live at a time."""
OF_ONE = 4
"""Pages of one browser that are live at a time: it opens six connections to a server, and further pages need some."""
END = ""
"""The event after the last one."""
REST = "event: rest\ndata: {}\n\n"
"""Tells a page to come again later: another one of its browser takes its place."""


async def read_facts(page: Page) -> dict[str, Any]:
    """Return the entries of each feed by its id, and the cursor after them."""
    entries = {name: list(await feed.since(0))[-feed.keep :] for name, feed in page.feeds.items()}
    cursor = {name: shown[-1].number if shown else 0 for name, shown in entries.items()}
    return {"feeds": entries, "cursor": format_cursor(cursor)}


def format_cursor(cursor: Mapping[str, int]) -> str:
    """Return a cursor as the id of an event."""
    return "&".join(f"{name}={number}" for name, number in sorted(cursor.items()))


def parse_cursor(text: str) -> dict[str, int]:
    """Return the cursor of an id; what is none is left out."""
    pairs = [each.partition("=") for each in text.split("&")]
    return {name: int(number) for name, _, number in pairs if number.isascii() and number.isdigit()}


class Live:
    """Answers `/live?page=PATH&cursor=…` with the events of one shown page."""

    def __init__(self, desk: Desk, views: Sequence[View], navigation: Navigation, guard: Guard) -> None:
        self._desk = desk
        self._guard = guard
        self._navigation = navigation
        self._routes = [(Route(view.path, lambda: None), view) for view in views]
        self._open: dict[asyncio.Queue[str], str] = {}

    def close(self) -> None:
        """End all streams."""
        for events in self._open:
            _end_with(events, END)

    async def answer(self, request: Request) -> Response:
        """Return the stream for the page named by the query."""
        if len(self._open) >= MOST:
            raise HTTPException(503, f"{MOST} pages are live already: close some")
        view, place = self._find(request.query_params.get("page", ""))
        cursor = parse_cursor(request.headers.get("last-event-id") or request.query_params.get("cursor", ""))
        headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(view, place, cursor, request), headers=headers)

    def _find(self, page: str) -> tuple[View, Place]:
        from urllib.parse import parse_qsl

        path, _, query = page.partition("?")
        scope = {"type": "http", "method": "GET", "path": path}
        for route, view in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                return view, Place(path, found["path_params"], dict(parse_qsl(query)))
        raise HTTPException(404, "there is no such page")

    async def _stream(self, view: View, place: Place, cursor: dict[str, int], request: Request) -> AsyncIterator[str]:
        events: asyncio.Queue[str] = asyncio.Queue(maxsize=BURST)
        browser = self._guard.form_token(request)
        own = [each for each, its_browser in self._open.items() if its_browser == browser]
        for each in own[: max(0, len(own) + 1 - OF_ONE)]:
            del self._open[each]
            _end_with(each, REST, END)
        self._open[events] = browser
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(run_beside(self._follow(view, place, cursor, events), "live"))
                event = ": begun\n\n"
                while event != END and self._guard.is_known(request):
                    yield event
                    try:
                        event = await asyncio.wait_for(events.get(), QUIET)
                    except TimeoutError:
                        event = ": quiet\n\n"
        finally:
            self._open.pop(events, None)

    async def _follow(self, view: View, place: Place, cursor: dict[str, int], events: asyncio.Queue[str]) -> None:
        """Put events into the queue, until cancelled; a full queue lets the browser set the pace."""
        sent: dict[str, str] = {}
        seen = -1
        async with AsyncExitStack() as stack:
            while True:
                seen = await self._desk.changes.wait(seen)
                begun = monotonic()
                try:
                    page = await view.read(self._desk, place)
                    parts = {**page.parts, PART: await self._navigation.read_part(view.path)}
                    for name, part in parts.items():
                        if sent.get(name) != part:
                            sent[name] = part
                            await events.put(_event("part", {"id": name, "html": part}, cursor))
                    await _send_feeds(page, cursor, events)
                except BaseException as raised:  # the store may be locked for a moment, or what is shown was deleted
                    error = own_failure(raised)
                    logger.info("%s cannot be read: %s", place.path, error)
                    if sent.get("trouble") != (text := _explain(error)):
                        sent["trouble"] = text
                        await events.put(_event("trouble", {"text": text}, cursor))
                    sent.pop(PART, None)  # sent anew, it ends the trouble in the browser
                    seen, rest = -1, AGAIN
                else:
                    sent.pop("trouble", None)
                    if page.stream is not None and "stream" not in sent:
                        sent["stream"] = ""
                        await stack.enter_async_context(run_beside(_pass_on(page.stream, cursor, events), "stream"))
                    rest = max(APART, SHARE * (monotonic() - begun))
                await asyncio.sleep(rest)


def _end_with(events: asyncio.Queue[str], *last: str) -> None:
    """Put the last events into a queue, in the place of others where it is full."""
    while events.qsize() > BURST - len(last):
        events.get_nowait()
    for event in last:
        events.put_nowait(event)


async def _send_feeds(page: Page, cursor: dict[str, int], events: asyncio.Queue[str]) -> None:
    for name, feed in page.feeds.items():
        entries = await feed.since(cursor.get(name, 0))
        if entries:
            cursor[name] = entries[-1].number
            shown = entries[-BURST:]
            facts = {"id": name, "html": "".join(each.html for each in shown), "keep": feed.keep}
            await events.put(_event("feed", {**facts, "left_out": len(entries) - len(shown)}, cursor))


async def _pass_on(
    stream: Callable[[], AsyncIterator[tuple[str, Markup]]], cursor: Mapping[str, int], events: asyncio.Queue[str]
) -> None:
    while True:
        try:
            async for name, part in stream():
                await events.put(_event("part", {"id": name, "html": part}, cursor))
        except BaseException as raised:  # as above
            logger.info("what is written cannot be followed: %s", own_failure(raised))
        await asyncio.sleep(AGAIN)


def _event(kind: str, data: Mapping[str, Any], cursor: Mapping[str, int]) -> str:
    return f"id: {format_cursor(cursor)}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"


def _explain(error: Exception) -> str:
    from amplifier_core.utils.secrets import redact_text

    return redact_text(str(error) or type(error).__name__)
