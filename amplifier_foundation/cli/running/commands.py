"""Run the commands of a conversation; they begin with a slash."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from amplifier_core.frozen import frozen
from amplifier_core.prompt_commands import PromptCommands, collect_commands, split_command

from ...documents.safe_text import one_line, plain
from ...operations.sessions import Point, fork_session, rename_session
from ..app import find_session, person
from ..output import console, plural, print_session_tree
from ..sessions.changing import check_name
from .showing import describe_usage
from .terminal import tell

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord, SessionStore

    from ...bundle.model import Bundle
    from ...spawning.conversation import Conversation
    from .expanding import Listen

COMMANDS = {
    "/help": ("", "list these commands"),
    "/fork": ("[TURN]", "fork the session, now or at the end of a turn, and continue in the fork"),
    "/tree": ("", "the tree of this session, with its forks"),
    "/agents": ("", "the agents of the bundle"),
    "/cost": ("", "the tokens and the cost of this session so far"),
    "/resume": ("[ID]", "continue another session; without ID: list them"),
    "/continue": ("", "continue the interrupted turn"),
    "/rename": ("NAME", "rename the session"),
    "/quit": ("", "end the conversation; exit, quit and Ctrl-D do it too"),
}
ALIASES = {"exit": "/quit", "quit": "/quit", ":q": "/quit", "/": "/help"}
"""Whole lines that mean a command: other programs end with them, or list their commands."""
STEER = "session.steer"
"""The capability of a loop that takes in messages while it runs."""
LISTED = 10
"""Sessions listed by `/resume`."""
LONGEST_USAGE, TOLD = 40, 50
"""Characters of a module's command with its argument in `/help`, and problems of them that are told."""
BUILT_IN = frozenset(name[1:] for name in COMMANDS)


class Refused(Exception):
    """A command cannot be run; the text is the reason."""


@frozen
class GoOn:
    """Continue the conversation with another session, with the interrupted turn, or not at all."""

    record: SessionRecord | None = None
    with_turn: bool = False


def is_command(prompt: str) -> bool:
    """Return whether a prompt is a command: `/tree` is one, `/etc/passwd` is not."""
    return split_command(prompt) is not None


class Commands:
    """Runs the commands of one conversation; their output goes to stderr."""

    def __init__(self, conversation: Conversation, bundle: Bundle, store: SessionStore, plugins: Plugins) -> None:
        self._conversation = conversation
        self._bundle = bundle
        self._store = store
        self._plugins = plugins
        self._found = PromptCommands({}, [])
        self._told: set[str] = set()
        """The problems of modules' commands that were told."""

    async def refresh(self) -> list[str]:
        """Ask the modules for their commands, and return the names of all; tell each problem once."""
        self._found = await collect_commands(self._conversation.session.coordinator, BUILT_IN)
        for problem in self._found.problems:
            if problem not in self._told and len(self._told) < TOLD:
                self._told.add(problem)
                tell(f"amplifier: {plain(problem)}", fg="yellow")
        return [*COMMANDS, *(f"/{name}" for name in self._found.offered)]

    async def expand(self, line: str, listen: Listen) -> str | None:
        """Return the prompt that a module's command makes of a line; None: no module offers such a command.

        Raises `CommandFailed`, also when Ctrl-C stops it, and `CommandMissing`.
        """
        from .expanding import expand

        name, _ = split_command(line) or ("", "")
        if name in BUILT_IN:
            return None
        if name not in self._found.offered:
            await self.refresh()  # it came after the prompt
        found = self._found.find(line)
        return None if found is None else await expand(*found, listen)

    async def run(self, line: str) -> GoOn | None:
        """Run a command; return the next step of the conversation, None for the next prompt. Raises `Refused`."""
        name, argument = split_command(line) or ("", "")
        name = f"/{name}"
        if name not in COMMANDS:
            known = [*COMMANDS, *(f"/{each}" for each in self._found.offered)]
            close = get_close_matches(name, known, n=1, cutoff=0.5)
            raise Refused(f"no command {name}{f'; did you mean {close[0]}?' if close else '.'} /help lists them")
        if argument and not COMMANDS[name][0]:
            raise Refused(f"{name} takes no argument")
        outcome: GoOn | None = await getattr(self, f"_{name[1:]}")(argument)
        return outcome

    async def _help(self, argument: str) -> None:
        rows = [(f"{name} {argument}", meaning) for name, (argument, meaning) in COMMANDS.items()]
        for each in self._found.offered.values():
            shown = one_line(f"/{each.name} {each.hint}", LONGEST_USAGE)
            rows.append((shown, f"{one_line(each.description, 100)} ({plain(each.source)})".lstrip()))
        width = max(len(usage) for usage, _ in rows)
        for usage, meaning in rows:
            tell(f"{usage:<{width}} {meaning}")
        tell('End a line with \\ to continue it in the next; or put lines between """ and """.')
        steers = self._conversation.session.coordinator.get_capability(STEER) is not None
        queued = "the next prompt; with session: {orchestrator: loop-streaming} the turn takes it in"
        tell(f"A line typed during a turn is {'taken in at its next step' if steers else queued}.")
        tell("Ctrl-C stops a turn after its step, twice at once; at the prompt it clears the line, twice it quits.")

    async def _quit(self, argument: str) -> GoOn:
        return GoOn()

    async def _continue(self, argument: str) -> GoOn:
        if not await self._conversation.is_cut():
            raise Refused("the last turn was not interrupted; type a prompt")
        return GoOn(with_turn=True)

    async def _fork(self, turn: str) -> GoOn:
        if turn and not (turn.isascii() and turn.isdigit()):
            raise Refused(f"'{turn}' is not the number of a turn")
        source = await self._read_record()
        point = Point(source.session_id, turn=int(turn) if turn else None)
        fork, _ = await fork_session(self._store, person(), source, point, plugins=self._plugins)
        tell(f"{fork.session_id} shares {plural(fork.message_count, 'message')} of {source.session_id}")
        return GoOn(fork)

    async def _tree(self, argument: str) -> None:
        from ...sessions.lineage import forest, walk
        from ...sessions.presence import as_it_is

        here = await self._read_record()
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
        tell(f"{plural(usage.requests, 'request')} of this session and its descendants")
        tell(describe_usage(usage))

    async def _resume(self, prefix: str) -> GoOn | None:
        if prefix:
            return GoOn(await find_session(self._store, prefix))
        from ...sessions.presence import status_of

        records = await self._store.sessions(project=self._conversation.record.project, limit=LISTED)
        for record in records:
            tell(f"{record.session_id}  {status_of(record)}  {plural(record.turn_count, 'turn')}  {plain(record.name)}")
        tell("Continue one of them: /resume ID" if records else "No sessions in this folder yet.")
        return None

    async def _rename(self, name: str) -> None:
        name = check_name(name)
        record = await rename_session(self._store, person(), (await self._read_record()).session_id, name)
        tell(f"{record.session_id}: {record.name}")

    async def _read_record(self) -> SessionRecord:
        record = await self._conversation.read_record()
        if record is None:
            raise Refused("this session has no messages yet")
        return record
