"""Run `amplifier trigger dead`, `retry` and `drop`, for events that failed every attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amplifier_core.errors import DeliveryNotFound, SessionConflict, SessionNotFound

from ..app import bundle_option, json_option, load_bundle_at, plugins_of, project_here, storage_plugins, use_inbox
from ..loops import run_in_loop
from ..output import print_json, print_table, timestamp
from ..processes import wake

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.storage import Delivery, DurableStore

    from ...sessions.once import Decision, EffectsUncertain

ALL = 1_000_000
SHORTEST = 4
"""Characters of an id, at least, to name a delivery."""
SHOWN = 8
"""Characters of an id in a table; more where ids begin alike."""


class ProjectBundle(NamedTuple):
    """The background sessions of a folder (None: of all folders), or of one bundle."""

    project: str | None
    bundle: str | None = None


@click.command(epilog="Example: amplifier trigger dead --all")
@bundle_option
@click.option("--all", "everywhere", is_flag=True, help="Include all folders.")
@json_option
@click.pass_context
@run_in_loop
async def dead(ctx: click.Context, bundle_path: str | None, everywhere: bool, as_json: bool) -> None:
    """List dead letters, the newest first: of this folder, or of the background sessions of BUNDLE."""
    from ...sessions.lineage import describe_event

    place = ProjectBundle(None) if everywhere else await _place_of(ctx, bundle_path)
    async with use_inbox(storage_plugins(ctx)) as store:
        letters = await _read_dead(store, place)
    if as_json:
        print_json("trigger.dead/2", [facts(each) for each in letters])
        return
    length = shortest_length([each.delivery_id for each in letters])
    print_table(
        ("ID", "WHEN", "BACKGROUND SESSION", "EVENT", "ATTEMPTS", "REASON"),
        (
            (
                each.delivery_id[:length],
                timestamp(each.updated),
                each.queue,
                describe_event(each.event),
                str(each.attempts),
                (each.reason or "").partition("\n")[0],
            )
            for each in letters
        ),
        empty="No dead letters."
        if everywhere
        else "No dead letters in this folder. All folders: amplifier trigger dead --all",
        shrink=("REASON", "EVENT"),
        leave_out=("ATTEMPTS", "EVENT", "WHEN", "BACKGROUND SESSION", "REASON"),
    )


@click.command(epilog="Example: amplifier trigger retry --all")
@click.argument("ids", nargs=-1, metavar="ID...")
@click.option("--all", "every", is_flag=True, help="Retry every dead letter of this folder.")
@click.option("--assume-done", "decision", flag_value="done", help="An interrupted call with effects once is done.")
@click.option("--run-again", "decision", flag_value="again", help="Run an interrupted call with effects once again.")
@bundle_option
@click.pass_context
@run_in_loop
async def retry(
    ctx: click.Context, ids: tuple[str, ...], every: bool, decision: Decision | None, bundle_path: str | None
) -> None:
    """Try dead, refused or skipped events again, as if for the first time.

    ID is an id shown by `amplifier trigger dead --all`, or its first four characters or more. An event whose session
    was interrupted in a tool with effects once needs a decision: --assume-done or --run-again.
    """
    from ...sessions.once import decide_effects

    if bool(ids) == every:
        raise click.UsageError("give ids shown by amplifier trigger dead, or --all")
    if every and decision is not None:
        raise click.UsageError(f"--{'assume-done' if decision == 'done' else 'run-again'} is for single ids, not --all")
    place = await _place_of(ctx, bundle_path) if not ids else ProjectBundle(None)
    async with use_inbox(storage_plugins(ctx)) as store:
        chosen = await _find_deliveries(store, ids) if ids else (await _read_dead(store, place))[::-1]
        uncertain = await _find_uncertain(store, chosen)
        if decision is not None:
            for each in chosen:
                if each.delivery_id not in uncertain:
                    raise click.UsageError(f"{_summary(each)} waits for no decision: retry it without one")
            for each in chosen:
                await decide_effects(store, str(each.session_id), decision)
        elif uncertain and ids:
            raise click.UsageError(f"nothing is retried: {next(iter(uncertain.values()))}")
        due = [
            await store.redeliver(each.delivery_id)
            for each in chosen
            if decision is not None or each.delivery_id not in uncertain
        ]
    for problem in uncertain.values() if decision is None else ():
        click.echo(f"not retried: {problem}", err=True)
    queues = dict.fromkeys((each.project, each.queue) for each in due)
    runs = {(project, queue): wake(project, queue.rpartition("/")[2]) for project, queue in queues}
    for each in due:
        when = "is handled now" if runs[each.project, each.queue] else "waits for the next: amplifier up"
        session = f", in its session {each.session_id}" if each.session_id else ""
        click.echo(f"{_summary(each)} {when}{session}")
    if not due and not uncertain:
        click.echo("No dead letters in this folder.", err=True)


@click.command(epilog="Example: amplifier trigger drop 3f9a")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", default="dropped by hand", show_default=True, help="Reason, shown by amplifier why.")
@click.pass_context
@run_in_loop
async def drop(ctx: click.Context, ids: tuple[str, ...], reason: str) -> None:
    """Discard dead or waiting events."""
    async with use_inbox(storage_plugins(ctx)) as store:
        dropped = [await store.drop(each.delivery_id, reason=reason) for each in await _find_deliveries(store, ids)]
    for each in dropped:
        click.echo(f"{_summary(each)} is skipped: {reason}")


async def _find_uncertain(store: DurableStore, deliveries: Iterable[Delivery]) -> dict[str, EffectsUncertain]:
    """Return the deliveries that wait for a decision on an interrupted call, with the reason."""
    from ...sessions.once import EffectsUncertain, check_effects

    uncertain = {}
    for each in deliveries:
        try:
            if each.session_id is not None:
                await check_effects(store, await store.get(each.session_id))
        except SessionNotFound:
            continue
        except EffectsUncertain as error:
            uncertain[each.delivery_id] = error
    return uncertain


async def _place_of(ctx: click.Context, bundle_path: str | None) -> ProjectBundle:
    from ...paths import project_of

    if bundle_path is None:
        return ProjectBundle(project_here())
    bundle = await load_bundle_at(bundle_path, plugins_of(ctx), runs=False)
    return ProjectBundle(project_of(bundle.base_path), bundle.name)


async def _read_dead(store: DurableStore, place: ProjectBundle) -> list[Delivery]:
    letters = await store.deliveries(project=place.project, state="dead", limit=ALL)
    return [each for each in letters if place.bundle in (None, each.queue.rpartition("/")[0])]


async def _find_deliveries(store: DurableStore, ids: Sequence[str]) -> list[Delivery]:
    """Return the deliveries with these ids, each once, dead letters first. Raises before any change."""
    letters = await store.deliveries(state="dead", limit=ALL)
    others: list[Delivery] | None = None
    found = []
    for text in ids:
        matching = _matching(letters, text)
        if not matching:
            others = await store.deliveries(limit=ALL) if others is None else others
            matching = _matching(others, text)
        found.append(the_only(text, matching))
    return list({each.delivery_id: each for each in found}.values())


def _matching(deliveries: Iterable[Delivery], text: str) -> list[Delivery]:
    return [each for each in deliveries if each.delivery_id.startswith(text)] if len(text) >= SHORTEST else []


def the_only(text: str, found: Sequence[Delivery]) -> Delivery:
    """Return the only delivery found for an id. Raises `DeliveryNotFound`, and `SessionConflict` for several."""
    if not found:
        raise DeliveryNotFound(text)
    if len(found) > 1:
        ids = ", ".join(each.delivery_id for each in found[:5])
        raise SessionConflict(text, f"'{text}' begins the ids of several deliveries: {ids}. Type more of the id")
    return found[0]


def shortest_length(ids: Sequence[str]) -> int:
    """Return the number of characters that make the ids distinct, at least `SHOWN`."""
    return next((length for length in range(SHOWN, 64) if len({each[:length] for each in ids}) == len(ids)), 64)


def _summary(delivery: Delivery) -> str:
    from ...sessions.lineage import describe_event

    return f"{delivery.delivery_id[:SHOWN]} {delivery.queue}: {describe_event(delivery.event)}"


def facts(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery as JSON shows it."""
    from ...sessions.lineage import describe_event

    shown = ("delivery_id", "project", "queue", "trigger", "state", "attempts", "session_id", "reason", "updated")
    event = {"event_id": delivery.event.event_id, "summary": describe_event(delivery.event)}
    return {
        "background_session": delivery.queue.rpartition("/")[2],
        **{name: getattr(delivery, name) for name in shown},
        **event,
        "data": dict(delivery.event.data),
    }
