"""Tell other hosts which session wrote what into a folder that they share: loops through files cross hosts there."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from amplifier_core.documents import DocumentChange, DocumentStore, retry_conflicts
from amplifier_core.errors import StoreUnavailable

from ..file_causes import Writer

if TYPE_CHECKING:
    from amplifier_core.shared_stores import SharedStore

COLLECTION = "file-writes"


class SharedWrites:
    """The last announced write of each file, in the store."""

    def __init__(self, store: SharedStore) -> None:
        self._documents = cast("DocumentStore", store)

    async def remember(self, path: str, digest: str, writer: Writer) -> None:
        """Store that a session leaves this content in a file. A store that is away loses it: a loop is longer then."""
        key = _key_of(path)

        async def write() -> None:
            found = await self._documents.document(writer.place[0], COLLECTION, key)
            data = {"path": path, "digest": digest, "writer": asdict(writer)}
            change = DocumentChange(writer.place[0], COLLECTION, key, data, found.version if found else 0)
            await self._documents.write_documents([change])

        try:
            await retry_conflicts(write)
        except StoreUnavailable:
            return

    async def find(self, project: str, path: str) -> tuple[str | None, Writer | None]:
        """Return the digest and the writer of a file, (None, None) without one."""
        found = await self._documents.document(project, COLLECTION, _key_of(path))
        if found is None:
            return None, None
        facts = found.data["writer"]
        return found.data["digest"], Writer(
            facts["session_id"], tuple(facts["place"]), facts["event_id"], facts["depth"]
        )


def _key_of(path: str) -> str:
    return sha256(path.encode(errors="surrogatepass")).hexdigest()
