"""Offer `PollingTrigger`: a trigger that looks again and again, of which an author writes `name` and `poll`.

    class LineTrigger(PollingTrigger):
        name = "trigger-line"
        defaults = {"file": "inbox.txt", "seconds": 1.0}

        async def poll(self):
            lines = (self.context.working_dir / self.config["file"]).read_text().splitlines()
            for number in range(self.state.get("seen", 0), len(lines)):
                yield self.event(str(number), {"line": lines[number]}, {"seen": number + 1})

It keeps the contract of `TriggerSource`: a prompt stop, a state that survives a restart, the clock of its context.
"""

from __future__ import annotations

from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from .durations import LONGEST as _LONGEST
from .errors import TriggerConfigError
from .triggers import TriggerContext, TriggerEvent, TriggerType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}
_NEEDS_POLL = "needs: async def poll(self), with a yield of self.event(…)"


class PollingTrigger:
    """A trigger that polls: at its start, and whenever `config["seconds"]` have passed since the last poll.

    `context` is what `bind` got, `config` the defaults with the keys of the bundle over them, and `state` what was
    stored with the last event.
    """

    name: ClassVar[str]
    """The registered name."""
    defaults: ClassVar[Mapping[str, Any]] = {"seconds": 60.0}
    """The keys of the configuration with their defaults; a key takes values of the type of its default."""

    def __init__(self) -> None:
        import asyncio  # not at import: a list of plugins needs no event loop

        if not hasattr(self, "name"):
            raise NotImplementedError(f"{type(self).__name__} needs: name = 'trigger-…', its registered name")
        self.context = TriggerContext(self.name)
        self.config: dict[str, Any] = {"seconds": 60.0, **self.defaults}
        self.state: Mapping[str, Any] = {}
        self._stopped, self._ready = asyncio.Event(), asyncio.Event()

    def poll(self) -> AsyncIterator[TriggerEvent]:
        """Yield what has happened since the last poll, each made by `event`; an async generator that does not block."""
        raise NotImplementedError(f"{type(self).__name__} {_NEEDS_POLL}")

    def event(self, key: str, data: Mapping[str, Any], state: Mapping[str, Any] | None = None) -> TriggerEvent:
        """Return an event with this dedupe key; `state` is stored with it, and is `self.state` from then on."""
        if state is not None:
            self.state = dict(state)
        return TriggerEvent(TriggerType.CUSTOM, self.name, self.context.clock.now(), data, dedupe_key=key, state=state)

    def bind(self, context: TriggerContext) -> None:
        """Take the context, and the state from before the restart."""
        self.context, self.state = context, context.state

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the configuration. Raises `TriggerConfigError` for an unknown key, or a value of another type."""
        for key, value in config.items():
            if key not in self.config:
                close = get_close_matches(key, self.config, n=1)
                known = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(sorted(self.config))}"
                raise TriggerConfigError(self.name, key, f"unknown key; {known}")
            kind = type(self.config[key])
            fits = isinstance(value, (int, float) if kind is float else kind)
            if not fits or (isinstance(value, bool) and kind is not bool):
                raise TriggerConfigError(self.name, key, f"must be {_KINDS.get(kind, kind.__name__)}")
        self.config |= config
        if not self.config["seconds"] > 0:
            raise TriggerConfigError(self.name, "seconds", "must be more than 0")
        if self.config["seconds"] > _LONGEST:
            raise TriggerConfigError(self.name, "seconds", f"must be at most {_LONGEST:.0f}")

    async def ready(self) -> None:
        """Return after the first poll, or the end of the watch."""
        await self._ready.wait()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield the events of each poll until `stop`. Raises `TypeError` for a `poll` that yields none."""
        from .clock import wait_for

        try:
            while not self._stopped.is_set():
                events: Any = self.poll()
                if not hasattr(events, "__aiter__"):
                    if hasattr(events, "close"):
                        events.close()  # a coroutine that nobody awaits is a warning
                    given = type(events).__name__
                    raise TypeError(f"{type(self).__name__} {_NEEDS_POLL}. Its poll returns a {given}")
                async for event in events:
                    yield event
                self._ready.set()
                due = self.context.clock.now() + timedelta(seconds=self.config["seconds"])
                await wait_for(self.context.clock, self._stopped, due)
        finally:
            self._ready.set()

    async def stop(self) -> None:
        """End `watch`."""
        self._stopped.set()
