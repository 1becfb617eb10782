"""What a bundle declares about one background session."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from amplifier_core.conditions import Condition
from amplifier_core.durations import PATTERN, seconds_of

from .instruction import check_template

MODULE_ID = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
SLUG = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"


Mode = Literal["queued", "parallel", "single", "restart"]
CatchUp = Literal["all", "latest", "skip"]
Seconds = Annotated[
    float,
    BeforeValidator(seconds_of),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": PATTERN}]}),
]
"""A duration: a number of seconds, or text such as `15m`."""


def _condition(text: str) -> str:
    Condition.parse(text)
    return text


def _template(text: str) -> str:
    check_template(text)
    return text


Template = Annotated[str, Field(min_length=1), AfterValidator(_template)]
"""Text with `{names}` of the event in it."""


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


class Debounce(BaseModel):
    """Wait until events stop coming: of those of one `key`, the last is handled."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    period: Annotated[Seconds, Field(gt=0)]
    """Seconds without a further event after which the last one is handled."""
    timeout: Annotated[Seconds, Field(gt=0)] | None = None
    """Seconds after the first one when the last so far is handled all the same; None: however long they come."""
    key: Template | None = None
    """Which events belong together; None: those of the background session's `key`."""


class Rate(BaseModel):
    """So many in so long."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    limit: int = Field(ge=1)
    period: Annotated[Seconds, Field(gt=0)]
    """Seconds."""


class Retry(BaseModel):
    """How long to wait before an event is tried again: anything up to a bound that doubles each time."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    delay: Annotated[Seconds, Field(gt=0)] = 1.0
    """Seconds that the first bound is."""
    max_delay: Annotated[Seconds, Field(gt=0)] = 60.0
    """Seconds that no bound exceeds."""


class BackgroundSessionConfig(BaseModel):
    """One background session: what it runs, what wakes it, and how it fares when something fails."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_by_alias=True, validate_by_name=True)

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
    condition: Annotated[str, Field(min_length=1), AfterValidator(_condition)] | None = Field(default=None, alias="if")
    """What must hold of an event for it to be handled: `data.exit_code != 0 and file_path != 'todo.md'`."""
    pool_size: int = Field(default=1, ge=1, le=64)
    """Events that are handled at the same time."""
    mode: Mode = "queued"
    """What an event does that comes while an earlier one of its `key` is not over: it waits (`queued`), is handled
    beside it (`parallel`), is skipped (`single`), or is handled in its place (`restart`)."""
    key: Template | None = None
    """Which events are handled one at a time, such as `{file_path}`; None: with `queued` none, else all of them."""
    priority: int = Field(default=0, ge=-1000, le=1000)
    """Of what waits, the higher goes first; for events of one background session, in the order of its triggers."""
    debounce: Debounce | None = None
    throttle: Rate | None = None
    """How many events are begun in a period; the others wait."""
    rate_limit: Rate = Rate(limit=120, period=60.0)
    """How many events that sessions caused are accepted in a period; the others are refused. It ends loops."""
    catch_up: CatchUp = "all"
    """What of the events that waited when it starts is handled: `latest` is the newest of each key."""
    fork_from: str | None = Field(default=None, min_length=1)
    """A session whose history each run begins with, so that it remembers: its id, or `last` for the run before."""
    runner: str | None = Field(default=None, pattern=MODULE_ID)
    """The registered name of what its sessions run in; None: this process."""
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
    restart_window: Annotated[Seconds, Field(gt=0)] = 60.0
    """Seconds."""
    retry: Retry = Retry()
    timeout: Annotated[Seconds, Field(gt=0)] | None = 1800.0
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

    @model_validator(mode="after")
    def _keys_that_count(self) -> BackgroundSessionConfig:
        if self.key is not None and self.mode == "parallel":
            raise ValueError("'key' has events wait for each other, 'mode: parallel' has none; keep one of them")
        return self
