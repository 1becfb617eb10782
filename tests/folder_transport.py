"""A transport as anybody may write it: the broker is a folder that all sites see."""

from __future__ import annotations

import asyncio
import fcntl
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl
from amplifier_foundation.hookspecs import Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence


class FolderTransport:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._folder = Path(config["folder"])

    async def open(self, site: str, names: Sequence[str]) -> None:
        self._cursor = self._folder / f"{site}.cursor"
        if not self._folder.is_dir():
            raise ConnectionError(f"{self._folder} is away")
        self._is_open = True

    async def publish(self, messages: Sequence[Message]) -> Mapping[str, str]:
        if not self._is_open:
            raise ConnectionError("the transport is closed")
        with self._locked() as log:
            for each in messages:
                log.write(json.dumps([each.id, each.site, each.name, each.body.decode("latin-1")]) + "\n")
        return {}

    async def receive(self) -> AsyncIterator[tuple[Message, Any]]:
        at = int(self._cursor.read_text()) if self._cursor.exists() else 0
        while self._folder.is_dir():
            with self._locked() as log:
                log.seek(0)
                lines = log.readlines()
            for number, line in enumerate(lines[at:], at + 1):
                message_id, site, name, body = json.loads(line)
                yield Message(message_id, site, name, body.encode("latin-1")), self._acknowledging(number)
            at = len(lines)
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        self._is_open = False

    def _acknowledging(self, number: int) -> Any:
        async def acknowledge() -> None:
            self._cursor.write_text(str(number))

        return acknowledge

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        with (self._folder / "log").open("a+") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            yield log


@hookimpl
def amplifier_register_transport(register: Any) -> None:
    register("transport-folder", FolderTransport)
