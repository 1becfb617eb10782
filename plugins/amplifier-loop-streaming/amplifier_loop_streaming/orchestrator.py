"""Hold the messages to the session between its turns, and start each turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_loop_basic.orchestrator import BasicOrchestrator

from .steering import Steering
from .turn import SteeredTurn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_loop_basic.turn import Turn

NAME = "loop-streaming"


class StreamingOrchestrator(BasicOrchestrator):
    """The loop of one session, with messages of the user taken in while it runs."""

    module = NAME

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(config)
        self.steering = Steering()

    def steer(self, text: str) -> bool:
        """Send `text` to the session as a message of the user; see `Steering.add`. The capability `session.steer`."""
        return self.steering.add(text)

    def make_turn(self, **parts: Any) -> Turn:
        """Return a new turn that takes in the messages to this session."""
        return SteeredTurn(**parts, steering=self.steering)
