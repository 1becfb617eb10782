"""`amplifier run`: one turn of a session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import SessionConflict

from .app import (
    bundle_at,
    bundle_option,
    json_option,
    opened_store,
    plugins_of,
    refuse_what_cannot_run,
    run_async,
    session_by_prefix,
    split_point,
)
from .output import print_json

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord

    from ..bundles.model import Bundle
    from ..conversation import Turn

accept_option = click.option("--accept", is_flag=True, help="Go on although the bundle has changed.")


@click.command()
@click.argument("prompt", required=False)
@bundle_option
@click.option("--resume", metavar="ID", help="Go on with this session.")
@click.option("--fork", "fork_point", metavar="ID[@POINT]", help="Go on with a fork of this session.")
@accept_option
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    prompt: str | None,
    bundle_path: str | None,
    resume: str | None,
    fork_point: str | None,
    accept: bool,
    as_json: bool,
) -> None:
    """Run one turn: PROMPT, or what stdin says when PROMPT is - or stdin is a pipe.

    POINT is the number of a turn, the id of a message such as m12, or now.
    """
    if resume and fork_point:
        raise click.UsageError("--resume and --fork exclude each other")
    text = read_prompt(prompt)
    print_turn(ctx, run_async(take(ctx, text, bundle_path, resume, fork_point, accept=accept)), "run/1", as_json)


def print_turn(ctx: click.Context, turn: Turn, schema: str, as_json: bool) -> None:
    """Print what a turn gave."""
    if as_json:
        facts = {"session_id": turn.session_id, "status": turn.status, "output": turn.output}
        print_json(schema, {**facts, "turn_count": turn.turn_count})
    else:
        click.echo(turn.output)
        if not ctx.obj["quiet"]:
            click.echo(f"session {turn.session_id}", err=True)


def read_prompt(prompt: str | None) -> str:
    """Return `prompt`, or what stdin says. Raises `click.UsageError` when nothing is said."""
    if prompt in (None, "-"):
        if prompt is None and sys.stdin.isatty():
            raise click.UsageError('say what to do: amplifier run "…"')
        prompt = sys.stdin.read()
    if not prompt or not prompt.strip():
        raise click.UsageError("the prompt is empty")
    return prompt


async def take(
    ctx: click.Context,
    prompt: str,
    bundle_path: str | None,
    resume: str | None,
    fork_point: str | None = None,
    *,
    accept: bool = False,
) -> Turn:
    """Take one turn: of a new session, of the stored one `resume`, or of a fork made at `fork_point`."""
    from ..conversation import converse
    from ..forks import fork_stored

    plugins = plugins_of(ctx)
    point = split_point(fork_point) if fork_point else None
    async with opened_store(plugins) as store:
        stored = point.session if point else resume
        record = await session_by_prefix(store, stored) if stored else None
        bundle = await _bundle(bundle_path, plugins, record, accept=accept)
        refuse_what_cannot_run(bundle, plugins)
        if record is not None and point is not None:
            record = await fork_stored(store, record, turn=point.turn, message=point.message, plugins=plugins)
        observe = None if ctx.obj["quiet"] else _show
        return await converse(bundle, prompt, store, plugins, resume=record, observe=observe)


async def _bundle(path: str | None, plugins: Plugins, record: SessionRecord | None, *, accept: bool) -> Bundle:
    if path is None and record is not None and record.bundle_source:
        path = record.bundle_source
    bundle = await bundle_at(path, plugins)
    if record is not None and record.bundle_digest and bundle.digest != record.bundle_digest:
        _accept_change(path or "bundle.md", record, accept=accept)
    return bundle


def _accept_change(path: str, record: SessionRecord, *, accept: bool) -> None:
    """Return when it is accepted that the session goes on with another bundle. Raises `SessionConflict`."""
    changed = f"{path} is not what session {record.session_id} last ran with"
    if accept:
        click.echo(f"amplifier: {changed}; going on with it as it is now", err=True)
    elif not sys.stdin.isatty() or not click.confirm(f"{changed}. Go on with it as it is now?", err=True):
        raise SessionConflict(record.session_id, f"{changed}. Go on all the same with --accept")


def _show(session: AmplifierSession) -> None:
    """Print a line for every tool call."""

    async def on_tool(event: str, data: dict[str, Any]) -> None:
        click.echo(f"→ {data.get('tool_name')}", err=True)

    session.coordinator.hooks.register("tool:pre", on_tool, priority=1_000, name="show-tools")
