"""Run `amplifier approvals`: read and answer the questions of background sessions."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.utils.command_secrets import HIDDEN_CODE, redact_commands

from ..background.keys import run_of
from ..documents.safe_text import exact, one_line
from ..operations.approvals import answer_approval, find_approval, read_approvals
from ..operations.running import list_all_running, status_elsewhere, wake
from . import exits
from .app import json_option, person, project_here, storage_plugins, use_inbox
from .completing import complete_approvals
from .loops import run_in_loop, run_reading
from .output import print_json, print_table, timestamp

if TYPE_CHECKING:
    from typing import Literal

    from ..background.approvals import Approval, Scope

INDENT = "      "
"""Before each further line of an argument: none of them looks as a line of the program."""
SHOWN = 8
"""Characters of an id in a table."""


@click.group()
def approvals() -> None:
    """Answer the questions of background sessions about their tool calls."""


@approvals.command(name="list", epilog="Example: amplifier approvals list")
@json_option
@click.pass_context
@run_reading
async def list_(ctx: click.Context, as_json: bool) -> None:
    """List the tool calls that wait for an answer, the oldest first."""
    async with use_inbox(storage_plugins(ctx)) as store:
        waiting = [each for each in await read_approvals(store) if each.state == "pending"]
    if as_json:
        print_json("approvals.list/1", [_facts(each) for each in waiting], redact_commands)
        return
    print_table(
        ("ID", "SINCE", "UNTIL", "BACKGROUND SESSION OR RUN", "CALL", "REASON"),
        [
            (
                each.id[:SHOWN],
                timestamp(each.created),
                timestamp(each.expires),
                _whose(each),
                exact(one_line(_call(each), 80, redact_commands)),
                exact(one_line(each.reason, 80, redact_commands)),
            )
            for each in waiting
        ],
        empty="Nothing waits for approval.",
        shrink=("REASON", "CALL"),
        leave_out=("SINCE", "REASON", "UNTIL", "BACKGROUND SESSION OR RUN", "CALL"),
    )


@approvals.command(epilog="Example: amplifier approvals show last")
@click.argument("its_id", metavar="ID", shell_complete=complete_approvals)
@json_option
@click.pass_context
@run_reading
async def show(ctx: click.Context, its_id: str, as_json: bool) -> None:
    """Show a tool call with its exact arguments, why it is asked, and the last messages of its session."""
    async with use_inbox(storage_plugins(ctx)) as store:
        found = await find_approval(store, its_id, project_here())
    if as_json:
        print_json("approvals.show/1", _facts(found), redact_commands)
        return
    facts = {
        "id": found.id,
        "state": found.state,
        "run" if run_of(found) else "background session": run_of(found) or f"{found.queue} in {found.project}",
        "session": found.session_id,
        "tool": found.tool,
        "hash": found.call_hash,
        "reason": found.reason,
        "since": timestamp(found.created),
        "until": f"{timestamp(found.expires)}; without an answer it is denied then",
    }
    if found.state != "pending":
        facts["until"] = f"it {found.describe_answer()}"
    for name, value in facts.items():
        click.echo(f"{name}: {exact(value)}")
    if found.is_kept:
        return
    _show_arguments(found)
    if found.preview:
        click.echo("would change:")
        click.echo(f"  {exact(found.preview).replace(chr(10), chr(10) + '  ')}")
    click.echo("last messages:")
    for message in found.messages:
        click.echo(f"  {message['role']}: {exact(one_line(message['text'], 200))}")
    click.echo(f"options: {exact(', '.join(found.options))}")


@approvals.command(epilog="Example: amplifier approvals approve last --session")
@click.argument("its_id", metavar="ID", shell_complete=complete_approvals)
@click.option("--session", "scope", flag_value="session", help="Allow exactly this call for the rest of its session.")
@click.option("--always", "scope", flag_value="always", help="Allow it from now on: add the narrowest rule for it.")
@json_option
@click.pass_context
@run_in_loop
async def approve(ctx: click.Context, its_id: str, scope: Scope | None, as_json: bool) -> None:
    """Let a tool call run, once and exactly as shown; its session goes on.

    ID is an id shown by `amplifier approvals list`, or enough of its beginning: at least four characters.
    """
    await _decide(ctx, its_id, "approved", scope or "once", "", as_json=as_json)


@approvals.command(epilog='Example: amplifier approvals deny last --reason "not on Fridays"')
@click.argument("its_id", metavar="ID", shell_complete=complete_approvals)
@click.option("--reason", default="", help="Reason, for the model.")
@json_option
@click.pass_context
@run_in_loop
async def deny(ctx: click.Context, its_id: str, reason: str, as_json: bool) -> None:
    """Refuse a tool call; its session goes on, and its model is told the reason."""
    await _decide(ctx, its_id, "denied", "once", reason, as_json=as_json)


async def _decide(
    ctx: click.Context, its_id: str, state: Literal["approved", "denied"], scope: Scope, said: str, *, as_json: bool
) -> None:
    async with use_inbox(storage_plugins(ctx)) as store:
        found = await find_approval(store, its_id, project_here())
        if state == "approved" and sys.stdin.isatty() and HIDDEN_CODE in redact_commands(_call(found)):
            from .questions import ask_to_confirm

            _show_arguments(found)  # no list has shown the whole call
            if not ask_to_confirm("Approve it?"):
                ctx.exit(exits.CANCELLED)
        decided = await answer_approval(store, person(), found, state, scope, said)
        runs = wake(decided.project, decided.queue)
        elsewhere = "" if runs else await status_elsewhere(store, decided.project, decided.queue)
    when, runs = _when(decided, runs=runs, elsewhere=elsewhere), runs or elsewhere != ""
    if as_json:
        print_json(f"approvals.{'approve' if state == 'approved' else 'deny'}/1", {**_facts(decided), "runs": runs})
        return
    click.echo(
        f"{decided.id[:SHOWN]} {state}: {exact(one_line(_call(decided), 80, redact_commands))}; its session {when}"
    )
    if scope == "always":
        click.echo(f"added to permissions.allow of your settings: {exact(str(decided.rule))}")


def _show_arguments(found: Approval) -> None:
    click.echo("arguments:")
    for name, value in found.arguments.items():
        text = exact(value) if isinstance(value, str) else json.dumps(value)
        shown = name if name.isascii() and name.isidentifier() else json.dumps(name)
        click.echo(f"  {shown}: {text.replace(chr(10), chr(10) + INDENT)}")


def _when(decided: Approval, *, runs: bool, elsewhere: str) -> str:
    """Return when the session of an answer goes on; `elsewhere` is the status of what runs it on another host."""
    if run := run_of(decided):
        return f"goes on with: amplifier flow resume {run}"
    if not runs and not elsewhere:
        return "goes on at the next: amplifier up"
    name = decided.queue.rpartition("/")[2]
    known = {key: row["status"] for key, _, row in list_all_running()}
    status = known.get((decided.project, decided.queue), elsewhere or None)
    if status is None:
        drop = f"amplifier trigger drop {decided.delivery_id}"
        return f"goes on when a bundle declares '{name}' again, which none that runs does. To give it up: {drop}"
    if status == "paused":
        return f"goes on when you resume it: amplifier resume {name}"
    return "goes on now" if status in ("running", "degraded") else f"goes on when you start it: amplifier start {name}"


def _whose(approval: Approval) -> str:
    """Return the queue of a background session, or the run that somebody began by hand."""
    return run_of(approval) or approval.queue


def _call(approval: Approval) -> str:
    shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in approval.arguments.items())
    return f"{approval.tool}({shown})"


def _facts(approval: Approval) -> dict[str, Any]:
    """Return an approval as JSON shows it."""
    return {"background_session": approval.queue.rpartition("/")[2], **approval.to_dict(), "rule": approval.rule}
