"""Sessions as folders of JSON lines: `metadata.json` and `transcript.jsonl`, which other amplifier tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_core.hookspecs import Register, StorageFactory

    from .store import JsonlStore

__all__ = ["amplifier_register_storage", "open_jsonl"]

_KEYS = ("folder", "path")


def open_jsonl(config: Mapping[str, Any]) -> JsonlStore:
    """Open the sessions below a folder, which is made at the first write: `config["folder"]`, or `config["path"]`.

    Raises `ValueError` for a bad configuration.
    """
    from .store import JsonlStore  # not at import: whoever lists plugins needs no asyncio

    return JsonlStore(_folder(config))


@hookimpl
def amplifier_register_storage(register: Register[StorageFactory]) -> None:
    """Offer the store as `storage-jsonl`."""
    register("storage-jsonl", open_jsonl)


def _folder(config: Mapping[str, Any]) -> Path:
    from pathlib import Path

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
    return Path(path).expanduser().absolute()
