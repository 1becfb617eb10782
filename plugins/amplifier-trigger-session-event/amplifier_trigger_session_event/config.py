"""What a bundle may say in the `config:` of a session event trigger."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _condition(text: str) -> str:
    from amplifier_core.conditions import Condition

    return Condition.parse(text).text


def _event_name(name: str) -> str:
    if "*" in name[:-1]:
        raise ValueError(f"{name!r}: a * may only be the last character, as in 'work:*'")
    return name


EventName = Annotated[str, Field(min_length=1), AfterValidator(_event_name)]
ConditionText = Annotated[str, AfterValidator(_condition)]
SessionId = Annotated[str, Field(min_length=1)]


class SessionEventConfig(BaseModel):
    """Which events of which sessions fire."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event_names: Annotated[list[EventName], Field(min_length=1, description="Names, prefixes ('work:*') or '*'.")]
    source_sessions: Annotated[
        list[SessionId] | None, Field(min_length=1, description="Events of these sessions only.")
    ] = None
    condition: Annotated[
        ConditionText | None,
        Field(alias="if", description="A condition on name, source_session_id and data of an event."),
    ] = None
    self_trigger: Annotated[
        bool, Field(description="Whether what comes of its own background session's runs wakes that again.")
    ] = False
