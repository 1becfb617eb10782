"""Run the slash commands that the editor offers in its prompt."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from amplifier_core.utils.secrets import redact_text

from .contents import Said, make_text
from .peer import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.prompt_commands import OfferedCommand, PromptCommands
    from amplifier_core.storage import SessionStore
    from amplifier_foundation.spawning.conversation import Conversation
    from amplifier_foundation.spawning.hosting import Host

    from .editor_session import EditorSession

logger = logging.getLogger(__name__)

COMMANDS: list[dict[str, Any]] = [
    {"name": "continue", "description": "Continue the interrupted turn"},
    {"name": "cost", "description": "Show the tokens and the cost of this session so far"},
    {"name": "agents", "description": "List the agents of the bundle"},
    {"name": "rename", "description": "Rename the session", "input": {"hint": "the new name"}},
]
NAMES = frozenset(each["name"] for each in COMMANDS)


class SessionCommands:
    """The commands of one session: those of the agent, then those that its modules offer."""

    def __init__(self, session_id: str, tell: Callable[[dict[str, Any]], None]) -> None:
        self._session_id = session_id
        self._tell = tell
        self._shown: list[dict[str, Any]] = [*COMMANDS]
        self._problems: list[str] = []

    def tell(self) -> None:
        """Tell the editor the commands as far as they are known."""
        self._tell({"sessionUpdate": "available_commands_update", "availableCommands": self._shown})

    async def refresh(self, conversation: Conversation, host: Host) -> None:
        """Ask the modules for their commands, and tell the editor what has changed."""
        offered = (await self._collect(conversation, host)).offered.values()
        if (shown := [*COMMANDS, *map(_show, offered)]) != self._shown:
            self._shown = shown
            self.tell()

    async def expand(self, conversation: Conversation, host: Host, said: Said) -> Said:
        """Return what a command of a module makes of a prompt, or the prompt.

        Raises `CommandFailed` and `CommandMissing`.
        """
        from amplifier_core.prompt_commands import expand_command

        if not (prompt := said.text.strip()).startswith("/"):
            return said
        found = (await self._collect(conversation, host)).find(prompt)
        return said if found is None else said._replace(text=await host.call(expand_command(*found)))

    async def _collect(self, conversation: Conversation, host: Host) -> PromptCommands:
        from amplifier_core.prompt_commands import collect_commands

        found = await host.call(collect_commands(conversation.session.coordinator, NAMES))
        for problem in found.problems:
            if problem not in self._problems:
                logger.warning("session %s: %s", self._session_id, redact_text(problem))
        self._problems = found.problems
        return found


def _show(command: OfferedCommand) -> dict[str, Any]:
    description = redact_text(command.description) or f"A command of {command.source}"
    return {"name": command.name, "description": description, "input": {"hint": command.hint or "argument"}}


async def run_command(session: EditorSession, said: Said, store: SessionStore) -> dict[str, Any] | None:
    """Run a command of the agent, and return the answer; None: the prompt is no such command. Raises `RpcError`."""
    name, _, argument = said.text.strip().partition(" ")
    if name == "/continue":
        return await session.prompt(Said(""))
    if name == "/cost":
        text = await session.describe_cost()
    elif name == "/agents":
        text = await session.describe_agents()
    elif name == "/rename":
        text = await _rename(session, argument.strip(), store)
    else:
        return None
    session.tell({"sessionUpdate": "agent_message_chunk", "content": make_text(text)})
    return {"stopReason": "end_turn"}


async def _rename(session: EditorSession, name: str, store: SessionStore) -> str:
    from amplifier_foundation.operations.acting import person_here
    from amplifier_foundation.operations.sessions import InvalidName, rename_session

    try:
        record = await rename_session(store, person_here("editor"), session.id, name)
    except InvalidName as error:
        raise RpcError(INVALID_PARAMS, f"prompt: {error}") from None
    session.tell({"sessionUpdate": "session_info_update", "title": record.name})
    return f"This session is called {record.name} now."
