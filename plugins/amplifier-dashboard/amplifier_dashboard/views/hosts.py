"""Show the hosts of a shared store, and what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_foundation.background.hosts.people import describe_hosts
from amplifier_foundation.background.hosts.sharing import shared_store

from ..observing import read_processes
from ..pages import Act, Page, View
from ..rendering import render_block

if TYPE_CHECKING:
    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "hosts.html"


async def show_hosts(desk: Desk, place: Place) -> Page:
    """Return the processes of all hosts; for the store of one host, those of this one."""
    shared = shared_store(desk.store)
    rows = await describe_hosts(shared) if shared is not None else []
    values = {"rows": rows, "is_shared": shared is not None, "owners": (await read_processes(desk)).owners}
    return Page("Hosts", TEMPLATE, {"hosts": render_block(TEMPLATE, "hosts", values)})


VIEWS = [View("/hosts", show_hosts, label="Hosts", key="h")]
ACTS: list[Act] = []
