"""Open the store that the installed plugins offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import Inbox

from .paths import make_private, store_path

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

DEFAULT_STORAGE = "storage-sqlite"


def open_store(plugins: Plugins, name: str = DEFAULT_STORAGE, path: Path | None = None) -> DurableStore:
    """Open the store `name` at `path` (default: in the data folder).

    Raises `UnknownName` when nothing installed offers it, `StoreUnavailable` when it cannot be opened or has no inbox.
    """
    factory = plugins.storages.get(name)
    target = path or store_path()
    make_private(target.parent)
    store: Any = factory({"path": str(target)})
    if not isinstance(store, Inbox):
        raise StoreUnavailable(
            target, f"{name} has no inbox, which background sessions need. Use {DEFAULT_STORAGE}: pip install "
            f"amplifier-{DEFAULT_STORAGE}"
        )  # fmt: skip
    return cast("DurableStore", store)
