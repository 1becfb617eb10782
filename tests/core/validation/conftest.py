"""One module of each kind as its author would write it from the contract alone, and real runs of their tests."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITES = {"provider": "Provider", "tool": "Tool", "hooks": "Hook", "context": "Context", "loop": "Orchestrator"}
"""The prefix of a module's id, and of the suites for its kind."""

PROVIDER = '''
"""A provider that says yes."""

from amplifier_core import ChatResponse, ModelInfo, ModuleCoordinator, ProviderInfo, ToolCall
from amplifier_core.message_models import TextBlock

__amplifier_module_type__ = "provider"


class YesProvider:
    name = "yes"

    def __init__(self, coordinator):
        self.coordinator = coordinator
        self.is_open = True

    def get_info(self):
        return ProviderInfo(id="yes", display_name="Yes")

    async def list_models(self):
        return [ModelInfo(id="yes-1", display_name="Yes", context_window=1000, max_output_tokens=10)]

    async def complete(self, request, **kwargs):
        await self.coordinator.hooks.emit("llm:request", {"provider": self.name})
        return ChatResponse(content=[TextBlock(text="Yes.")])

    def parse_tool_calls(self, response):
        return list(response.tool_calls or [])

    async def close(self):
        self.is_open = False


async def mount(coordinator: ModuleCoordinator, config=None):
    provider = YesProvider(coordinator)
    await coordinator.mount("providers", provider, name="yes")
    return provider.close
'''

TOOL = '''
"""A tool that shouts."""

from amplifier_core import ModuleCoordinator, ToolResult

__amplifier_module_type__ = "tool"


class ShoutTool:
    name = "shout"
    description = "Return a text in capital letters"

    @property
    def input_schema(self):
        return {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def execute(self, input):
        text = input.get("text")
        if not isinstance(text, str):
            return ToolResult(success=False, error={"message": "'text' is required"})
        return ToolResult(output=text.upper())


async def mount(coordinator: ModuleCoordinator, config=None):
    await coordinator.mount("tools", ShoutTool(), name="shout")
'''

HOOKS = '''
"""A hook that lets no tool touch secrets, and notes every prompt."""

from amplifier_core import HookResult, ModuleCoordinator

__amplifier_module_type__ = "hook"


async def mount(coordinator: ModuleCoordinator, config=None):
    notes = []

    async def guard(event, data):
        path = data["tool_input"].get("path", "")
        if "secret" in path:
            return HookResult(action="deny", reason=path)
        return HookResult()

    async def note(event, data):
        notes.append(data["prompt"])
        return HookResult()

    undo_guard = coordinator.hooks.register("tool:pre", guard, priority=-10, name="guard")
    undo_note = coordinator.hooks.register("prompt:submit", note, name="note")

    def undo():
        undo_guard()
        undo_note()

    return undo


async def on_session_ready(coordinator):
    await coordinator.collect_contributions("observability.events")
'''

CONTEXT = '''
"""A context that is a list."""

from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "context"


class ListContext:
    def __init__(self):
        self.messages = []

    async def add_message(self, message):
        self.messages.append(message)

    async def get_messages(self):
        return list(self.messages)

    async def get_messages_for_request(self, token_budget=None, provider=None):
        return list(self.messages)

    async def set_messages(self, messages):
        self.messages = list(messages)

    async def clear(self):
        self.messages = []

    def _should_compact(self):
        return len(self.messages) > 100

    async def _compact_internal(self):
        del self.messages[:-100]


async def mount(coordinator: ModuleCoordinator, config=None):
    await coordinator.mount("context", ListContext())
'''

LOOP = '''
"""An orchestrator that asks once."""

from amplifier_core import ModuleCoordinator
from amplifier_core.events import EXECUTION_END, EXECUTION_START, ORCHESTRATOR_COMPLETE
from amplifier_core.message_models import ChatRequest, Message

__amplifier_module_type__ = "orchestrator"


class OnceOrchestrator:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        await hooks.emit(EXECUTION_START, {"prompt": prompt})
        await context.add_message({"role": "user", "content": prompt})
        text = await self.ask(context, next(iter(providers.values())))
        await context.add_message({"role": "assistant", "content": text})
        await hooks.emit(ORCHESTRATOR_COMPLETE, {"orchestrator": "once", "turn_count": 1, "status": "success"})
        await hooks.emit(EXECUTION_END, {"response": text})
        return text

    async def ask(self, context, provider):
        messages = await context.get_messages_for_request(provider=provider)
        response = await provider.complete(ChatRequest(messages=[Message(**message) for message in messages]))
        return "".join(block.text for block in response.content)


async def mount(coordinator: ModuleCoordinator, config=None):
    await coordinator.mount("orchestrator", OnceOrchestrator())
'''

SOURCES = {
    "provider-yes": PROVIDER,
    "tool-shout": TOOL,
    "hooks-guard": HOOKS,
    "context-list": CONTEXT,
    "loop-once": LOOP,
}

TESTS = '''
from amplifier_core.validation.behavioral import {kind}BehaviorTests
from amplifier_core.validation.structural import {kind}StructuralTests


class TestBehavior({kind}BehaviorTests):
    """Inherits the tests of the kind."""


class TestStructure({kind}StructuralTests):
    """Inherits the test of the kind."""
'''

INI = """
[pytest]
asyncio_mode = {mode}
asyncio_default_fixture_loop_scope = function
addopts = --import-mode=importlib --strict-markers --strict-config -p no:cacheprovider
filterwarnings = error
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended: passed, failed, error or skipped, and what it said."""

    test: str
    verdict: str
    message: str = ""


class Workshop:
    """A folder of modules under development, each in a project of its own."""

    def __init__(self, folder: Path, mode: str = "strict") -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text(INI.format(mode=mode))

    def write(self, module_id: str, source: str) -> Path:
        """Write the project of a module with the tests that it inherits; return its folder."""
        project = self.folder / f"amplifier-module-{module_id}"
        package = f"amplifier_module_{module_id.replace('-', '_')}"
        files = {
            f"{package}/__init__.py": source,
            "pyproject.toml": (
                f'[project]\nname = "amplifier-module-{module_id}"\nversion = "1.0"\n\n'
                f'[project.entry-points."amplifier.modules"]\n{module_id} = "{package}:mount"\n'
            ),
            "tests/test_module.py": TESTS.format(kind=SUITES[module_id.partition("-")[0]]),
        }
        for name, text in files.items():
            path = project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return project

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run pytest as a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *arguments],
            cwd=cwd or self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def outcomes(self, *arguments: str) -> dict[str, list[Outcome]]:
        """Run the tests of every module; return how they ended, by the module's id."""
        report = self.folder / "report.xml"
        done = self.run(f"--junitxml={report}", *arguments)
        assert report.is_file(), done.stdout + done.stderr
        found: dict[str, list[Outcome]] = {}
        for case in ElementTree.parse(report).iter("testcase"):
            project = case.attrib["classname"].partition(".")[0]
            found.setdefault(project.removeprefix("amplifier-module-"), []).extend(_outcomes_of(case))
        return found


def _outcomes_of(case: ElementTree.Element) -> Iterator[Outcome]:
    verdicts = {"failure": "failed", "error": "error", "skipped": "skipped"}
    bad = [part for part in case if part.tag in verdicts]
    for part in bad:
        message = part.attrib.get("message", "") + (part.text or "")
        yield Outcome(case.attrib["name"], verdicts[part.tag], message)
    if not bad:
        yield Outcome(case.attrib["name"], "passed")


@pytest.fixture(scope="session")
def open_workshop() -> type[Workshop]:
    """What makes a workshop of an empty folder, and of pytest-asyncio's mode."""
    return Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture(scope="session")
def sources() -> dict[str, str]:
    """The modules that keep the contract, by their ids."""
    return dict(SOURCES)
