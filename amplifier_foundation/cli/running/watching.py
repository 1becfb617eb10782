"""What happens in a turn, told as plain facts: text, tool calls, sessions that are made, and what it used."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from amplifier_core import events
from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.moments import SpawnOutcome, SpawnRequest
    from amplifier_core.session import AmplifierSession

    Tell = Callable[[dict[str, Any]], None]

LAST = 1_000_000
STREAM_DELTA = "llm:stream_block_delta"

asking: ContextVar[str] = ContextVar("asking", default="")
"""The session that works in this task, as a person knows it; '' for the one that was asked."""


class Watch:
    """Tells `tell` what a session does, one fact at a time.

    A fact has a `type`: text (with `partial`, a piece of what comes whole later), tool, tool_result, child (when it
    begins, and with `seconds` and `usage` when it has ended) or usage. It is a plugin too: that is how it sees the
    sessions that a session makes.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._above: dict[str, tuple[str, str]] = {}
        self._streams: str | None = None

    def attach(self, session: AmplifierSession) -> None:
        """Watch `session` from now on."""
        self._streams = None
        for event, handler in (
            (STREAM_DELTA, self._on_delta),
            (events.CONTENT_BLOCK_DELTA, self._on_delta),
            (events.CONTENT_BLOCK_END, self._on_block),
            (events.TOOL_PRE, self._on_tool),
            (events.TOOL_POST, self._on_result),
            (events.TOOL_ERROR, self._on_failure),
            (events.PROVIDER_RESPONSE, self._on_response),
        ):
            session.coordinator.hooks.register(event, handler, priority=LAST, name="run-watch")

    async def _on_delta(self, event: str, data: dict[str, Any]) -> None:
        self._streams = self._streams or event  # a loop may pass on what a provider streams: one of the two is enough
        text = _delta_text(data)
        if text and event == self._streams:
            self._tell({"type": "text", "text": text, "partial": True, "block": data.get("block_index")})

    async def _on_block(self, event: str, data: dict[str, Any]) -> None:
        block = data.get("block")
        block = block if isinstance(block, dict) else getattr(block, "__dict__", {})
        if block.get("type") == "text" and block.get("text"):
            self._tell({"type": "text", "text": str(block["text"])})

    async def _on_tool(self, event: str, data: dict[str, Any]) -> None:
        asking.set("")
        self._tell({"type": "tool", **_call(data), "input": data.get("tool_input")})

    async def _on_result(self, event: str, data: dict[str, Any]) -> None:
        result = data.get("result")
        told = result if isinstance(result, dict) else {"output": result}
        ok = told.get("success") is not False
        output = told.get("output") if told.get("output") is not None else told.get("error")
        self._tell({"type": "tool_result", **_call(data), "ok": ok, "output": output})

    async def _on_failure(self, event: str, data: dict[str, Any]) -> None:
        error = data.get("error")
        output = error.get("msg") if isinstance(error, dict) else error
        self._tell({"type": "tool_result", **_call(data), "ok": False, "output": output})

    async def _on_response(self, event: str, data: dict[str, Any]) -> None:
        if isinstance(data.get("usage"), dict):
            self._tell({"type": "usage", **data["usage"]})

    @hookimpl
    async def amplifier_before_spawn(self, request: SpawnRequest) -> None:
        """Tell that a session is made."""
        name = str(request.metadata.get("name") or request.bundle)
        self._above[request.session_id] = (name, asking.get())
        asking.set(f"{name} ({request.session_id})")
        self._tell({"type": "child", **_child(request, name), "status": "running"})

    @hookimpl
    async def amplifier_after_spawn(self, result: SpawnOutcome) -> None:
        """Tell how it ended."""
        name, above = self._above.pop(result.session_id, (result.session_id, ""))
        asking.set(above)
        told = {"status": result.status, "seconds": round(result.duration, 3), "error": result.error}
        self._tell({"type": "child", **_child(result, name), **told, "usage": dict(result.usage)})


def _delta_text(data: dict[str, Any]) -> str:
    if data.get("block_type", "text") != "text":
        return ""
    delta = data.get("delta")
    said = data.get("text") or (delta.get("text") if isinstance(delta, dict) else delta)
    return said if isinstance(said, str) else ""


def _call(data: dict[str, Any]) -> dict[str, Any]:
    return {"id": data.get("tool_call_id"), "name": data.get("tool_name")}


def _child(about: SpawnRequest | SpawnOutcome, name: str) -> dict[str, Any]:
    return {"session_id": about.session_id, "parent_id": about.parent_id, "name": name}
