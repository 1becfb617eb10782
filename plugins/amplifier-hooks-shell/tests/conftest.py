"""Real sessions with the playbook as their model, and real commands at their events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from amplifier_core import AmplifierSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Make: TypeAlias = Callable[..., AmplifierSession]
    TextsOf: TypeAlias = Callable[[AmplifierSession, str], Awaitable[list[str]]]

RULES = [
    {"when": {"user": r"write (?P<path>\S+)"}, "call": {"tool": "write_file", "input": "PUT"}},
    {"when": {"user": r"run (?P<command>.+)"}, "call": {"tool": "shout", "input": {"command": "{command}"}}},
    {"when": {"tool": "write_file"}, "say": "{result}"},
    {"when": {"tool": "shout"}, "say": "{result}"},
]
PUT = {"file_path": "{path}", "content": "new"}


@dataclass
class Answers:
    """An approval system that gives one answer, and a display."""

    answer: str = "Deny"
    asked: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:  # noqa: ASYNC109 - a published signature
        self.asked.append(prompt)
        return self.answer

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        self.shown.append(f"{level}: {message}")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder that nobody else uses."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def make(work: Path, answers: Answers) -> AsyncIterator[Make]:
    """Make sessions with commands: `make(PreToolUse="exit 2")`, or a list of matchers for an event."""
    made: list[AmplifierSession] = []

    def make_session(
        *, session_id: str = "s", gate: Any = None, settings: Any = None, entry: Any = None, **events: Any
    ) -> AmplifierSession:
        rules = json.loads(json.dumps(RULES).replace('"PUT"', json.dumps(PUT)))
        hooks = {
            event: [{"hooks": [{"command": given}]}] if isinstance(given, str) else given
            for event, given in events.items()
        }
        plan: dict[str, Any] = {
            "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
            "providers": [
                {"module": "provider-playbook", "config": {"rules": rules, "otherwise": {"say": "You said: {prompt}"}}}
            ],
            "tools": [{"module": "tool-filesystem"}],
            "hooks": [{"module": "hooks-shell", "config": {"hooks": hooks, **(settings or {})}, **(entry or {})}],
        }
        session = AmplifierSession(
            plan,
            session_id=session_id,
            parent_id="p" if entry else None,
            approval_system=answers,
            display_system=answers,
            strict=True,
            permissions=gate,
        )
        session.coordinator.register_capability("session.working_dir", str(work))
        made.append(session)
        return session

    yield make_session
    for each in made:
        await each.cleanup()


@pytest.fixture
def is_running() -> Callable[[int], bool]:
    """Tell whether a process runs; one that has ended and is not waited for does not."""

    def look(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (ProcessLookupError, FileNotFoundError):
            return False

    return look


@pytest.fixture
def texts_of() -> TextsOf:
    """Read the texts of the messages of a role."""

    async def read(session: AmplifierSession, role: str) -> list[str]:
        return [str(each["content"]) for each in await session.history() if each["role"] == role]

    return read
