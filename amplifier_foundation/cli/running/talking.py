"""A conversation at a terminal: prompts, commands, and turns that Ctrl-C stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from amplifier_core.errors import AmplifierError, StoreError

from .. import exits
from ..app import opened_store, plugins_of
from ..output import plural
from .approving import Approvals
from .choosing import Chosen, Wanted, choose
from .commands import COMMANDS, Commands, GoOn, Refused, is_command
from .foreground import Foreground, PressedInterrupt
from .lines import LineEditor
from .showing import Display, PersonView
from .stopping import Stops, TurnCut
from .terminal import own_terminal, plain, tell
from .watching import Watch

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionStore

    from ...conversation import Conversation


def talk(ctx: click.Context, wanted: Wanted) -> int:
    """Converse with the person at the terminal until they end it; return the exit code."""
    from ...paths import data_home, make_private

    editor = LineEditor(make_private(data_home()) / "prompts", list(COMMANDS))
    foreground = Foreground()
    return foreground.run(Talk(ctx, foreground, editor).run(wanted))


class Talk:
    """One person, who goes from session to session."""

    def __init__(self, ctx: click.Context, foreground: Foreground, editor: LineEditor) -> None:
        self._ctx = ctx
        self._quiet = bool(ctx.obj["quiet"])
        self._foreground = foreground
        self._editor = editor
        self._view = PersonView(quiet=self._quiet, closing=False)
        self._watch = Watch(self._view)

    async def run(self, wanted: Wanted) -> int:
        """Converse in the session that is wanted, then in those that the person goes on to."""
        plugins = plugins_of(self._ctx)
        plugins.register(self._watch, "run-watch")
        # The context of a command is that of its thread alone, and this is another one.
        with self._ctx.scope(cleanup=False):
            return await self._converse(wanted, plugins)

    async def _converse(self, wanted: Wanted, plugins: Plugins) -> int:
        async with opened_store(plugins) as store:
            chosen: Chosen | None = await choose(wanted, store, plugins, self._confirm)
            while chosen is not None:
                chosen = await self._in_session(chosen, wanted, store, plugins)
        return exits.OK

    async def _confirm(self, question: str) -> bool:
        return await self._foreground.call(lambda: click.confirm(question, err=True))

    async def _in_session(self, chosen: Chosen, wanted: Wanted, store: SessionStore, plugins: Plugins) -> Chosen | None:
        """Converse in one session; return what the person goes on with, None when they end it."""
        from ...conversation import open_conversation

        approvals = Approvals(own_terminal())
        async with open_conversation(
            chosen.bundle,
            store,
            plugins,
            resume=chosen.record,
            working_dir=wanted.working_dir,
            name=wanted.name,
            approval_system=approvals,
            display_system=Display(quiet=self._quiet),
        ) as conversation:
            self._watch.attach(conversation.session)
            approvals.attach(conversation.session, conversation.record.name)
            await self._greet(conversation)
            commands = Commands(conversation, chosen.bundle, store, plugins)
            following = await self._until_left(conversation, commands, approvals, store, plugins)
            self._part(conversation)
            return following

    async def _until_left(
        self,
        conversation: Conversation,
        commands: Commands,
        approvals: Approvals,
        store: SessionStore,
        plugins: Plugins,
    ) -> Chosen | None:
        while (prompt := await self._prompt()) is not None:
            try:
                if not is_command(prompt):
                    await self._turn(conversation, prompt, approvals)
                elif (going := await commands.run(prompt)) is None:
                    continue
                elif going.with_turn:
                    await self._turn(conversation, "", approvals)
                else:
                    return await self._following(going, store, plugins)
            except StoreError:
                raise  # nothing that is said from here on could be kept
            except (Refused, AmplifierError, click.ClickException) as error:
                tell(f"amplifier: {error.message if isinstance(error, click.ClickException) else error}")
        return None

    async def _following(self, going: GoOn, store: SessionStore, plugins: Plugins) -> Chosen | None:
        if going.record is None:
            return None
        return await choose(Wanted(resume=going.record.session_id), store, plugins, self._confirm)

    async def _prompt(self) -> str | None:
        """Return what the person says next; None when they have nothing more to say."""
        pressed = 0
        while pressed < 2:
            try:
                prompt = await self._foreground.call(self._editor.read)
            except EOFError:
                tell("")
                return None
            except PressedInterrupt:
                pressed += 1
                tell("" if pressed > 1 else "\n(Ctrl-C again ends the conversation)")
                continue
            pressed = 0
            if prompt.strip():
                return prompt
        return None

    async def _turn(self, conversation: Conversation, prompt: str, approvals: Approvals) -> None:
        stops = Stops(approvals)
        result = {"session_id": conversation.session.session_id, "output": "", "error": None}
        try:
            with self._foreground.interrupts_to(stops.press):
                turn = await stops.obeyed(conversation.session, conversation.say(prompt))
            if turn.status == "cancelled":
                result["error"] = "stopped"
            result["output"] = turn.output
        except TurnCut:
            result["error"] = "stopped"
        except StoreError:
            raise
        except Exception as problem:
            result["error"] = f"{'' if isinstance(problem, AmplifierError) else type(problem).__name__ + ': '}{problem}"
            if self._ctx.obj["debug"]:
                import traceback

                traceback.print_exception(problem)
        self._view.end(result)
        if result["error"] is not None:
            tell(f"amplifier: {plain(result['error'])}", fg="yellow")

    async def _greet(self, conversation: Conversation) -> None:
        if self._quiet:
            return
        record = conversation.record
        past = f", {plural(conversation.turn_count, 'turn')} so far" if conversation.is_stored else ""
        tell(f"{plain(record.name)}: session {record.session_id}{past}. /help says what you can do; Ctrl-D ends.")
        if await conversation.is_cut():
            tell("Its last turn has no answer: /continue goes on with it.")

    def _part(self, conversation: Conversation) -> None:
        if conversation.is_stored and not self._quiet:
            session_id = conversation.session.session_id
            tell(f"{session_id}: {plural(conversation.turn_count, 'turn')}. amplifier run --resume {session_id}")
