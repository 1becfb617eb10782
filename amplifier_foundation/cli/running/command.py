"""Run `amplifier run`, and the turn of `amplifier session resume`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from amplifier_core.plugin_guard import STDOUT

from ..app import (
    bundle_option,
    json_option,
    model_option,
    preload_providers,
    project_here,
    provider_option,
    trust_option,
)
from ..completing import complete_sessions
from ..loops import run_async
from ..own_stdout import divert_stdout
from .choosing import Wanted
from .stdin import has_prompt, read_prompt
from .terminal import is_terminal

accept_option = click.option("--accept", is_flag=True, help="Continue although the bundle has changed.")
jsonl_option = click.option("--jsonl", "as_lines", is_flag=True, help="Print each step as a line of JSON.")


@click.command(epilog='Example: amplifier run --resume last "and the tests?"')
@click.argument("prompt", required=False)
@bundle_option
@provider_option
@model_option
@click.option("--resume", metavar="ID", help="Continue this session.", shell_complete=complete_sessions)
@click.option(
    "--fork",
    "fork_point",
    metavar="ID[@POINT]",
    help="Continue a fork of this session.",
    shell_complete=complete_sessions,
)
@click.option("--name", default="", help="Name of the session; the id of a new one begins with it.")
@click.option(
    "--working-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Work in this folder."
)
@click.option(
    "--record", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Record the model traffic there."
)
@accept_option
@trust_option
@json_option
@jsonl_option
@click.pass_context
def run(
    ctx: click.Context,
    prompt: str | None,
    bundle_path: str | None,
    provider: str | None,
    model: str | None,
    resume: str | None,
    fork_point: str | None,
    name: str,
    working_dir: Path | None,
    record: Path | None,
    accept: bool,
    trusts: bool,
    as_json: bool,
    as_lines: bool,
) -> None:
    """Run one turn with PROMPT; with - or from a pipe, stdin is the prompt. At a terminal: hold a conversation.

    Piped input beside a PROMPT is appended to it, up to a megabyte. POINT is the number of a turn, the id of a message
    such as m12, or now. Ctrl-C ends the model's answer and stops after running tools, twice at once; --resume without a
    prompt continues an interrupted turn. Without a bundle here, the session has that of `amplifier init`. To play a
    recording back: amplifier session replay DIR.
    """
    from ..sessions.changing import check_name

    checked = check_name(name) if name else ""
    wanted = Wanted(bundle_path, resume, fork_point, checked, working_dir, accept, provider, model, record, trusts)
    ctx.exit(go(ctx, wanted, prompt, "run/1", as_json=as_json, as_lines=as_lines))


def go(ctx: click.Context, wanted: Wanted, prompt: str | None, schema: str, *, as_json: bool, as_lines: bool) -> int:
    """Run one turn, or a conversation without a prompt at a terminal; return the exit code."""
    from ...paths import find_own_file

    wanted.check()
    if not (wanted.bundle or wanted.resume or wanted.fork or wanted.working_dir or find_own_file(Path())):
        project = Path(project_here())
        wanted = replace(wanted, working_dir=project if find_own_file(project) else None)
    elif wanted.bundle and not (wanted.resume or wanted.fork or wanted.working_dir or Path(wanted.bundle).exists()):
        wanted = replace(wanted, working_dir=Path(project_here()))  # a named bundle works in the whole project
    if as_json and as_lines:
        raise click.UsageError("--json and --jsonl exclude each other")
    is_for_programs = as_json or as_lines or not is_terminal(STDOUT)
    with divert_stdout(is_for_programs and has_prompt(prompt)):
        preload_providers(wanted.bundle or str(wanted.working_dir or ""))
        text = read_prompt(prompt, may_be_empty=bool(wanted.resume))
        if text is not None:
            from .one_turn import one_turn
            from .showing import LinesView, ObjectView, PersonView

            quiet = bool(ctx.obj["quiet"])
            view = LinesView() if as_lines else ObjectView(schema) if as_json else PersonView(quiet=quiet)
            return run_async(one_turn(ctx, wanted, text, view))
    if as_json or as_lines:
        raise click.UsageError('give a prompt: amplifier run --json "…"')
    if wanted.record:
        raise click.UsageError("--record records one turn: give a prompt")
    from .talking import talk

    return talk(ctx, wanted)
