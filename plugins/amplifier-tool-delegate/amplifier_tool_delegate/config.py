"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

NAME = "tool-delegate"

Names = list[Annotated[str, Field(min_length=1)]]


class Section(BaseModel):
    """A part of the configuration; unknown keys are left out with a warning."""

    model_config = ConfigDict(extra="allow", strict=True)

    def warn_of_unknown(self, name: str) -> None:
        """Log the keys that this program does not know; `name` is the section's."""
        if self.model_extra:
            unknown = ", ".join(self.model_extra)
            logger.warning("tool-delegate: %s: not known here, left out: %s", name, unknown)


class Feature(Section):
    """A part of the tool's input that can be turned off."""

    enabled: bool = True


class ContextFeature(Feature):
    """The input about the conversation."""

    max_turns: Annotated[int | None, Field(ge=1, description="The most turns for an agent; null: any number.")] = None


class Features(Section):
    """The parts of the tool's input."""

    self_delegation: Feature = Feature()
    session_resume: Feature = Feature()
    context_inheritance: ContextFeature = ContextFeature()
    provider_selection: Feature = Feature()
    provider_preferences: Feature = Feature()


class Options(Section):
    """The keys of the module itself."""

    agents: Annotated[
        Names | None,
        WithJsonSchema({"anyOf": [{"enum": ["all", "none", None]}, {"type": "array", "items": {"type": "string"}}]}),
        Field(description="The only agents for calls: 'all', 'none', or names; `self` and bundles are names too."),
    ] = None
    bundles: Annotated[
        bool | None, Field(description="Whether a bundle may stand for an agent; default: true without `agents`.")
    ] = None
    uris: Annotated[bool, Field(description="Whether that bundle may be fetched from elsewhere.")] = False
    exclude_tools: Annotated[Names | None, Field(description="Modules of tools that agents do not inherit.")] = None
    inherit_tools: Annotated[Names | None, Field(description="The only modules of tools that agents inherit.")] = None
    exclude_hooks: Annotated[Names | None, Field(description="Modules of hooks that agents do not inherit.")] = None
    inherit_hooks: Annotated[Names | None, Field(description="The only modules of hooks that agents inherit.")] = None
    timeout: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="Seconds for an agent; default: no limit.")
    ] = None
    max_self_depth: Annotated[
        int, Field(ge=0, description="The most delegations to `self` from a first session down to the last one.")
    ] = 3

    @field_validator("agents", mode="before")
    @classmethod
    def _read_agents(cls, value: Any) -> Any:
        return None if value == "all" else [] if value == "none" else value


class DelegateConfig(Options):
    """The agents for calls, and the terms of their runs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    features: Annotated[Features, Field(description="Parts of the tool's input to turn off.")] = Features()
    settings: Annotated[Options, Field(description="The keys above, as in bundles for other programs.")] = Options()

    @property
    def allows_bundles(self) -> bool:
        """Whether a bundle may stand for an agent."""
        return self.agents is None if self.bundles is None else self.bundles

    @property
    def self_depth(self) -> int:
        """The most delegations to `self` in a row of sessions."""
        return self.max_self_depth if self.features.self_delegation.enabled else 0

    @property
    def allows_preferences(self) -> bool:
        """Whether a call may choose provider and model."""
        return self.features.provider_selection.enabled and self.features.provider_preferences.enabled

    def inheritance(self, kind: str) -> dict[str, list[str]] | None:
        """Return the rules for inherited `tools` or `hooks`, as `session.spawn` takes them."""
        return {
            key: names for key in (f"exclude_{kind}", f"inherit_{kind}") if (names := getattr(self, key)) is not None
        } or None


def read_config(config: Mapping[str, Any]) -> DelegateConfig:
    """Return the checked configuration; a key has priority over the same key of `settings`. Raises `ValueError`."""
    given = {key: value for key, value in config.items() if value is not None or key not in ("features", "settings")}
    try:
        checked = DelegateConfig.model_validate(given)
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        first, *rest = problem["loc"]
        key = str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
        message = "must be a mapping" if problem["type"] == "model_type" else problem["msg"]
        if problem["type"] == "extra_forbidden":
            known = list(DelegateConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
    checked.settings.warn_of_unknown("settings")
    checked.features.warn_of_unknown("features")
    for name in Features.model_fields:
        getattr(checked.features, name).warn_of_unknown(f"features.{name}")
    shared = (checked.settings.model_fields_set & set(Options.model_fields)) - checked.model_fields_set
    return checked.model_copy(update={name: getattr(checked.settings, name) for name in shared})
