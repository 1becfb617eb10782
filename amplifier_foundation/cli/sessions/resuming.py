"""`amplifier session resume`."""

from __future__ import annotations

import click

from ..app import bundle_option, json_option, run_async
from ..run import accept_option, print_turn, read_prompt, take


@click.command()
@click.argument("session_id", metavar="ID")
@click.argument("prompt", required=False)
@bundle_option
@accept_option
@json_option
@click.pass_context
def resume(
    ctx: click.Context, session_id: str, prompt: str | None, bundle_path: str | None, accept: bool, as_json: bool
) -> None:
    """Take one more turn of a session: PROMPT, or what stdin says. The same as: amplifier run --resume ID PROMPT."""
    turn = run_async(take(ctx, read_prompt(prompt), bundle_path, session_id, accept=accept))
    print_turn(ctx, turn, "session.resume/1", as_json)
