"""Run one turn, and take in the messages of the user at each step."""

from __future__ import annotations

from dataclasses import dataclass, field

from amplifier_core.events import PROMPT_SUBMIT
from amplifier_loop_basic.call_context import read_history
from amplifier_loop_basic.signals import read_prompt
from amplifier_loop_basic.tail import find_unanswered
from amplifier_loop_basic.turn import Turn

from . import STEERED
from .steering import Steering


@dataclass  # without slots: those make a second class, and `super()` means the first one
class SteeredTurn(Turn):
    """A turn of `loop-streaming`.

    A message enters the history only between a result and a request, so the history stays valid at any end. At the end
    of the turn none is left that came in time: the history has it, also after a cancellation.
    """

    steering: Steering = field(default_factory=Steering)

    async def run(self, prompt: str) -> str:
        """Run the turn, open for messages of the user until its last request is answered."""
        self.steering.open()
        try:
            return await super().run(prompt)
        finally:
            self.steering.close()

    async def take_in(self) -> None:
        """Add each waiting message to the history, unless a hook on `prompt:submit` denies it."""
        while self.steering:
            text = self.steering.take()
            submitted = await self.signals.emit(PROMPT_SUBMIT, {"prompt": text, "is_steering": True})
            if submitted.action == "deny":
                continue
            text = read_prompt(submitted, text)
            await self.context.add_message({"role": "user", "content": text, "metadata": {"source": "steering"}})
            told = {"content": text, "iteration": self.iterations, "queued_remaining": len(self.steering)}
            await self.signals.emit(STEERED, told)

    def has_more(self) -> bool:
        """Return whether a message came during the answer; without one, the turn closes for messages here."""
        may_ask = self.iterations != self.max_iterations and not self.interrupts.is_cancelled
        if self.steering and may_ask:
            return True
        self.steering.close()
        return False

    async def announce_end(self) -> None:
        """Add the messages that no step took in, and emit the end of the turn."""
        self.steering.close()
        try:
            if self.steering and not find_unanswered(await read_history(self.context)):
                await self.take_in()
        finally:
            await super().announce_end()
