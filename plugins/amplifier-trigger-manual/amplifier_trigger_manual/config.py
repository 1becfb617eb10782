"""Refuse any key in the `config:` of a manual trigger."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ManualConfig(BaseModel):
    """No keys: the data comes with each fire."""

    model_config = ConfigDict(extra="forbid", strict=True)
