"""Define the schemas of `bundle.md` and of agents' files. Importing this imports pydantic."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from ..documents.fields import MODULE_ID, PACKAGE, PermissionsSection, Seconds, Section, Size, clip
from .background_config import BackgroundSessionConfig
from .budget_config import BudgetConfig
from .names import NAME_RULE, is_bundle_name
from .sections import DEFAULT_OUTPUT, DEFAULT_PROCESSES, SECTIONS


class ModuleEntry(Section):
    """One module to mount."""

    # What to say of keys that stand elsewhere.
    UNKNOWN: ClassVar = {"sandbox": "tools alone run in a sandbox"}

    module: str = Field(pattern=MODULE_ID)
    """The name of the module: `tool-filesystem`."""
    source: str | None = Field(default=None, min_length=1)
    """The path or address of its code; None: it is installed."""
    package: str | None = Field(default=None, pattern=PACKAGE)
    """The package with it on the package index, for `amplifier bundle install`."""
    config: dict[str, Any] | None = None
    """The configuration of the module, as its README says."""
    instance_id: str | None = Field(default=None, min_length=1)
    """Distinguishes two entries of one module."""
    id: str | None = Field(default=None, min_length=1)
    """Another spelling of `instance_id` for merging bundles."""


class ProviderEntry(ModuleEntry):
    """One provider module to mount."""

    stand_in: bool | None = None
    """Gives way to any other provider: of an including bundle, of the command line, or with a key on this machine."""


class ToolEntry(ModuleEntry):
    """One tool module to mount."""

    sandbox: bool | None = None
    """Runs its tools in a sandbox, in a process of their own; True cannot be taken back by another bundle."""


def _expand_entry(value: Any) -> Any:
    if isinstance(value, str):
        return {"module": value}
    if value is None or isinstance(value, dict):
        return value
    raise PydanticCustomError("entry", "must be a module's name, or a mapping such as {module: …, config: …}")


MainModule = Annotated[ModuleEntry | None, BeforeValidator(_expand_entry)]


class Preference(Section):
    """A wish for a provider of the bundle."""

    provider: str = Field(min_length=1)
    """Its instance id or module, with or without `provider-`."""
    model: str | None = Field(default=None, min_length=1)
    """A model, an alias or a glob pattern; None: its own default."""
    config: dict[str, Any] | None = None
    """Merged into its configuration if it is the first, without keys for credentials and addresses."""


class LimitsSection(Section):
    """What the process of a session, and each that it starts, may use, with `runner: subprocess`; None: no limit.

    Memory and seconds hold for all of them together where control groups are delegated, else for each by itself.
    """

    memory: Size | None = None
    """Memory, else address space: bytes, or text such as `2 GiB`."""
    cpu_seconds: Seconds | None = None
    """Time on a processor."""
    open_files: int | None = Field(default=None, gt=0)
    """Files that each process may have open."""
    processes: int | None = Field(default=DEFAULT_PROCESSES, gt=0)
    """Processes below the session."""
    file_size: Size | None = None
    """Bytes of one written file."""
    output: Size | None = DEFAULT_OUTPUT
    """Bytes printed on stdout and stderr together."""


class RedactSection(Section):
    """Places besides errors, logs and exports where secrets are hidden."""

    tool_results: bool = False
    """In results of tools, before hooks, the model and the store get them."""


class SessionSection(Section):
    """The loop and the context of the session, and the kernel's settings."""

    orchestrator: MainModule = None
    context: MainModule = None
    orchestrator_source: str | None = None
    """The code of the orchestrator, as `source` of a module."""
    context_source: str | None = None
    """The code of the context, as `source` of a module."""
    injection_budget_per_turn: int | None = Field(default=None, ge=0)
    """Limit of tokens injected by hooks in one turn."""
    injection_size_limit: int | None = Field(default=None, ge=0)
    """Limit of characters of one injection."""
    mount_timeout: Annotated[float, AfterValidator(clip)] | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Time limit in seconds for finding and mounting one module; None: 60."""
    provider_preferences: list[Preference] | None = None
    """The provider that answers, and those that answer while it is out, in this order; None: by priority."""
    persistence: Literal["message", "turn", "end"] | None = None
    """Makes messages durable at every step (None too), at the end of a turn, or at the end of the session."""
    budget: BudgetConfig | None = None
    """The budget of each session alone, without the sessions below it."""
    redact: RedactSection | None = None
    limits: LimitsSection | None = None
    reload_context: bool = False
    """Read changed context files and mentioned files again between turns; otherwise once a session."""
    raw: bool = False
    """Read for bundles of others; it changes nothing."""
    debug: bool = False
    """Read for bundles of others; it changes nothing."""
    raw_debug: bool = False
    """Read for bundles of others; it changes nothing."""
    metadata: dict[str, Any] | None = None
    """Facts for people and programs; they change nothing."""


def _check_bundle_name(name: str) -> str:
    if is_bundle_name(name):
        return name
    raise ValueError(f"must be {NAME_RULE} and without spaces around it")


BundleName = Annotated[str, AfterValidator(_check_bundle_name)]


class BundleSection(Section):
    """Identity of the bundle."""

    name: BundleName
    """Without `:` and `/`: `name:path` is a file in the bundle."""
    version: str = "1.0.0"
    """The version of the bundle, for people."""
    description: str | None = None
    """What the bundle is for, in a line."""
    namespace_root: str | None = None
    """The folder for `name:path`, relative to the bundle's folder; None: that folder."""
    author: str | None = None
    """Who wrote it."""
    license: str | None = None
    """The license of the bundle."""
    homepage: str | None = None
    """The address of its page."""
    repository: str | None = None
    """The address of its repository."""
    tags: list[str] | None = None
    """Words to find it by."""


class Include(Section):
    """Another bundle below this one; this one wins."""

    bundle: str = Field(min_length=1)
    """The included bundle: a file, a folder, a URL, or a registered name."""


Included = Annotated[Include, BeforeValidator(lambda value: {"bundle": value} if isinstance(value, str) else value)]


class Listed(BaseModel):
    """Entries by name, and `include`: entries by reference."""

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)

    include: list[str] | None = None
    """Names or paths, beside those written here."""


class ContextSection(Listed):
    """Files of the system prompt, by name."""

    __pydantic_extra__: dict[str, str]


NamedModule = Annotated[str, BeforeValidator(lambda value: value.get("module") if isinstance(value, dict) else value)]


class SpawnSection(BaseModel):
    """Limits on sessions below one of this bundle, and the tools and hooks inherited by agents.

    Keys of other programs are ignored with a warning.
    """

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)

    max_depth: int | None = Field(default=None, ge=0)
    """Depth of nested sessions; None: 5."""
    max_children: int | None = Field(default=None, ge=0)
    """Children of one session at the same time; None: 20."""
    max_sessions: int | None = Field(default=None, ge=0)
    """Sessions below one top-level session; None: 500."""
    timeout: Annotated[float, AfterValidator(clip)] | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Time limit in seconds, 0: unlimited; None: 1800."""
    max_cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Limit in US dollars on a session with all sessions below it; None: unlimited."""
    budget: BudgetConfig | None = None
    """The budget of a session with all sessions below it."""
    exclude_tools: list[str] | None = None
    """Tools that its sub-sessions do not get."""
    exclude_hooks: list[str] | None = None
    """Hooks that its sub-sessions do not get."""
    inherit_tools: list[str] | None = None
    """The only inherited modules; None: all but excluded ones."""
    inherit_hooks: list[str] | None = None
    """The only hooks that its sub-sessions get."""
    tools: list[NamedModule] | None = None
    """Another spelling of `inherit_tools`, also as entries of modules."""
    hooks: list[NamedModule] | None = None
    """Further hooks of its sub-sessions."""


class AgentSections(BaseModel):
    """The sections of an agent, in a file or inline."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)

    session: SessionSection | None = None
    """Its orchestrator, context and limits."""
    providers: list[ProviderEntry] | None = None
    """Its providers."""
    tools: list[ToolEntry] | None = None
    hooks: list[ModuleEntry] | None = None
    context: ContextSection | None = None
    spawn: SpawnSection | None = None
    permissions: PermissionsSection | None = None
    runner: str | None = Field(default=None, pattern=MODULE_ID)
    """The runner of its sessions; None: the process of the session above."""
    provider_preferences: list[dict[str, Any]] | None = None
    """The provider that answers, and those that stand in for it, in this order."""
    model_role: str | list[str] | None = None
    """Read for bundles of others."""
    instruction: str | None = None
    """The system prompt of the agent."""


class InlineAgent(AgentSections):
    """An agent declared in the bundle itself. Keys of other programs are ignored with a warning."""

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)

    name: str | None = None
    """Its name; by default that of its key."""
    description: str | None = None
    """What the agent is for: models choose by it."""
    version: str | None = None
    """The version of the agent, for people."""
    author: str | None = None
    """Who wrote it."""
    tags: list[str] | None = None
    """Words to find it by."""
    source_path: str | None = None
    """Its file."""
    agents: Literal["all", "none"] | list[str] | dict[str, Any] | None = None
    """The agents available to it, or its own by name; None: none."""


class AgentsSection(Listed):
    """Agents by name, each a partial bundle."""

    __pydantic_extra__: dict[str, InlineAgent]


_FIELDS: dict[str, Any] = {
    each.name: (f"{each.schema} | None", Field(default=None, description=each.description)) for each in SECTIONS
}
BundleFile: type[BaseModel] = create_model(
    "BundleFile",
    __config__=ConfigDict(extra="ignore", strict=True, defer_build=True),
    __doc__="A bundle's whole front matter. An empty section counts as missing.",
    __module__=__name__,
    bundle=(BundleSection, ...),
    **_FIELDS,
)
"""The schema of the table of `SECTIONS`."""


class AgentAbout(Section):
    """Identity of the agent."""

    name: BundleName | None = None
    description: str | None = None
    version: str | None = None
    author: str | None = None
    tags: list[str] | None = None


class AgentFile(AgentSections):
    """The front matter of an agent's file; the text below is the agent's instruction."""

    meta: AgentAbout
    agents: Literal["all", "none"] | list[str] | None = None
    """The agents available to it; None: none."""


class BackgroundSessions(BaseModel):
    """A list of background sessions outside their section."""

    model_config = ConfigDict(strict=True, defer_build=True)

    background_sessions: list[BackgroundSessionConfig] | None = None
