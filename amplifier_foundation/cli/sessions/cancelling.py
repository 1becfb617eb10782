"""Run `amplifier session cancel`."""

from __future__ import annotations

import click

from ...cli import exits
from ..app import find_session, json_option, storage_plugins, use_store
from ..completing import complete_sessions
from ..loops import run_in_loop
from ..output import print_json


@click.command(epilog="Example: amplifier session cancel last")
@click.argument("session_id", metavar="ID", shell_complete=complete_sessions)
@json_option
@click.pass_context
@run_in_loop
async def cancel(ctx: click.Context, session_id: str, as_json: bool) -> None:
    """Cancel the running turn of a background session's session, and of those below it.

    Running tools get 3 seconds to finish. The event of the turn is skipped for good; the session can be resumed.
    """
    from ...operations.acting import person_here
    from ...operations.cancelling import cancel_turn

    async with use_store(storage_plugins(ctx)) as store:
        record = await find_session(store, session_id)
        is_cancelled = await cancel_turn(store, person_here("command line"), record.session_id)
        status = (await store.get(record.session_id)).status
    if as_json:
        print_json("session.cancel/1", {"session_id": record.session_id, "cancelled": is_cancelled, "status": status})
    elif is_cancelled:
        click.echo(f"The turn of session {record.session_id} is cancelled.", err=True)
        click.echo(f"Go on with it: amplifier run --resume {record.session_id}", err=True)
    else:
        click.echo(f"The turn of session {record.session_id} had ended by itself: {status}.", err=True)
    if not is_cancelled:
        ctx.exit(exits.CONFLICT)
