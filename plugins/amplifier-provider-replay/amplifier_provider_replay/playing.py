"""Play a recording back: the same answers to the same requests, with their streams, and without waiting."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from amplifier_core import llm_errors
from amplifier_core.errors import AmplifierError
from amplifier_core.llm_errors import AbortError, InvalidRequestError, LLMError
from amplifier_core.message_models import ChatResponse, ToolCall
from amplifier_core.models import ModelInfo, ProviderInfo, ToolResult

from .files import compare, make_safe, normalise, read_recording, render_request
from .recording import ERROR_FACTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_core import ChatRequest, ModuleCoordinator, Tool

    from .files import RecordedSession


class DriftError(AmplifierError, RuntimeError):
    """A session differs from the recorded one; the message shows the difference."""


class Player:
    """Plays one recording back, also to the sessions below the first one.

    A session plays the first unplayed file that begins with its request. With `run_tools`, tools run; else they return
    their recorded results and do nothing. `drift` is the first difference.
    """

    def __init__(self, folder: Path, *, run_tools: bool = False) -> None:
        self.sessions = read_recording(folder)
        self.run_tools = run_tools
        self.drift: DriftError | None = None
        self._free = list(self.sessions)
        self._tracks: dict[str, _Track] = {}

    @property
    def top(self) -> RecordedSession:
        """The session that was recorded first."""
        return self.sessions[0]

    def make_providers(self, coordinator: ModuleCoordinator) -> dict[str, ReplayingProvider]:
        """Return the recorded providers for a session, by name."""
        listed = {str(each["name"]): each for session in self.sessions for each in session.providers}
        return {name: ReplayingProvider(self, coordinator, line) for name, line in listed.items()}

    def attach(self, session: Any) -> None:
        """Answer the requests of a session, or of a coordinator, and play back its tools, from now on."""
        coordinator: ModuleCoordinator = getattr(session, "coordinator", session)
        providers = coordinator.get("providers")
        providers.clear()
        providers.update(self.make_providers(coordinator))
        tools = coordinator.get("tools") or {}
        for name, tool in list(tools.items()):
            own = tool.tool if isinstance(tool, RecordedTool) else tool  # the last player counts
            tools[name] = own if self.run_tools else RecordedTool(own, name, self, coordinator)

    def next_exchange(self, coordinator: ModuleCoordinator, request: ChatRequest) -> Mapping[str, Any]:
        """Return the recorded exchange for a request. Raises `InvalidRequestError`, and keeps the `drift`."""
        working_dir = str(coordinator.get_capability("session.working_dir") or "")
        lines = render_request(make_safe(request), working_dir)
        track = self._tracks.get(str(coordinator.session_id))
        if track is None:
            track = self._tracks[str(coordinator.session_id)] = self._choose(lines)
        difference = compare(track.expected(), lines)
        if difference:
            raise self._note_drift(f"request {track.position + 1} is not the recorded one:\n{difference}")
        return track.advance()

    def _choose(self, lines: list[str]) -> _Track:
        tracks = [_Track(session) for session in self._free]
        track = next((each for each in tracks if each.expected() == lines), tracks[0] if tracks else None)
        if track is None:
            raise self._note_drift("a session begins that was not recorded")
        self._free.remove(track.session)
        return track

    def _note_drift(self, difference: str) -> InvalidRequestError:
        self.drift = self.drift or DriftError(difference)
        return InvalidRequestError(difference)

    def recorded_result(self, coordinator: ModuleCoordinator, tool: str, arguments: Any) -> str | None:
        """Return the recorded text of the next result of a tool call; None without one."""
        track = self._tracks.get(str(coordinator.session_id))
        results = track.results.get(_call_key(tool, arguments)) if track is not None else None
        return results.popleft() if results else None

    def check_end(self) -> None:
        """Raise `DriftError` for a difference so far, and when recorded requests were not made."""
        if self.drift is not None:
            raise self.drift
        for track in self._tracks.values():
            left = len(track.session.exchanges) - track.position
            if left:
                difference = compare(track.expected(), [])
                raise DriftError(f"{left} recorded requests were not made; the next one:\n{difference}")
        if self.run_tools and self._free:
            raise DriftError(f"the recorded session {self._free[0].header.get('session_id')} did not begin")

    def check_outcome(self, turn: int, status: str, output: str, working_dir: str) -> None:
        """Raise `DriftError` when a turn of the first session did not end as recorded."""
        if turn < len(self.top.outcomes):
            recorded, of_then = self.top.outcomes[turn], str(self.top.header.get("working_dir") or "")
            then = [str(recorded.get("status")), *normalise(str(recorded.get("output") or ""), of_then).split("\n")]
            difference = compare(then, [status, *normalise(str(make_safe(output)), working_dir).split("\n")])
            if difference:
                raise DriftError(f"turn {turn + 1} did not end as recorded:\n{difference}")


class _Track:
    """The position of one session in its file."""

    def __init__(self, session: RecordedSession) -> None:
        self.session = session
        self.position = 0
        self.results: dict[str, deque[str]] = defaultdict(deque)
        """The texts of tool results, by tool and arguments."""
        calls = {call["id"]: call for each in session.exchanges for call in each.get("calls") or ()}
        for exchange in session.exchanges:
            for message in exchange["request"].get("messages") or ():
                call = calls.get(message.get("tool_call_id")) if message.get("role") == "tool" else None
                if call is not None:
                    calls.pop(call["id"])
                    self.results[_call_key(call["name"], call["arguments"])].append(_text_of(message.get("content")))

    def expected(self) -> list[str]:
        """Return the lines of the next request; none at the end."""
        if self.position == len(self.session.exchanges):
            return []
        request = self.session.exchanges[self.position]["request"]
        return render_request(request, str(self.session.header.get("working_dir") or ""))

    def advance(self) -> Mapping[str, Any]:
        """Return the next exchange, and go on."""
        self.position += 1
        return self.session.exchanges[self.position - 1]


class ReplayingProvider:
    """Answers as a recorded provider did."""

    def __init__(self, player: Player, coordinator: ModuleCoordinator, recorded: Mapping[str, Any]) -> None:
        self.name = str(recorded["name"])
        self.priority = recorded["priority"] if isinstance(recorded.get("priority"), int | float) else 100
        self._info = ProviderInfo.model_validate(recorded["info"])
        self._player = player
        self._coordinator = coordinator
        self._calls: tuple[Any, list[ToolCall]] = None, []

    def get_info(self) -> ProviderInfo:
        """Return the recorded description."""
        return self._info

    async def list_models(self) -> list[ModelInfo]:
        """Return no models: a recording has none."""
        return []

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Answer as recorded, events first.

        Raises the recorded error, and `InvalidRequestError` for another request.
        """
        exchange = self._player.next_exchange(self._coordinator, request)
        for event, data in exchange.get("events") or ():
            await self._coordinator.hooks.emit(event, dict(data))
        if "error" in exchange:
            raise _make_error(exchange["error"])
        if "response" not in exchange:
            raise AbortError("the recorded request was cancelled", provider=self.name)
        response = ChatResponse.model_validate(exchange["response"])
        self._calls = response, [ToolCall.model_validate(call) for call in exchange.get("calls") or ()]
        return response

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the recorded tool calls of a response, in order."""
        of, calls = self._calls
        return list(calls) if of is response else list(response.tool_calls or ())


class RecordedTool:
    """Returns the recorded results of a tool, which does not run."""

    def __init__(self, tool: Tool, name: str, player: Player, coordinator: ModuleCoordinator) -> None:
        self.tool = tool
        self._name = name
        self._player = player
        self._coordinator = coordinator

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tool, name)

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Return the recorded result of this call."""
        text = self._player.recorded_result(self._coordinator, self._name, input)
        if text is None:
            return ToolResult(success=False, output=f"provider-replay: no call of {self._name} was recorded like this")
        return ToolResult(output=text)


def _call_key(tool: str, arguments: Any) -> str:
    return f"{tool} {json.dumps(make_safe(arguments), sort_keys=True)}"


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(block.get("text") or "") for block in content if isinstance(block, dict))
    return str(content or "")


def _make_error(recorded: Mapping[str, Any]) -> Exception:
    kind = getattr(llm_errors, str(recorded.get("type")), None)
    message = str(recorded.get("message") or "")
    if not (isinstance(kind, type) and issubclass(kind, LLMError)):
        return RuntimeError(f"{recorded.get('type')}: {message}")
    facts = {name: recorded[name] for name in ERROR_FACTS if name in recorded}
    return kind(message, **facts)
