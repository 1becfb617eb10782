"""The shape of a bundle: what may stand in `bundle.md` and where. Importing this imports pydantic."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ..background.config import MODULE_ID, BackgroundSessionConfig
from .names import is_bundle_name


class Section(BaseModel):
    """A mapping whose keys are all known; numbers are numbers and text is text."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ModuleEntry(Section):
    """One module to mount."""

    module: str = Field(pattern=MODULE_ID)
    source: str | None = Field(default=None, min_length=1)
    """Where its code is; None: it is installed."""
    config: dict[str, Any] | None = None
    instance_id: str | None = Field(default=None, min_length=1)
    """Tells two entries of one module apart."""
    id: str | None = Field(default=None, min_length=1)
    """Another spelling of `instance_id` for merging bundles."""


def _entry(value: Any) -> Any:
    if isinstance(value, str):
        return {"module": value}
    if value is None or isinstance(value, dict):
        return value
    raise PydanticCustomError("entry", "must be a module's name, or a mapping such as {module: …, config: …}")


MainModule = Annotated[ModuleEntry | None, BeforeValidator(_entry)]


class SessionSection(Section):
    """The loop and the context of the session, and the kernel's settings."""

    orchestrator: MainModule = None
    context: MainModule = None
    orchestrator_source: str | None = None
    context_source: str | None = None
    injection_budget_per_turn: int | None = Field(default=None, ge=0)
    """Tokens that hooks may inject in one turn."""
    injection_size_limit: int | None = Field(default=None, ge=0)
    """Characters that one injection may have."""
    mount_timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds that finding and mounting one module may take; None: 60."""
    persistence: Literal["message", "turn", "end"] | None = None
    """When what is said becomes durable: at every step (None too), when a turn ends, or when the session does."""
    reload_context: bool = False
    """Read context files and mentioned files again when they change between turns; otherwise once a session."""
    raw: bool = False
    debug: bool = False
    raw_debug: bool = False
    metadata: dict[str, Any] | None = None


def _bundle_name(name: str) -> str:
    if is_bundle_name(name):
        return name
    raise ValueError("must be 1 to 128 characters, without ':', '/' and '\\' and without spaces around it")


BundleName = Annotated[str, AfterValidator(_bundle_name)]


class BundleSection(Section):
    """Who the bundle is."""

    name: BundleName
    """Without `:` and `/`, which stand between a bundle's name and a path in it."""
    version: str = "1.0.0"
    description: str | None = None
    namespace_root: str | None = None
    """The folder that `name:path` is relative to, itself relative to the bundle's folder; None: that folder."""
    author: str | None = None
    license: str | None = None
    homepage: str | None = None
    repository: str | None = None
    tags: list[str] | None = None


class Include(Section):
    """Another bundle that this one is put on top of."""

    bundle: str = Field(min_length=1)


def _include(value: Any) -> Any:
    return {"bundle": value} if isinstance(value, str) else value


Included = Annotated[Include, BeforeValidator(_include)]


class Listed(BaseModel):
    """Things by name, and `include`: things by reference."""

    model_config = ConfigDict(extra="allow", strict=True)

    include: list[str] | None = None


class ContextSection(Listed):
    """Files whose text is part of the system prompt, by name."""

    __pydantic_extra__: dict[str, str]


def _module_name(value: Any) -> Any:
    return value["module"] if isinstance(value, dict) and isinstance(value.get("module"), str) else value


NamedModule = Annotated[str, BeforeValidator(_module_name)]


class SpawnSection(BaseModel):
    """How many sessions may be made below one of this bundle, and what agents take over of it.

    Keys of other programs may stand here: they are told, and ignored.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    max_depth: int | None = Field(default=None, ge=0)
    """Sessions below each other; None: 5."""
    max_children: int | None = Field(default=None, ge=0)
    """Children of one session at the same time; None: 20."""
    max_sessions: int | None = Field(default=None, ge=0)
    """Sessions below one that nobody made; None: 500."""
    timeout: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Seconds that one may take, 0: any number; None: 1800."""
    exclude_tools: list[str] | None = None
    exclude_hooks: list[str] | None = None
    inherit_tools: list[str] | None = None
    """The only modules that are taken over; None: all but those excluded."""
    inherit_hooks: list[str] | None = None
    tools: list[NamedModule] | None = None
    """Another spelling of `inherit_tools`, also as entries of modules."""
    hooks: list[NamedModule] | None = None


class AgentSections(BaseModel):
    """What an agent may be told, wherever it is declared."""

    model_config = ConfigDict(extra="ignore", strict=True)

    session: SessionSection | None = None
    providers: list[ModuleEntry] | None = None
    tools: list[ModuleEntry] | None = None
    hooks: list[ModuleEntry] | None = None
    context: ContextSection | None = None
    spawn: SpawnSection | None = None
    provider_preferences: list[dict[str, Any]] | None = None
    model_role: str | list[str] | None = None
    instruction: str | None = None


class InlineAgent(AgentSections):
    """An agent that the bundle declares itself. Keys of other programs may stand here: they are told, and ignored."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str | None = None
    description: str | None = None
    version: str | None = None
    author: str | None = None
    tags: list[str] | None = None
    source_path: str | None = None
    """The file that it was read from."""
    agents: Literal["all", "none"] | list[str] | dict[str, Any] | None = None
    """The agents that it may ask itself, or its own by name; None: none."""


class AgentsSection(Listed):
    """Agents by name, each a partial bundle."""

    __pydantic_extra__: dict[str, InlineAgent]


class BundleFile(BaseModel):
    """The whole of a bundle's front matter. A section that is empty is the same as one that is not there."""

    model_config = ConfigDict(extra="ignore", strict=True)

    bundle: BundleSection
    includes: list[Included] | None = None
    session: SessionSection | None = None
    providers: list[ModuleEntry] | None = None
    tools: list[ModuleEntry] | None = None
    hooks: list[ModuleEntry] | None = None
    agents: AgentsSection | None = None
    context: ContextSection | None = None
    spawn: SpawnSection | None = None
    instruction: str | None = None
    """The instruction of a bundle that has no body."""
    background_sessions: list[BackgroundSessionConfig] | None = None
    workflows: Any = None


class AgentAbout(Section):
    """Who the agent is."""

    name: BundleName | None = None
    description: str | None = None
    version: str | None = None
    author: str | None = None
    tags: list[str] | None = None


class AgentFile(AgentSections):
    """The front matter of an agent's file; the text below it is the agent's instruction."""

    meta: AgentAbout
    agents: Literal["all", "none"] | list[str] | None = None
    """The agents that it may ask itself; None: none."""


class BackgroundSessions(BaseModel):
    """A list of background sessions that stands somewhere else."""

    model_config = ConfigDict(strict=True)

    background_sessions: list[BackgroundSessionConfig] | None = None
