"""Run `amplifier session resume`."""

from __future__ import annotations

import click

from ..app import bundle_option, json_option
from ..completing import complete_sessions
from ..running.choosing import Wanted
from ..running.command import accept_option, go, jsonl_option


@click.command(epilog='Example: amplifier session resume last "and now?"')
@click.argument("session_id", metavar="ID", shell_complete=complete_sessions)
@click.argument("prompt", required=False)
@bundle_option
@accept_option
@json_option
@jsonl_option
@click.pass_context
def resume(
    ctx: click.Context,
    session_id: str,
    prompt: str | None,
    bundle_path: str | None,
    accept: bool,
    as_json: bool,
    as_lines: bool,
) -> None:
    """Run one more turn of a session: PROMPT, or stdin. Same as: amplifier run --resume ID PROMPT."""
    wanted = Wanted(bundle=bundle_path, resume=session_id, accept=accept)
    ctx.exit(go(ctx, wanted, prompt, "session.resume/1", as_json=as_json, as_lines=as_lines))
