"""Make the host of the servers that run beside `up`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ..background.servers import ServerHost
    from ..background.up import Control
    from .view import RunView


def make_server_host(
    names: Sequence[str], store: DurableStore, plugins: Plugins, view: RunView, control: Control
) -> ServerHost | None:
    """Return the host of the servers of these names, and of all others of the settings; None without any."""
    from ..settings import read_settings

    configs = dict(read_settings().get("servers") or {})
    if not names and not configs:
        return None
    from amplifier_core.clock import SystemClock

    from ..background.servers import ServerHost
    from ..hookspecs import ServerContext

    first = {name: configs.pop(name, None) or {} for name in names}
    later = {name: config or {} for name, config in configs.items()}
    context = ServerContext(store, plugins)
    return ServerHost(first, later, context, SystemClock(), control.report, view.note, control.servers)
