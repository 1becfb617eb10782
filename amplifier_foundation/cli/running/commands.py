"""The commands of a conversation, which begin with a slash."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ...spent import dollars
from ..app import session_by_prefix
from ..output import console, plural, print_session_tree
from ..sessions.changing import checked_name
from .terminal import one_line, plain, tell

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord, SessionStore

    from ...bundles.model import Bundle
    from ...conversation import Conversation

COMMANDS = {
    "/help": ("", "what you can do here"),
    "/fork": ("[TURN]", "fork the session, now or at the end of a turn, and go on in the fork"),
    "/tree": ("", "who made whom, and whose history is whose"),
    "/agents": ("", "the agents of the bundle"),
    "/cost": ("", "the tokens and the cost of this session so far"),
    "/resume": ("[ID]", "go on with another session; without ID: which there are"),
    "/continue": ("", "go on with a turn that was cut"),
    "/rename": ("NAME", "give the session another name"),
    "/quit": ("", "end the conversation; Ctrl-D does it too"),
}
LISTED = 10
"""Sessions that `/resume` lists."""

_COMMAND = re.compile(r"/[A-Za-z]+(?=\s|$)")


class Refused(Exception):
    """A command cannot be carried out; the text says why."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """The conversation goes on with another session, with the turn that was cut, or not at all."""

    record: SessionRecord | None = None
    with_turn: bool = False


def is_command(prompt: str) -> bool:
    """Return whether a prompt is a command: `/tree`, and not `/etc/passwd`."""
    return _COMMAND.match(prompt) is not None


class Commands:
    """Carries out the commands of one conversation; what they say goes to stderr."""

    def __init__(self, conversation: Conversation, bundle: Bundle, store: SessionStore, plugins: Plugins) -> None:
        self._conversation = conversation
        self._bundle = bundle
        self._store = store
        self._plugins = plugins

    async def run(self, line: str) -> GoOn | None:
        """Carry out a command; return how the conversation goes on, None: with the next prompt. Raises `Refused`."""
        name, _, argument = line.strip().partition(" ")
        if name not in COMMANDS:
            close = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
            raise Refused(f"no command {name}{f'; did you mean {close[0]}?' if close else '.'} /help lists them")
        if argument.strip() and not COMMANDS[name][0]:
            raise Refused(f"{name} takes nothing more")
        outcome: GoOn | None = await getattr(self, f"_{name[1:]}")(argument.strip())
        return outcome

    async def _help(self, argument: str) -> None:
        for name, (argument, meaning) in COMMANDS.items():
            tell(f"{f'{name} {argument}':<16} {meaning}")
        tell('A line that ends with \\ goes on in the next; or begin with """ and end with """.')
        tell("Ctrl-C stops a turn after its step, twice at once; at the prompt it clears the line, twice it ends.")

    async def _quit(self, argument: str) -> GoOn:
        return GoOn()

    async def _continue(self, argument: str) -> GoOn:
        if not await self._conversation.is_cut():
            raise Refused("the last turn was not cut; say what comes next")
        return GoOn(with_turn=True)

    async def _fork(self, turn: str) -> GoOn:
        from ...forks import fork_stored

        if turn and not (turn.isascii() and turn.isdigit()):
            raise Refused(f"'{turn}' is not the number of a turn")
        source = await self._stored()
        fork = await fork_stored(self._store, source, turn=int(turn) if turn else None, plugins=self._plugins)
        tell(f"{fork.session_id} shares {plural(fork.message_count, 'message')} of {source.session_id}")
        return GoOn(fork)

    async def _tree(self, argument: str) -> None:
        from ...lineage import forest, walk
        from ...presence import as_it_is

        here = await self._stored()
        records = [as_it_is(record) for record in await self._store.sessions(project=here.project)]
        for root in forest(records):
            if any(node.record.session_id == here.session_id for _, node in walk([root])):
                print_session_tree([root], f"You are in {here.session_id}", console(err=True))

    async def _agents(self, argument: str) -> None:
        agents = {name: agent for name, agent in self._bundle.agents.items() if isinstance(agent, dict)}
        if not agents:
            raise Refused("the bundle has no agents")
        for name, agent in agents.items():
            tell(f"{plain(name)}  {one_line(str(agent.get('description') or ''), 100)}".rstrip())

    async def _cost(self, argument: str) -> None:
        usage = self._conversation.total
        tell(f"{plural(usage.requests, 'request')} of this session and those below it")
        tell(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out; {dollars(usage) or 'cost not known'}")

    async def _resume(self, prefix: str) -> GoOn | None:
        if prefix:
            return GoOn(await session_by_prefix(self._store, prefix))
        records = await self._store.sessions(project=self._conversation.record.project, limit=LISTED)
        for record in records:
            tell(f"{record.session_id}  {record.status}  {plural(record.turn_count, 'turn')}  {plain(record.name)}")
        tell("Go on with one of them: /resume ID" if records else "No sessions in this folder yet.")
        return None

    async def _rename(self, name: str) -> None:
        name = checked_name(name)
        record = await self._stored()
        await self._store.update(record.session_id, name=name)
        tell(f"{record.session_id}: {name}")

    async def _stored(self) -> SessionRecord:
        record = await self._conversation.stored()
        if record is None:
            raise Refused("nothing has been said yet")
        return record
