"""Answer the methods of the protocol."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, InvalidSessionId, SessionConflict, SessionError, SessionNotFound

from .failures import unknown_session
from .peer import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord
    from amplifier_foundation.bundle.model import PreparedBundle

    from .editor_session import EditorSession, Surroundings
    from .params import InFolder
    from .peer import Params

METHODS = {
    "session/new": "new_session",
    "session/load": "load_session",
    "session/resume": "resume_session",
    "session/list": "list_sessions",
    "session/close": "close_session",
    "session/delete": "delete_session",
    "session/fork": "fork_session",
    "session/prompt": "prompt",
    "session/cancel": "cancel",
    "session/set_mode": "set_mode",
    "session/set_config_option": "set_config_option",
    "_amplifier/session/keep": "keep_session",
}
NOTIFICATIONS = {"session/cancel"}
REPLAYED_AT_ONCE = 200
"""Messages of a history that are read and sent before the editor is waited for."""


class Agent:
    """The sessions of one editor. `METHODS` names the methods that answer requests."""

    def __init__(self, around: Surroundings) -> None:
        from .listing import Lists  # with pydantic, which `initialize` does not wait for

        self._around = around
        self._store = around.store
        self._lists = Lists(around.store)
        self._sessions: dict[str, EditorSession] = {}
        self._following: dict[str, asyncio.Task[None]] = {}

    async def watch(self) -> None:
        """Put the questions of background sessions to the editor, until cancelled."""
        from .following import Questions

        await Questions(self._around.peer, self._store, self._find_open, self._sessions.__contains__).watch()

    async def close(self) -> None:
        """Stop all turns and end all sessions."""
        for task in self._following.values():
            task.cancel()
        await asyncio.gather(*(each.close() for each in self._sessions.values()), return_exceptions=True)
        self._sessions.clear()

    # sessions begin

    async def new_session(self, params: Params) -> dict[str, Any]:
        """Store a new session, and open it unless its bundle is to be trusted first."""
        from amplifier_foundation.paths import project_of

        from .editor_session import EditorSession
        from .params import NewSession, check

        checked = check(NewSession, params)
        servers = self._check_offered(checked)
        project = project_of(_check_folder(checked.cwd))
        prepared = await self._prepare(project, servers)
        record = await self._store.create(_make_record(project, prepared))
        return await self._begin(EditorSession(self._around, record, servers, is_new=True), prepared)

    async def _prepare(self, project: str, servers: dict[str, Any]) -> PreparedBundle | None:
        """Return the bundle of a new session; None: it is to be trusted first."""
        from amplifier_foundation.security.trust import NotTrusted
        from amplifier_foundation.spawn import prepared_bundle
        from amplifier_foundation.spawning.opening import refuse

        from .mcp_servers import add_module

        try:
            bundle = await self._around.opener.load(project, None, refuse)
        except NotTrusted:
            return None
        add_module(bundle, servers)
        return await prepared_bundle(bundle)

    async def _begin(self, session: EditorSession, prepared: PreparedBundle | None) -> dict[str, Any]:
        """Open a session that was stored for this request, and answer; what cannot be opened is deleted again."""
        from amplifier_foundation.security.trust import NotTrusted

        self._sessions[session.id] = session
        try:
            with suppress(NotTrusted):  # its first prompt asks
                if prepared is not None or session.record.fork_of:
                    await session.open(prepared=prepared)
        except BaseException:
            del self._sessions[session.id]
            with suppress(AmplifierError):
                await asyncio.shield(self._store.delete(session.id))
            raise
        self._announce(session)
        return {"sessionId": session.id, **session.show()}

    async def load_session(self, params: Params) -> dict[str, Any]:
        """Show the whole history of a stored session, then open it; one of another process is followed."""
        from .params import LoadSession, check

        session = await self._continue(check(LoadSession, params))
        shown = await self._replay(session)
        if not session.is_busy:
            shown = await self._replay(session, shown)  # what another process has said meanwhile
        await self._open_stored(session, shown)
        return session.show()

    async def resume_session(self, params: Params) -> dict[str, Any]:
        """Open a stored session without showing its history."""
        from .params import ContinueSession, check

        session = await self._continue(check(ContinueSession, params))
        await self._open_stored(session)
        return session.show()

    async def _continue(self, checked: Any) -> EditorSession:
        """Return the session that a request names; it works in its own folder. Raises `RpcError`."""
        from amplifier_foundation.paths import project_of

        from .editor_session import EditorSession

        servers = self._check_offered(checked)
        record = await self._find(checked.session_id)
        if project_of(_check_folder(checked.cwd)) != record.project:
            text = f"cwd: session '{record.session_id}' works in {record.project}; open it there, or fork it here"
            if not os.path.isdir(record.project):  # noqa: ASYNC240, PTH112 - as in `_check_folder`
                text = f"cwd: the folder of session '{record.session_id}', {record.project}, is gone; fork it here"
            raise RpcError(INVALID_PARAMS, text, {"cwd": record.project})
        session = self._sessions.get(record.session_id)
        if session is None:
            session = self._sessions[record.session_id] = EditorSession(self._around, record, servers)
        return session

    async def _open_stored(self, session: EditorSession, shown: int | None = None) -> None:
        """Open a session, unless its bundle is not trusted, or another process has it: that one is followed.

        `shown` is how many of its messages the editor has seen; None: what it has now is not to be shown.
        """
        from amplifier_foundation.security.trust import NotTrusted

        from .following import follow, is_elsewhere

        record = await self._store.get(session.id)
        if self._sessions.get(session.id) is not session:
            raise unknown_session(session.id)  # it was closed meanwhile
        if is_elsewhere(record):
            if session.id not in self._following:
                seen = record.message_count if shown is None else shown
                task = asyncio.create_task(follow(self._store, record, seen, session.tell))
                self._following[session.id] = task
                task.add_done_callback(lambda _: self._following.pop(session.id, None))
        else:
            with suppress(NotTrusted, SessionConflict):  # its first prompt asks, or says why not
                await session.open()
        self._announce(session)

    async def _replay(self, session: EditorSession, first: int = 0) -> int:
        """Show the messages of a session from `first` on; return how many it has."""
        from .replaying import replay

        record = await self._store.get(session.id)
        for start in range(first, record.message_count, REPLAYED_AT_ONCE):
            stop = min(start + REPLAYED_AT_ONCE, record.message_count)
            for update in replay(await self._store.read(session.id, start, stop), record.project, start):
                session.tell(update)
            await self._around.peer.settle()
        return record.message_count

    async def fork_session(self, params: Params) -> dict[str, Any]:
        """Fork a session at a message, or now; answer when the fork can be prompted."""
        from amplifier_core.ids import new_session_id
        from amplifier_foundation.paths import project_of
        from amplifier_foundation.sessions.forks import fork_place, fork_there

        from .editor_session import EditorSession
        from .forking import read_fork, without_lost_bundle
        from .leftovers import made_here
        from .options import CHOSEN, EPHEMERAL, chosen_of
        from .params import ContinueSession, check

        checked = check(ContinueSession, params)
        servers = self._check_offered(checked)
        project = project_of(_check_folder(checked.cwd))
        source = await self._find(checked.session_id)
        wanted = read_fork(checked.meta, source)
        try:
            place = await fork_place(self._store, source, turn=wanted.turn, message=wanted.message)
        except SessionError as error:
            raise RpcError(INVALID_PARAMS, str(error), {"messageId": wanted.message_id}) from None
        fork_id = new_session_id(source.name or "fork")
        metadata = {CHOSEN: {**chosen_of(source), EPHEMERAL: wanted.is_ephemeral}, **made_here(fork_id)}
        record = await fork_there(
            self._store,
            without_lost_bundle(source),
            place,
            session_id=fork_id,
            plugins=self._around.plugins,
            project=project,
            metadata=metadata,
        )
        known = self._sessions.get(source.session_id)
        is_alike = known is not None and project == source.project and known.servers == servers
        prepared = known.prepared if known is not None and is_alike else None
        told = await self._begin(EditorSession(self._around, record, servers), prepared)
        about = {"forkOf": source.session_id, "messages": place.at, "leftOut": place.left_out}
        return {**told, "_meta": {"amplifier": about}}

    # sessions go on

    async def prompt(self, params: Params) -> dict[str, Any]:
        """Take a turn; what it says and does comes as updates before the answer."""
        from .commands import run_command
        from .contents import read_prompt
        from .following import finish
        from .params import Prompt, check

        checked = check(Prompt, params)
        session, said = self._get(checked.session_id), read_prompt(checked.prompt)
        if (following := self._following.get(session.id)) is not None:
            await finish(following, self._store, session.id)  # what was said elsewhere comes before the answer
        answer = await run_command(session, said, self._store)
        return answer if answer is not None else await session.prompt(said)

    async def cancel(self, params: Params) -> None:
        """Stop the turn of a session."""
        session = self._sessions.get(str(params.get("sessionId")))
        if session is not None:
            session.stop()

    async def set_mode(self, params: Params) -> dict[str, Any]:
        """Choose the permission mode."""
        from .options import MODE
        from .params import SetMode, check

        checked = check(SetMode, params)
        await self._get(checked.session_id).set_option(MODE, checked.mode_id, "modeId")
        return {}

    async def set_config_option(self, params: Params) -> dict[str, Any]:
        """Choose the mode, the provider or the model."""
        from .params import SetConfigOption, check

        checked = check(SetConfigOption, params)
        session = self._get(checked.session_id)
        await session.set_option(checked.config_id, checked.value)
        return {"configOptions": session.show()["configOptions"]}

    async def keep_session(self, params: Params) -> dict[str, Any]:
        """Keep a fork that would be deleted when it is closed."""
        from .params import OfSession, check

        await self._get(check(OfSession, params).session_id).keep()
        return {}

    # sessions end

    async def list_sessions(self, params: Params) -> dict[str, Any]:
        """List stored sessions, of one folder or of all."""
        from amplifier_foundation.paths import project_of

        from .params import ListSessions, check

        checked = check(ListSessions, params)
        project = project_of(checked.cwd) if checked.cwd is not None else None
        return await self._lists.take_page(project, checked.cursor)

    async def close_session(self, params: Params) -> dict[str, Any]:
        """End a session here; what it said stays in the store."""
        from .params import OfSession, check

        session_id = check(OfSession, params).session_id
        session = self._sessions.pop(session_id, None)
        if session is None:
            await self._find(session_id)
        else:
            await self._end(session)
        return {}

    async def delete_session(self, params: Params) -> dict[str, Any]:
        """End and delete a session; its forks keep the messages that they share. Deleting twice is no error.

        A deletion that is refused ends nothing. Raises `SessionConflict`.
        """
        from amplifier_foundation.operations.acting import person_here
        from amplifier_foundation.operations.sessions import delete_sessions
        from amplifier_foundation.sessions.lock import holder_of
        from amplifier_foundation.sessions.presence import refuse_deletion

        from .params import OfSession, check

        session_id = check(OfSession, params).session_id
        with suppress(SessionNotFound, InvalidSessionId):
            record = await self._store.get(session_id)
            if holder_of(session_id) != str(os.getpid()):
                refuse_deletion(record)
        if (session := self._sessions.pop(session_id, None)) is not None:
            await self._end(session)
        with suppress(SessionNotFound, InvalidSessionId):
            record = await self._store.get(session_id)
            refuse_deletion(record)
            await delete_sessions(self._store, person_here("editor"), [record])
        return {}

    async def _end(self, session: EditorSession) -> None:
        if (task := self._following.pop(session.id, None)) is not None:
            task.cancel()
        await session.close()

    # helpers

    def _find_open(self, project: str) -> str | None:
        found = [each.id for each in self._sessions.values() if each.record.project == project]
        return found[-1] if found else None

    def _get(self, session_id: str) -> EditorSession:
        """Return a session that the editor has opened. Raises `RpcError`."""
        session = self._sessions.get(session_id)
        if session is None:
            raise unknown_session(session_id)
        return session

    async def _find(self, session_id: str) -> SessionRecord:
        """Return the record of a session in the store. Raises `RpcError`."""
        from amplifier_core.ids import validate_session_id

        try:
            return await self._store.get(validate_session_id(session_id))
        except (SessionNotFound, InvalidSessionId):
            raise unknown_session(session_id) from None

    def _check_offered(self, checked: InFolder) -> dict[str, Any]:
        """Return the MCP servers of a request. Raises `RpcError` for what this agent does not offer, by its name."""
        from .mcp_servers import read_servers

        for name, value in (
            ("additionalDirectories", checked.additional_directories),
            ("systemPrompt", checked.system_prompt),
        ):
            if value:
                raise RpcError(INVALID_PARAMS, f"{name}: is not offered by this agent", {"member": name})
        return read_servers(checked.mcp_servers)

    def _announce(self, session: EditorSession) -> None:
        """Tell the commands of a session, after the answer to its request."""
        asyncio.get_running_loop().call_later(0.01, session.commands.tell)


def _make_record(project: str, prepared: PreparedBundle | None) -> SessionRecord:
    """Return the record of a new session, without a turn so far; None: its bundle is not loaded yet."""
    from amplifier_core.ids import new_session_id
    from amplifier_core.storage import SessionRecord
    from amplifier_foundation.sessions.records import new_record

    from .leftovers import made_here

    name = prepared.bundle.name if prepared is not None else "session"
    session_id = new_session_id(name)
    if prepared is None:
        return SessionRecord(session_id, project=project, status="idle", metadata=made_here(session_id))
    record = new_record(prepared, session_id, name=name, project=project, metadata=made_here(session_id))
    return replace(record, status="idle")


def _check_folder(cwd: str) -> str:
    if not os.path.isdir(cwd):  # noqa: PTH112 - pathlib raises for names that are too long
        raise RpcError(INVALID_PARAMS, f"cwd: {cwd} is not a folder", {"member": "cwd"})
    return cwd
