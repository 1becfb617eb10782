"""What a bundle may say in the `config:` of a timer."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from amplifier_core.durations import PATTERN, seconds_of
from amplifier_core.errors import TriggerConfigError
from amplifier_core.trigger_config import read_trigger_config

from .cron import Cron

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CatchUp = Literal["latest", "skip", "all"]
SHORTEST, TEN_YEARS = 0.001, 10 * 366 * 86_400.0
SCHEDULES = ("interval", "interval_seconds", "cron", "at")


def _known_zone(name: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError(f"unknown time zone {name!r}; use a name such as 'Europe/Berlin'") from None
    return name


def _cron_that_is_due(expression: str) -> str:
    Cron.check(expression)
    return expression


def _moment(text: str) -> str:
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no date and time; write it as '2026-12-24T18:00:00+01:00'") from None
    if not 1970 <= said.year <= 9000:
        raise ValueError(f"{text!r} is out of reach; give a year from 1970 to 9000")
    if len(text) <= len("2026-12-24"):
        raise ValueError(f"{text!r} has no time of day; write it as '2026-12-24T18:00:00+01:00'")
    return text


Duration = Annotated[
    float,
    BeforeValidator(seconds_of),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": PATTERN}]}),
    Field(le=TEN_YEARS),
]
Period = Annotated[Duration, Field(ge=SHORTEST)]


class TimerConfig(BaseModel):
    """Exactly one of `interval`, `interval_seconds`, `cron` and `at`, and how they are followed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    interval: Annotated[
        Period | None,
        Field(description="From one tick to the next: seconds, or text such as 15m, 1h30m or 500ms."),
    ] = None
    interval_seconds: Annotated[
        float | None,
        Field(ge=SHORTEST, le=TEN_YEARS, allow_inf_nan=False, description="Seconds from one tick to the next."),
    ] = None
    cron: Annotated[
        Annotated[str, AfterValidator(_cron_that_is_due)] | None,
        Field(description="Minute, hour, day of month, month, day of week."),
    ] = None
    at: Annotated[
        Annotated[str, AfterValidator(_moment)] | None,
        Field(description="Once: a date and time with an offset (2026-12-24T18:00:00Z), or without one in `timezone`."),
    ] = None
    timezone: Annotated[
        str, AfterValidator(_known_zone), Field(description="The zone that `cron` and `at` are read in.")
    ] = "UTC"
    jitter: Annotated[Duration, Field(description="Up to how much later than it is due a tick fires.")] = 0.0
    immediate: Annotated[bool, Field(description="Whether to fire at every start as well.")] = False
    catch_up: Annotated[CatchUp, Field(description="What of the ticks that were missed fires.")] = "latest"
    max_age: Annotated[
        Duration | None, Field(description="Missed ticks that were due longer ago than this do not fire.")
    ] = None


def read_config(trigger: str, config: Mapping[str, Any]) -> TimerConfig:
    """Return the checked configuration. Raises `TriggerConfigError`."""
    checked = read_trigger_config(trigger, TimerConfig, config)
    for key, message in _contradictions(checked):
        raise TriggerConfigError(trigger, key, message)
    return checked


def _contradictions(config: TimerConfig) -> Iterator[tuple[str, str]]:
    """Yield what keys say of each other that cannot be: a key, and what to do."""
    given = [key for key in SCHEDULES if getattr(config, key) is not None]
    if len(given) != 1:
        found = f"this has {' and '.join(given)}" if given else "this has none"
        yield (given[1] if given else ""), f"give exactly one of interval, interval_seconds, cron and at; {found}"
    elif "timezone" in config.model_fields_set:
        if config.cron is None and config.at is None:
            yield "timezone", "it goes with cron or at; an interval has no time zone, remove it"
        elif config.at is not None and _has_offset(config.at):
            yield "timezone", "the time in 'at' has an offset already; keep one of the two"
    elif config.at is not None and not _has_offset(config.at):
        yield "at", f"{config.at!r} has no offset; add one, such as Z or +02:00, or say a timezone"
    if config.max_age is not None and config.catch_up == "skip":
        yield "max_age", "it says which missed ticks fire, and with catch_up: skip none does; remove one of the two"


def _has_offset(text: str) -> bool:
    return datetime.fromisoformat(text).tzinfo is not None
