"""Hooks that write every event of a session as a line of JSON, those that other modules announce included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from amplifier_core import HookResult, ModuleCoordinator
from amplifier_core.events import ALL_EVENTS

__amplifier_module_type__ = "hook"

_configs: dict[str, dict[str, Any]] = {}


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Any:
    _configs[coordinator.session_id] = config or {}
    return lambda: _configs.pop(coordinator.session_id, None)


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    config = _configs[coordinator.session_id]
    file = Path(coordinator.get_capability("session.working_dir") or ".") / config.get("path", "events.jsonl")

    async def write(event: str, data: dict[str, Any]) -> HookResult:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"event": event, "data": data}, default=str) + "\n")
        return HookResult(action="continue")

    announced = coordinator.get_capability("observability.events") or []
    for contribution in await coordinator.collect_contributions("observability.events"):
        announced = [*announced, *contribution]
    for event in [*ALL_EVENTS, *dict.fromkeys(announced)]:
        coordinator.hooks.register(event, write, priority=config.get("priority", 100), name="hooks-log")
