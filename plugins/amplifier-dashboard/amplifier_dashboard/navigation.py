"""Show the entries of the navigation, with the number of what waits for a person; live on every page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from markupsafe import Markup

    from .desk import Desk
    from .pages import View

PART = "views"
"""The id of the navigation's element."""


class Navigation:
    """Counts what waits once for each change of the store, whatever the number of pages."""

    def __init__(self, desk: Desk, views: Iterable[View]) -> None:
        self._desk = desk
        self._views = [view for view in views if view.label]
        self._counts: Mapping[str, int] = {}
        self._seen = -1
        self._reading = asyncio.Lock()

    async def read(self, here: str) -> dict[str, Any]:
        """Return the values of the block `navigation` for the view at `here`."""
        async with self._reading:
            seen = self._desk.changes.count
            if seen != self._seen:
                self._counts = {each.path: await each.badge.read(self._desk) for each in self._views if each.badge}
                self._seen = seen
        in_title = sum(self._counts[each.path] for each in self._views if each.badge and each.badge.in_title)
        return {"views": self._views, "here": here, "counts": self._counts, "in_title": in_title}

    async def read_part(self, here: str) -> Markup:
        """Return the element of the navigation for the view at `here`."""
        return render_block("layout.html", "navigation", await self.read(here))
