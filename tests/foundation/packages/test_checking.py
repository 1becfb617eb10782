"""Packages that break their contracts: each is examined in a process of its own, and told in one line what is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import UnknownName
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.packages.checking import check_package

if TYPE_CHECKING:
    from amplifier_foundation.packages.report import Report

    from .conftest import Site

pytestmark = pytest.mark.slow

TRIGGER = """
import asyncio
from amplifier_core import PollingTrigger, hookimpl

class Good(PollingTrigger):
    name = "trigger-NAME"

    async def poll(self):
        for event in ():
            yield event

@hookimpl
def amplifier_register_trigger(register):
    register("trigger-NAME", Good)
"""
TOOL = """
from amplifier_core import ToolResult

class Good:
    name, description = "good", "Do good."
    input_schema = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}

    async def execute(self, input):
        return ToolResult(success="what" in input, output="what?")

async def mount(coordinator, config):
    await coordinator.mount("tools", Good())
"""

HOOKS = """
async def hear(event, data):
    return None

async def mount(coordinator, config):
    undo = coordinator.hooks.register(EVENT, hear, name="hear")
    return undo
"""


def trigger(body: str) -> str:
    """Return a trigger whose class has this body, too."""
    last = "            yield event\n"
    return TRIGGER.replace(last, f"{last}\n{indent(body.strip(), '    ')}\n")


def polling(body: str) -> str:
    """Return a trigger whose poll has this body, and yields nothing."""
    return TRIGGER.replace("        for event", indent(body, " " * 8) + "\n" + "        for event")


PLUGINS: dict[str, tuple[str, str]] = {
    "import-error": (
        "import a_package_that_nobody_has",
        "it cannot be imported: ModuleNotFoundError: No module named 'a_package_that_nobody_has' "
        "(broken_import_error.py, line 1)",
    ),
    "exit-at-import": (
        "import sys\nsys.exit(3)",
        "at import, it ends the program (SystemExit: 3) (broken_exit_at_import.py, line 2): "
        "a plugin raises errors when it is used",
    ),
    "death-at-import": ("import os\nos._exit(7)", "its import ends the process (exit code 7): a plugin raises errors"),
    "kill-at-import": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        "its import ends the process (signal SIGKILL): a plugin raises errors",
    ),
    "endless-import": (
        "while True:\n    pass",
        r"its import did not end within 2 s \(in broken_endless_import.py, line [12]\)",
    ),
    "wrong-signature": (
        TRIGGER.replace("(register)", "(registry)"),
        "amplifier_register_trigger takes 'registry', and gets (register) by name",
    ),
    "async-for-plain": (
        TRIGGER.replace("def amplifier", "async def amplifier"),
        "amplifier_register_trigger must not be declared 'async def'",
    ),
    "plain-for-async": (
        "from amplifier_core import hookimpl\n@hookimpl\ndef amplifier_before_fork(request):\n    pass",
        "amplifier_before_fork must be declared 'async def'",
    ),
    "plain-stop": (
        trigger("def stop(self):\n    self._stopped.set()"),
        "stop of 'trigger-plain-stop' must be declared 'async def'",
    ),
    "async-configure": (
        trigger("async def configure(self, config):\n    pass"),
        "configure of 'trigger-async-configure' must not be a coroutine: nobody awaits it",
    ),
    "registered-twice": (
        TRIGGER + '    register("trigger-NAME", Good)\n',
        "it cannot be registered: NameTaken: trigger 'trigger-registered-twice' is registered twice by broken 1.0, "
        "and is not used. Update or remove it, or block its plugin with AMPLIFIER_BLOCK_PLUGINS",
    ),
    "other-kind": (
        TRIGGER.replace('register("trigger-', 'register("tool-'),
        "it offers the trigger 'tool-other-kind': the name of a trigger begins with 'trigger-'",
    ),
    "leaking-task": (
        polling("asyncio.create_task(asyncio.sleep(3600))"),  # the loop keeps it: else it could be garbage by then
        "watch must leave no task running; it left sleep, sleep: cancel and await it",
    ),
    "leaving-thread": (
        polling("import threading\nthreading.Thread(target=threading.Event().wait, name='worker').start()"),
        "watch must leave no thread running; it left worker, worker: end and join it",
    ),
    "blocking": (
        polling("import time\ntime.sleep(1.5)"),
        r"watch must not block the event loop; it did for \d\.\d s \(broken_blocking.py, line 10\): "
        r"await what waits, or run it with asyncio.to_thread",
    ),
    "swallowing-cancellation": (
        polling(
            "while not self._stopped.is_set():\n    self._ready.set()\n    try:\n        await asyncio.sleep(0.01)\n"
            "    except BaseException:\n        pass"
        ),
        "watch must end promptly when it is cancelled: catch Exception, never BaseException or CancelledError; "
        "it went on for 3 s",
    ),
    "plain-times": (
        trigger("def upcoming(self, after):\n    yield after"),
        "upcoming must yield Upcoming, not datetime",
    ),
    "printing": (
        "print('hello there')\n" + TRIGGER,
        "at import, it printed 'hello there': stdout is data of the program; use logging",
    ),
    "moving": (
        "import os\nos.chdir('/')\n" + TRIGGER,
        "at import, it changed the working folder: pass paths as arguments; the folder is that of the session",
    ),
    "unknown-hook": (
        TRIGGER.replace("register_trigger", "register_triger"),
        "no hook 'amplifier_register_triger' (did you mean 'amplifier_register_trigger'?)",
    ),
    "no-factory": (
        TRIGGER.replace(", Good)", ', "Good")'),
        "register('trigger-no-factory', 'Good'): give a factory, such as a class, not its result",
    ),
    "raising-factory": (
        trigger('def __init__(self):\n    raise RuntimeError("not today")'),
        "the factory of 'trigger-raising-factory' is called without arguments, and raised RuntimeError: not today",
    ),
    "no-trigger": (
        TRIGGER.replace(", Good)", ", dict)"),
        "'trigger-no-trigger' is no trigger: its dict has no configure, watch, stop",
    ),
    "any-key": (
        trigger("def configure(self, config):\n    pass"),
        "configure must refuse a key it does not know with TriggerConfigError",
    ),
    "environment": (
        "import os\nos.environ['HTTP_PROXY'] = 'x'\n" + TRIGGER,
        "at import, it changed the environment (HTTP_PROXY): read variables, and set none",
    ),
    "signals": (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + TRIGGER,
        "at import, it changed a signal handler: the program handles signals",
    ),
    "socket": (
        "import socket\nlistening = socket.socket()\n" + TRIGGER,
        "at import, it opened a socket: open it when the plugin is used",
    ),
    "program": (
        "import subprocess\nsubprocess.run(['true'])\n" + TRIGGER,
        "at import, it started a program (subprocess.Popen): start it when the plugin is used",
    ),
    "file": (
        "open('left-behind', 'a').close()\n" + TRIGGER,
        "at import, it wrote the file left-behind: write it when the plugin is used",
    ),
    "thread-at-import": (
        "import threading\nthreading.Thread(target=threading.Event().wait, name='worker').start()\n" + TRIGGER,
        "at import, it left the thread worker running: start it when the plugin is used, and end it",
    ),
    "no-hooks": ("value = 1", "it implements no hook: name a module with functions marked by @hookimpl"),
}
"""Plugins by name: the source, and the text or pattern of what is told. `NAME` is the name."""

MODULES: dict[str, tuple[str, str]] = {
    "tool-missing": (
        TOOL.replace("mount(coordinator,", "mounting(coordinator,"),
        "the entry point names broken_tool_missing:mount, and broken_tool_missing has no 'mount'",
    ),
    "tool-plain": (
        "def mount(coordinator, config):\n    pass",
        "mount must be declared 'async def': write `async def mount(coordinator, config)`",
    ),
    "tool-short": (
        "async def mount(coordinator):\n    pass",
        "mount must take 2 parameters: write `async def mount(coordinator, config)`",
    ),
    "tool-other-result": (
        TOOL + "    return {'tool': Good()}\n",
        "mount must return None or a function for the clean-up; it returned dict",
    ),
    "provider-tool": (TOOL, "'provider-tool' promises a provider, and mounts a tool: name it after its kind"),
    "tool-odd-name": (
        TOOL.replace('"good"', '"my tool!"'),
        "a tool's name must be 1 to 64 letters of a-z, digits, _ and -: services of models refuse 'my tool!'",
    ),
    "tool-raising": (
        TOOL.replace('"what" in input', 'bool(input["what"])'),
        "execute({}) must return a result with success=False; it raised KeyError: 'what'",
    ),
    "hooks-plain": (
        "async def mount(coordinator, config):\n"
        "    return coordinator.hooks.register('tool:pre', lambda event: None, name='plain')",
        "a handler must take (event, data), and these do not: plain (tool:pre)",
    ),
    "hooks-pattern": (
        HOOKS.replace("EVENT", "'tool:*'"),
        r"no event is ever named 'tool:\*', and its handler is never called: register it for each name",
    ),
    "hooks-number": (
        HOOKS.replace("EVENT", "5"),
        "no event is ever named 5, and its handler is never called: register it for each name",
    ),
    "tool-guarding": (
        TOOL + "    coordinator.hooks.register('*', hear)\n\nasync def hear(event, data):\n    pass\n",
        r"no event is ever named '\*', and its handler is never called: register it for each name",
    ),
}
"""Modules by name."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One distribution with all broken plugins and modules, examined."""
    from .conftest import Site

    folder = tmp_path_factory.mktemp("site")
    files, plugins, modules = {}, {}, {}
    for name, (source, _) in PLUGINS.items():
        package = f"broken_{name.replace('-', '_')}"
        plugins[f"trigger-{name}"] = package
        files[f"{package}.py"] = source.replace("NAME", name)
    for name, (source, _) in MODULES.items():
        package = f"broken_{name.replace('-', '_')}"
        modules[name] = f"{package}:mount"
        files[f"{package}.py"] = source
    Site(folder).install("broken", {"amplifier": plugins, "amplifier.modules": modules}, files)
    before = (Path.cwd(), dict(os.environ), signal.getsignal(signal.SIGTERM), set(threading.enumerate()))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        report = check_package("broken", import_seconds=2, contract_seconds=20)
    assert before == (Path.cwd(), dict(os.environ), signal.getsignal(signal.SIGTERM), set(threading.enumerate()))
    return report


@pytest.mark.long
@pytest.mark.parametrize("name", [*PLUGINS, *MODULES])
def test_a_broken_package_is_told_in_one_line_what_is_wrong(name: str, broken: Report) -> None:
    entry = f"trigger-{name}" if name in PLUGINS else name
    [examined] = [each for each in broken.entries if each.name == entry]
    errors = [each.text for each in examined.findings if each.level == "error"]
    wanted = (PLUGINS | MODULES)[name][1]
    assert len(errors) == 1, errors
    assert errors[0] == wanted or re.fullmatch(wanted, errors[0])
    assert "\n" not in errors[0]


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ("tool:before", "no event 'tool:before' is known, and its handler may never be called: did you mean 'tool:"),
        (
            "prompt:submitted",
            "did you mean 'prompt:submit'?; the events of 'prompt' are prompt:complete, prompt:submit",
        ),
        ("tool:pre", ""),
        ("provider:fallback", ""),
        ("acme:thing", ""),
        ("tool:lent", ""),
    ],
)
def test_a_handler_of_a_misspelt_event_is_told(event: str, told: str, site: Site) -> None:
    code = HOOKS.replace("EVENT", repr(event)).replace(
        "    undo", "    coordinator.register_contributor('observability.events', 'x', lambda: ['tool:lent'])\n    undo"
    )
    site.install("acme", {"amplifier.modules": {"hooks-acme": "acme_hooks:mount"}}, {"acme_hooks.py": code})
    [entry] = check_package("acme").entries
    findings = [each for each in entry.findings if each.level != "note"]
    assert [each.level for each in findings] == (["warning"] if told else [])
    assert told in "".join(each.text for each in findings)


def test_a_good_package_keeps_its_contracts(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.install(
        "good",
        {"amplifier": {"trigger-good": "good_trigger"}, "amplifier.modules": {"tool-good": "good_tool:mount"}},
        {"good_trigger.py": TRIGGER.replace("NAME", "good"), "good_tool.py": TOOL},
    )
    assert invoke(["plugin", "check", "trigger-good"]) == exits.OK
    shown = re.sub(r"\d+ ms", "TIME", capsys.readouterr().out)
    assert shown.splitlines() == [
        "good 1.0",
        "  trigger-good (trigger): trigger trigger-good (TIME)",
        "  tool-good (tool): tool good (TIME)",
        "  it keeps its contracts",
    ]


NEEDS = """
def configure(self, config):
    if not config.get("seconds"):
        raise ValueError("seconds is missing")
    super().configure(config)
"""


def test_what_needs_a_configuration_is_noted_and_checked_with_one(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    source = trigger(NEEDS).replace("NAME", "needy")
    site.install("needy", {"amplifier": {"trigger-needy": "needy"}}, {"needy.py": source})
    assert invoke(["plugin", "check", "needy"]) == exits.OK
    shown = capsys.readouterr().out
    assert "note: 'trigger-needy' was not watched: it needs a configuration (seconds is missing)" in shown
    assert invoke(["plugin", "check", "needy", "--config", '{"seconds": 5}', "--json"]) == exits.OK
    [report] = json.loads(capsys.readouterr().out)["data"]
    assert (report["healthy"], report["entries"][0]["findings"]) == (True, [])
    assert report["entries"][0]["hooks"] == ["amplifier_register_trigger"]
    assert invoke(["plugin", "check", "needy", "--config", "[1]"]) == exits.USAGE


def test_a_module_may_mount_nothing_without_a_configuration(site: Site) -> None:
    site.install("lazy", {"amplifier.modules": {"tool-lazy": "lazy:mount"}}, {"lazy.py": LAZY})
    [entry] = check_package("lazy").entries
    [found] = entry.findings
    assert found.level == "note"
    assert found.text.endswith("to return the tool is not enough (without a configuration; give one with --config)")
    assert check_package("lazy", config={"good": True}).entries[0].findings == []


LAZY = TOOL.replace("    await coordinator", "    if config:\n        await coordinator")


def test_a_name_of_two_packages_names_both(site: Site) -> None:
    for dist in ("one", "two"):
        site.install(dist, {"amplifier.modules": {"tool-same": f"{dist}:mount"}}, {f"{dist}.py": TOOL})
    [entry] = check_package("one").entries
    assert [each.text for each in entry.findings] == [
        "'tool-same' is offered by two 1.0, too: uninstall one, or rename this one"
    ]


def test_a_package_that_is_not_installed_is_named_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownName):
        check_package("amplifier-trigger-timers")
    assert invoke(["plugin", "check", "amplifier-trigger-timers"]) == exits.NOT_FOUND
    assert "did you mean 'amplifier-trigger-timer'?" in capsys.readouterr().err


def test_the_ends_of_a_watch_are_checked_also_where_a_wrong_configuration_is_not_refused(site: Site) -> None:
    swallowing = (
        "self._ready.set()\nwhile True:\n    try:\n        await asyncio.sleep(0.01)\n"
        "    except BaseException:\n        pass"
    )
    lenient = "    def configure(self, config):\n        super().configure({})\n\n"
    source = polling(swallowing).replace("    async def poll", f"{lenient}    async def poll").replace("NAME", "deaf")
    site.install("deaf", {"amplifier": {"trigger-deaf": "deaf"}}, {"deaf.py": source})
    [entry] = check_package("deaf").entries
    first, second = [each.text for each in entry.findings]
    assert first == "configure must refuse a key it does not know with TriggerConfigError"
    assert second == (
        "watch must end promptly after stop(); it went on for 3 s, and when it was cancelled then, too: "
        "catch Exception, never BaseException or CancelledError"
    )


def test_an_installed_package_without_an_entry_point_of_the_program_is_told_with_its_groups(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.install("misspelt", {"amplifer": {"trigger-x": "x"}, "console_scripts": {"x": "x:x"}}, {"x.py": ""})
    assert invoke(["plugin", "check", "misspelt"]) == exits.NOT_FOUND
    assert capsys.readouterr().err == (
        "amplifier: misspelt is installed, and has no entry point for amplifier. Its groups of entry points: "
        "'amplifer' (did you mean 'amplifier'?), 'console_scripts'. Name one of these in its pyproject.toml, and "
        "install it again: amplifier, amplifier.modules, amplifier.commands, amplifier.hookspecs\n"
    )


def test_commands_are_checked_for_their_type_their_name_and_their_help(site: Site) -> None:
    site.install(
        "commands",
        {"amplifier.commands": {"run": "commands:run", "plain": "commands:plain"}},
        {"commands.py": "import click\n@click.command()\ndef run():\n    pass\ndef plain():\n    pass\n"},
    )
    found = {each.name: each for each in check_package("commands", commands=["run"]).entries}
    assert "the command 'run' is amplifier's own" in found["run"].findings[0].text
    assert found["plain"].findings[0].text == "commands:plain must be a click command, and is function"


def test_of_several_triggers_the_one_with_a_fault_is_named(site: Site) -> None:
    lenient = trigger("def configure(self, config):\n    pass").replace(
        "Good)", "Good)\n    register('trigger-other', type('Other', (Good,), {}))"
    )
    site.install("many", {"amplifier": {"trigger-NAME": "many"}}, {"many.py": lenient})
    [entry] = check_package("many").entries
    rule = "configure must refuse a key it does not know with TriggerConfigError"
    assert [each.text for each in entry.findings] == [f"'trigger-NAME': {rule}", f"'trigger-other': {rule}"]
