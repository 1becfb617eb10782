"""Run `amplifier flow approve | deny | cancel`, and ask the questions of a run at the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from amplifier_core.errors import AmplifierError, SessionConflict, SessionNotFound
from amplifier_core.utils.command_secrets import redact_commands

from ..documents.safe_text import one_line, plain
from ..operations.approvals import answer_approval
from ..operations.running import status_elsewhere, wake
from ..operations.runs import cancel_run, list_runs
from ..operations.sessions import LAST
from .app import find_session, json_option, person, projects_here, storage_plugins, use_inbox
from .approvals import SHOWN
from .completing import complete_runs
from .loops import run_in_loop
from .output import print_json
from .running.terminal import tell

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from amplifier_core.storage import DurableStore, SessionRecord, SessionStore

    from ..background.approvals import Approval, Scope

PATIENCE = 10.0
"""Seconds until `cancel` no longer waits for the end of a run."""


class RunNotFound(AmplifierError, LookupError):
    """No run of a workflow has this id."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}. See: amplifier flow list")


@click.command(epilog="Example: amplifier flow approve last")
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.argument("task", metavar="[TASK|ID]", required=False)
@click.option("--reason", default="", help="What the run is told with the answer.")
@json_option
@click.pass_context
@run_in_loop
async def approve(ctx: click.Context, run_id: str, task: str | None, reason: str, as_json: bool) -> None:
    """Allow what a run waits for: its only question, or that of TASK, or the one with the id ID."""
    await _answer(ctx, run_id, task, "approved", reason, as_json=as_json)


@click.command(epilog='Example: amplifier flow deny last --reason "ask again on Monday"')
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.argument("task", metavar="[TASK|ID]", required=False)
@click.option("--reason", default="", help="What the run, or the model, is told with the answer.")
@json_option
@click.pass_context
@run_in_loop
async def deny(ctx: click.Context, run_id: str, task: str | None, reason: str, as_json: bool) -> None:
    """Refuse what a run waits for: a denied task fails, and a model whose call is denied goes on without it."""
    await _answer(ctx, run_id, task, "denied", reason, as_json=as_json)


async def _answer(
    ctx: click.Context,
    run_id: str,
    task: str | None,
    state: Literal["approved", "denied"],
    reason: str,
    *,
    as_json: bool,
) -> None:
    from ..background.keys import run_of
    from ..flows.runs import read_questions

    verb = "approve" if state == "approved" else "deny"
    async with use_inbox(storage_plugins(ctx)) as store:
        record = await find_run(store, run_id)
        question = _choose(record, await read_questions(store, record), task, verb)
        decided = await answer_approval(store, person(), question, state, "once", reason, noun="flow")
        left = len(await read_questions(store, record))
        project, queue, is_own = decided.project, decided.queue, run_of(decided) is None
        runs = is_own and (wake(project, queue) or await status_elsewhere(store, project, queue) != "")
    if as_json:
        told = {"run": record.session_id, "id": decided.id, "state": state, "left": left, "runs": runs}
        print_json(f"flow.{verb}/1", told)
        return
    click.echo(f"{decided.id[:SHOWN]} {state}: {describe(decided)}")
    if left:
        click.echo(f"{left} more of the run wait for an answer", err=True)
    elif is_own:
        click.echo(f"the run goes on {'now' if runs else 'at the next: amplifier up'}", err=True)
    else:
        click.echo(f"Go on with the run: amplifier flow resume {record.session_id}", err=True)


def _choose(record: SessionRecord, waiting: Sequence[Approval], task: str | None, verb: str) -> Approval:
    """Return the question that is meant. Raises `SessionConflict` when there is none, or several."""
    from ..flows.asking import task_of

    run_id = record.session_id
    if not waiting:
        raise SessionConflict(run_id, f"the run {run_id} waits for no answer. See: amplifier flow show {run_id}")
    found = [each for each in waiting if task is None or task == task_of(each) or each.id.startswith(task)]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(f"{each.id[:SHOWN]} {describe(each)}" for each in found or waiting)
    what = f"nothing of '{task}' waits" if not found else "several questions wait"
    raise SessionConflict(run_id, f"{what} in the run {run_id}: {listed}. Name one: amplifier flow {verb} {run_id} ID")


@click.command(epilog="Example: amplifier flow cancel last")
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@json_option
@click.pass_context
@run_in_loop
async def cancel(ctx: click.Context, run_id: str, as_json: bool) -> None:
    """End a run that runs or waits; what is done stays, and only `amplifier flow resume` goes on with it."""
    import asyncio

    from ..flows.claims import find_open
    from ..sessions.presence import as_it_is

    async with use_inbox(storage_plugins(ctx)) as store:
        record = await find_run(store, run_id)
        is_over = await cancel_run(store, person(), record)
        for _ in range(int(PATIENCE / 0.1)):
            if is_over:
                break
            await asyncio.sleep(0.1)
            delivery = await find_open(store, record)
            is_over = delivery is None or delivery.state != "claimed"
        status = as_it_is(await store.get(record.session_id)).status if is_over else "running"
    if as_json:
        print_json("flow.cancel/1", {"run": record.session_id, "cancelled": status == "cancelled", "status": status})
    elif is_over:
        click.echo(f"{record.session_id} is {status}")
    else:
        click.echo(f"{record.session_id} is asked to end; it ends as soon as its process looks")


async def answer_at(terminal: str, store: DurableStore, questions: Sequence[Approval]) -> None:
    """Ask the questions of a run at a terminal, and keep the answers."""
    from amplifier_core.hook_results import allows
    from amplifier_core.permissions.gate import ALWAYS, SESSION

    from ..flows.asking import task_of
    from ..spawning.turn_facts import asking
    from .running.approving import Approvals

    approvals = Approvals(terminal, lambda: None)
    for question in questions:
        task = task_of(question)
        asking.set(f"task {task} of {question.session_id}" if task is not None else f"session {question.session_id}")
        prompt = question.question if task is not None else f"{question.question} ({question.reason})"
        chosen = await approvals.request_approval(prompt, question.options, None, "deny")
        scope: Scope = "session" if chosen == SESSION else "always" if chosen.startswith(ALWAYS) else "once"
        try:
            state: Literal["approved", "denied"] = "approved" if allows(chosen) else "denied"
            await answer_approval(store, person(), question, state, scope, noun="flow")
        except SessionConflict as error:  # somebody was faster
            tell(f"amplifier: {plain(str(error))}")


def tell_waiting(run_id: str, questions: Sequence[Approval]) -> None:
    """Tell what a run waits for, and how to go on."""
    for each in questions:
        tell(f"amplifier: waits for approval {each.id[:SHOWN]}: {plain(describe(each))}")
    tell(f"amplifier: answer with: amplifier flow approve {run_id} (or deny); then: amplifier flow resume {run_id}")


def describe(question: Approval) -> str:
    """Return a question in one line."""
    from ..flows.asking import task_of

    task = task_of(question)
    about = f"task {task}" if task is not None else f"{question.tool} in session {question.session_id}"
    return one_line(f"{about}: {question.question}", 200, redact_commands)


async def find_run(store: SessionStore, run_id: str) -> SessionRecord:
    """Return the record of a run by its id, or the beginning of it, or `last`. Raises `RunNotFound`."""
    from ..sessions.runs import is_run

    if run_id == LAST:
        runs = await list_runs(store, projects_here(), limit=1)
        if not runs:
            raise RunNotFound("no workflow has run in this folder")
        return runs[0]
    try:
        record = await find_session(store, run_id)
    except SessionNotFound:
        raise RunNotFound(f"no run '{run_id}'") from None
    if not is_run(record):
        raise RunNotFound(f"'{run_id}' is a session, and no run of a workflow")
    return record
