"""Note which pages of a data folder run, and where."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from amplifier_core.errors import AmplifierError
from amplifier_foundation.documents.files import locked_folder, write_whole
from amplifier_foundation.paths import data_home, make_private
from amplifier_foundation.sessions.presence import is_gone, this_process

if TYPE_CHECKING:
    from collections.abc import Iterator


class PageNotRunning(AmplifierError, LookupError):
    """No page of this data folder runs at `host` and `port`, of which None stands for any; `others` run."""

    def __init__(self, host: str | None, port: int | None, others: list[str]) -> None:
        self.host, self.port, self.others = host, port, others
        place = [host] if host is not None else []
        place += [f"port {port}"] if port is not None else []
        where = f"at {', '.join(place)}" if place else "with this data folder"
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


def find_pages(host: str | None = None, port: int | None = None) -> list[str]:
    """Return the addresses of the pages that run, or of those at a host or a port. Raises `PageNotRunning`."""
    pages = {address: urlsplit(address) for address in _read()}
    found = [
        address for address, parts in pages.items() if host in (None, parts.hostname) and port in (None, parts.port)
    ]
    if not found:
        raise PageNotRunning(host, port, [*pages])
    return found


def _change(pages: dict[str, str]) -> None:
    """Note the processes of pages; '' stands for none."""
    with locked_folder(make_private(data_home() / "dashboard")):
        kept = {address: process for address, process in {**_read(), **pages}.items() if process}
        write_whole(data_home() / "dashboard" / "pages", json.dumps(kept))


def _read() -> dict[str, str]:
    """Return the addresses of the pages that run, with their processes; none of a file that says something else."""
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        noted = json.loads((data_home() / "dashboard" / "pages").read_text(encoding="utf-8"))
        return {
            address: process for address, process in noted.items() if urlsplit(address).port and not is_gone(process)
        }
    return {}
