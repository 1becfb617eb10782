"""Record the requests of sessions to their providers, and the answers with their streams."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from amplifier_core.events import LLM_REQUEST, LLM_RESPONSE, PROVIDER_RETRY, PROVIDER_THROTTLE
from amplifier_core.streaming import STREAM_EVENTS

from .files import FORMAT, RecordingError, append_line, make_safe, read_recording

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core import ChatRequest, ChatResponse, ModuleCoordinator, Provider, ToolCall

HEARD = (*STREAM_EVENTS, LLM_REQUEST, LLM_RESPONSE, PROVIDER_RETRY, PROVIDER_THROTTLE)
"""The events of a provider that a recording keeps."""
ERROR_FACTS = ("provider", "model", "status_code", "retryable", "retry_after", "delay_multiplier")
_BEFORE_ALL = -2_000_000
_OF_KERNEL = frozenset({"session_id", "parent_id", "timestamp"})

_listening: ContextVar[list[Any] | None] = ContextVar("replay_listening", default=None)


class Recorder:
    """Records sessions into one folder, each into a file of its own."""

    def __init__(self, folder: Path, bundle: str | None = None) -> None:
        self._folder = folder
        self._bundle = bundle
        self._files: dict[str, Path] = {}

    def attach(self, session: Any, *, is_resumed: bool = False) -> None:
        """Record the providers of a session, or of a coordinator, from now on.

        A session continues its own file, if it has one. Raises `RecordingError` for a resumed session without one, and
        for an unusable folder.
        """
        coordinator: ModuleCoordinator = getattr(session, "coordinator", session)
        session_id = str(coordinator.session_id)
        if session_id in self._files:
            return
        known = self._find_file(session_id, is_needed=is_resumed)
        path = self._files[session_id] = known or self._make_file(coordinator)
        for event in HEARD:
            coordinator.hooks.register(event, _hear, _BEFORE_ALL, "provider-replay")
        providers = coordinator.get("providers") or {}
        for name, provider in list(providers.items()):
            if known is None:
                info = make_safe(provider.get_info())
                priority = getattr(provider, "priority", None)
                append_line(path, {"type": "provider", "name": name, "priority": priority, "info": info})
            providers[name] = RecordingProvider(provider, name, path)

    def note_turn(self, session_id: str, prompt: str) -> None:
        """Record the prompt of a turn."""
        append_line(self._files[session_id], {"type": "turn", "prompt": make_safe(prompt)})

    def note_outcome(self, session_id: str, status: str, output: str, error: str | None) -> None:
        """Record the end of a turn."""
        outcome = make_safe({"status": status, "output": output, "error": error})
        append_line(self._files[session_id], {"type": "outcome", **outcome})

    def _make_file(self, coordinator: ModuleCoordinator) -> Path:
        session_id = str(coordinator.session_id)
        header = {
            "type": "session",
            "format": FORMAT,
            "session_id": session_id,
            "parent_id": coordinator.parent_id,
            "working_dir": str(coordinator.get_capability("session.working_dir") or ""),
            "bundle": self._bundle,
        }
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = len(list(self._folder.glob("*.jsonl"))) + 1
            path = self._folder / f"{number:03}-{session_id}.jsonl"
            append_line(path, header)
        except OSError as error:
            raise RecordingError(self._folder, f"it cannot be written: {error.strerror}") from error
        return path

    def _find_file(self, session_id: str, *, is_needed: bool) -> Path | None:
        recorded = read_recording(self._folder) if is_needed or any(self._folder.glob("*.jsonl")) else ()
        for session in recorded:
            if session.header.get("session_id") == session_id:
                return session.path
        if is_needed:
            raise RecordingError(self._folder, f"session {session_id} is not recorded there from its beginning")
        return None


class RecordingProvider:
    """Passes everything on to a provider, and writes each request with its answer."""

    def __init__(self, provider: Provider, name: str, path: Path) -> None:
        self._provider = provider
        self._name = name
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Ask the provider. Raises its errors."""
        exchange: dict[str, Any] = {"type": "exchange", "provider": self._name, "request": make_safe(request)}
        heard: list[Any] = []
        token = _listening.set(heard)
        try:
            response = await self._provider.complete(request, **kwargs)
            calls = self._provider.parse_tool_calls(response)
            exchange |= {"response": make_safe(response), "calls": [make_safe(call) for call in calls]}
        except asyncio.CancelledError:
            exchange["cancelled"] = True
            raise
        except Exception as error:
            exchange["error"] = _describe_error(error)
            raise
        finally:
            _listening.reset(token)
            append_line(self._path, {**exchange, "events": make_safe(heard)})
        return response

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the tool calls of a response, in order."""
        return self._provider.parse_tool_calls(response)


def _hear(event: str, data: dict[str, Any]) -> None:
    heard = _listening.get()
    if heard is not None:
        heard.append([event, {key: value for key, value in data.items() if key not in _OF_KERNEL}])


def _describe_error(error: Exception) -> dict[str, Any]:
    facts = {name: getattr(error, name) for name in ERROR_FACTS if getattr(error, name, None) is not None}
    return {"type": type(error).__name__, "message": make_safe(str(error)), **make_safe(facts)}
