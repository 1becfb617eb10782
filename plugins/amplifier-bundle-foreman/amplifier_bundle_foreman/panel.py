"""Show the issues of a project and their workers beside a conversation."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import StoreError
from amplifier_tool_issue.issues import ISSUES, Issue

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.text import Text

    from amplifier_core.documents import Documents

LOOK_EVERY = 0.5
"""Seconds between two looks at the issues: other processes change them, too."""
SHARE = 0.05
"""The part of the time that the looks may take: thousands of issues are looked at less often."""
RECENT = 5
"""Closed issues that are shown after the others."""
WIDE = 90
"""Columns of a panel with the workers beside the issues."""
MARKS = {
    "in_progress": ("▶", "cyan"),
    "escalated": ("!", "yellow"),
    "open": ("●", "blue"),
    "blocked": ("◦", "dim"),
    "closed": ("✓", "green"),
}


class WorkersPanel:
    """The capability `conversation.panel` of a foreman. It looks at the issues while somebody shows them.

    Make it in the event loop of the session; `subscribe` may be called in another thread.
    """

    def __init__(self, documents: Documents, host: Any) -> None:
        self._documents = documents
        self._host = host
        self._issues: list[Issue] = []
        self._workers: list[tuple[str, str, int]] = []
        self._shown: list[Callable[[], None]] = []
        self._task = asyncio.create_task(self._look(), name="foreman-panel")

    def subscribe(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` after each change; return a function that ends it."""
        self._shown.append(notify)
        return lambda: self._shown.remove(notify) if notify in self._shown else None

    async def close(self) -> None:
        """Stop looking."""
        self._task.cancel()
        await asyncio.wait({self._task})

    def render(self, width: int, height: int) -> list[Text]:
        """Return the issues, and the workers beside them, or below on a narrow terminal."""
        if not self._issues and not self._workers:
            return []
        workers = self._draw_workers()
        if width < WIDE:
            workers = [line for line in workers if not line.plain.endswith(" idle")]
            rows = self._draw_issues(width, max(1, height - len(workers)))
            return [_fit(row, width) for row in (*rows, *workers)][:height]
        side = min(44, width // 3)
        left, right = self._draw_issues(width - side - 3, height), workers[:height]
        lines = []
        for number in range(max(len(left), len(right))):
            line = _fit(left[number], width - side - 3, pad=True) if number < len(left) else _blank(width - side - 3)
            line.append(" │ ", style="dim")
            line.append_text(_fit(right[number], side) if number < len(right) else _blank(0))
            lines.append(line)
        return lines

    def _draw_issues(self, width: int, height: int) -> list[Text]:
        from rich.text import Text

        shown = self._issues[:height] if len(self._issues) <= height else self._issues[: height - 1]
        lines = []
        for each in shown:
            mark, style = MARKS[each.state]
            line = Text.assemble(
                (f"{mark} {each.id:>3} ", style), (each.title, "" if each.state != "closed" else "dim")
            )
            notes = [", ".join(f"waits for {number}" for number in each.blocked_by)] if each.state == "blocked" else []
            notes += [" ".join(each.reason.split())] if each.state == "escalated" and not each.untrusted else []
            notes += [str(each.metadata["branch"])] if each.metadata.get("branch") else []
            if any(notes):
                line.append(
                    f"  {'; '.join(filter(None, notes))}", style="dim" if each.state != "escalated" else "yellow"
                )
            lines.append(line)
        if len(shown) < len(self._issues):
            lines.append(Text(f"  … and {len(self._issues) - len(shown)} more: amplifier issue list", style="dim"))
        return lines

    def _draw_workers(self) -> list[Text]:
        from rich.text import Text

        lines = []
        for name, status, at_work in self._workers:
            style = "cyan" if at_work else "green" if status == "running" else "yellow"
            state = f"{at_work} at work" if at_work else "idle" if status == "running" else status
            lines.append(Text.assemble((name, "bold"), ("  "), (state, style)))
        return lines

    async def _look(self) -> None:
        while True:
            began = time.monotonic()
            if self._shown:
                with suppress(StoreError):
                    await self._refresh()
            await asyncio.sleep(max(LOOK_EVERY, (time.monotonic() - began) / SHARE))

    async def _refresh(self) -> None:
        issues, workers = await self._read_issues(), self._read_workers()
        if (issues, workers) != (self._issues, self._workers):
            self._issues, self._workers = issues, workers
            for notify in list(self._shown):
                notify()

    async def _read_issues(self) -> list[Issue]:
        """Return the issues that are not closed, those in work first, then the last closed ones."""
        where = {"status": ["open", "in_progress", "escalated"]}
        waiting = [Issue.of(each) for each in await self._documents.find(ISSUES, where=where)]
        order = list(MARKS)
        waiting.sort(key=lambda each: (order.index(each.state), each.priority, each.id))
        closed = await self._documents.find(ISSUES, where={"status": ["closed"]}, newest=True, limit=50)
        recent = sorted(map(Issue.of, closed), key=lambda each: each.updated, reverse=True)[:RECENT]
        return [*waiting, *recent]

    def _read_workers(self) -> list[tuple[str, str, int]]:
        """Return the name, the status and the sessions at work of each background session of this process."""
        up = self._host.running if self._host is not None else None
        rows = up.manager.get_status().values() if up is not None else ()
        return [(row["name"], row["status"], len(row["running"])) for row in rows]


def _fit(line: Text, width: int, *, pad: bool = False) -> Text:
    line.truncate(width, overflow="ellipsis", pad=pad)
    return line


def _blank(width: int) -> Text:
    from rich.text import Text

    return Text(" " * width)
