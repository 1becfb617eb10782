"""Read the pools of workers of a foreman, the other spelling of its background sessions.

    worker_pools: [{name: coding-pool, worker_bundle: ./coding.md, max_concurrent: 3, route_types: [coding]}]
    routing: {default_pool: coding-pool, rules: [{if_metadata_type: [bug], then_pool: coding-pool}]}

Each pool is a background session that does issues: those of its types, and as the default pool all that no other pool
takes. Other keys are for other programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from amplifier_core.model_drafts import new_list

from ..documents.fields import MODULE_ID, SLUG
from .background_config import BackgroundSessionConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = ("worker_pools", "routing")
"""The keys of the orchestrator's config that say it."""
INSTRUCTION = "Work on issue {issue_id}: {title}\n\n{description}\n\n{reason}"


class WorkerPool(BaseModel):
    """Workers that do issues side by side, each in a process and, within a repository, a worktree of its own."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str = Field(pattern=SLUG)
    worker_bundle: str = Field(min_length=1)
    """The bundle of the workers."""
    max_concurrent: int = Field(default=1, ge=1, le=64)
    """Issues in work at the same time."""
    route_types: list[str] = Field(default_factory=new_list)
    """The types of the issues that it does."""
    runner: str = Field(default="subprocess", pattern=MODULE_ID)

    def entry(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the background session; `config` is that of its trigger."""
        defaults = {
            "worktree": "branch",
            "tracker": "issue",
            "instruction_template": INSTRUCTION,
            "on_complete_emit": "work:completed",
            "on_error_emit": "work:failed",
        }
        known = BackgroundSessionConfig.model_fields
        passed = {name: value for name, value in (self.model_extra or {}).items() if name in known}
        return {
            "name": self.name,
            "bundle": self.worker_bundle,
            "pool_size": self.max_concurrent,
            "runner": self.runner,
            **defaults,
            **passed,
            "triggers": [{"module": "trigger-issue", "config": dict(config)}],
        }


class Rule(BaseModel):
    """Issues of these types go to that pool."""

    model_config = ConfigDict(extra="allow", strict=True)

    if_metadata_type: list[str] = Field(default_factory=new_list)
    then_pool: str

    @field_validator("if_metadata_type", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


class Routing(BaseModel):
    """Which pool does which issues."""

    model_config = ConfigDict(extra="allow", strict=True)

    default_pool: str | None = None
    """The pool for all other issues; None: the only pool, else nobody does them."""
    rules: list[Rule] = Field(default_factory=new_list)


class ForemanPools(BaseModel):
    """The pools in the config of an orchestrator."""

    model_config = ConfigDict(extra="allow", strict=True)

    worker_pools: list[WorkerPool] = Field(min_length=1)
    routing: Routing = Field(default_factory=Routing)

    @model_validator(mode="after")
    def _names_exist(self) -> ForemanPools:
        names = [pool.name for pool in self.worker_pools]
        wanted = [rule.then_pool for rule in self.routing.rules] + [self.routing.default_pool or names[0]]
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise ValueError(f"routing names the pool '{unknown[0]}'; worker_pools has {', '.join(names)}")
        return self

    def entries(self) -> list[dict[str, Any]]:
        """Return a background session for each pool."""
        types = {pool.name: list(pool.route_types) for pool in self.worker_pools}
        for rule in self.routing.rules:
            types[rule.then_pool] += rule.if_metadata_type
        default = self.routing.default_pool or (self.worker_pools[0].name if len(types) == 1 else None)
        entries = []
        for pool in self.worker_pools:
            others = sorted({each for name, theirs in types.items() if name != pool.name for each in theirs})
            config = {"except_types": others} if pool.name == default else {"types": sorted(set(types[pool.name]))}
            if pool.name == default or types[pool.name]:
                entries.append(pool.entry(config))
        return entries
