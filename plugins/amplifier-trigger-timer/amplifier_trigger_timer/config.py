"""What a bundle may say in the `config:` of a timer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from .schedule import Cron

CatchUp = Literal["latest", "skip", "all"]
TEN_YEARS = 10 * 366 * 86_400.0


def _known_zone(name: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError(f"unknown time zone {name!r}; use a name such as 'Europe/Berlin'") from None
    return name


def _cron_that_is_due(expression: str | None) -> str | None:
    if expression is not None:
        Cron.check(expression)
    return expression


class TimerConfig(BaseModel):
    """Exactly one of `interval_seconds` and `cron`, and how they are followed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    interval_seconds: Annotated[
        float | None,
        Field(ge=0.001, le=TEN_YEARS, allow_inf_nan=False, description="Seconds from one tick to the next."),
    ] = None
    cron: Annotated[
        str | None,
        AfterValidator(_cron_that_is_due),
        Field(description="Minute, hour, day of month, month, day of week."),
    ] = None
    timezone: Annotated[str, AfterValidator(_known_zone), Field(description="The zone that `cron` is read in.")] = "UTC"
    immediate: Annotated[bool, Field(description="Whether to fire at every start as well.")] = False
    catch_up: Annotated[CatchUp, Field(description="What of the ticks that were missed fires at start.")] = "latest"

    @model_validator(mode="after")
    def _one_schedule(self) -> TimerConfig:
        if (self.interval_seconds is None) == (self.cron is None):
            raise ValueError("give exactly one of interval_seconds and cron")
        if "timezone" in self.model_fields_set and self.cron is None:
            raise ValueError("timezone goes with cron; an interval has none")
        return self
