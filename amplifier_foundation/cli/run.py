"""`amplifier run`: one turn of a session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

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
    from amplifier_core.storage import DurableStore, SessionRecord

    from ..bundles.model import Bundle
    from ..conversation import Turn


@click.command()
@click.argument("prompt", required=False)
@bundle_option
@click.option("--resume", metavar="ID", help="Go on with this session.")
@click.option("--fork", "fork_point", metavar="ID[@TURN]", help="Go on with a fork of this session.")
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    prompt: str | None,
    bundle_path: str | None,
    resume: str | None,
    fork_point: str | None,
    as_json: bool,
) -> None:
    """Run one turn: PROMPT, or what stdin says when PROMPT is - or stdin is a pipe."""
    if resume and fork_point:
        raise click.UsageError("--resume and --fork exclude each other")
    turn = run_async(_run(ctx, _prompt(prompt), bundle_path, resume, fork_point))
    if as_json:
        facts = {"session_id": turn.session_id, "status": turn.status, "output": turn.output}
        print_json("run/1", {**facts, "turn_count": turn.turn_count})
    else:
        click.echo(turn.output)
        if not ctx.obj["quiet"]:
            click.echo(f"session {turn.session_id}", err=True)


def _prompt(prompt: str | None) -> str:
    if prompt in (None, "-"):
        if prompt is None and sys.stdin.isatty():
            raise click.UsageError('say what to do: amplifier run "…"')
        prompt = sys.stdin.read()
    if not prompt or not prompt.strip():
        raise click.UsageError("the prompt is empty")
    return prompt


async def _run(
    ctx: click.Context, prompt: str, bundle_path: str | None, resume: str | None, fork_point: str | None
) -> Turn:
    from ..conversation import converse

    plugins = plugins_of(ctx)
    async with opened_store(plugins) as store:
        record = await _record(store, plugins, resume, fork_point)
        bundle = await _bundle(bundle_path, record)
        refuse_what_cannot_run(bundle, plugins)
        return await converse(
            bundle, prompt, store, plugins, resume=record, observe=None if ctx.obj["quiet"] else _show
        )


async def _record(
    store: DurableStore, plugins: Plugins, resume: str | None, fork_point: str | None
) -> SessionRecord | None:
    from ..forks import fork_stored

    if resume:
        return await session_by_prefix(store, resume)
    if fork_point:
        prefix, turn = split_point(fork_point)
        return await fork_stored(store, await session_by_prefix(store, prefix), turn=turn, plugins=plugins)
    return None


async def _bundle(path: str | None, record: SessionRecord | None) -> Bundle:
    if path is None and record is not None and record.bundle_source:
        path = record.bundle_source
    bundle = await bundle_at(path)
    if record is not None and record.bundle_digest and bundle.digest != record.bundle_digest:
        click.echo(f"amplifier: {path} has changed since session {record.session_id} began; going on with it", err=True)
    return bundle


def _show(session: AmplifierSession) -> None:
    """Print a line for every tool call."""

    async def on_tool(event: str, data: dict[str, Any]) -> None:
        click.echo(f"→ {data.get('tool_name')}", err=True)

    session.coordinator.hooks.register("tool:pre", on_tool, priority=1_000, name="show-tools")
