"""Examine one entry point in a process of its own: `python -m amplifier_foundation.packages.examining TASK`.

TASK is JSON. Each finding is a line of the file `report` at once: the parent knows of it also when the process hangs or
dies. Each step has a time limit; past it, the process writes its stacks and ends.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.entry_points import EntryPoint
from amplifier_core.errors import PluginLoadFailed
from amplifier_core.plugins import PluginRow, load_plugins

from .effects import Effects
from .report import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.plugins import Plugins

    from .report import Level

PREFIXED = ("trigger", "storage", "runner", "transport")
"""The kinds of offers that begin with their kind."""


LIBRARIES = {
    "amplifier": ("amplifier_core.polling", f"{__package__}.offer_contracts"),
    "amplifier.modules": ("amplifier_core.message_models", f"{__package__}.module_contracts"),
    "amplifier.commands": ("click",),
    "amplifier.hookspecs": (),
}
"""Modules of the program that plugins of a group import themselves, and those that check them."""


class Task:
    """What to examine, and the way to tell what was found."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.name, self.group, self.target = str(facts["name"]), str(facts["group"]), str(facts["target"])
        self.dist, self.version = str(facts["dist"]), str(facts["version"])
        self.config: dict[str, Any] = facts["config"]
        self.folder = Path(facts["folder"])
        self.commands: list[str] = facts["commands"]
        self.seconds: dict[str, float] = facts["seconds"]
        self.offer = ""
        """The name of what is checked, among several offers of one plugin."""
        self.is_sound = True
        """Whether no rule was broken so far."""
        self._report = (self.folder / "report").open("a", encoding="utf-8")
        self._stacks = (self.folder / "stacks").open("w", encoding="utf-8")

    def begin(self, step: str) -> None:
        """Begin a step: past its seconds, this process ends."""
        self.tell(step=step)
        faulthandler.dump_traceback_later(self.seconds[step], exit=True, file=self._stacks)

    def end(self) -> None:
        """Tell that the process has come to its end."""
        faulthandler.cancel_dump_traceback_later()
        self.tell(step="end")

    def tell(self, **facts: Any) -> None:
        """Write a line of the report."""
        self._report.write(json.dumps(facts) + "\n")
        self._report.flush()
        self.is_sound &= facts.get("level") != "error"

    def add(self, level: Level, text: str) -> None:
        """Tell a finding."""
        about = "" if f"'{self.offer}'" in text or not self.offer else f"'{self.offer}': "
        self.tell(level=level, text=f"{about}{text}")


def main(facts: dict[str, Any]) -> None:
    """Examine, and end the process whatever the plugin has left in it."""
    task = Task(facts)
    found = import_entry(task)
    if found is not None:
        task.begin("contract")
        if task.group == "amplifier.commands":
            examine_command(task, found[0])
        elif task.group == "amplifier.modules":
            from .module_contracts import examine_module

            run(task, examine_module, found[0])
        elif found[1] is not None:
            examine_offers(task, found[1])
    task.end()
    os._exit(0)


def import_entry(task: Task) -> tuple[Any, Plugins | None] | None:
    """Import the object, have a plugin register, and tell the side effects of both; None: it cannot be used."""
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": ""}) if task.group == "amplifier" else None
    for library in LIBRARIES[task.group]:  # the plugin is not charged for what it shares with the program
        import_module(library)
    task.begin("import")
    effects, began, worked = Effects(), time.perf_counter(), time.process_time()
    try:
        found = EntryPoint(task.name, task.target).load()
    except BaseException as error:
        task.add("error", describe_import(task, error))
        found = None
    else:
        task.tell(seconds=time.perf_counter() - began, worked=time.process_time() - worked)
        if plugins is not None and not register_plugin(task, plugins, found):
            found = None
    for text in effects.find():
        task.add("error", f"at import, it {text}")
    sys.stdout.flush()
    if os.fstat(1).st_size:
        said = os.pread(1, 60, 0).decode(errors="replace").strip()
        task.add("error", f"at import, it printed {said!r}: stdout is data of the program; use logging")
    return None if found is None else (found, plugins)


def describe_import(task: Task, error: BaseException) -> str:
    module, _, attribute = task.target.partition(":")
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "importlib" not in each.filename]
    last = frames[-1] if frames else None
    where = f" ({Path(last.filename).name}, line {last.lineno})" if last and last.name != "load" else ""
    if isinstance(error, SystemExit):
        return (
            f"at import, it ends the program (SystemExit: {error.code}){where}: a plugin raises errors when it is used"
        )
    if isinstance(error, AttributeError) and attribute and not where:
        return f"the entry point names {task.target}, and {module} has no '{attribute}'"
    return f"it cannot be imported: {type(error).__name__}: {error}{where}"


def register_plugin(task: Task, plugins: Plugins, plugin: Any) -> bool:
    """Have the plugin register; tell its offers and hooks, and return whether it is accepted."""
    try:
        row = PluginRow(task.name, task.dist, task.version, task.target)
        plugins.register(plugin, task.name, row)
    except PluginLoadFailed as error:
        task.add("error", error.cause)
    except BaseException as error:
        task.add("error", f"it cannot be registered: {type(error).__name__}: {error}")
    else:
        task.tell(offers=plugins.offers_of(task.name), hooks=plugins.hooks_of(task.name))
        if not plugins.hooks_of(task.name):
            task.add("error", "it implements no hook: name a module with functions marked by @hookimpl")
        return True
    return False


def run(task: Task, examine: Callable[..., Any], *arguments: Any) -> None:
    """Run an examination in an event loop; what it leaves there ends with the process."""
    try:
        asyncio.Runner().run(examine(task, *arguments))
    except AssertionError as broken:
        task.add("error", str(broken))
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}"
        task.add("error", f"it raised {type(error).__name__}: {error} ({place})")


def examine_command(task: Task, command: Any) -> None:
    """Check a command: its type, its name, and its help."""
    import click

    if not isinstance(command, click.Command):
        task.add("error", f"{task.target} must be a click command, and is {type(command).__name__}")
        return
    if task.name in task.commands:
        task.add("error", f"the command '{task.name}' is amplifier's own, and never runs: choose another name")
    try:
        command.get_help(click.Context(command, info_name=task.name))
    except Exception as error:
        task.add("error", f"its --help raised {type(error).__name__}: {error}")


def examine_offers(task: Task, plugins: Plugins) -> None:
    """Check the names of a plugin's offers, and what is behind them."""
    from . import offer_contracts as contracts

    offers = plugins.offers_of(task.name)
    is_one_of_many = sum(map(len, offers.values())) > 1
    examine: dict[str, Callable[[Task, str, Any], Any]] = {
        "trigger": contracts.examine_trigger,
        "storage": contracts.examine_storage,
        "runner": contracts.examine_runner,
    }
    for kind, names in offers.items():
        for name in names:
            factory = plugins.registry_of(kind).get(name)
            task.offer = name if is_one_of_many else ""
            if kind in PREFIXED and not name.startswith(f"{kind}-"):
                task.add("error", f"it offers the {kind} '{name}': the name of a {kind} begins with '{kind}-'")
            if kind == "bundle":
                contracts.examine_bundle(task, name, factory)
            elif not callable(factory):
                task.add("error", f"register('{name}', {factory!r}): give a factory, such as a class, not its result")
            elif kind in examine:
                run(task, examine[kind], name, factory)
    task.offer = ""
    promised = kind_of(task.name, task.group)
    if promised in (*PREFIXED, "bundle") and promised not in offers and offers:
        task.add("error", f"its entry point '{task.name}' promises a {promised}, and it offers a {', a '.join(offers)}")
    elif promised in offers and promised in PREFIXED and task.name not in offers[promised]:
        task.add(
            "warning", f"its entry point is '{task.name}', and it offers {', '.join(offers[promised])}: use one name"
        )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
