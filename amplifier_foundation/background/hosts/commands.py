"""Pass commands of people to processes of other hosts: rows in the store that their owner carries out and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from amplifier_core.documents import DocumentChange, DocumentStore
from amplifier_core.errors import AmplifierError, DocumentConflict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_core.documents import Document
    from amplifier_core.shared_stores import SharedStore

COLLECTION = "host-commands"
_EVERYWHERE = ""
"""The project of commands: they belong to processes, not to folders."""


async def send_command(store: SharedStore, process: str, operation: str, arguments: Mapping[str, Any]) -> str:
    """Store a command for a process, and return its key."""
    key = uuid4().hex
    data = {"process": process, "state": "asked", "operation": operation, "arguments": dict(arguments)}
    await _documents(store).write_documents([DocumentChange(_EVERYWHERE, COLLECTION, key, data)])
    return key


async def read_commands(store: SharedStore, process: str) -> list[Document]:
    """Return the commands that a process has not answered."""
    where = {"process": [process], "state": ["asked"]}
    return await _documents(store).documents(_EVERYWHERE, COLLECTION, where=where)


async def answer_command(
    store: SharedStore, command: Document, obey: Callable[[str, Mapping[str, Any]], Awaitable[Any]]
) -> None:
    """Carry out a command, and store its answer; an error is an answer, too."""
    answer: dict[str, Any]
    try:
        answer = {"state": "done", "answer": await obey(command.data["operation"], command.data["arguments"])}
    except AmplifierError as error:
        answer = {"state": "refused", "error": str(error)}
    change = DocumentChange(_EVERYWHERE, COLLECTION, command.key, {**command.data, **answer}, command.version)
    try:
        await _documents(store).write_documents([change])
    except DocumentConflict:  # who asked waits no longer, and has deleted it
        return


async def take_answer(store: SharedStore, key: str) -> Mapping[str, Any] | None:
    """Return the answered command and delete it; None: it is not answered yet."""
    document = await _documents(store).document(_EVERYWHERE, COLLECTION, key)
    if document is None or document.data["state"] == "asked":
        return None
    await withdraw(store, key)
    return document.data


async def withdraw(store: SharedStore, key: str) -> None:
    """Delete a command, answered or not."""
    document = await _documents(store).document(_EVERYWHERE, COLLECTION, key)
    if document is not None:
        change = DocumentChange(_EVERYWHERE, COLLECTION, key, None, document.version)
        try:
            await _documents(store).write_documents([change])
        except DocumentConflict:  # it was answered meanwhile
            await withdraw(store, key)


def _documents(store: SharedStore) -> DocumentStore:
    return cast("DocumentStore", store)
