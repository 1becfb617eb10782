"""Wake sessions at each new line of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core import PollingTrigger, hookimpl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core import TriggerEvent
    from amplifier_core.hookspecs import Register, TriggerFactory


class ExampleTrigger(PollingTrigger):
    """Yields an event for each line that a file in the working folder gets."""

    name = "trigger-example"
    defaults = {"file": "inbox.txt", "seconds": 1.0}

    async def poll(self) -> AsyncIterator[TriggerEvent]:
        """Yield the lines since the last event; `state` is stored with each event, and is there after a restart."""
        path = self.context.working_dir / self.config["file"]
        lines = path.read_text().splitlines() if path.exists() else []
        for number in range(self.state.get("seen", 0), len(lines)):
            yield self.event(str(number), {"line": lines[number]}, {"seen": number + 1})


@hookimpl
def amplifier_register_trigger(register: Register[TriggerFactory]) -> None:
    """Offer the trigger to bundles."""
    register("trigger-example", ExampleTrigger)
