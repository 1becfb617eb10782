"""Follow what a running session does between two stored messages: the text while it is written, calls, waiting."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import slotted
from amplifier_foundation.background.tasks import run_beside
from amplifier_foundation.sessions.presence import is_running

from .desk import Changes
from .markdown import render_markdown
from .rendering import render_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from markupsafe import Markup

    from .desk import Desk

logger = logging.getLogger(__name__)

APART = 0.05
"""Seconds between two updates of the text, at least."""
SHOWN = 10_000
"""Characters of the text that are sent at each update."""
TEMPLATE = "live.html"


@slotted
class Written:
    """What a session does now, by the facts about it; `news` tells of changes."""

    text: str = ""
    doing: str = ""
    since: datetime | None = None
    calls: dict[str, str] = field(default_factory=dict)
    """The names of running tool calls, by their ids."""
    block: Any = None
    has_ended: bool = False
    news: Changes = field(default_factory=Changes)

    def take(self, fact: Mapping[str, Any]) -> None:
        """Take a fact of the session; facts of other kinds change nothing."""
        kind = fact.get("type")
        if kind == "text":
            self._take_text(str(fact.get("text") or ""), fact)
        elif kind == "waiting":
            self._begin(str(fact.get("on") or "asks the model"))
            if not fact.get("on"):
                self.text = ""
        elif kind == "tool":
            self.calls[str(fact.get("id"))] = str(fact.get("name"))
            self.text = ""
            self._begin(f"calls {', '.join(self.calls.values())}")
        elif kind == "tool_result":
            self.calls.pop(str(fact.get("id")), None)
            self._begin(f"calls {', '.join(self.calls.values())}" if self.calls else "")
        elif kind == "child":
            runs = fact.get("status") == "running"
            self._begin(f"waits for {fact.get('name')}" if runs else self.doing)
        elif kind == "end":
            self.text, self.has_ended = "", True
            self._begin("")
        else:
            return
        self.news.note()

    def _take_text(self, text: str, fact: Mapping[str, Any]) -> None:
        if fact.get("partial"):
            block = fact.get("block")
            self.text = f"{self.text}\n\n{text}" if self.text and block != self.block else self.text + text
            self.block = block
        elif not self.text.endswith(text):
            self.text = text
        self._begin("writes")

    def _begin(self, doing: str) -> None:
        if doing != self.doing:
            self.doing, self.since = doing, datetime.now(UTC) if doing else None

    def render(self) -> Markup:
        """Return it as the part `live`: of a long text, the end."""
        text = render_markdown(self.text[-SHOWN:]) if self.text else ""
        return render_block(TEMPLATE, "live", {"doing": self.doing, "since": self.since, "text": text})


async def follow_written(desk: Desk, session_id: str) -> AsyncIterator[tuple[str, Markup]]:
    """Yield the part `live` of a session whenever it differs, for as long as the page is shown."""
    seen, sent = -1, ""
    while True:
        seen = await desk.changes.wait(seen)
        if (talk := desk.talks.find(session_id)) is not None:
            changes = _parts_of(talk.written)
        elif is_running(await desk.store.get(session_id)):
            changes = _parts_elsewhere(desk, session_id)
        else:
            changes = _parts_of(Written(has_ended=True))  # a page that comes back may show a turn that is over
        async for part in changes:
            if part != sent:
                sent = part
                yield "live", part


async def _parts_of(written: Written) -> AsyncIterator[Markup]:
    seen = -1
    while not written.has_ended:
        yield written.render()
        await asyncio.sleep(APART)  # what comes meanwhile is shown together
        seen = await written.news.wait(seen)
    yield written.render()


async def _parts_elsewhere(desk: Desk, session_id: str) -> AsyncIterator[Markup]:
    """Yield the parts of a session that another process runs."""
    from amplifier_foundation.background.following import follow_session

    written = Written()
    project = (await desk.store.get(session_id)).project

    async def hear() -> None:
        try:
            async for fact in follow_session(session_id, project):
                written.take(fact)
        except Exception as error:  # the durable history tells everything a moment later
            logger.info("%s cannot be followed: %s", session_id, error)
        written.take({"type": "end"})

    async with run_beside(hear(), "follow"):
        async for part in _parts_of(written):
            yield part
