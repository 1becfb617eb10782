"""Keep sessions as folders of JSON lines, readable by other amplifier tools: `metadata.json` and `transcript.jsonl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.hookspecs import Register, StorageFactory

    from .store import JsonlStore

__all__ = ["amplifier_register_storage", "open_jsonl"]

_KEYS = ("folder", "path")


def open_jsonl(config: Mapping[str, Any]) -> JsonlStore:
    """Open the sessions below `config["folder"]` or `config["path"]`; the first write makes the folder.

    Raises `ValueError` for a bad configuration.
    """
    from pathlib import Path

    from .store import JsonlStore  # not at import: a list of plugins needs no asyncio

    for key in config:
        if key not in _KEYS:
            raise ValueError(f"storage-jsonl: unknown key '{key}'. Known: {', '.join(_KEYS)}")
    given = [key for key in _KEYS if config.get(key) is not None]
    if len(given) != 1:
        many = "folder and path mean the same" if given else "neither folder nor path says where sessions are kept"
        raise ValueError(f"storage-jsonl: {many}. Set one of them")
    path = config[given[0]]
    if not isinstance(path, (str, Path)) or not str(path) or "\0" in str(path):
        raise ValueError(
            f"storage-jsonl: {given[0]}: {path!r} is not the path of a folder. Set it to where sessions are kept"
        )
    return JsonlStore(Path(path).expanduser().absolute())


@hookimpl
def amplifier_register_storage(register: Register[StorageFactory]) -> None:
    """Offer the store as `storage-jsonl`."""
    register("storage-jsonl", open_jsonl)
