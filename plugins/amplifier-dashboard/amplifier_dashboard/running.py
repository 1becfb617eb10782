"""Note which pages of a data folder run, and where."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError
from amplifier_foundation.documents.files import locked_folder, write_whole
from amplifier_foundation.paths import data_home, make_private
from amplifier_foundation.sessions.presence import is_gone, this_process

if TYPE_CHECKING:
    from collections.abc import Iterator


class PageNotRunning(AmplifierError, LookupError):
    """No page of this data folder runs at `address`, or none at all where it is None; `others` run."""

    def __init__(self, address: str | None, others: list[str]) -> None:
        self.address, self.others = address, others
        where = "with this data folder" if address is None else f"at {address}"
        remedy = f"Those that run: {', '.join(others)}" if others else "Start one with: amplifier dashboard"
        super().__init__(f"no page runs {where}. {remedy}")


@contextmanager
def noted(address: str) -> Iterator[None]:
    """Note that this process serves a page at an address while the block runs."""
    _change({address: this_process()})
    try:
        yield
    finally:
        with suppress(OSError):  # the folder may be gone
            _change({address: ""})


def find_pages(address: str | None = None) -> list[str]:
    """Return the addresses of the pages that run, or the given one alone. Raises `PageNotRunning`."""
    pages = [*_read()]
    if address not in (None, *pages) or not pages:
        raise PageNotRunning(address, pages)
    return pages if address is None else [address]


def _change(pages: dict[str, str]) -> None:
    """Note the processes of pages; '' stands for none."""
    with locked_folder(make_private(data_home() / "dashboard")):
        kept = {address: process for address, process in {**_read(), **pages}.items() if process}
        write_whole(data_home() / "dashboard" / "pages", json.dumps(kept))


def _read() -> dict[str, str]:
    """Return the addresses of the pages that run, with their processes."""
    with suppress(OSError, ValueError):
        noted = json.loads((data_home() / "dashboard" / "pages").read_text(encoding="utf-8"))
        return {address: process for address, process in noted.items() if not is_gone(process)}
    return {}
