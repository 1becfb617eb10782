"""What may stand in a settings file. Importing this imports pydantic."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from ..background.config import MODULE_ID, Seconds
from ..bundles.schema import Section

Text = Annotated[str, Field(min_length=1)]


class Override(Section):
    """What is put over the entry of one module, in whatever bundle it stands."""

    source: Text = ""
    """Where its code is."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Merged over the bundle's."""


class Fetching(Section):
    """How bundles and modules are fetched from elsewhere."""

    timeout: float = Field(default=0, gt=0, allow_inf_nan=False)
    """Seconds that fetching one source may take."""


class Retention(Section):
    """How long what nobody looks after is kept: the sessions that background sessions have made."""

    sessions: Seconds = 0
    """How long such a session is kept after its last change; 0: for ever."""
    keep: int = Field(default=0, ge=0)
    """How many of each background session are kept, however old."""


class SettingsFile(Section):
    """The whole of a settings file. A key with nothing after it is the same as one that is not there."""

    bundle: Text = ""
    """The bundle of a folder that has none: a registered name, a path or a URI."""
    bundles: dict[str, Text] = Field(default_factory=dict)
    """Where the bundles are that have a name here."""
    storage: str = Field(default="", pattern=MODULE_ID)
    """The storage that sessions are kept in."""
    overrides: dict[str, Override] = Field(default_factory=dict)
    """By module."""
    fetch: Fetching = Field(default_factory=Fetching)
    retention: Retention = Field(default_factory=Retention)

    @field_validator("bundles")
    @classmethod
    def _names(cls, bundles: dict[str, str]) -> dict[str, str]:
        for name in bundles:
            if not name.strip() or not name.isprintable() or set(name) & set(":/\\"):
                raise ValueError(f"'{name}' is no name; use one without ':', '/' and '\\'")
        return bundles
