"""Report the facts of a turn: text, tool calls, child sessions, and usage."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from amplifier_core import events
from amplifier_core.hookspecs import hookimpl
from amplifier_core.streaming import STREAM_BLOCK_DELTA, STREAM_BLOCK_START
from amplifier_core.utils.secrets import StreamRedactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.hook_data import SpawnOutcome, SpawnRequest
    from amplifier_core.session import AmplifierSession

    Tell = Callable[[dict[str, Any]], None]

LAST = 1_000_000
FALLBACK = "provider:fallback"
PROGRESS = "tool:progress"
"""The event of a call that says how far it is, as one of an MCP server."""
LISTEN = "session.listen"
"""The capability of a session of another process: it is called with the names of the events that are to come here."""
WAITS = "turn:waits"
"""The event for one reporter that comes late: what the turn waits for (`on`)."""

asking: ContextVar[str] = ContextVar("asking", default="")
"""The child session at work in this task, by name and id; '' for the session of the turn."""


class FactReporter:
    """Calls `tell` for each fact of a session.

    The `type` of a fact is text (with `partial`, a piece of a later text), tool, tool_result, child (at its start, and
    with `seconds` and `usage` at its end), fallback (another provider answers) or usage; with `waits`, also waiting
    (`on`: thinking, a call on its way with its progress, or '' for a request). It is also a plugin, to see child
    sessions. A known secret in the streamed text is hidden, also one that comes in pieces.
    """

    def __init__(self, tell: Tell, *, waits: bool = False) -> None:
        self._tell_all = tell
        self._waits = waits
        self._above: dict[str, tuple[str, str]] = {}
        self._streams: str | None = None
        self._kinds: dict[Any, str] = {}
        """The types of the streamed blocks by their index: some providers name them at their start only."""
        self._redactor: StreamRedactor | None = None
        self._block: Any = None
        """The block of the text that the redactor holds."""
        self._undo: list[Callable[[], None]] = []

    def attach(self, session: AmplifierSession, *, is_late: bool = False) -> frozenset[str]:
        """Watch `session` from now on; with `is_late`, its turn goes on already. Return the events that it hears."""
        self._streams = None
        redactor = StreamRedactor(is_late=is_late)
        self._redactor = redactor if redactor.has_secrets else None
        observers = {
            events.PROVIDER_REQUEST: self._on_request,
            STREAM_BLOCK_START: self._on_start,
            STREAM_BLOCK_DELTA: self._on_delta,
            events.CONTENT_BLOCK_DELTA: self._on_delta,
            events.CONTENT_BLOCK_END: self._on_block,
            events.TOOL_PRE: self._on_tool,
            PROGRESS: self._on_progress,
            events.TOOL_POST: self._on_result,
            events.TOOL_ERROR: self._on_failure,
            events.PROVIDER_RESPONSE: self._on_response,
            FALLBACK: self._on_fallback,
            WAITS: self._on_waits,
        }
        self._undo.append(session.coordinator.hooks.observe(observers, LAST, "run-watch"))
        return frozenset(observers)

    def detach(self) -> None:
        """Watch no longer."""
        while self._undo:
            self._undo.pop()()

    def _tell(self, fact: dict[str, Any]) -> None:
        self.flush()
        self._tell_all(fact)

    def _tell_piece(self, text: str, block: Any) -> None:
        if self._redactor is not None:
            if block != self._block:
                self.flush()
                self._block = block
            text = self._redactor.feed(text)
        if text:
            self._tell_all({"type": "text", "text": text, "partial": True, "block": block})

    def flush(self) -> None:
        """Report the end of a streamed text that was held back: it might have begun a secret."""
        if self._redactor is not None and (rest := self._redactor.flush()):
            self._tell_all({"type": "text", "text": rest, "partial": True, "block": self._block})

    def _on_start(self, event: str, data: dict[str, Any]) -> None:
        kind = self._kinds[data.get("block_index")] = str(data.get("block_type") or "text")
        if self._waits and kind in ("thinking", "tool_use"):
            self._tell({"type": "waiting", "on": "thinking" if kind == "thinking" else str(data.get("name") or "")})

    def _on_waits(self, event: str, data: dict[str, Any]) -> None:
        self._tell({"type": "waiting", "on": str(data.get("on") or "")})

    def _on_request(self, event: str, data: dict[str, Any]) -> None:
        if self._waits:
            self._tell({"type": "waiting", "on": ""})

    def _on_delta(self, event: str, data: dict[str, Any]) -> None:
        self._streams = self._streams or event  # a loop may repeat the stream of its provider: listen to one of them
        delta = data.get("delta")
        text = data.get("text") or (delta.get("text") if isinstance(delta, dict) else delta)
        kind = data.get("block_type") or self._kinds.get(data.get("block_index"), "text")
        if kind != "text" or not isinstance(text, str):
            return
        if text and event == self._streams:
            self._tell_piece(text, data.get("block_index"))

    def _on_block(self, event: str, data: dict[str, Any]) -> None:
        block = data.get("block")
        block = block if isinstance(block, dict) else getattr(block, "__dict__", {})
        if block.get("type") == "text" and block.get("text"):
            self._tell({"type": "text", "text": str(block["text"])})

    def _on_tool(self, event: str, data: dict[str, Any]) -> None:
        asking.set("")
        self._tell({"type": "tool", **_call(data), "input": data.get("tool_input")})

    def _on_progress(self, event: str, data: dict[str, Any]) -> None:
        if self._waits:
            self._tell({"type": "waiting", "on": f"{data.get('tool_name')} {data.get('text')}".strip()})

    def _on_result(self, event: str, data: dict[str, Any]) -> None:
        result = data.get("result")
        told = result if isinstance(result, dict) else {"output": result}
        ok = told.get("success") is not False
        output = told.get("output") if told.get("output") is not None else told.get("error")
        self._tell({"type": "tool_result", **_call(data), "ok": ok, "output": output})

    def _on_failure(self, event: str, data: dict[str, Any]) -> None:
        error = data.get("error")
        output = error.get("msg") if isinstance(error, dict) else error
        self._tell({"type": "tool_result", **_call(data), "ok": False, "output": output})

    def _on_response(self, event: str, data: dict[str, Any]) -> None:
        if isinstance(data.get("usage"), dict):
            self._tell({"type": "usage", **data["usage"]})

    def _on_fallback(self, event: str, data: dict[str, Any]) -> None:
        self._tell({"type": "fallback", **{name: data.get(name) for name in ("from", "provider", "model", "reason")}})

    @hookimpl
    async def amplifier_before_spawn(self, request: SpawnRequest) -> None:
        """Report the start of a child session."""
        name = str(request.metadata.get("name") or request.bundle)
        self._above[request.session_id] = (name, asking.get())
        asking.set(f"{name} ({request.session_id})")
        self._tell(describe_child(request, name))

    @hookimpl
    async def amplifier_after_spawn(self, result: SpawnOutcome) -> None:
        """Report the end of a child session."""
        name, above = self._above.pop(result.session_id, (result.session_id, ""))
        asking.set(above)
        self._tell(describe_child(result, name))


def find_wait(session: AmplifierSession) -> dict[str, str]:
    """Return the data of `WAITS` for a running session: the name of its running tool, '' while a model answers."""
    return {"on": ", ".join(session.coordinator.cancellation.running_tool_names)}


def _call(data: dict[str, Any]) -> dict[str, Any]:
    return {"id": data.get("tool_call_id"), "name": data.get("tool_name")}


def describe_child(about: SpawnRequest | SpawnOutcome, name: str) -> dict[str, Any]:
    """Return the fact about a child session, at its start or at its end."""
    status = getattr(about, "status", "running")
    fact = {"type": "child", "session_id": about.session_id, "parent_id": about.parent_id, "name": name}
    if status == "running":
        return {**fact, "status": status}
    seconds, error, usage = (getattr(about, each) for each in ("duration", "error", "usage"))
    return {**fact, "status": status, "seconds": round(seconds, 3), "error": error, "usage": dict(usage)}
