"""Check the entry points of an installed distribution, each in a process of its own with time limits.

The process has a folder, a data folder and an environment of its own: whatever a plugin does to its process at import
harms nothing else. It is no sandbox: the code of the package runs, with the rights of the person.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from amplifier_core.entry_points import EntryPoint, find_entry_points
from amplifier_core.errors import PluginError, UnknownName
from amplifier_core.utils.interpreters import PYTHON

from ..documents.problems import did_you_mean
from .report import GROUPS, Examined, Report, kind_of, name_of_dist
from .requirements import find_unmet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

IMPORT_SECONDS = 10.0
CONTRACT_SECONDS = 60.0
SLOW = 1.0
"""Seconds of processor time of an import that are worth a warning."""
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")


class EntryPointsMissing(PluginError, LookupError):
    """An installed distribution has no entry point in a group of this program; `groups` are those that it has."""

    def __init__(self, dist: str, groups: Iterable[str]) -> None:
        self.dist, self.groups = dist, tuple(sorted(groups))
        close = {each: did_you_mean(each, GROUPS).removeprefix("; ") for each in self.groups}
        given = ", ".join(f"'{each}' ({hint})" if hint else f"'{each}'" for each, hint in close.items()) or "none"
        super().__init__(
            f"{dist} is installed, and has no entry point for amplifier. Its groups of entry points: {given}. "
            f"Name one of these in its pyproject.toml, and install it again: {', '.join(GROUPS)}"
        )


def check_package(
    name: str,
    *,
    config: Mapping[str, Any] | None = None,
    import_seconds: float = IMPORT_SECONDS,
    contract_seconds: float = CONTRACT_SECONDS,
    commands: Sequence[str] = (),
) -> Report:
    """Examine all entry points of a distribution, or of the one with an entry point of this name.

    `config` is the configuration for its triggers, modules and stores; `commands` are the names of commands that no
    package may take. Raises `EntryPointsMissing`, `UnknownName`.
    """
    entries = find_package(name)
    dist = entries[0][1].dist
    seconds = {"import": import_seconds, "contract": contract_seconds}
    with ThreadPoolExecutor(min(4, len(entries))) as pool:
        waiting = [
            pool.submit(examine_entry, group, entry, config or {}, seconds, commands) for group, entry in entries
        ]
        return Report(dist.name, dist.version, [each.result() for each in waiting])


def find_package(name: str) -> list[tuple[str, EntryPoint]]:
    """Return (group, entry point) of a distribution, or of that with an entry point `name`.

    Raises `EntryPointsMissing`, `UnknownName`.
    """
    known = [(group, entry) for group in GROUPS for entry in find_entry_points(group)]
    wanted = {name_of_dist(name)}
    if wanted.isdisjoint(name_of_dist(entry.dist.name) for _, entry in known):
        wanted = {name_of_dist(entry.dist.name) for _, entry in known if entry.name == name}
    found = [(group, entry) for group, entry in known if name_of_dist(entry.dist.name) in wanted]
    if not found:
        with suppress(PackageNotFoundError, ValueError):
            raise EntryPointsMissing(name, {entry.group for entry in distribution(name).entry_points})
        raise UnknownName("package", name, {entry.dist.name for _, entry in known})
    return found


def examine_entry(
    group: str, entry: EntryPoint, config: Mapping[str, Any], seconds: dict[str, float], commands: Sequence[str]
) -> Examined:
    examined = Examined(entry.name, group, entry.value, kind_of(entry.name, group))
    for other in find_entry_points(group, entry.name):
        if other.dist != entry.dist:
            examined.add("error", f"'{entry.name}' is offered by {other.dist}, too: uninstall one, or rename this one")
    for unmet in find_unmet(entry.dist.name):
        examined.add("error", f"{entry.dist.name} needs {unmet}")
    with TemporaryDirectory(prefix="amplifier-check-") as name:
        folder = Path(name).resolve()
        facts = {
            **{"name": entry.name, "group": group, "target": entry.value, "folder": str(folder)},
            **{"dist": entry.dist.name, "version": entry.dist.version, "config": dict(config)},
            **{"seconds": seconds, "commands": list(commands)},
        }
        code = run_examination(facts, folder, sum(seconds.values()) + 5)
        read_report(examined, folder, seconds, code)
    return examined


def run_examination(facts: dict[str, Any], folder: Path, patience: float) -> int | None:
    """Run the process to its end, with all that it started; return its code, None when it was killed for its time."""
    for each in ("home", "work"):
        (folder / each).mkdir()
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment = {
        **kept,
        "HOME": str(folder / "home"),
        "AMPLIFIER_HOME": str(folder / "home" / "data"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    command = [*PYTHON, "-P", "-m", "amplifier_foundation.packages.examining", json.dumps(facts)]
    with (folder / "out").open("w+b") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            command, cwd=folder / "work", env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def read_report(examined: Examined, folder: Path, seconds: dict[str, float], code: int | None) -> None:
    """Add what the process told, and how it ended."""
    step = "start"
    with suppress(FileNotFoundError):
        for line in (folder / "report").read_text(encoding="utf-8").splitlines():
            facts = json.loads(line)
            step = facts.get("step", step)
            examined.seconds = facts.get("seconds", examined.seconds)
            examined.hooks = facts.get("hooks", examined.hooks)
            examined.offers = facts.get("offers", examined.offers)
            if facts.get("worked", 0) > SLOW:
                text = f"its import works for {facts['worked']:.1f} s: import libraries when they are used"
                examined.add("warning", text)
            if "level" in facts:
                examined.add(facts["level"], facts["text"])
    if step != "end":
        examined.add("error", describe_end(folder, step, seconds, code))


def describe_end(folder: Path, step: str, seconds: dict[str, float], code: int | None) -> str:
    stacks = (folder / "stacks").read_text(encoding="utf-8") if (folder / "stacks").exists() else ""
    doing = {"import": "its import", "contract": "a check of its contract"}.get(step, "its examination")
    if "File" in stacks or code is None:
        frames = re.findall(r'File "([^"]+)", line (\d+) in', stacks.rpartition("most recent call first")[2])
        places = (f" (in {Path(path).name}, line {line})" for path, line in frames if "importlib" not in path)
        return f"{doing} did not end within {seconds.get(step, 0):g} s{next(places, '')}"
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if step == "start":
        said = (folder / "err").read_text(errors="replace").strip().splitlines()
        return f"it could not be examined ({how}): {said[-1] if said else 'it said nothing'}"
    return f"{doing} ends the process ({how}): a plugin raises errors"
