"""Read the `config:` of a session event trigger in a bundle."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Name = Annotated[str, Field(min_length=1)]


class SessionEventConfig(BaseModel):
    """The events that fire."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event_names: Annotated[list[Name], Field(min_length=1, description="Names, prefixes ('work:*') or '*'.")]
    source_sessions: Annotated[
        list[Name] | None,
        Field(min_length=1, description="Only events of these: ids of sessions, or names of background sessions."),
    ] = None
    origin: Annotated[
        Literal["project", "any"] | list[Name],
        Field(alias="from", description="Whose events count: 'project' (its own), 'any', or folders and sites."),
    ] = "project"
    condition: Annotated[
        str | None,
        Field(alias="if", description="A condition on name, source_session_id and data of an event."),
    ] = None
    self_trigger: Annotated[
        bool, Field(description="Whether events from runs of its own background session wake that session again.")
    ] = False

    @field_validator("event_names")
    @classmethod
    def _check_names(cls, names: list[str]) -> list[str]:
        for name in names:
            if "*" in name[:-1]:
                raise ValueError(f"{name!r}: a * may only be the last character, as in 'work:*'")
        return names

    @field_validator("origin", mode="before")
    @classmethod
    def _check_origin(cls, origin: Any) -> Any:
        folders = isinstance(origin, list) and origin and all(isinstance(each, str) and each for each in origin)
        if origin not in ("project", "any") and not folders:
            raise ValueError("must be 'project', 'any', or a list of folders")
        return origin

    @field_validator("condition")
    @classmethod
    def _check_condition(cls, text: str | None) -> str | None:
        from amplifier_core.conditions import Condition

        return None if text is None else Condition.parse(text).text
