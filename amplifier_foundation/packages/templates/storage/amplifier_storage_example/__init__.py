"""Keep each session in a file of its own."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.hookspecs import Register, StorageFactory


class ExampleStorage:
    """Whole sessions as JSON files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        """Store the session in place of an earlier one: a kill leaves the one or the other."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._path(session_id).with_suffix(f".{os.getpid()}")
        with new.open("w", encoding="utf-8") as file:
            json.dump([transcript, metadata], file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path(session_id))

    def load(self, session_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return (transcript, metadata). Raises `FileNotFoundError` for an unknown id."""
        transcript, metadata = json.loads(self._path(session_id).read_text(encoding="utf-8"))
        return transcript, metadata

    def exists(self, session_id: str) -> bool:
        """Return whether the session is stored."""
        return self._path(session_id).exists()

    def _path(self, session_id: str) -> Path:  # no id is a path: "../other" and "A" beside "a" are only ids
        return self._folder / f"{sha256(session_id.encode()).hexdigest()}.json"


def open_example(config: Mapping[str, Any]) -> ExampleStorage:
    """Open the sessions below `config["path"]`, else in the data folder `config["folder"]`."""
    unknown = sorted(set(config) - {"folder", "path"})
    if unknown:
        raise ValueError(f"storage-example: unknown key '{unknown[0]}'. Known: folder, path")
    folder = config["path"] if "path" in config else Path(config["folder"], "example")
    return ExampleStorage(Path(folder))


@hookimpl
def amplifier_register_storage(register: Register[StorageFactory]) -> None:
    """Offer the storage to the settings."""
    register("storage-example", open_example)
