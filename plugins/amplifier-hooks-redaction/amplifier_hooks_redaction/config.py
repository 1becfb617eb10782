"""Read the `config:` of the module in a bundle: where to look, and for what."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "hooks-redaction"
Scope = Literal["tool_results", "prompts", "events"]
Kind = Literal["email", "phone", "card"]
_WITHOUT_EFFECT = ("priority",)
"""Keys for another redactor: this one always looks before logs do."""


class RedactionConfig(BaseModel):
    """What is hidden, and where."""

    model_config = ConfigDict(extra="forbid", strict=True)

    scopes: Annotated[list[Scope], Field(description="Where to look.")] = ["tool_results", "prompts", "events"]
    secrets: Annotated[bool, Field(description="Hide keys, tokens and passwords, by form and by known value.")] = True
    personal_data: Annotated[list[Kind], Field(description="What to hide of persons.")] = []
    patterns: Annotated[
        dict[str, str], Field(description="Own regular expressions by name, in the syntax of RE2.")
    ] = {}  # fmt: skip
    allowlist: Annotated[
        list[str], Field(description="Texts that stay, and dotted paths of fields that are not looked at.")
    ] = []
    replacement: Annotated[
        str, Field(max_length=200, description="What stands in their place; {name} is what was found.")
    ] = "[REDACTED]"
    skip_events: Annotated[list[str], Field(description="Events that are not looked at.")] = []
    rules: Annotated[
        list[Literal["secrets", "pii-basic"]] | None,
        Field(description="Another word: `secrets`, and `pii-basic` for e-mail addresses and phone numbers."),
    ] = None

    @field_validator("patterns")
    @classmethod
    def _check_patterns(cls, patterns: dict[str, str]) -> dict[str, str]:
        if patterns:
            from .finding import compile_pattern

            for name, pattern in patterns.items():
                compile_pattern(name, pattern)
        return patterns

    @property
    def hides_secrets(self) -> bool:
        """Whether secrets are hidden."""
        return self.secrets if self.rules is None else "secrets" in self.rules

    @property
    def kinds(self) -> list[Kind]:
        """The personal data to hide."""
        basic: list[Kind] = ["email", "phone"] if self.rules is not None and "pii-basic" in self.rules else []
        return list(dict.fromkeys([*self.personal_data, *basic]))


def read_config(config: Mapping[str, Any]) -> RedactionConfig:
    """Return the checked configuration. Raises `ValueError` with the key."""
    own = {key: value for key, value in config.items() if key not in _WITHOUT_EFFECT}
    try:
        return RedactionConfig.model_validate(own)
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key, message = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            known = list(RedactionConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
