"""What a bundle declares about one background session."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MODULE_ID = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
SLUG = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"


def empty_when_null(value: Any) -> Any:
    """Return {} for the null that `config:` with nothing after it is."""
    return {} if value is None else value


class TriggerConfig(BaseModel):
    """One trigger of a background session. `type: timer` is another spelling of `module: trigger-timer`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    module: str = Field(pattern=MODULE_ID)
    """The registered name: `trigger-file-watcher`."""
    config: Annotated[dict[str, Any], BeforeValidator(empty_when_null)] = Field(default_factory=dict)
    """Handed to the trigger's `configure`."""
    name: str | None = Field(default=None, pattern=SLUG)
    """What the trigger's remembered state is kept under; None: the module's name."""

    instruction_template: str | None = Field(default=None, min_length=1)
    """What a session that this trigger woke is asked, in place of the background session's own."""

    @model_validator(mode="before")
    @classmethod
    def _module_from_type(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("type"), str):
            return data
        if "module" in data:
            raise ValueError("'type' and 'module' say the same thing; keep one of them")
        rest = {key: value for key, value in data.items() if key != "type"}
        return {**rest, "module": trigger_module(data["type"])}


def trigger_module(kind: str) -> str:
    """Return the registered name of a trigger that is declared by its type: `file_change` is `trigger-file-watcher`."""
    kind = {"file_change": "file_watcher"}.get(kind, kind)
    return "trigger-" + kind.replace("_", "-")


class BackgroundSessionConfig(BaseModel):
    """One background session: what it runs, what wakes it, and how it fares when something fails."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str = Field(pattern=SLUG)
    """Unique in its bundle."""
    bundle: str | None = Field(default=None, min_length=1)
    """Which bundle its sessions are made from; None: the one that declares it."""
    instruction: str | None = Field(default=None, min_length=1)
    """What a woken session is asked to do, said before the description of its event."""
    instruction_template: str | None = Field(default=None, min_length=1)
    """The whole of what it is asked, with `{names}` of the event filled in; excludes `instruction`."""
    triggers: list[TriggerConfig] = Field(default_factory=list)
    """What wakes it; none: it is woken by hand."""
    pool_size: int = Field(default=1, ge=1, le=64)
    """Events that are handled at the same time."""
    on_complete_emit: str | None = Field(default=None, min_length=1)
    """An event to emit, besides `session:completed`, when an event was handled."""
    on_error_emit: str | None = Field(default=None, min_length=1)
    """An event to emit, besides `session:error`, when an event was given up."""
    start_on_parent_start: bool = True
    stop_on_parent_stop: bool = True
    restart_on_failure: bool = True
    """Whether a trigger that fails is started again."""
    max_restarts: int = Field(default=3, ge=0)
    """Restarts of a trigger within `restart_window`."""
    restart_window: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Seconds."""
    timeout: float | None = Field(default=1800.0, gt=0, allow_inf_nan=False)
    """Seconds that handling one event may take; None: any time."""
    max_attempts: int = Field(default=5, ge=1, le=100)
    """Tries of one event before it is set aside as a dead letter."""
    max_depth: int = Field(default=8, ge=1, le=100)
    """Length of the chain of causes at which an event is refused: sessions that wake each other stop here."""

    @model_validator(mode="after")
    def _one_instruction(self) -> BackgroundSessionConfig:
        if self.instruction is not None and self.instruction_template is not None:
            raise ValueError("give 'instruction' or 'instruction_template', not both")
        return self
