"""What a bundle may say in the `config:` of a session event trigger."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from amplifier_core.errors import TriggerConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def _event_name(name: str) -> str:
    if "*" in name[:-1]:
        raise ValueError(f"{name!r}: a * may only be the last character, as in 'work:*'")
    return name


EventName = Annotated[str, Field(min_length=1), AfterValidator(_event_name)]
SessionId = Annotated[str, Field(min_length=1)]


class SessionEventConfig(BaseModel):
    """Which events of which sessions fire."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event_names: Annotated[list[EventName], Field(min_length=1, description="Names, prefixes ('work:*') or '*'.")]
    source_sessions: Annotated[
        list[SessionId] | None, Field(min_length=1, description="Events of these sessions only.")
    ] = None


def read_config(trigger: str, config: Mapping[str, Any]) -> SessionEventConfig:
    """Return the checked configuration. Raises `TriggerConfigError` for the first thing that is wrong with it."""
    try:
        return SessionEventConfig.model_validate(config)
    except ValidationError as error:
        fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        key = str(fault["loc"][0]) if fault["loc"] else ""
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = _unknown_key(key)
        raise TriggerConfigError(trigger, key, message) from None


def _unknown_key(key: str) -> str:
    close = get_close_matches(key, SessionEventConfig.model_fields, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(SessionEventConfig.model_fields)}"
    return f"unknown key; {hint}"
