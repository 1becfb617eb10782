"""`amplifier trigger`: what wakes the background sessions of a bundle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import SessionNotFound
from amplifier_core.triggers import TriggerEvent, TriggerType

from .app import bundle_at, bundle_option, json_option, opened_inbox, plugins_of, run_async
from .output import print_json, print_table, timestamp

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery, DurableStore

    from ..background.config import BackgroundSessionConfig
    from ..bundles.model import Bundle


@click.group()
def trigger() -> None:
    """See triggers, and fire by hand."""


@trigger.command("list")
@bundle_option
@json_option
@click.pass_context
def list_(ctx: click.Context, bundle_path: str | None, as_json: bool) -> None:
    """List what wakes each background session, and what came of it so far."""
    rows = run_async(_rows(ctx, bundle_path))
    if as_json:
        print_json("trigger.list/1", rows)
        return
    print_table(
        ("SESSION", "TRIGGER", "CONFIG", "LAST EVENT", "WAITING", "DONE", "DEAD"),
        (
            (
                row["session"],
                row["trigger"],
                json.dumps(row["config"], ensure_ascii=False),
                row["last_event"] or "-",
                *(str(row[state]) for state in ("waiting", "done", "dead")),
            )
            for row in rows
        ),
        empty="The bundle declares no triggers.",
    )


async def _rows(ctx: click.Context, bundle_path: str | None) -> list[dict[str, Any]]:
    bundle = await bundle_at(bundle_path, plugins_of(ctx))
    async with opened_inbox(plugins_of(ctx)) as store:
        return [row for config in bundle.background_sessions for row in await _rows_of(store, bundle, config)]


async def _rows_of(store: DurableStore, bundle: Bundle, config: BackgroundSessionConfig) -> list[dict[str, Any]]:
    from amplifier_core.utils import redact_secrets

    from ..background.lane import MANUAL, lane_key, trigger_key
    from ..paths import project_of

    lane = lane_key(bundle.name, config.name)
    deliveries = await store.deliveries(project=project_of(bundle.base_path), lane=lane, limit=10_000)
    declared = [(trigger_key(lane, each, number), each) for number, each in enumerate(config.triggers, start=1)]
    rows = [
        {
            "session": config.name,
            "trigger": each.module,
            "config": redact_secrets(each.config),
            **_fared(deliveries, key),
        }
        for key, each in declared
    ]
    by_hand = _fared(deliveries, f"{lane}/{MANUAL}")
    if by_hand["last_event"]:
        rows.append({"session": config.name, "trigger": "by hand", "config": {}, **by_hand})
    return rows


def _fared(deliveries: list[Delivery], key: str) -> dict[str, Any]:
    own = [each for each in deliveries if each.trigger == key]
    states = [each.state for each in own]
    return {
        "last_event": timestamp(max((each.event.timestamp for each in own), default=None)),
        "waiting": states.count("pending") + states.count("claimed"),
        "done": states.count("done"),
        "dead": states.count("dead"),
    }


@trigger.command()
@click.argument("name")
@bundle_option
@click.option("--data", default="{}", help="A JSON object that the session is handed.")
@click.pass_context
def fire(ctx: click.Context, name: str, bundle_path: str | None, data: str) -> None:
    """Wake the background session NAME by hand; a running `amplifier up` handles it, or the next one does."""
    payload = _payload(data)
    project = run_async(_fire(ctx, name, bundle_path, payload))
    from ..lock import running_owners

    runs = any(owner.get("project") == project for owner in running_owners())
    click.echo(f"{name}: accepted" + ("" if runs else "; it is handled at the next: amplifier up"), err=True)


def _payload(text: str) -> dict[str, Any]:
    try:
        payload = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--data is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise click.UsageError('--data must be a JSON object, such as {"path": "a.py"}')
    return payload


async def _fire(ctx: click.Context, name: str, bundle_path: str | None, data: dict[str, Any]) -> str:
    from ..background.lane import MANUAL, lane_key
    from ..paths import project_of

    bundle = await bundle_at(bundle_path, plugins_of(ctx))
    names = [config.name for config in bundle.background_sessions]
    if name not in names:
        raise SessionNotFound(f"{name} (this bundle declares: {', '.join(names) or 'none'})")
    project, lane = project_of(bundle.base_path), lane_key(bundle.name, name)
    async with opened_inbox(plugins_of(ctx)) as store:
        event = TriggerEvent(TriggerType.MANUAL, MANUAL, data=data)
        await store.offer(project, lane, f"{lane}/{MANUAL}", event)
    return project
