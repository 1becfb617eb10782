"""Sessions as folders of JSON lines: `metadata.json` and `transcript.jsonl`, which other amplifier tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.hookspecs import Register, StorageFactory

    from .store import JsonlStore

__all__ = ["amplifier_register_storage", "open_jsonl"]


def open_jsonl(config: Mapping[str, Any]) -> JsonlStore:
    """Open the sessions below the folder `config["path"]`, which is made at the first write.

    Raises `ValueError` for a bad configuration.
    """
    from .store import JsonlStore  # not at import: whoever lists plugins needs no asyncio

    return JsonlStore(**_settings(config))


@hookimpl
def amplifier_register_storage(register: Register[StorageFactory]) -> None:
    """Offer the store as `storage-jsonl`."""
    register("storage-jsonl", open_jsonl)


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    from pathlib import Path

    for key in config:
        if key != "path":
            raise ValueError(f"storage-jsonl: unknown key '{key}'. Known: path")
    path = config.get("path")
    if not isinstance(path, (str, Path)) or not str(path) or "\0" in str(path):
        raise ValueError(
            f"storage-jsonl: path: {path!r} is not the path of a folder. Set it to where sessions are kept"
        )
    return {"path": Path(path).expanduser().absolute()}
