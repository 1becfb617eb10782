"""Errors in the code of modules, as the person who is to mend that code sees them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits
from amplifier_foundation.cli.running.terminal import tell
from tests import forks

PROVIDER = """
from amplifier_core.models import ProviderInfo


def read(answer):
    return answer["choices"]


class House:
    name = "house"

    def get_info(self):
        return ProviderInfo(id="house", display_name="House")

    async def list_models(self):
        return []

    async def complete(self, request, **kwargs):
        return read({})

    def parse_tool_calls(self, response):
        return []


async def mount(coordinator, config):
    await coordinator.mount("providers", House())
"""
CONTEXT = """
import json

from amplifier_context_simple import mount as mount_simple


class House:
    def __init__(self, simple):
        self._simple = simple

    def __getattr__(self, name):
        return getattr(self._simple, name)

    async def get_messages_for_request(self, **kwargs):
        return json.loads(None)


async def mount(coordinator, config):
    await mount_simple(coordinator, config)
    await coordinator.mount("context", House(coordinator.get("context")))
"""
ORCHESTRATOR = """
class House:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        return [][0]


async def mount(coordinator, config):
    await coordinator.mount("orchestrator", House())
"""
CASES = {
    "provider-house": (PROVIDER, 6, "provider 'house': KeyError: 'choices'"),
    "context-house": (
        CONTEXT,
        15,
        "context manager: TypeError: the JSON object must be str, bytes or bytearray, not NoneType",
    ),
    "loop-house": (ORCHESTRATOR, 4, "orchestrator: IndexError: list index out of range"),
}
PLACES = {
    "provider-house": "providers: [{module: provider-house, source: ./modules/house.py}]",
    "context-house": "session: {context: {module: context-house, source: ./modules/house.py}}",
    "loop-house": "session: {orchestrator: {module: loop-house, source: ./modules/house.py}}",
}


@pytest.mark.parametrize("module", CASES)
@pytest.mark.usefixtures("home")
def test_an_error_in_a_module_names_the_module_and_the_place_in_its_code(
    module: str, project: Path, modules: Path
) -> None:
    code, line, told = CASES[module]
    (modules / "house.py").write_text(code, encoding="utf-8")
    playbook = "providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]\n"
    mounted = PLACES[module] + "\n" + ("" if module.startswith("provider") else playbook)
    (project / "bundle.md").write_text(f"---\nbundle: {{name: b}}\n{mounted}---\nAnswer.\n", encoding="utf-8")
    wanted = f"{told} ({modules / 'house.py'}:{line})"
    done = forks.run(["run", "--json", "hi"])
    assert done.returncode == exits.FAILED
    assert json.loads(done.stdout)["data"]["error"] == wanted
    assert f"amplifier: {wanted} (use --debug to see the traceback)\n" in done.stderr


PANIC = """
import click


class PanicException(BaseException):
    "As of an extension in Rust."


@click.command
def report():
    raise PanicException("called `Option::unwrap()` on a `None` value")
"""


def test_an_error_that_is_no_exception_is_told_in_one_line(with_report: Callable[[str], dict[str, str]]) -> None:
    done = forks.run(["report"], env=with_report(PANIC))
    told = "PanicException: called `Option::unwrap()` on a `None` value"
    assert (done.returncode, done.stdout) == (exits.FAILED, "")
    assert done.stderr == f"amplifier: {told} (use --debug to see the traceback)\n"


TOOL = """
class Odd:
    name = "odd"
    description = "Be odd."
    input_schema = "none"

    async def execute(self, input):
        return {}


async def mount(coordinator, config):
    await coordinator.mount("tools", Odd())
"""


@pytest.mark.usefixtures("home")
def test_a_tool_with_a_wrong_schema_is_named_and_ends_no_run(project: Path, modules: Path) -> None:
    (modules / "odd.py").write_text(TOOL, encoding="utf-8")
    tools = "tools: [{module: odd, source: ./modules/odd.py}]"
    playbook = "providers: [{module: provider-playbook, config: {otherwise: {say: hello}}}]"
    (project / "bundle.md").write_text(
        f"---\nbundle: {{name: b}}\n{playbook}\n{tools}\n---\nAnswer.\n", encoding="utf-8"
    )
    done = forks.run(["run", "hi"])
    assert (done.returncode, done.stdout) == (exits.OK, "hello\n")
    told = (
        "tool 'odd' was not mounted: TypeError: tool 'odd': its input_schema must be a mapping, a JSON Schema, not str"
    )
    assert f"amplifier: WARNING: {told} ({modules / 'odd.py'}:" in done.stderr


@pytest.mark.parametrize("option", ["", "--debug"])
@pytest.mark.usefixtures("home")
def test_the_text_of_an_error_does_not_steer_the_terminal(option: str, project: Path, modules: Path) -> None:
    code = PROVIDER.replace("return read({})", 'raise OSError("\\x1b]0;owned\\x07\\x1b[2J\\namplifier: forged")')
    (modules / "house.py").write_text(code, encoding="utf-8")
    entry = "{module: provider-house, source: ./modules/house.py}"
    (project / "bundle.md").write_text(
        f"---\nbundle: {{name: b}}\nproviders: [{entry}]\n---\nAnswer.\n", encoding="utf-8"
    )
    done = forks.run([*option.split(), "run", "hi"])
    assert done.returncode == exits.FAILED
    assert "OSError: �]0;owned��[2J" in done.stderr
    assert "\x1b" not in done.stderr
    assert option or "\namplifier: forged" not in done.stderr


def test_a_print_for_a_person_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell("amplifier: \x1b[2Jowned")
    assert capsys.readouterr().err == "amplifier: �[2Jowned\n"


TRIGGER = """
import asyncio


class Rash:
    async def watch(self):
        WHAT
        await asyncio.Event().wait()
        yield


async def mount(coordinator, config):
    await coordinator.mount("trigger", Rash())
"""


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("[each.cancel() for each in asyncio.all_tasks()]", "has cancelled the work of the program"),
        ("asyncio.get_running_loop().stop()", "has stopped the event loop of the program"),
    ],
)
def test_a_trigger_that_ends_the_work_of_the_program_is_told_in_one_line(
    what: str, told: str, home: Path, project: Path, tmp_path: Path
) -> None:
    package = tmp_path / "all" / "amplifier-module-trigger-rash" / "amplifier_module_trigger_rash"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TRIGGER.replace("WHAT", what), encoding="utf-8")
    playbook = "providers: [{module: provider-playbook, config: {otherwise: {say: hello}}}]"
    declared = "background_sessions: [{name: w, triggers: [{module: trigger-rash}]}]"
    (project / "bundle.md").write_text(f"---\nbundle: {{name: b}}\n{playbook}\n{declared}\n---\n", encoding="utf-8")
    done = forks.run(["-q", "up"], env={**os.environ, "AMPLIFIER_MODULES": str(tmp_path / "all")})
    assert done.returncode == exits.FAILED
    assert done.stderr.count("\n") == 1
    assert f"amplifier: a trigger, hook or tool {told}" in done.stderr
