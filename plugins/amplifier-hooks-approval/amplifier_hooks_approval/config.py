"""Read the `config:` of the module in a bundle: rules in their order, and what is asked about without one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "hooks-approval"
SHELL = "bash"
"""The tool of a rule with a pattern alone."""
USUALLY_ASKED = (SHELL, "write_file", "edit_file", "write", "edit", "execute", "run")
"""The tools that are asked about when no rule is."""
_SAFE = ("ls", "ls *", "pwd", "echo", "echo *")
EFFECTS: dict[str, Literal["allow", "ask", "deny"]] = {
    "auto_approve": "allow",
    "allow": "allow",
    "ask": "ask",
    "auto_deny": "deny",
    "deny": "deny",
}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class RuleConfig(_Section):
    """What to do about some calls; the first rule that fits a call counts."""

    tool: Annotated[
        str | None, Field(pattern=r"^[\w.*-]+$", description="The tool, with `*` for any characters; bash by default.")
    ] = None
    pattern: Annotated[
        str | None, Field(min_length=1, description="The command, path or host, with `*` for any characters.")
    ] = None
    action: Annotated[
        Literal["auto_approve", "allow", "ask", "auto_deny", "deny"] | None, Field(description="What to do.")
    ] = None
    require_approval: Annotated[bool | None, Field(description="`true` is another word for `action: ask`.")] = None
    description: Annotated[str, Field(description="A note for people.")] = ""
    risk_level: Annotated[str, Field(description="A note for people.")] = ""

    @property
    def effect(self) -> Literal["allow", "ask", "deny"]:
        """What the rule does."""
        return EFFECTS[self.action] if self.action else "ask"


class ToolConfig(_Section):
    """What to do about the calls of one tool."""

    require_approval: Annotated[bool, Field(description="Whether to ask about each call.")] = False


class AuditConfig(_Section):
    """A file with a line of JSON for each question and answer."""

    enabled: Annotated[bool, Field(description="Whether to write it.")] = False
    file: Annotated[str | None, Field(min_length=1, description="The file.")] = None


class ApprovalConfig(_Section):
    """The rules of a bundle about tool calls."""

    rules: Annotated[list[RuleConfig], Field(description="Rules; the first one that fits a call counts.")] = [
        RuleConfig(pattern=each, action="auto_approve") for each in _SAFE
    ]
    patterns: Annotated[list[str], Field(description="Texts; a command with one of them is asked about.")] = []
    tools: Annotated[list[str] | dict[str, ToolConfig], Field(description="More tools to ask about.")] = []
    default_action: Annotated[
        Literal["deny", "continue"],
        Field(description="What an unanswered question means; the permissions of a session always deny."),
    ] = "deny"
    timeout: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, strict=False, description="Seconds for an answer.")
    ] = None
    default_timeout: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, strict=False, description="Another word for `timeout`.")
    ] = None
    policy_driven_only: Annotated[
        bool, Field(description="Ask only when the capability `approval.needs_check` wants it, or a rule.")
    ] = False
    audit: Annotated[AuditConfig, Field(description="A file about questions and answers.")] = AuditConfig()

    @field_validator("rules")
    @classmethod
    def _check_rules(cls, rules: list[RuleConfig]) -> list[RuleConfig]:
        for number, rule in enumerate(rules):
            if rule.tool is None and rule.pattern is None:
                raise ValueError(f"rule {number} names neither a 'tool' nor a 'pattern'")
            if rule.action is None and rule.require_approval is None:
                raise ValueError(f"rule {number} has no 'action'; known are {', '.join(EFFECTS)}")
        return rules

    @property
    def asked_tools(self) -> list[str]:
        """The tools to ask about where no rule fits."""
        named = self.tools
        listed = named if isinstance(named, list) else [each for each, about in named.items() if about.require_approval]
        return listed if self.policy_driven_only else list(dict.fromkeys((*listed, *USUALLY_ASKED)))

    @property
    def ordered(self) -> list[RuleConfig]:
        """All rules in their order; `patterns` come after refusals and before what is let through."""
        asked = [RuleConfig(pattern=f"*{_escape(each)}*", action="ask") for each in self.patterns]
        rules = [each for each in self.rules if each.require_approval is not False]
        refusing = [each for each in rules if each.effect == "deny"] if asked else []
        return [*refusing, *asked, *(each for each in rules if each not in refusing)]


def read_config(config: Mapping[str, Any]) -> ApprovalConfig:
    """Return the checked configuration. Raises `ValueError` with the key."""
    try:
        return ApprovalConfig.model_validate(dict(config))
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: (each["type"] != "extra_forbidden", -len(each["loc"])))
        where = [str(part) for part in problem["loc"] if "[" not in str(part)]  # of a union, pydantic names the type
        key, message = ".".join(where), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            models: dict[str, type[BaseModel]] = {"rules": RuleConfig, "audit": AuditConfig, "tools": ToolConfig}
            known = list((models[where[0]] if len(where) > 1 else ApprovalConfig).model_fields)
            close = get_close_matches(where[-1], known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("*", "\\*")
