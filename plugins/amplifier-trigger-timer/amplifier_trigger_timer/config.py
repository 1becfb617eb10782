"""Read the `config:` of a timer in a bundle."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from amplifier_core.durations import PATTERN, seconds_of
from amplifier_core.errors import TriggerConfigError
from amplifier_core.trigger_config import read_trigger_config

from .cron import Cron
from .schedule import Interval, Once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .schedule import Schedule

CatchUp = Literal["latest", "skip", "all"]
SHORTEST, TEN_YEARS = 0.001, 10 * 366 * 86_400.0
DEFAULT = 60.0
"""Seconds of the interval if a configuration has no schedule."""
SCHEDULES = ("interval", "interval_seconds", "cron", "at")


Duration = Annotated[
    float,
    BeforeValidator(seconds_of),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": PATTERN}]}),
    Field(le=TEN_YEARS),
]
Period = Annotated[Duration, Field(ge=SHORTEST)]


class TimerConfig(BaseModel):
    """At most one of `interval`, `interval_seconds`, `cron` and `at`; none is an interval of 60 seconds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    interval: Annotated[
        Period | None,
        Field(description="Time from one tick to the next: seconds, or text such as 15m, 1h30m or 500ms."),
    ] = None
    interval_seconds: Annotated[
        float | None,
        Field(
            ge=SHORTEST, le=TEN_YEARS, allow_inf_nan=False, description="Seconds from one tick to the next; default 60."
        ),
    ] = None
    cron: Annotated[str | None, Field(description="Minute, hour, day of month, month, day of week.")] = None
    at: Annotated[
        str | None,
        Field(description="Once: a date and time with an offset (2026-12-24T18:00:00Z), or without one in `timezone`."),
    ] = None
    timezone: Annotated[str, Field(description="The time zone of `cron` and `at`.")] = "UTC"
    jitter: Annotated[Duration, Field(description="The longest delay of a tick after it is due.")] = 0.0
    immediate: Annotated[bool, Field(description="Whether to fire at every start as well.")] = False
    catch_up: Annotated[CatchUp, Field(description="Which missed ticks fire.")] = "latest"
    max_age: Annotated[
        Duration | None, Field(description="A missed tick fires only if it was due at most this long ago.")
    ] = None

    @field_validator("cron")
    @classmethod
    def _check_cron(cls, expression: str | None) -> str | None:
        if expression is not None:
            Cron.check(expression)
        return expression

    @field_validator("at")
    @classmethod
    def _check_moment(cls, text: str | None) -> str | None:
        if text is None:
            return None
        try:
            said = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a date and time; write it as '2026-12-24T18:00:00+01:00'") from None
        if not 1970 <= said.year <= 9000:
            raise ValueError(f"{text!r} is out of range; give a year from 1970 to 9000")
        if len(text) <= len("2026-12-24"):
            raise ValueError(f"{text!r} has no time of day; write it as '2026-12-24T18:00:00+01:00'")
        return text

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, name: str) -> str:
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(name)
        except (LookupError, OSError, ValueError):
            raise ValueError(f"unknown time zone {name!r}; use a name such as 'Europe/Berlin'") from None
        return name


def read_config(trigger: str, config: Mapping[str, Any]) -> TimerConfig:
    """Return the checked configuration. Raises `TriggerConfigError`."""
    checked = read_trigger_config(trigger, TimerConfig, config)
    for key, message in _contradictions(checked):
        raise TriggerConfigError(trigger, key, message)
    return checked


def make_schedule(config: TimerConfig) -> Schedule:
    """Return the schedule of a configuration."""
    if config.cron is not None:
        return Cron(config.cron, config.timezone)
    if config.at is not None:
        return Once(config.at, config.timezone)
    return Interval(config.interval or config.interval_seconds or DEFAULT)


def _contradictions(config: TimerConfig) -> Iterator[tuple[str, str]]:
    """Yield keys that do not go together, each with the remedy."""
    given = [key for key in SCHEDULES if getattr(config, key) is not None]
    if len(given) > 1:
        yield given[1], f"give one of interval, interval_seconds, cron and at; this has {' and '.join(given)}"
    elif "timezone" in config.model_fields_set and config.cron is None and config.at is None:
        yield "timezone", "it goes with cron or at; an interval has no time zone, remove it"
    elif config.at is not None:
        has_offset = datetime.fromisoformat(config.at).tzinfo is not None
        if has_offset and "timezone" in config.model_fields_set:
            yield "timezone", "the time in 'at' has an offset already; keep one of the two"
        elif not has_offset and "timezone" not in config.model_fields_set:
            yield "at", f"{config.at!r} has no offset; add one, such as Z or +02:00, or give a timezone"
    if config.max_age is not None and config.catch_up == "skip":
        yield "max_age", "it has no effect with catch_up: skip; remove one of the two"
