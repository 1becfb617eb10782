"""`amplifier trigger fire`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.storable import to_json
from amplifier_core.triggers import TriggerEvent, TriggerType

from .. import exits
from ..app import bundle_at, bundle_option, opened_inbox, plugins_of, run_async, wake
from .timing import session_named

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery


@click.command()
@click.argument("name")
@bundle_option
@click.option("--data", default="{}", help="A JSON object that the session is handed.")
@click.pass_context
def fire(ctx: click.Context, name: str, bundle_path: str | None, data: str) -> None:
    """Wake the background session NAME by hand; a running `amplifier up` handles it, or the next one does."""
    payload = _payload(data)
    delivery, runs = run_async(_fire(ctx, name, bundle_path, payload))
    if delivery is not None and delivery.state in ("refused", "skipped"):
        click.echo(f"{name}: {delivery.state}: {delivery.reason}", err=True)
        ctx.exit(exits.FAILED)
    click.echo(f"{name}: accepted" + ("" if runs else "; it is handled at the next: amplifier up"), err=True)


def _payload(text: str) -> dict[str, Any]:
    try:
        payload = json.loads(text)
        to_json(payload, "data")
    except (TypeError, ValueError, RecursionError) as error:
        raise click.UsageError(f"--data is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise click.UsageError('--data must be a JSON object, such as {"path": "a.py"}')
    return payload


async def _fire(
    ctx: click.Context, name: str, bundle_path: str | None, data: dict[str, Any]
) -> tuple[Delivery | None, bool]:
    """Offer the event as a trigger's own; return what is stored, and whether a process runs that handles it now."""
    from amplifier_core.clock import SystemClock

    from ...background.admission import Gate
    from ...background.lane import MANUAL, lane_key, manual_key
    from ...paths import project_of

    bundle = await bundle_at(bundle_path, plugins_of(ctx))
    session = session_named(bundle, name)
    project, lane = project_of(bundle.base_path), lane_key(bundle.name, name)
    event, gate = TriggerEvent(TriggerType.MANUAL, MANUAL, data=data), Gate(session, SystemClock())
    async with opened_inbox(plugins_of(ctx)) as store:
        refused = await gate.judged(store, (project, lane), None, event)
        admission = None if refused is not None else gate.admission(event)
        key = manual_key(lane, session.triggers)
        delivery = await store.offer(project, lane, key, event, refused=refused, admission=admission)
    return delivery, await wake(project, name)
