"""Run the slash commands that the editor offers in its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .contents import Said, make_text
from .peer import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from amplifier_core.storage import SessionStore

    from .editor_session import EditorSession

COMMANDS = [
    {"name": "continue", "description": "Continue the interrupted turn"},
    {"name": "cost", "description": "Show the tokens and the cost of this session so far"},
    {"name": "agents", "description": "List the agents of the bundle"},
    {"name": "rename", "description": "Rename the session", "input": {"hint": "the new name"}},
]
LONGEST_NAME = 128


async def run_command(session: EditorSession, said: Said, store: SessionStore) -> dict[str, Any] | None:
    """Run a command and return the answer to the prompt; None: the prompt is none. Raises `RpcError`."""
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
    from amplifier_core.utils.secrets import redact_text

    if not name or not name.isprintable() or len(name) > LONGEST_NAME or redact_text(name) != name:
        raise RpcError(INVALID_PARAMS, f"prompt: a name is one line of 1 to {LONGEST_NAME} characters, without secrets")
    await store.update(session.id, name=name)
    session.tell({"sessionUpdate": "session_info_update", "title": name})
    return f"This session is called {name} now."
