"""Two turns of a session made of our own modules, on whatever kernel this interpreter has.

    python ours.py FOLDER

The modules are installed; what happened in FOLDER, empty before, is printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from amplifier_core import AmplifierSession, HookResult
from amplifier_core.events import ALL_EVENTS

RULES = [
    {
        "when": {"user": r"review (?P<path>\S+)"},
        "call": [
            {"tool": "read_file", "input": {"file_path": "{path}"}},
            {"tool": "glob", "input": {"pattern": "*.py"}},
        ],
    },
    {
        "when": {"tool": "glob"},
        "say": "{count} of them.",
        "call": {"tool": "write_file", "input": {"file_path": "REVIEW.md", "content": "{path}: {lines} lines\n"}},
    },
    {"when": {"tool": "write_file", "output": "Denied"}, "say": "Kept."},
    {"when": {"tool": "write_file"}, "say": "Noted in {file_path}."},
    {"when": {"user": "delete"}, "call": {"tool": "write_file", "input": {"file_path": "code.py", "content": ""}}},
]

PLAN: dict[str, Any] = {
    "session": {
        "orchestrator": {"module": "loop-basic", "config": {"max_iterations": 3}},
        "context": {"module": "context-simple", "config": {"max_tokens": 100_000}},
    },
    "providers": [{"module": "provider-playbook", "config": {"rules": RULES}}],
    "tools": [{"module": "tool-filesystem"}],
    "hooks": [],
}


def listen(session: AmplifierSession, log: list[dict[str, Any]]) -> None:
    """Note every event, add to the context once, and refuse to empty a file."""
    hooks = session.coordinator.hooks

    async def note(event: str, data: dict[str, Any]) -> HookResult:
        log.append({"event": event, "data": dict(data)})
        return HookResult(action="continue")

    async def remind(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="inject_context", context_injection="Mind the style.", context_injection_role="user")

    async def keep_content(event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] == "write_file" and not data["tool_input"]["content"]:
            return HookResult(action="deny", reason="a file stays")
        return HookResult(action="continue")

    for event in ALL_EVENTS:
        hooks.register(event, note, priority=-100, name="note")
    hooks.register("prompt:submit", remind, name="remind")
    hooks.register("tool:pre", keep_content, name="keep_content")


async def run(folder: Path) -> dict[str, Any]:
    """Run both turns and return what happened, seen from outside the session."""
    (folder / "code.py").write_text("a = 1\nb = 2\n", encoding="utf-8")
    log: list[dict[str, Any]] = []
    session = AmplifierSession(PLAN, session_id="s")
    session.coordinator.register_capability("session.working_dir", str(folder))
    await session.initialize()
    listen(session, log)
    answers = [await session.execute(prompt) for prompt in ("review code.py", "delete it")]
    history = await session.coordinator.get("context").get_messages()
    await session.cleanup()
    return {
        "answers": answers,
        "log": log,
        "history": [[message["role"], message["content"]] for message in history],
        "files": {file.name: file.read_text() for file in sorted(folder.iterdir())},
    }


if __name__ == "__main__":
    happened = asyncio.run(run(Path(sys.argv[1])))
    sys.stdout.write(json.dumps(happened, default=str))
    sys.stdout.flush()
    os._exit(0)  # the published kernel, which is not Python, may crash while the interpreter is torn down
