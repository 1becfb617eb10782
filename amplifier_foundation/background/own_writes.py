"""The files that the sessions of a background session wrote: a watcher must not take them for news."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.events import ARTIFACT_WRITE, TOOL_POST, TOOL_PRE

if TYPE_CHECKING:
    from amplifier_core.session import AmplifierSession

MOST = 10_000
"""Files that are remembered, the last ones."""
LARGEST = 64 * 1024 * 1024
"""Bytes of a file that is read for its digest."""

_LAST = 1_000_000
_WRITES = ("write_file", "edit_file")


class OwnWrites(Mapping[str, str]):
    """The SHA-256 of each file as these sessions left it, by its real path; see `TriggerContext.own_writes`.

    A tool that writes files tells it by `artifact:write`; of those named `write_file` and `edit_file` it is known.
    """

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def __getitem__(self, path: str) -> str:
        return self._digests[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def observe(self, session: AmplifierSession) -> None:
        """Remember what `session` writes from now on."""
        folder = Path(session.coordinator.get_capability("session.working_dir") or ".")

        async def about_to_write(event: str, data: dict[str, Any]) -> None:
            path, content = _path(data), (data.get("tool_input") or {}).get("content")
            if path and data.get("tool_name") == "write_file" and isinstance(content, str):
                self._note(folder / path, sha256(content.encode(errors="surrogatepass")).hexdigest())

        async def wrote(event: str, data: dict[str, Any]) -> None:
            path = data.get("path") if event == ARTIFACT_WRITE else _path(data)
            if isinstance(path, str) and path:
                self._note(folder / path, _digest(folder / path))

        hooks = session.coordinator.hooks
        hooks.register(
            TOOL_PRE, about_to_write, _LAST, "own-writes"
        )  # its watcher may see the file before the tool ends
        hooks.register(TOOL_POST, wrote, _LAST, "own-writes")
        hooks.register(ARTIFACT_WRITE, wrote, _LAST, "own-writes")

    def _note(self, path: Path, digest: str | None) -> None:
        if digest is None:
            return
        real = str(path.resolve())
        self._digests.pop(real, None)
        self._digests[real] = digest
        if len(self._digests) > MOST:
            del self._digests[next(iter(self._digests))]


def _path(data: Mapping[str, Any]) -> str | None:
    asked = data.get("tool_input")
    if data.get("tool_name") not in _WRITES or not isinstance(asked, Mapping):
        return None
    path = asked.get("file_path") or asked.get("path")
    return path if isinstance(path, str) else None


def _digest(path: Path) -> str | None:
    try:
        if path.stat().st_size > LARGEST:
            return None
        return sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None
