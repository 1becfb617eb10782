"""Run `amplifier trigger test`: find the background sessions an event would wake."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from pydantic import BaseModel, ConfigDict, Field, field_validator

from amplifier_core.clock import SystemClock
from amplifier_core.errors import AmplifierError
from amplifier_core.json_values import to_json
from amplifier_core.triggers import JudgingSource, TriggerEvent, TriggerType

from ...operations.timing import declared_in
from ..app import bundle_option, json_option, load_bundle_at, plugins_of, use_inbox
from ..loops import run_in_loop
from ..output import console, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ...bundle.background_config import BackgroundSessionConfig, TriggerConfig
    from ...bundle.model import Bundle
    from ...operations.timing import Declared


class WrittenEvent(BaseModel):
    """A trigger event written by a person."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: TriggerType
    source: str | None = Field(default=None, min_length=1)
    """The registered name of the trigger; None: the usual trigger of the type."""
    module: str | None = Field(default=None, min_length=1)
    """Another name for `source`."""
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))
    data: dict[str, Any] = Field(default_factory=dict)
    file_path: str | None = None
    change_type: str | None = None
    event_name: str | None = None
    source_session_id: str | None = None
    depth: int | None = Field(default=None, ge=0)

    @field_validator("type", mode="before")
    @classmethod
    def _read_type(cls, value: Any) -> Any:
        kinds = [kind.value for kind in TriggerType]
        if value in kinds:
            return TriggerType(value)
        close = get_close_matches(str(value), kinds, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise ValueError(f"{value!r} is not one of {', '.join(kinds)}{hint}")

    @field_validator("timestamp", mode="before")
    @classmethod
    def _read_timestamp(cls, value: Any) -> Any:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment.replace(tzinfo=UTC) if isinstance(moment, datetime) and moment.tzinfo is None else moment

    @classmethod
    def read(cls, name: str, text: str) -> TriggerEvent:
        """Return the event written as JSON in the file `name`. Raises `click.UsageError`, `TriggerConfigError`."""
        from amplifier_core.trigger_config import read_trigger_config

        try:
            written = json.loads(text)
            to_json(written, "event")
        except (TypeError, ValueError, RecursionError) as error:
            raise click.UsageError(f"{name} is not JSON: {error}") from error
        if not isinstance(written, dict):
            raise click.UsageError(
                f'{name} must hold a JSON object, such as {{"type": "timer", "data": {{"tick": 1}}}}'
            )
        return read_trigger_config(name, cls, written).to_event()

    def to_event(self) -> TriggerEvent:
        """Return the event as its trigger would yield it."""
        from ...bundle.background_config import trigger_module

        depth = int(self.type is TriggerType.SESSION_EVENT) if self.depth is None else self.depth
        source = self.source or self.module or trigger_module(self.type.value)
        written = self.model_dump(exclude={"source", "module", "depth"})
        return TriggerEvent(**written, source=source, depth=depth)


@click.command(epilog="Example: amplifier trigger test event.json")
@click.argument("file", metavar="EVENT.json", type=click.File(encoding="utf-8"))
@bundle_option
@json_option
@click.pass_context
@run_in_loop
async def test(ctx: click.Context, file: IO[str], bundle_path: str | None, as_json: bool) -> None:
    """Show the background sessions an event would wake, with their prompts, and the reasons of the others.

    EVENT.json holds the event's type, source, data, file_path, change_type, event_name, source_session_id and
    timestamp; - reads stdin. Nothing runs, and nothing is stored.
    """
    event, plugins = WrittenEvent.read(file.name, file.read()), plugins_of(ctx)
    bundle = await load_bundle_at(bundle_path, plugins)
    event = _add_file_data(event, bundle)
    async with use_inbox(plugins) as store:
        verdicts = [
            verdict
            for session in bundle.background_sessions
            for verdict in await _judge(bundle, session, event, plugins, store)
        ]
    if as_json:
        print_json("trigger.test/2", verdicts)
        return
    for name in dict.fromkeys(verdict["background_session"] for verdict in verdicts):
        _print(name, [verdict for verdict in verdicts if verdict["background_session"] == name])
    if not verdicts:
        click.echo("The bundle declares no background sessions.", err=True)


def _add_file_data(event: TriggerEvent, bundle: Bundle) -> TriggerEvent:
    """Return an event of the file watcher with the data of a real one; written data stays."""
    from ...bundle.background_config import trigger_module
    from ...paths import project_of

    if event.source != trigger_module(TriggerType.FILE_CHANGE.value) or not event.file_path or not event.change_type:
        return event
    absolute = os.path.normpath(Path(project_of(bundle.base_path), event.file_path))
    known = {"path": event.file_path, "change": event.change_type, "absolute": absolute, "src_path": absolute}
    return replace(event, data={**known, **event.data})


async def _judge(
    bundle: Bundle, session: BackgroundSessionConfig, event: TriggerEvent, plugins: Plugins, store: DurableStore
) -> list[dict[str, Any]]:
    """Return a verdict for each trigger of a background session: whether the event would wake it, or the reason."""
    from ...background.keys import queue_key
    from ...paths import project_of

    queue, project = queue_key(bundle.name, session.name), project_of(bundle.base_path)
    verdicts: list[dict[str, Any]] = []
    for key, declared, reason in await _match(bundle, session, event, project, plugins, store):
        verdict = {"background_session": session.name, "trigger": key, "runs": False, "reason": reason}
        if reason is None:
            verdict |= await _admit(session, declared, event, store, (project, queue))
        verdicts.append(verdict)
    return verdicts


async def _match(
    bundle: Bundle,
    session: BackgroundSessionConfig,
    event: TriggerEvent,
    project: str,
    plugins: Plugins,
    store: DurableStore,
) -> list[tuple[str | None, TriggerConfig | None, str | None]]:
    """Return the triggers by key, each with the reason why the event is not its own; None: it is."""
    from ...background.keys import manual_key, queue_key

    listed = list(declared_in(bundle, session))
    if event.type is TriggerType.MANUAL:
        key = manual_key(queue_key(bundle.name, session.name), session.triggers)
        return [(key, next((each.config for each in listed if each.key == key), None), None)]
    matched = [(each.key, each.config, await _mismatch(each, event, project, plugins, store)) for each in listed]
    return [*matched] or [(None, None, "it has no trigger: only amplifier trigger fire wakes it")]


async def _mismatch(
    declared: Declared, event: TriggerEvent, project: str, plugins: Plugins, store: DurableStore
) -> str | None:
    module = declared.config.module
    try:
        trigger = await declared.source(project, plugins, store)
        if event.source == module:
            return trigger.matches(event) if isinstance(trigger, JudgingSource) else None
        if isinstance(trigger, JudgingSource):
            return trigger.matches(event) or f"its trigger is {module}, and the event comes from {event.source}"
    except AmplifierError as error:
        return str(error)
    except Exception as error:  # in the code of any plugin
        return f"{type(error).__name__}: {error}"
    return f"the event comes from {event.source}, not from {module}"


async def _admit(
    config: BackgroundSessionConfig,
    declared: TriggerConfig | None,
    event: TriggerEvent,
    store: DurableStore,
    place: tuple[str, str],
) -> dict[str, Any]:
    """Return whether a background session would accept an event, its place in the queue, and the prompt."""
    from ...background.admission import Gate
    from ...bundle.templates import instruction_for

    gate = Gate(config, SystemClock())
    refused = await gate.evaluate(store, place, declared, event)
    if refused is not None:
        return {"reason": refused}
    accepted: dict[str, Any] = {"runs": True, "mode": config.mode, "key": None, "priority": 0, "debounce": None}
    admission = gate.admission(event)
    if admission is not None:
        accepted |= {"key": admission.key, "priority": admission.priority}
    if admission is not None and admission.settle_key is not None:
        period, timeout = admission.settle, admission.settle_within
        accepted["debounce"] = {"key": admission.settle_key, "period": period, "timeout": timeout}
    try:
        return {**accepted, "instruction": instruction_for(event, config, declared)}
    except AmplifierError as error:
        return {**accepted, "runs": False, "reason": f"it would be accepted, then fail: {error}"}


def _print(name: str, verdicts: Sequence[Mapping[str, Any]]) -> None:
    from rich.text import Text

    from ...background.keys import MANUAL

    out = console()
    runs = any(verdict["runs"] for verdict in verdicts)
    out.print(Text.assemble((name, "bold"), ": ", ("would run", "green") if runs else ("would not run", "yellow")))
    for verdict in verdicts:
        trigger = (verdict["trigger"] or "").rpartition("/")[2]
        trigger = "by hand" if trigger == MANUAL else trigger
        if not verdict["runs"]:
            out.print(Text(f"  {trigger}: {verdict['reason']}" if trigger else f"  {verdict['reason']}", "dim"))
            continue
        facts = [f"{key} {verdict[key]}" for key in ("mode", "key", "priority") if verdict[key]]
        if verdict["debounce"]:
            facts.append(f"after {verdict['debounce']['period']:g} s without another")
        out.print(Text.assemble("  ", (trigger, "cyan"), f": {', '.join(facts)}; prompt:"))
        for line in verdict["instruction"].splitlines():
            out.print(Text(f"    {line}".rstrip()))
