"""Follow the stream of a provider: repeat its blocks to the hooks as they come, and keep the text so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amplifier_core.events import CONTENT_BLOCK_END, CONTENT_BLOCK_START
from amplifier_core.models import HookResult

from .config import NAME

if TYPE_CHECKING:
    from amplifier_core import HookRegistry

    from .signals import Signals

# The published kernel has no names for these.
START = "llm:stream_block_start"
DELTA = "llm:stream_block_delta"
THINKING_DELTA = "llm:stream_thinking_delta"
ABORTED = "llm:stream_aborted"

CONTINUE = HookResult.model_construct()  # no schema is built for it


@dataclass(slots=True)
class StreamedBlock:
    """One block of a response on its way."""

    index: int
    kind: str
    pieces: list[str] = field(default_factory=list)
    is_shown: bool = False
    """Whether the hooks know of its start."""
    is_ended: bool = False
    """Whether they know of its end."""

    def as_dict(self) -> dict[str, Any]:
        """Return the block as far as it came."""
        return {"type": self.kind, "thinking" if self.kind == "thinking" else "text": "".join(self.pieces)}


class Stream:
    """The response that the session waits for, as far as it has come.

    Text and thinking are shown as they begin, and their end when the next block begins. The last block, and all from
    the first tool call on, end with the response: it has their input, the usage and the number of blocks.
    """

    def __init__(self, module: str = NAME) -> None:
        self._module = module
        self._hooks: HookRegistry | None = None
        self._signals: Signals | None = None
        """The hooks' own of the turn while it asks; None: nothing is awaited."""
        self.blocks: list[StreamedBlock] = []

    def listen_to(self, hooks: HookRegistry) -> None:
        """Follow the streams of a session; idempotent."""
        if hooks is self._hooks or not hasattr(hooks, "register"):
            return
        self._hooks = hooks
        handlers = {
            START: self._on_start,
            DELTA: self._on_delta,
            THINKING_DELTA: self._on_delta,
            ABORTED: self._on_abort,
        }
        if hasattr(hooks, "register_all"):
            hooks.register_all(handlers, name=self._module)
            return
        for event, handler in handlers.items():  # another kernel
            hooks.register(event, handler, name=self._module)

    def begin(self, signals: Signals) -> None:
        """Expect a response."""
        self._signals, self.blocks = signals, []

    def end(self) -> None:
        """Expect nothing more; the blocks stay for the turn to read."""
        self._signals = None

    def read_text(self) -> list[dict[str, Any]]:
        """Return the blocks of text so far: thinking has no signature yet, and a call no input."""
        return [block.as_dict() for block in self.blocks if block.kind == "text" and block.pieces]

    async def _on_start(self, event: str, data: dict[str, Any]) -> HookResult:
        if self._signals is not None:
            await self._start(self._signals, data)
        return CONTINUE

    async def _start(self, signals: Signals, data: dict[str, Any]) -> StreamedBlock:
        kind = str(data.get("block_type") or "text")
        last = self.blocks[-1] if self.blocks else None
        block = StreamedBlock(int(data.get("block_index") or 0), kind)
        self.blocks.append(block)
        if last is not None and last.is_shown and not last.is_ended:
            last.is_ended = True
            await signals.emit(CONTENT_BLOCK_END, {"block_index": last.index, "block": last.as_dict()})
        if kind in ("text", "thinking") and (last is None or last.is_shown):
            block.is_shown = True
            await signals.emit(CONTENT_BLOCK_START, {"block_type": kind, "block_index": block.index})
        return block

    async def _on_delta(self, event: str, data: dict[str, Any]) -> HookResult:
        text = data.get("text")
        if self._signals is None or not isinstance(text, str) or not text:
            return CONTINUE
        block = self.blocks[-1] if self.blocks else None
        if block is None or block.index != data.get("block_index", block.index):
            kind = data.get("block_type") or ("thinking" if event == THINKING_DELTA else "text")
            block = await self._start(self._signals, {**data, "block_type": kind})
        block.pieces.append(text)
        return CONTINUE

    async def _on_abort(self, event: str, data: dict[str, Any]) -> HookResult:
        self.blocks = []
        return CONTINUE
