"""List the entry points of all packages, and the state of each, without importing any of them."""

from __future__ import annotations

import os
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING

from amplifier_core.entry_points import find_entry_points
from amplifier_core.errors import NameTaken
from amplifier_core.frozen import slotted

from .gate import DISABLED, Gate
from .report import GROUPS, kind_of
from .requirements import find_unmet

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.errors import PluginRefused
    from amplifier_core.plugins import PluginRow, Plugins


@slotted
class Listed:
    """One entry point; `offers`, `hooks`, `milliseconds` and the status of a load are known after a load."""

    name: str
    kind: str
    group: str
    dist: str
    version: str
    target: str
    summary: str
    status: str = "installed"
    """installed, disabled, blocked, refused, slow, accused, loaded or failed."""
    error: str = ""
    offers: list[str] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    milliseconds: float | None = None


def list_packages(marks: Path | None = None, *, safe_mode: bool = False) -> list[Listed]:
    """Return all entry points, sorted by name; `marks` is the folder of the marks of `load_plugins`."""
    from amplifier_core.plugin_marks import LoadingMarks, accused_plugins
    from amplifier_core.plugins import SLOW, is_allowed

    gate, loading, listed = Gate(), LoadingMarks(marks), []
    accused = accused_plugins(marks) if marks is not None else set()
    for group in GROUPS:
        for entry in find_entry_points(group):
            row = Listed(entry.name, kind_of(entry.name, group), group, *entry.dist, entry.value, entry.summary)
            listed.append(row)
            refusal = gate(entry)
            if refusal is not None:
                row.status, row.error = status_of(refusal), refusal.cause
            elif group == GROUPS[0] and (safe_mode or not is_allowed(entry.name, os.environ)):
                row.status = "blocked"
            elif group == GROUPS[0] and loading.is_slow(entry):
                row.status, row.error = "slow", SLOW
            elif group == GROUPS[0] and entry.name in accused:
                row.status, row.error = "accused", "a process ended while it was loaded: it is tried in one of its own"
    listed.sort(key=lambda row: (row.name, row.group))
    kinds = dict(zip(GROUPS[:3], ("plugin", "module", "command"), strict=True))
    offered = (each for each in listed if each.group in kinds and each.status == "installed")
    for first, second in pairwise(offered):
        if (first.name, first.group) == (second.name, second.group):
            owners = f"{first.dist} {first.version}", f"{second.dist} {second.version}"
            second.error = str(NameTaken(kinds[first.group], first.name, owners))
            first.error = first.error if first.group == GROUPS[0] else second.error  # of two plugins, the first is used
    return listed


def status_of(refusal: PluginRefused) -> str:
    """Return the word for a refusal of the gate."""
    return "disabled" if refusal.cause.startswith(DISABLED) else "refused"


def add_loaded(listed: list[Listed], plugins: Plugins) -> None:
    """Add what the loading of the plugins has shown, and the requirements of their packages that are not met."""
    rows: dict[tuple[str, str], PluginRow] = {(row.name, row.dist): row for row in plugins.rows}
    for each in listed:
        if not each.error and (unmet := find_unmet(each.dist)):
            each.error = f"its package needs {', '.join(unmet)}"
        row = rows.get((each.name, each.dist)) if each.group == GROUPS[0] else None
        if row is not None:
            if each.status in ("installed", "accused") or row.status == "loaded":
                each.status = row.status
            each.error, each.offers = row.error or each.error, row.offers
            if row.status != "blocked":
                each.milliseconds = round(row.seconds * 1000, 1)
            if row.status == "loaded":
                each.hooks = plugins.hooks_of(row.name)
