"""Define the keys of a budget in a bundle."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..documents.fields import Seconds


class BudgetConfig(BaseModel):
    """Limits of the usage; no request to a model begins once one of them is reached."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars. Requests to models without a known price do not count, with a warning."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens in and out."""
    turns: int | None = Field(default=None, ge=1)
    """Turns of the session, or of all sessions together."""
    seconds: Annotated[Seconds, Field(gt=0)] | None = None
    """Seconds of all turns; the time of sessions below is part of the turn above them."""
    per: Literal["day"] | None = None
    """Count the usage of the current day in UTC alone; None: all usage so far."""

    @model_validator(mode="after")
    def _has_a_limit(self) -> BudgetConfig:
        if self.per is not None and (self.usd, self.tokens, self.turns, self.seconds) == (None, None, None, None):
            raise ValueError("give at least one of: usd, tokens, turns, seconds")
        return self
