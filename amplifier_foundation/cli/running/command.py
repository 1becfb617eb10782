"""`amplifier run`, and what `amplifier session resume` does the same way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..app import bundle_option, json_option, run_async
from .choosing import Wanted
from .stdin import read_prompt

if TYPE_CHECKING:
    from .showing import View

accept_option = click.option("--accept", is_flag=True, help="Go on although the bundle has changed.")
jsonl_option = click.option("--jsonl", "as_lines", is_flag=True, help="Print what happens as lines of JSON.")


@click.command()
@click.argument("prompt", required=False)
@bundle_option
@click.option("--resume", metavar="ID", help="Go on with this session.")
@click.option("--fork", "fork_point", metavar="ID[@POINT]", help="Go on with a fork of this session.")
@click.option("--name", default="", help="Name the session so; a new one's id begins with it.")
@click.option(
    "--working-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Work in this folder."
)
@accept_option
@json_option
@jsonl_option
@click.pass_context
def run(
    ctx: click.Context,
    prompt: str | None,
    bundle_path: str | None,
    resume: str | None,
    fork_point: str | None,
    name: str,
    working_dir: Path | None,
    accept: bool,
    as_json: bool,
    as_lines: bool,
) -> None:
    """Run one turn: PROMPT, or what stdin says when PROMPT is - or stdin is a pipe. At a terminal: a conversation.

    What a pipe says beside a PROMPT goes with it, up to a megabyte. POINT is the number of a turn, the id of a message
    such as m12, or now. Ctrl-C stops after the step that runs, twice at once; --resume without a prompt goes on with
    a turn that was cut.
    """
    wanted = Wanted(bundle_path, resume, fork_point, _checked(name), working_dir, accept)
    ctx.exit(go(ctx, wanted, prompt, "run/1", as_json=as_json, as_lines=as_lines))


def _checked(name: str) -> str:
    from ..sessions.changing import checked_name

    return checked_name(name) if name else ""


def go(ctx: click.Context, wanted: Wanted, prompt: str | None, schema: str, *, as_json: bool, as_lines: bool) -> int:
    """Take one turn, or converse where there is no prompt and stdin is a terminal; return the exit code."""
    wanted.check()
    if as_json and as_lines:
        raise click.UsageError("--json and --jsonl exclude each other")
    text = read_prompt(prompt, may_be_empty=bool(wanted.resume))
    if text is not None:
        from .one_turn import one_turn

        return run_async(one_turn(ctx, wanted, text, _view(ctx, schema, as_json=as_json, as_lines=as_lines)))
    if as_json or as_lines:
        raise click.UsageError('say what to do: amplifier run --json "…"')
    from .talking import talk

    return talk(ctx, wanted)


def _view(ctx: click.Context, schema: str, *, as_json: bool, as_lines: bool) -> View:
    from .showing import LinesView, ObjectView, PersonView

    if as_lines:
        return LinesView()
    return ObjectView(schema) if as_json else PersonView(quiet=bool(ctx.obj["quiet"]))
