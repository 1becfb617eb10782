"""Real sessions whose orchestrator tells what it is given, and the lines that they leave in files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.loader import ModuleLoader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    Session: TypeAlias = Callable[..., AmplifierSession]
    Read: TypeAlias = Callable[[Path], list[dict[str, Any]]]

MODULES = {
    "loop-telling": """
class Telling:
    def __init__(self, story):
        self.story = story

    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        await hooks.emit("prompt:submit", {"prompt": prompt})
        for event, data in self.story:
            await hooks.emit(event, data)
        await hooks.emit("orchestrator:complete", {"orchestrator": "telling", "turn_count": 1, "status": "success"})
        return "told"

async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Telling(config.get("story", [])))
""",
    "context-list": """
from amplifier_core.testing import MockContextManager

async def mount(coordinator, config):
    await coordinator.mount("context", MockContextManager())
""",
    "provider-none": """
async def mount(coordinator, config):
    await coordinator.mount("providers", object(), name="none")
""",
    "tool-recipes": """
async def mount(coordinator, config):
    coordinator.register_contributor("observability.events", "recipes", lambda: ["recipe:start", "recipe:step"])
    coordinator.register_contributor("observability.events", "odd", lambda: {"no": "list"})
    coordinator.register_capability("observability.events", ["recipe:approval"])
""",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that nobody else uses."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def log(work: Path) -> Path:
    """The log of the sessions of this test."""
    return work / "events.jsonl"


@pytest.fixture
async def session(tmp_path: Path, work: Path) -> AsyncIterator[Session]:
    """Make sessions that work in `work` and log to its `events.jsonl`; those still alive end with the test."""
    for name, source in MODULES.items():
        package = tmp_path / "modules" / f"amplifier-module-{name}" / f"amplifier_module_{name.replace('-', '_')}"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
    made: list[AmplifierSession] = []

    def make(*story: tuple[str, Any], session_id: str = "s", parent_id: str | None = None, **config: Any) -> Any:
        plan = {
            "session": {
                "orchestrator": {"module": "loop-telling", "config": {"story": story}},
                "context": {"module": "context-list"},
            },
            "providers": [{"module": "provider-none"}],
            "hooks": [{"module": "hooks-logging", "config": {"path": "events.jsonl", **config}}],
            "tools": [{"module": "tool-recipes"}],
        }
        loader = ModuleLoader(search_paths=[tmp_path / "modules"])
        made.append(AmplifierSession(plan, loader, session_id, parent_id, strict=True))
        made[-1].coordinator.register_capability("session.working_dir", str(work))
        return made[-1]

    yield make
    for each in made:
        await each.cleanup()


@pytest.fixture
def read() -> Read:
    """Read the lines of a file; there is no half line in it."""

    def read_lines(path: Path) -> list[dict[str, Any]]:
        text = path.read_text(encoding="utf-8")
        assert text.endswith("\n") or not text
        return [json.loads(line) for line in text.splitlines()]

    return read_lines
