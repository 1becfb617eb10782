"""Run one turn of a session, and choose the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...cli import exits
from ...documents.safe_text import plain
from ...sessions.failures import describe_failure
from ...spawning.turn_facts import FactReporter
from ..app import plugins_of, use_store
from ..loops import end_start
from ..trusting import Asking, confirm_here
from .approving import Approvals
from .choosing import choose
from .showing import PersonView
from .steady import SteadyView
from .stopping import Presses, Stops, TurnCut, interrupts_to, returns_to
from .terminal import own_terminal, tell
from .workers import WATCH, open_chosen

if TYPE_CHECKING:
    from ...spawning.conversation import Conversation, Turn
    from .choosing import Wanted
    from .replaying import RunRecorder
    from .showing import View


async def one_turn(ctx: click.Context, wanted: Wanted, prompt: str, view: View) -> int:
    """Run one turn and show it; return the exit code. An error of the turn is shown, then raised."""
    plugins, quiet, steady = plugins_of(ctx), bool(ctx.obj["quiet"]), SteadyView(view)
    watch = FactReporter(steady, waits=isinstance(view, PersonView))
    approvals = Approvals(own_terminal(), steady.pause)
    plugins.register(watch, WATCH)
    asking = Asking(plugins, wanted.trusts)
    await asking.settle_settings()
    async with use_store(plugins) as store:
        chosen = await choose(wanted, store, plugins, confirm_here, asking)
        recorder = None
        if wanted.record is not None:
            from .replaying import RunRecorder

            resumed = chosen.record.session_id if chosen.record is not None else None
            recorder = RunRecorder(wanted.record, chosen.bundle, resumed=resumed)
        attach = recorder.attach if recorder is not None else None
        async with open_chosen(ctx, chosen, store, plugins, wanted, approvals, attach) as (conversation, workers):
            if not prompt and not await conversation.is_cut():
                raise click.UsageError("the last turn was not interrupted; give a prompt")
            end_start()
            watch.attach(conversation.session)
            approvals.attach(conversation.session, conversation.record.name)
            presses = Presses()
            with interrupts_to(presses.press), returns_to(approvals.show_again):
                if prompt.startswith("/"):
                    from .expanding import expand_prompt

                    prompt = await expand_prompt(conversation.session.coordinator, prompt, presses.to)
                code = await _run_turn(conversation, prompt, steady, watch, approvals, recorder, presses)
                if code == exits.OK:
                    return await workers.finish(conversation.session, presses, quiet=quiet)
                await workers.leave()
            return code


async def _run_turn(
    conversation: Conversation,
    prompt: str,
    view: SteadyView,
    watch: FactReporter,
    approvals: Approvals,
    recorder: RunRecorder | None,
    presses: Presses,
) -> int:
    session, stops = conversation.session, Stops(approvals)
    turn: Turn | None = None
    status, error = "failed", "interrupted"

    def finish() -> None:
        result = {
            "session_id": session.session_id,
            "status": status,
            "output": turn.output if turn else "",
            "turn_count": conversation.turn_count,
            "usage": conversation.usage.to_dict(),
            "unanswered": list(approvals.unanswered),
            "error": turn.error if turn else error,
        }
        if recorder is not None:
            recorder.end_turn(result)
        watch.flush()
        view.end(result)

    def cut() -> None:
        nonlocal status
        status = "interrupted"
        finish()

    view.stop, stops.at_end = stops.stop_unread, cut
    view.begin(session.session_id)
    if recorder is not None:
        recorder.begin_turn(session.session_id, prompt)
    try:
        with presses.to(stops.press):
            turn = await stops.watch(session, conversation.say(prompt))
        status = turn.status
    except TurnCut:
        status = "interrupted"
    except Exception as problem:
        error = describe_failure(problem)
        raise
    finally:
        finish()
    if turn is None or turn.status == "cancelled":
        why = "" if view.is_read else ", for nobody reads its output"
        tell(f"amplifier: stopped{why}; continue with: amplifier run --resume {session.session_id}")
        return exits.INTERRUPTED if turn is None or stops.at_once else exits.CANCELLED
    if turn.error is not None:
        tell(f"amplifier: {plain(turn.error)}")
        return exits.FAILED
    if approvals.unanswered:
        return exits.WAITING
    return exits.OK
