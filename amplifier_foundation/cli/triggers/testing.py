"""`amplifier trigger test`: which background sessions an event would wake, and why not the others."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import IO, TYPE_CHECKING, Annotated, Any

import click
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from amplifier_core.clock import SystemClock
from amplifier_core.errors import AmplifierError
from amplifier_core.storable import to_json
from amplifier_core.triggers import JudgingSource, TriggerEvent, TriggerType

from ..app import bundle_at, bundle_option, json_option, opened_inbox, plugins_of, run_async
from ..output import console, print_json
from .timing import declared_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Admission, DurableStore

    from ...background.config import BackgroundSessionConfig, TriggerConfig
    from ...bundles.model import Bundle
    from .timing import Declared


def _kind(value: Any) -> Any:
    kinds = [kind.value for kind in TriggerType]
    if value not in kinds:
        close = get_close_matches(str(value), kinds, n=1)
        raise ValueError(
            f"{value!r} is none of {', '.join(kinds)}" + (f"; did you mean '{close[0]}'?" if close else "")
        )
    return TriggerType(value)


def _moment(value: Any) -> Any:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.replace(tzinfo=UTC) if isinstance(moment, datetime) and moment.tzinfo is None else moment


class WrittenEvent(BaseModel):
    """An event as a person writes it: the members of a `TriggerEvent` that a background session is told."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Annotated[TriggerType, BeforeValidator(_kind)]
    source: str | None = Field(default=None, min_length=1)
    """The registered name of the trigger; None: what events of the type come from."""
    module: str | None = Field(default=None, min_length=1)
    """Another name for `source`."""
    timestamp: Annotated[datetime, BeforeValidator(_moment)] = Field(default_factory=lambda: datetime.now(UTC))
    data: dict[str, Any] = Field(default_factory=dict)
    file_path: str | None = None
    change_type: str | None = None
    event_name: str | None = None
    source_session_id: str | None = None
    depth: int | None = Field(default=None, ge=0)

    def event(self) -> TriggerEvent:
        """Return it as a trigger would yield it."""
        from ...background.config import trigger_module

        depth = int(self.type is TriggerType.SESSION_EVENT) if self.depth is None else self.depth
        source = self.source or self.module or trigger_module(self.type.value)
        written = self.model_dump(exclude={"source", "module", "depth"})
        return TriggerEvent(**written, source=source, depth=depth)


@click.command()
@click.argument("file", metavar="EVENT.json", type=click.File(encoding="utf-8"))
@bundle_option
@json_option
@click.pass_context
def test(ctx: click.Context, file: IO[str], bundle_path: str | None, as_json: bool) -> None:
    """Tell which background sessions an event would wake, what each would be asked, and why the others would not run.

    EVENT.json holds an event's type, source, data, file_path, change_type, event_name, source_session_id and timestamp;
    - reads it from stdin. Nothing is run, and nothing is stored.
    """
    event = _read(file.name, file.read())
    verdicts = run_async(_verdicts(ctx, bundle_path, event))
    if as_json:
        print_json("trigger.test/1", verdicts)
        return
    for session in dict.fromkeys(verdict["session"] for verdict in verdicts):
        _print(session, [verdict for verdict in verdicts if verdict["session"] == session])
    if not verdicts:
        click.echo("The bundle declares no background sessions.", err=True)


def _read(name: str, text: str) -> TriggerEvent:
    from amplifier_core.trigger_config import read_trigger_config

    try:
        written = json.loads(text)
        to_json(written, "event")
    except (TypeError, ValueError, RecursionError) as error:
        raise click.UsageError(f"{name} is not JSON: {error}") from error
    if not isinstance(written, dict):
        raise click.UsageError(f'{name} must hold a JSON object, such as {{"type": "timer", "data": {{"tick": 1}}}}')
    return read_trigger_config(name, WrittenEvent, written).event()


async def _verdicts(ctx: click.Context, bundle_path: str | None, event: TriggerEvent) -> list[dict[str, Any]]:
    plugins = plugins_of(ctx)
    bundle = await bundle_at(bundle_path, plugins)
    async with opened_inbox(plugins) as store:
        return [
            verdict
            for session in bundle.background_sessions
            for verdict in await _verdicts_of(bundle, session, event, plugins, store)
        ]


async def _verdicts_of(
    bundle: Bundle, session: BackgroundSessionConfig, event: TriggerEvent, plugins: Plugins, store: DurableStore
) -> list[dict[str, Any]]:
    """Return what each trigger of a background session makes of an event, and the session of what it would yield."""
    from ...background.lane import lane_key
    from ...paths import project_of

    lane, project, verdicts = lane_key(bundle.name, session.name), project_of(bundle.base_path), list[dict[str, Any]]()
    for key, declared, reason in await _asked(bundle, session, event, project, plugins, store):
        verdict = {"session": session.name, "trigger": key, "runs": False, "reason": reason}
        if reason is None:
            verdict |= await _judged(session, declared, event, store, (project, lane))
        verdicts.append(verdict)
    return verdicts


async def _asked(
    bundle: Bundle,
    session: BackgroundSessionConfig,
    event: TriggerEvent,
    project: str,
    plugins: Plugins,
    store: DurableStore,
) -> list[tuple[str | None, TriggerConfig | None, str | None]]:
    """Return the triggers by their keys, each with why the event is none of its own; any session is fired by hand."""
    from ...background.lane import lane_key, manual_key

    listed = list(declared_in(bundle, session))
    if event.type is TriggerType.MANUAL:
        key = manual_key(lane_key(bundle.name, session.name), session.triggers)
        return [(key, next((each.config for each in listed if each.key == key), None), None)]
    asked = [(each.key, each.config, await _why_not(each, event, project, plugins, store)) for each in listed]
    return [*asked] or [(None, None, "it declares no trigger, and is woken by hand alone")]


async def _why_not(
    declared: Declared, event: TriggerEvent, project: str, plugins: Plugins, store: DurableStore
) -> str | None:
    module = declared.config.module
    try:
        trigger = await declared.source(project, plugins, store)
        if event.source == module:
            return trigger.matches(event) if isinstance(trigger, JudgingSource) else None
        if isinstance(trigger, JudgingSource):
            return trigger.matches(event) or f"it is {module}, and the event comes from {event.source}"
    except AmplifierError as error:
        return str(error)
    except Exception as error:  # of a trigger that somebody else wrote
        return f"{type(error).__name__}: {error}"
    return f"the event comes from {event.source}, and not from {module}"


async def _judged(
    config: BackgroundSessionConfig,
    declared: TriggerConfig | None,
    event: TriggerEvent,
    store: DurableStore,
    place: tuple[str, str],
) -> dict[str, Any]:
    """Return whether a background session would accept an event, how it would wait, and what a session is asked."""
    from ...background.admission import Gate
    from ...background.instruction import instruction_for

    gate = Gate(config, SystemClock())
    refused = await gate.judged(store, place, declared, event)
    if refused is not None:
        return {"reason": refused}
    accepted = {"runs": True, "mode": config.mode, **_waiting(gate.admission(event))}
    try:
        return {**accepted, "instruction": instruction_for(event, config, declared)}
    except AmplifierError as error:
        return {**accepted, "runs": False, "reason": f"it would be accepted, and fail: {error}"}


def _waiting(admission: Admission | None) -> dict[str, Any]:
    if admission is None:
        return {"key": None, "priority": 0, "debounce": None}
    debounce = {"key": admission.settle_key, "period": admission.settle, "timeout": admission.settle_within}
    settles = admission.settle_key is not None
    return {"key": admission.key, "priority": admission.priority, "debounce": debounce if settles else None}


def _print(session: str, verdicts: Iterable[Mapping[str, Any]]) -> None:
    from rich.text import Text

    from ...background.lane import MANUAL

    out = console()
    runs = any(verdict["runs"] for verdict in verdicts)
    out.print(Text.assemble((session, "bold"), ": ", ("would run", "green") if runs else ("would not run", "yellow")))
    for verdict in verdicts:
        name = (verdict["trigger"] or "").rpartition("/")[2]
        name = "by hand" if name == MANUAL else name
        if verdict["runs"]:
            _print_run(name, verdict)
        else:
            out.print(Text(f"  {name}: {verdict['reason']}" if name else f"  {verdict['reason']}", "dim"))


def _print_run(trigger: str, verdict: Mapping[str, Any]) -> None:
    from rich.text import Text

    out, debounce = console(), verdict["debounce"]
    facts = [f"mode {verdict['mode']}"]
    facts += [f"key {verdict['key']}"] if verdict["key"] else []
    facts += [f"priority {verdict['priority']}"] if verdict["priority"] else []
    facts += [f"once none like it has come for {debounce['period']:g} s"] if debounce else []
    out.print(Text.assemble("  ", (trigger, "cyan"), f": {', '.join(facts)}; asked:"))
    for line in verdict["instruction"].splitlines():
        out.print(Text(f"    {line}".rstrip()))
