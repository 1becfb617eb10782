"""Read the `config:` of a trigger of issues in a bundle."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Name = Annotated[str, Field(min_length=1)]
Event = Literal["ready", "created", "updated", "unblocked", "closed"]


class IssueTriggerConfig(BaseModel):
    """The issues that fire."""

    model_config = ConfigDict(extra="forbid", strict=True)

    events: Annotated[
        list[Event],
        Field(
            min_length=1,
            description="'ready' (an open issue that waits for no other: new, unblocked or opened again), 'created', "
            "'updated', 'unblocked', 'closed'.",
        ),
    ] = ["ready"]
    types: Annotated[list[Name] | None, Field(min_length=1, description="Only issues of these types.")] = None
    except_types: Annotated[list[Name], Field(description="No issues of these types.")] = []
    status: Annotated[
        list[Literal["open", "in_progress", "escalated", "closed"]] | None,
        Field(min_length=1, description="Only issues with one of these."),
    ] = None
    labels: Annotated[list[Name] | None, Field(min_length=1, description="Only issues with one of these.")] = None
    except_labels: Annotated[list[Name], Field(description="No issues with one of these.")] = []
    condition: Annotated[
        str | None, Field(alias="if", description="A condition on name, source_session_id and data of an event.")
    ] = None

    @field_validator("events", "types", "status", "labels", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("condition")
    @classmethod
    def _check_condition(cls, text: str | None) -> str | None:
        from amplifier_core.conditions import Condition

        return None if text is None else Condition.parse(text).text
