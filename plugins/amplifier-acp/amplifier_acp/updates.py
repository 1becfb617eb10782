"""Report a session while it runs: its text, thoughts, tool calls and usage, as `session/update`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from amplifier_core import events
from amplifier_core.streaming import STREAM_ABORTED, STREAM_BLOCK_DELTA, STREAM_BLOCK_START
from amplifier_core.utils.secrets import StreamRedactor, redact_text

from .contents import make_text
from .tool_calls import describe_call, describe_result, make_diff

if TYPE_CHECKING:
    from amplifier_core.session import AmplifierSession

    from .peer import Peer

    Update = dict[str, Any]

LAST = 1_000_000
OUTPUT, PROGRESS, TERMINAL = "bash:output", "tool:progress", "bash:terminal"
"""The events with new output of a running command, with the progress of a call, and with a terminal of the editor."""
OUTPUT_EVERY, OUTPUT_SHOWN = 0.1, 8_000
"""Seconds between two updates of a running command's output, and characters of its end in each."""
_CHUNKS = {"text": "agent_message_chunk", "thinking": "agent_thought_chunk"}


class Reporter:
    """Reports one session to the editor.

    A message has the id `m12` when it is the twelfth of its session: the command line forks at the same ids. When an
    attempt of a provider failed after its first words, the next attempt is `m12.2`. A known secret is hidden, also one
    that comes in pieces.
    """

    def __init__(self, session: AmplifierSession, folder: str, peer: Peer) -> None:
        self._session = session
        self._folder = folder
        self._peer = peer
        self._kinds: dict[Any, str] = {}
        """The types of the streamed blocks by their index: some providers name them at their start only."""
        self._redactor: StreamRedactor | None = None
        self._redacting = ""
        self._stream: str | None = None
        """The event of the deltas: a loop may repeat the stream of its provider; one of them is listened to."""
        self._streamed: list[str] = []
        """The pieces of this answer so far."""
        self._message = ""
        self._attempt = 1
        self._diffs: dict[str, dict[str, Any] | None] = {}
        self._outputs: dict[str, tuple[str, float]] = {}
        self._terminals: dict[str, dict[str, Any]] = {}
        self.used = 0
        """Tokens of the last request and its answer."""

    def attach(self) -> None:
        """Report from now on."""
        hooks = self._session.coordinator.hooks
        hooks.observe({events.TOOL_PRE: self._on_call}, LAST, "editor")  # a failing handler would refuse the call
        for event, handler in (
            (events.PROVIDER_REQUEST, self._on_request),
            (STREAM_BLOCK_START, self._on_start),
            (STREAM_BLOCK_DELTA, self._on_delta),
            (events.CONTENT_BLOCK_DELTA, self._on_delta),
            (events.CONTENT_BLOCK_END, self._on_block),
            (STREAM_ABORTED, self._on_abort),
            (events.PROVIDER_RESPONSE, self._on_response),
            (events.TOOL_POST, self._on_result),
            (events.TOOL_ERROR, self._on_failure),
            (OUTPUT, self._on_output),
            (PROGRESS, self._on_output),
            (TERMINAL, self._on_terminal),
        ):
            hooks.register(event, handler, priority=LAST, name="editor")

    def flush(self) -> None:
        """Report the end of a streamed text that was held back: it might have begun a secret."""
        if self._redactor is not None and (rest := self._redactor.flush()):
            self._tell(_chunk(self._redacting, rest, self._message))
        self._redactor = None

    def _tell(self, update: Update) -> None:
        self._peer.update(self._session.session_id, update)

    def _tell_piece(self, kind: str, text: str) -> None:
        if self._redactor is None or kind != self._redacting:
            self.flush()
            self._redactor, self._redacting = StreamRedactor(), kind
        shown = self._redactor.feed(text) if self._redactor.has_secrets else text
        if shown:
            self._tell(_chunk(kind, shown, self._message))

    async def _on_request(self, event: str, data: dict[str, Any]) -> None:
        self.flush()
        self._message, self._attempt = f"m{len(self._session.transcript) + 1}", 1
        self._streamed, self._stream = [], None
        self._kinds.clear()

    async def _on_start(self, event: str, data: dict[str, Any]) -> None:
        self._kinds[data.get("block_index")] = str(data.get("block_type") or "text")

    async def _on_delta(self, event: str, data: dict[str, Any]) -> None:
        self._stream = self._stream or event
        delta = data.get("delta")
        text = data.get("text") or (delta.get("text") if isinstance(delta, dict) else delta)
        kind = str(data.get("block_type") or self._kinds.get(data.get("block_index"), "text"))
        if event == self._stream and kind in _CHUNKS and isinstance(text, str) and text:
            self._streamed.append(text)
            self._tell_piece(kind, text)
            await self._peer.settle()

    async def _on_block(self, event: str, data: dict[str, Any]) -> None:
        """Report a whole block that no stream has brought."""
        block = data.get("block")
        block = block if isinstance(block, dict) else getattr(block, "__dict__", {})
        kind = str(getattr(block.get("type"), "value", block.get("type")))
        text = block.get("text") or block.get("thinking")
        if kind in _CHUNKS and isinstance(text, str) and text not in "".join(self._streamed):
            self._tell_piece(kind, text)
        self.flush()

    async def _on_abort(self, event: str, data: dict[str, Any]) -> None:
        self.flush()
        self._attempt += 1
        self._streamed.clear()
        self._message = f"{self._message.partition('.')[0]}.{self._attempt}"

    async def _on_response(self, event: str, data: dict[str, Any]) -> None:
        usage = data.get("usage")
        if isinstance(usage, dict):
            counts = [usage.get(name) for name in ("input_tokens", "output_tokens")]
            self.used = sum(each for each in counts if isinstance(each, int))

    def _on_call(self, event: str, data: dict[str, Any]) -> None:
        self.flush()
        call_id, name, given = str(data.get("tool_call_id")), str(data.get("tool_name")), data.get("tool_input")
        self._diffs[call_id] = diff = make_diff(name, given, self._folder)
        told = describe_call(call_id, name, given, self._folder)
        content = [diff] if diff is not None else []
        self._tell({"sessionUpdate": "tool_call", **told, "status": "in_progress", "content": content})

    async def _on_result(self, event: str, data: dict[str, Any]) -> None:
        result = data.get("result")
        told = result if isinstance(result, dict) else {"output": result}
        output = told.get("output") if told.get("output") is not None else told.get("error")
        self._finish(data, output, is_ok=told.get("success") is not False)

    async def _on_failure(self, event: str, data: dict[str, Any]) -> None:
        error = data.get("error")
        call_id = str(data.get("tool_call_id"))
        if call_id not in self._diffs:  # refused before it was reported
            told = describe_call(call_id, str(data.get("tool_name")), data.get("tool_input"), self._folder)
            self._tell({"sessionUpdate": "tool_call", **told, "status": "pending"})
        self._finish(data, error.get("msg") if isinstance(error, dict) else error, is_ok=False)

    def _finish(self, data: dict[str, Any], output: Any, *, is_ok: bool) -> None:
        call_id = str(data.get("tool_call_id"))
        self._outputs.pop(call_id, None)
        told = describe_result(output, is_ok=is_ok, diff=self._diffs.pop(call_id, None))
        if (terminal := self._terminals.pop(call_id, None)) is not None:
            told["content"] = [terminal]
        self._tell({"sessionUpdate": "tool_call_update", "toolCallId": call_id, **told})

    async def _on_terminal(self, event: str, data: dict[str, Any]) -> None:
        call_id, terminal = str(data.get("tool_call_id")), {"type": "terminal", "terminalId": data.get("terminal_id")}
        self._terminals[call_id] = terminal
        self._tell({"sessionUpdate": "tool_call_update", "toolCallId": call_id, "content": [terminal]})

    async def _on_output(self, event: str, data: dict[str, Any]) -> None:
        call_id, now = str(data.get("tool_call_id")), time.monotonic()
        text, told = self._outputs.get(call_id, ("", 0.0))
        text = (text + str(data.get("text")))[-2 * OUTPUT_SHOWN :]  # more than is shown: a secret at the cut is whole
        if now - told >= OUTPUT_EVERY:
            content = [{"type": "content", "content": make_text(redact_text(text)[-OUTPUT_SHOWN:])}]
            self._tell({"sessionUpdate": "tool_call_update", "toolCallId": call_id, "content": content})
            told = now
        self._outputs[call_id] = (text, told)


def _chunk(kind: str, text: str, message: str) -> Update:
    return {"sessionUpdate": _CHUNKS[kind], "content": make_text(text), "messageId": message}
