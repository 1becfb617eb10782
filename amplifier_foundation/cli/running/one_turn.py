"""One turn of a session, and the code that the program ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import exits
from ..app import opened_store, plugins_of
from .approving import Approvals
from .choosing import choose
from .showing import Display
from .stopping import Stops, TurnCut, interrupts_to
from .terminal import own_terminal, tell
from .watching import Watch

if TYPE_CHECKING:
    from ...conversation import Conversation, Turn
    from .choosing import Wanted
    from .showing import View


async def one_turn(ctx: click.Context, wanted: Wanted, prompt: str, view: View) -> int:
    """Take one turn and show it; return the exit code. Raises what the turn raises, when it has been shown."""
    from ...conversation import open_conversation

    plugins, quiet = plugins_of(ctx), bool(ctx.obj["quiet"])
    watch, approvals = Watch(view), Approvals(own_terminal())
    plugins.register(watch, "run-watch")
    async with opened_store(plugins) as store:
        chosen = await choose(wanted, store, plugins, ask_here)
        async with open_conversation(
            chosen.bundle,
            store,
            plugins,
            resume=chosen.record,
            working_dir=wanted.working_dir,
            name=wanted.name,
            approval_system=approvals,
            display_system=Display(quiet=quiet),
        ) as conversation:
            if not prompt and not await conversation.is_cut():
                raise click.UsageError("the last turn was not cut; say what comes next")
            watch.attach(conversation.session)
            approvals.attach(conversation.session, conversation.record.name)
            return await _taken(conversation, prompt, view, approvals)


async def ask_here(question: str) -> bool:
    """Ask a person in this thread."""
    return click.confirm(question, err=True)


async def _taken(conversation: Conversation, prompt: str, view: View, approvals: Approvals) -> int:
    session, stops = conversation.session, Stops(approvals)
    turn: Turn | None = None
    status, error = "failed", "interrupted"
    view.begin(session.session_id)
    try:
        with interrupts_to(stops.press):
            turn = await stops.obeyed(session, conversation.say(prompt))
        status = turn.status
    except TurnCut:
        status = "interrupted"
    except Exception as problem:
        error = str(problem)
        raise
    finally:
        facts = _result(conversation, turn, status, approvals)
        view.end({**facts, "error": None if turn else error})
    return _code(conversation, turn, stops, approvals)


def _result(conversation: Conversation, turn: Turn | None, status: str, approvals: Approvals) -> dict[str, Any]:
    return {
        "session_id": conversation.session.session_id,
        "status": status,
        "output": turn.output if turn else "",
        "turn_count": conversation.turn_count,
        "usage": conversation.usage.to_dict(),
        "unanswered": list(approvals.unanswered),
    }


def _code(conversation: Conversation, turn: Turn | None, stops: Stops, approvals: Approvals) -> int:
    if turn is None or turn.status == "cancelled":
        tell(f"amplifier: stopped; go on with: amplifier run --resume {conversation.session.session_id}")
        return exits.INTERRUPTED if turn is None or stops.at_once else exits.CANCELLED
    return exits.WAITING if approvals.unanswered else exits.OK
