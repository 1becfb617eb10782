"""Define the keys of one background session in a bundle."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from amplifier_core.conditions import Condition
from amplifier_core.model_drafts import new_list

from ..documents.fields import MODULE_ID, PACKAGE, SLUG, Seconds, SessionId
from .budget_config import BudgetConfig
from .templates import check_template

Mode = Literal["queued", "parallel", "single", "restart"]
CatchUp = Literal["all", "latest", "skip"]
Untrusted = Literal["ask", "act"]
Finish = Literal["branch", "merge"]


def _check_condition(text: str) -> str:
    Condition.parse(text)
    return text


Template = Annotated[str, Field(min_length=1), AfterValidator(check_template)]
"""Text with `{names}` of the event."""
Config = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]
"""A mapping, or nothing after `config:`."""


class TriggerConfig(BaseModel):
    """One trigger of a background session. `type: timer` is another spelling of `module: trigger-timer`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    module: str = Field(pattern=MODULE_ID)
    """The registered name: `trigger-file-watcher`."""
    package: str | None = Field(default=None, pattern=PACKAGE)
    """The package with it on the package index, for `amplifier bundle install`."""
    config: Config = Field(default_factory=dict)
    """The configuration for the trigger's `configure`."""
    name: str | None = Field(default=None, pattern=SLUG)
    """The key of the trigger's stored state; None: the module's name."""

    instruction_template: str | None = Field(default=None, min_length=1)
    """The instruction for events of this trigger, in place of the background session's own."""

    @model_validator(mode="before")
    @classmethod
    def _module_from_type(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("type"), str):
            return data
        if "module" in data:
            raise ValueError("'type' and 'module' have the same meaning; keep one of them")
        rest = {key: value for key, value in data.items() if key != "type"}
        return {**rest, "module": trigger_module(data["type"])}


OTHER_TYPES = {"file_change": "file_watcher", "issue_event": "issue"}
"""Types of triggers with another name than their module."""


def trigger_module(kind: str) -> str:
    """Return the registered name for a trigger's type: `file_change` is `trigger-file-watcher`."""
    return "trigger-" + OTHER_TYPES.get(kind, kind).replace("_", "-").removeprefix("trigger-")


class Debounce(BaseModel):
    """Wait until events stop coming, and handle the last one of each `key`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    period: Annotated[Seconds, Field(gt=0)]
    """Seconds without a further event until the last one is handled."""
    timeout: Annotated[Seconds, Field(gt=0)] | None = None
    """Seconds after the first event until the last one so far is handled anyway; None: no bound."""
    key: Template | None = None
    """The template of a key: events of one key belong together; None: the background session's `key`."""


class Rate(BaseModel):
    """So many in a period."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    limit: int = Field(ge=1)
    """The number of events."""
    period: Annotated[Seconds, Field(gt=0)]
    """Seconds."""


class Retry(BaseModel):
    """The pause before another attempt: random, up to a bound that doubles each time."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    delay: Annotated[Seconds, Field(gt=0)] = 1.0
    """The first bound, in seconds."""
    max_delay: Annotated[Seconds, Field(gt=0)] = 60.0
    """The largest bound, in seconds."""


class TrackerConfig(BaseModel):
    """The tracker of the work that the events are about."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    name: str = Field(pattern=MODULE_ID)
    """Its registered name, such as `issue`."""
    config: Config = Field(default_factory=dict)
    """Its configuration: `reopen: 2` for issues."""


def _expand_tracker(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class WorktreeConfig(BaseModel):
    """A git worktree for each session; in a folder without a repository, sessions work in the project itself."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    branch: Template | None = None
    """The template of the branch's name, such as `issue-{data.id}`; None: `amplifier/` and the session's id. A taken
    name gets `-2`, `-3` and so on."""
    finish: Finish = "branch"
    """The end of a session that has completed: its commit stays on the branch (`branch`), or is merged into the branch
    checked out in the project, unless there are conflicts (`merge`)."""


def _expand_finish(value: Any) -> Any:
    if isinstance(value, str) and value not in get_args(Finish):
        raise ValueError(f"'{value}' is neither 'branch' nor 'merge', nor a mapping")
    return {"finish": value} if isinstance(value, str) else value


_TASK = {"instruction", "instruction_template", "workflow"}
_BESIDE_NO_WORKFLOW = {"instruction", "instruction_template", "fork_from", "runner"}


class BackgroundSessionConfig(BaseModel):
    """One background session: its agent, its triggers, and its rules for failures."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_by_alias=True, validate_by_name=True)

    name: str = Field(pattern=SLUG)
    """Unique in its bundle."""
    bundle: str | None = Field(default=None, min_length=1)
    """The bundle of its sessions; None: the declaring one."""
    workflow: str | None = Field(default=None, min_length=1)
    """The workflow of that bundle to run for each event, in place of a turn; the event is its input."""
    instruction: str | None = Field(default=None, min_length=1)
    """The instruction of a woken session; the description of its event follows."""
    instruction_template: str | None = Field(default=None, min_length=1)
    """The whole instruction, with `{names}` of the event filled in; excludes `instruction`."""
    triggers: list[TriggerConfig] = Field(default_factory=new_list)
    """Its triggers; none: only people wake it."""
    condition: Annotated[str, Field(min_length=1), AfterValidator(_check_condition)] | None = Field(
        default=None, alias="if"
    )
    """The condition on an event: `data.exit_code != 0 and file_path != 'todo.md'`; other events are refused."""
    pool_size: int = Field(default=1, ge=1, le=64)
    """Events handled at the same time, on each host."""
    max_running: int | None = Field(default=None, ge=1, le=100_000)
    """Events handled at the same time on all hosts together; None: `pool_size` on each."""
    shared_folder: bool = False
    """Whether all hosts see the same files in the working folder: one watches them, and any handles their events."""
    mode: Mode = "queued"
    """The rule for an event when an earlier one of its `key` is unfinished: it waits (`queued`), is handled beside it
    (`parallel`), is skipped (`single`), or replaces it (`restart`)."""
    key: Template | None = None
    """The template of a key: events of one key are handled one at a time. None: with `queued` all are independent, else
    all have one key."""
    priority: int = Field(default=0, ge=-1000, le=1000)
    """Waiting events with a higher priority go first."""
    debounce: Debounce | None = None
    throttle: Rate | None = None
    """Events begun in a period; the others wait."""
    rate_limit: Rate | None = None
    """Events caused by sessions that are begun in a period; later ones are delayed. `max_depth` ends loops."""
    max_waiting: int = Field(default=10_000, ge=1, le=10_000_000)
    """Waiting events, at most: beyond, triggers are held back until a tenth is free, and a webhook answers 503."""
    catch_up: CatchUp = "all"
    """The waiting events to handle at a start: all, the newest of each key (`latest`), or none (`skip`)."""
    fork_from: SessionId | None = None
    """A session to share the history of: its id, or `last` for the run before."""
    runner: str | None = Field(default=None, pattern=MODULE_ID)
    """The registered name of the runner of its sessions; None: this process."""
    tracker: Annotated[
        TrackerConfig | None,
        BeforeValidator(_expand_tracker, json_schema_input_type=str | TrackerConfig | None),
    ] = None
    """The tracker of the work that its events are about: `issue` begins, closes, reopens and escalates issues."""
    worktree: Annotated[
        WorktreeConfig | None,
        BeforeValidator(_expand_finish, json_schema_input_type=Finish | WorktreeConfig | None),
    ] = None
    """The git worktrees of its sessions, each on a branch of its own: `branch`, `merge` or a mapping; None: its
    sessions share the files of the project."""
    on_complete_emit: str | None = Field(default=None, min_length=1)
    """An event to emit, besides `session:completed`, when an event was handled."""
    on_error_emit: str | None = Field(default=None, min_length=1)
    """An event to emit, besides `session:error`, when an event was given up."""
    start_on_parent_start: bool = True
    """Start with `amplifier up`."""
    stop_on_parent_stop: bool = True
    """Stop with `amplifier up`."""
    restart_on_failure: bool = True
    """Whether a failed trigger is started again."""
    max_restarts: int = Field(default=3, ge=0)
    """0: a failed trigger is not started again. Other values have no effect: it is tried again for good."""
    restart_window: Annotated[Seconds, Field(gt=0)] = 60.0
    """Seconds without a failure after which the pauses of a trigger, up to 60 s, begin small again."""
    retry: Retry = Retry()
    timeout: Annotated[Seconds, Field(gt=0)] | None = 1800.0
    """Seconds for handling one event; None: no bound. A workflow has none unless it is given."""
    budget: BudgetConfig | None = None
    """The budget of all its sessions, with those below them. A daily one that is spent lets events wait until the next
    day; another one makes them dead letters."""

    @property
    def workers(self) -> int:
        """Workers of one host."""
        return min(self.pool_size, self.max_running or self.pool_size)

    max_attempts: int = Field(default=5, ge=1, le=100)
    """Attempts at one event before it becomes a dead letter. A mistake of the configuration has one."""
    untrusted: Untrusted = "ask"
    """What its sessions do with text of strangers, such as the body of a webhook: they ask before they write, delegate,
    emit or send (`ask`), or act as the permissions say (`act`)."""
    approval_timeout: Annotated[Seconds, Field(gt=0)] | None = None
    """Seconds until a tool call that waits for approval counts as denied; None: as the setting
    `approvals.timeout` says, or a day."""
    accept_unfinished: bool = False
    """Whether an answer that was cut by its length, refused, or held back by the service counts as an answer; else it
    is a failure."""
    max_depth: int = Field(default=8, ge=1, le=100)
    """The longest chain of causes; longer ones are refused: sessions that wake each other stop here."""

    @property
    def time_limit(self) -> float | None:
        """The bound of its sessions in seconds: the tasks of a workflow have their own."""
        return None if self.workflow is not None and "timeout" not in self.model_fields_set else self.timeout

    @model_validator(mode="after")
    def _one_instruction(self) -> BackgroundSessionConfig:
        if self.instruction is not None and self.instruction_template is not None:
            raise ValueError("give 'instruction' or 'instruction_template', not both")
        return self

    @model_validator(mode="after")
    def _workflow_alone(self) -> BackgroundSessionConfig:
        for key in sorted(_BESIDE_NO_WORKFLOW):
            if self.workflow is not None and getattr(self, key) is not None:
                raise ValueError(f"'{key}' has no meaning beside 'workflow': its tasks have their own")
        return self

    @model_validator(mode="after")
    def _keys_that_count(self) -> BackgroundSessionConfig:
        if self.key is not None and self.mode == "parallel":
            raise ValueError("'key' has events wait for each other, 'mode: parallel' has none; keep one of them")
        return self


def replace_keys(config: BackgroundSessionConfig, later: BackgroundSessionConfig) -> BackgroundSessionConfig:
    """Return a background session with the keys that a later one of its name gives; its task goes for another one.

    Raises `ValueError` for keys that have no meaning beside each other.
    """
    given = {name: getattr(later, name) for name in later.model_fields_set}
    gone = _TASK if any(given.get(name) is not None for name in _TASK) else set()
    if later.workflow is not None:
        gone = gone | _BESIDE_NO_WORKFLOW
    kept = {name: getattr(config, name) for name in config.model_fields_set - gone}
    return BackgroundSessionConfig.model_validate({**kept, **given})
