"""Lend the files and the terminals of the editor to the tools of a session, as capabilities.

`client.files` reads and writes what the person sees: also text that is not saved yet. `client.terminals` runs commands
where the person can watch and stop them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from .peer import NOT_FOUND, RpcError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.session import AmplifierSession

    from .editor_session import Surroundings
    from .peer import Peer

FILES, TERMINALS = "client.files", "client.terminals"


def lend(session: AmplifierSession, session_id: str, around: Surroundings, serving: asyncio.AbstractEventLoop) -> None:
    """Offer what the editor offers to the tools of a session; `session_id` is the one that the editor knows.

    `serving` is the event loop of the editor; tools call from the loop of their session.
    """
    peer, handshake = around.peer, around.handshake
    ask = _Asking(peer, session_id, serving)
    if handshake.offers("fs", "readTextFile"):
        writes = handshake.offers("fs", "writeTextFile")
        session.coordinator.register_capability(FILES, ClientFiles(ask, writes=writes))
    if handshake.offers("terminal"):
        session.coordinator.register_capability(TERMINALS, ClientTerminals(ask))


class _Asking:
    """Asks the editor from the loop of any session."""

    def __init__(self, peer: Peer, session_id: str, serving: asyncio.AbstractEventLoop) -> None:
        self._peer = peer
        self._session_id = session_id
        self._serving = serving

    async def __call__(self, method: str, *, undone_by: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask; for a cancelled caller whose question is answered all the same, ask for what undoes the answer."""
        asking = self._peer.request(
            method,
            {"sessionId": self._session_id, **params},
            take_late=partial(self._undo, undone_by) if undone_by else None,
        )
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._serving))

    def _undo(self, method: str, answer: dict[str, Any]) -> None:
        self._peer.order(method, {"sessionId": self._session_id, **answer})


class ClientFiles:
    """The text files of the editor, by their absolute paths. Raises `OSError` for what it refuses."""

    def __init__(self, ask: _Asking, *, writes: bool) -> None:
        self._ask = ask
        self.writes = writes
        """Whether files can be written, too."""

    async def read_text(self, path: str) -> str:
        """Return the text of a file as the person sees it."""
        try:
            answer = await self._ask("fs/read_text_file", path=path)
        except RpcError as error:
            kind = FileNotFoundError if error.code == NOT_FOUND else OSError
            raise kind(0, f"the editor: {error}") from error
        return str(answer.get("content") or "")

    async def write_text(self, path: str, text: str) -> None:
        """Write the text of a file, and have the editor show it."""
        try:
            await self._ask("fs/write_text_file", path=path, content=text)
        except RpcError as error:
            raise OSError(0, f"the editor: {error}") from error


class ClientTerminals:
    """The terminals of the editor. Raises `OSError` for what it refuses."""

    def __init__(self, ask: _Asking) -> None:
        self._ask = ask

    async def create(self, argv: Sequence[str], folder: str, most: int) -> str:
        """Run a program in a new terminal, and return its id; `most` are the bytes of output that it keeps."""
        asked = {"command": argv[0], "args": list(argv[1:]), "cwd": folder, "outputByteLimit": most}
        return str((await self._call("terminal/create", undone_by="terminal/release", **asked)).get("terminalId"))

    async def wait(self, terminal: str) -> int:
        """Wait for the end of the program; return its exit code as a shell counts, 137 for one that was killed."""
        ended = await self._call("terminal/wait_for_exit", terminalId=terminal)
        code = ended.get("exitCode")
        return code if isinstance(code, int) else 137

    async def read_output(self, terminal: str) -> tuple[str, bool]:
        """Return the output so far, and whether its beginning was dropped."""
        answer = await self._call("terminal/output", terminalId=terminal)
        return str(answer.get("output") or ""), bool(answer.get("truncated"))

    async def kill(self, terminal: str) -> None:
        """End the program; the terminal stays."""
        await self._call("terminal/kill", terminalId=terminal)

    async def release(self, terminal: str) -> None:
        """Let go of the terminal: the editor may close it."""
        await self._call("terminal/release", terminalId=terminal)

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        try:
            return await self._ask(method, **params)
        except RpcError as error:
            raise OSError(0, f"the editor: {error}") from error
