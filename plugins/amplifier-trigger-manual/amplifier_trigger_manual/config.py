"""What a bundle may say in the `config:` of a trigger that is fired by hand: nothing."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ManualConfig(BaseModel):
    """No keys: whoever fires it brings the data."""

    model_config = ConfigDict(extra="forbid", strict=True)
