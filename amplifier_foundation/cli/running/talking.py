"""Hold a conversation at a terminal: prompts, commands, and turns; Ctrl-C stops a turn."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amplifier_core.errors import AmplifierError, StoreError
from amplifier_core.process_ends import at_process_end

from ...background.tasks import run_beside
from ...cli import exits
from ...documents.safe_text import plain
from ...sessions.failures import describe_failure
from ...spawning.turn_facts import FactReporter
from ..app import plugins_of, use_store
from ..loops import end_start
from ..output import plural
from ..questions import showing
from ..trusting import Asking
from .approving import Approvals
from .choosing import Chosen, Wanted, choose
from .commands import ALIASES, COMMANDS, STEER, Commands, Refused, is_command
from .foreground import Foreground, PressedInterrupt
from .hearing import called_before_end
from .lines import LineEditor
from .showing import PersonView
from .steady import SteadyView
from .stopping import Stops, TurnCut
from .terminal import own_terminal, tell
from .typing_ahead import TypedLines
from .workers import WATCH, open_chosen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionStore

    from ...spawning.conversation import Conversation
    from .panel import Panel

Result = TypeVar("Result")

PANEL = "conversation.panel"
"""The capability of a session that always has something to show, such as the work of other sessions."""
LOOK = 0.5
"""Seconds between two looks for a panel during a turn: a loop may register it when it begins."""


def talk(ctx: click.Context, wanted: Wanted) -> int:
    """Hold a conversation until the person ends it; return the exit code."""
    from ...paths import data_home, make_private
    from ...settings import read_user_settings

    remembered = read_user_settings().get("retention.prompts")  # no project empties the history of all
    editor = LineEditor(make_private(data_home()) / "prompts", list(COMMANDS), remembered, ALIASES)
    foreground = Foreground()
    talk = Talk(ctx, foreground, editor)
    at_process_end(talk.close)
    try:
        with called_before_end(talk.close):
            return foreground.run(talk.run(wanted))
    finally:
        talk.close()


class Talk:
    """The conversation of one person, across sessions."""

    def __init__(self, ctx: click.Context, foreground: Foreground, editor: LineEditor) -> None:
        self._ctx = ctx
        self._quiet = bool(ctx.obj["quiet"])
        self._foreground = foreground
        self._editor = editor
        self._view = PersonView(quiet=self._quiet, closing=False)
        self._watch = FactReporter(SteadyView(self._view), waits=True)
        self._asking: Asking | None = None
        self._typed = TypedLines(self._view.show_typing if self._view.console is not None else None)
        self._panel: Panel | None = None
        self._waiting: deque[str] = deque()
        """Commands that were typed during a turn, and prompts that it does not take in."""

    async def run(self, wanted: Wanted) -> int:
        """Converse in the chosen session, then in every session the person switches to."""
        plugins = plugins_of(self._ctx)
        plugins.register(self._watch, WATCH)
        # The context of a command belongs to its thread, and this is another thread.
        with self._ctx.scope(cleanup=False):
            self._asking = asking = Asking(plugins, wanted.trusts, self._confirm)
            await asking.settle_settings()
            async with use_store(plugins) as store:
                chosen: Chosen | None = await choose(wanted, store, plugins, self._confirm, asking)
                while chosen is not None:
                    chosen = await self._converse(chosen, wanted, store, plugins)
        return exits.OK

    def close(self) -> None:
        """Give the whole terminal back; call this in the main thread."""
        self._typed.give_back()
        if self._panel is not None:
            self._panel.close()

    async def _confirm(self, question: str) -> bool:
        def ask() -> bool:
            with showing():
                return click.confirm(question, err=True)

        return await self._foreground.call(ask)

    async def _converse(self, chosen: Chosen, wanted: Wanted, store: SessionStore, plugins: Plugins) -> Chosen | None:
        """Converse in one session; return the next one, None at the end."""
        approvals = Approvals(own_terminal(), self._view.pause, self._typed.leave)
        async with AsyncExitStack() as stack:
            opening = stack.enter_async_context(open_chosen(self._ctx, chosen, store, plugins, wanted, approvals))
            conversation, workers = await self._unless_pressed(opening)
            end_start()
            self._watch.attach(conversation.session)
            approvals.attach(conversation.session, conversation.record.name)
            await self._greet(conversation)
            commands = Commands(conversation, chosen.bundle, store, plugins)
            try:
                following = await self._take_turns(conversation, commands, approvals, store, plugins)
            finally:
                if self._panel is not None:
                    self._foreground.call_at_once(self._panel.close)
                    self._panel = None
            await workers.leave()
            if conversation.is_stored and not self._quiet:
                session_id = conversation.session.session_id
                tell(f"{session_id}: {plural(conversation.turn_count, 'turn')}. amplifier run --resume {session_id}")
            return following

    async def _take_turns(
        self,
        conversation: Conversation,
        commands: Commands,
        approvals: Approvals,
        store: SessionStore,
        plugins: Plugins,
    ) -> Chosen | None:
        while True:
            self._look_for_panel(conversation.session)
            self._editor.words = await commands.refresh()
            if (prompt := await self._prompt()) is None:
                return None
            try:
                if not is_command(prompt):
                    await self._turn(conversation, prompt, approvals)
                elif (text := await commands.expand(prompt, self._foreground.interrupts_to)) is not None:
                    await self._turn(conversation, text, approvals)
                elif (going := await commands.run(prompt)) is None:
                    continue
                elif going.with_turn:
                    await self._turn(conversation, "", approvals)
                elif going.record is None:
                    return None
                else:
                    following = Wanted(resume=going.record.session_id)
                    return await choose(following, store, plugins, self._confirm, self._asking)
            except StoreError:
                raise  # nothing after this could be stored
            except (Refused, AmplifierError, click.ClickException) as error:
                tell(f"amplifier: {error.message if isinstance(error, click.ClickException) else error}")

    async def _prompt(self) -> str | None:
        """Return the next prompt; None at the end of the conversation."""
        if self._waiting:
            return self._waiting.popleft()
        if self._typed.is_ended:
            return None
        pressed, begun = 0, self._typed.take_begun()
        while pressed < 2:
            try:
                prompt = await self._foreground.call(partial(self._editor.read, begun), self._editor.is_waiting)
            except EOFError:
                tell("")
                return None
            except PressedInterrupt:
                pressed, begun = pressed + 1, ""
                tell("" if pressed > 1 else "\n(Ctrl-C again quits)")
                continue
            pressed, begun = 0, ""
            if prompt.strip():
                return prompt
        return None

    async def _turn(self, conversation: Conversation, prompt: str, approvals: Approvals) -> None:
        stops, before = Stops(approvals), conversation.usage
        stops.at_end = self._view.pause
        result: dict[str, Any] = {"session_id": conversation.session.session_id, "output": "", "error": None}
        self._view.begin(result["session_id"])
        try:
            with (
                self._foreground.interrupts_to(partial(self._press, stops)),
                self._foreground.returns_to(approvals.show_again),
                self._steering(conversation),
            ):
                async with run_beside(self._await_panel(conversation.session), "panel"):
                    turn = await stops.watch(conversation.session, conversation.say(prompt))
            if turn.status == "cancelled":
                result["error"] = "stopped"
            result["output"], result["error"] = turn.output, result["error"] or turn.error
        except TurnCut:
            result["error"] = "stopped"
        except StoreError:
            raise
        except Exception as problem:
            result["error"] = str(problem) if isinstance(problem, AmplifierError) else describe_failure(problem)
            if self._ctx.obj["debug"]:
                import traceback

                tell("".join(traceback.format_exception(problem)))
        finally:
            self._watch.flush()
            self._view.pause()
        self._view.end({**result, "usage": conversation.usage.since(before).to_dict()})
        if result["error"] is not None:
            tell(f"amplifier: {plain(result['error'])}", fg="yellow")

    def _press(self, stops: Stops) -> None:
        """Stop the turn, and forget the prompts that were typed for after it, as a terminal does."""
        self._typed.take_begun()
        self._waiting = deque(each for each in self._waiting if is_command(each))
        stops.press()

    def _look_for_panel(self, session: AmplifierSession) -> None:
        """Show the panel of a session, which its loop may register late; a panel that is shown is fitted."""
        console, source = self._view.console, session.coordinator.get_capability(PANEL)
        if console is None or source is None:
            return
        if self._panel is None:
            from .panel import Panel

            self._panel = Panel(source, console, self._foreground.call_at_once, self._editor.count_more_rows)
            self._foreground.call_at_once(self._panel.open)
        else:
            self._foreground.call_at_once(self._panel.fit)
        if self._panel.problem is not None:
            tell(f"amplifier: the panel of this session failed: {plain(describe_failure(self._panel.problem))}")
            self._panel.problem = None

    async def _await_panel(self, session: AmplifierSession) -> None:
        while self._panel is None and self._view.console is not None:
            await asyncio.sleep(LOOK)
            self._look_for_panel(session)

    def _steering(self, conversation: Conversation) -> AbstractContextManager[None]:
        """Send lines that are typed while the block runs into the turn; without a loop for it they are prompts."""
        steer: Callable[[str], bool] | None = conversation.session.coordinator.get_capability(STEER)

        def take(text: str) -> None:
            text = ALIASES.get(text, text)
            if steer is None or is_command(text):
                self._waiting.append(text)
                self._view.show_typed(text, "runs after this turn")
                return
            try:
                is_taken = steer(text)
            except Exception as problem:  # a loop may refuse a message: too many wait
                self._view.show_typed(text, f"refused: {problem}")
            else:
                self._view.show_typed(text, "the turn takes it in" if is_taken else "the next turn takes it in")

        return self._typed.hear(take)

    async def _unless_pressed(self, opening: Awaitable[Result]) -> Result:
        """Return what comes of `opening`. Raises `click.Abort` when Ctrl-C stops it."""
        task, is_pressed = asyncio.current_task(), False
        assert task is not None  # a running coroutine has a task

        def stop() -> None:
            nonlocal is_pressed
            is_pressed = True
            task.cancel()

        try:
            with self._foreground.interrupts_to(stop):
                return await opening
        except asyncio.CancelledError:
            if not is_pressed:
                raise
            raise click.Abort from None

    async def _greet(self, conversation: Conversation) -> None:
        if self._quiet:
            return
        record = conversation.record
        past = f", {plural(conversation.turn_count, 'turn')} so far" if conversation.is_stored else ""
        tell(f"{plain(record.name)}: session {record.session_id}{past}. /help lists commands; Ctrl-D quits.")
        if await conversation.is_cut():
            tell("Its last turn was interrupted: /continue continues it.")
