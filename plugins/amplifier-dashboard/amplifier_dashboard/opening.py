"""Open a link in a browser. Other users read the arguments of every program, so a private file leads there."""

from __future__ import annotations

import asyncio
import os
import webbrowser
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

import click

from amplifier_foundation.paths import find_home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

KEPT = 60.0
"""Seconds in which a browser has read the file."""
GRAPHICAL = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of an environment with a browser; elsewhere, Python would know those of a terminal alone."""


@asynccontextmanager
async def opened(link: str, without: Callable[[], None]) -> AsyncIterator[None]:
    """Open a link in a browser beside the block, and call `without` in a thread if no program for it is found.

    Many a program ends with its browser alone: nothing waits for it. The file is removed after `KEPT` or with the
    block. It lies in the home folder, and is not hidden: a browser of a snap reads no hidden folders, and has a `/tmp`
    of its own. Raises `OSError`.
    """
    home = find_home()
    kept = TemporaryDirectory(prefix="amplifier-dashboard-", dir=home if home and os.access(home, os.W_OK) else None)
    timer = asyncio.get_running_loop().call_later(KEPT, kept.cleanup)
    try:
        with kept as folder:  # of mode 0700
            page = Path(folder) / "open.html"
            page.touch(mode=0o600)
            to = escape(link)
            page.write_text(
                f'<!doctype html><meta charset="utf-8"><title>amplifier</title>'
                f'<meta http-equiv="refresh" content="0; url={to}"><a href="{to}">Open the page</a>\n',
                encoding="utf-8",
            )
            Thread(target=_open, args=(page, without), name="browser", daemon=True).start()
            yield
    finally:
        timer.cancel()


def _open(page: Path, without: Callable[[], None]) -> None:
    """Open a file in the person's browser, or else as the system opens files: that may be an editor for HTML."""
    is_graphical = any(os.environ.get(each) for each in GRAPHICAL)
    if not (is_graphical and webbrowser.open(page.as_uri())) and click.launch(str(page)) != 0:
        without()
