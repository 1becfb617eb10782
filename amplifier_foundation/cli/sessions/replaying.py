"""Run `amplifier session record` and `replay`."""

from __future__ import annotations

from pathlib import Path

import click

from ..app import bundle_option, json_option, model_option, provider_option, trust_option
from ..completing import complete_sessions
from ..loops import run_async
from ..own_stdout import divert_stdout


@click.command(epilog='Example: amplifier session record recordings "Review app.py"')
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("prompt", required=False)
@bundle_option
@provider_option
@model_option
@click.option("--resume", metavar="ID", help="Continue this session.", shell_complete=complete_sessions)
@trust_option
@json_option
@click.pass_context
def record(
    ctx: click.Context,
    folder: Path,
    prompt: str | None,
    bundle_path: str | None,
    provider: str | None,
    model: str | None,
    resume: str | None,
    trusts: bool,
    as_json: bool,
) -> None:
    """Run one turn with PROMPT and record its model traffic in DIR, as `amplifier run --record DIR` does."""
    from ..running.choosing import Wanted
    from ..running.command import go

    wanted = Wanted(bundle_path, resume, None, "", None, False, provider, model, folder, trusts)
    ctx.exit(go(ctx, wanted, prompt, "run/1", as_json=as_json, as_lines=False))


@click.command(epilog="Example: amplifier session replay recordings")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@bundle_option
@click.option("--run-tools", is_flag=True, help="Run the tools instead of playing back their results.")
@json_option
@click.pass_context
def replay(ctx: click.Context, folder: Path, bundle_path: str | None, run_tools: bool, as_json: bool) -> None:
    """Play the recording in DIR back, as `amplifier run --record` made it: no model, no key, no waiting.

    The turns are taken in a new session of the recorded bundle, and nothing is stored. The exit code is 1 with a
    difference on stderr when a request is not the recorded one.
    """
    from ...documents.safe_text import plain
    from ..output import plural, print_json
    from ..running.replaying import Options, replay
    from ..running.terminal import tell

    with divert_stdout():
        results = run_async(replay(ctx, folder.resolve(), Options(bundle_path, run_tools)))
    if as_json:
        print_json("session.replay/1", {"turns": results})
        return
    for result in results:
        click.echo(plain(result["output"] or result["error"]))
    if not ctx.obj["quiet"]:
        tell(f"replayed as recorded: {plural(len(results), 'turn')}")
