"""Hold the facts about a package: its entry points, and what their examination found."""

from __future__ import annotations

import re
from dataclasses import asdict, field
from typing import Any, Literal

from amplifier_core.frozen import slotted

GROUPS = ("amplifier", "amplifier.modules", "amplifier.commands", "amplifier.hookspecs")
"""The groups of entry points of plugins, modules, commands and specifications of hooks."""
Level = Literal["error", "warning", "note"]


@slotted
class Finding:
    """One sentence about an entry point: a broken rule, a doubt, or what was not examined and why."""

    level: Level
    text: str


@slotted
class Examined:
    """One entry point of a package, and what was found about it."""

    name: str
    group: str
    target: str
    kind: str = ""
    offers: dict[str, list[str]] = field(default_factory=dict)
    """The names that it offers, by kind."""
    hooks: list[str] = field(default_factory=list)
    seconds: float | None = None
    """The time of its import; None: it did not end."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, level: Level, text: str) -> None:
        """Add a finding on one line, unless it is there."""
        finding = Finding(level, " ".join(text.split()))
        if finding not in self.findings:
            self.findings.append(finding)

    @property
    def is_healthy(self) -> bool:
        """Whether no rule is broken."""
        return all(each.level != "error" for each in self.findings)


@slotted
class Report:
    """All entry points of one distribution."""

    dist: str
    version: str
    entries: list[Examined]

    @property
    def is_healthy(self) -> bool:
        """Whether no rule is broken."""
        return all(each.is_healthy for each in self.entries)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {**asdict(self), "healthy": self.is_healthy}


KIND_OF_PREFIX = {
    "trigger-": "trigger",
    "storage-": "storage",
    "runner-": "runner",
    "transport-": "transport",
    "provider-": "provider",
    "tool-": "tool",
    "loop-": "orchestrator",
    "orchestrator-": "orchestrator",
    "context-": "context",
    "hooks-": "hook",
    "hook-": "hook",
    "bundle-": "bundle",
}
"""The kind that a name promises."""


def kind_of(name: str, group: str) -> str:
    """Return the kind of an entry point by its name and its group."""
    if group == "amplifier.commands":
        return "command"
    promised = next((kind for prefix, kind in KIND_OF_PREFIX.items() if name.startswith(prefix)), "")
    return promised or {"amplifier.modules": "module", "amplifier.hookspecs": "hooks"}.get(group, "plugin")


def name_of_dist(name: str) -> str:
    """Return the name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
