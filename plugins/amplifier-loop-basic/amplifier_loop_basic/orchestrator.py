"""Hold the configuration of the loop, and start each turn. What only a turn needs is imported by the first one."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from .call_context import CAPABILITY, HELD, RUN_AGAIN, read_call
from .config import NAME, read_config
from .interrupts import Interrupts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from amplifier_core import ContextManager, HookRegistry, Provider, Tool, ToolSpec

    from .signals import Signals
    from .streams import Stream
    from .turn import Turn

logger = logging.getLogger(__name__)


class BasicOrchestrator:
    """The loop of one session.

    `max_iterations` is the most model calls of a turn, -1 for any number. `default_provider` names the provider to
    use; without it, the lowest priority number decides, then the order of mounting. A loop built on this one names
    itself in `module`, and makes turns of its own in `make_turn`.
    """

    module = NAME
    """Its name in errors, and in `orchestrator:complete`."""
    continues_history = True
    """An empty prompt continues a history that waits for the model, without a new message."""
    runs_open_calls = True
    """Calls named by the capability `tool.run_again` run again, as themselves, when the turn continues."""
    holds_calls = True
    """A call denied with `held` in the data of the denial gets no result, and the turn ends."""
    asks_to_stop = True
    """A handler of `turn:stop` that denies keeps the turn going."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        checked = read_config(config or {}, self.module)
        self.max_iterations = checked.max_iterations
        self._max_parallel_tools, self._max_result_chars = checked.max_parallel_tools, checked.max_result_chars
        self.default_provider = checked.default_provider
        self._interrupts = Interrupts()
        self._stream: Stream | None = None
        self._specs: dict[str, tuple[Any, str | None, ToolSpec]] = {}
        self._told: set[str] = set()

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
        **kwargs: Any,
    ) -> str:
        """Run one turn and return its final text.

        Raises a provider's own exception, `RuntimeError` without a provider, and `LookupError` if `default_provider` is
        not mounted.
        """
        signals, stream, response_format_name, _ = _import_parts()
        coordinator = kwargs.get("coordinator")
        self._interrupts.listen_to(coordinator)
        self._stream = self._stream or stream(self.module)
        self._stream.listen_to(hooks)
        again: Collection[str] = ()
        held = response_format = None
        session_id = ""
        if coordinator is not None:
            find = coordinator.get_capability
            if find(CAPABILITY) is not read_call:
                coordinator.register_capability(CAPABILITY, read_call)
            again, held, response_format = find(RUN_AGAIN) or (), find(HELD), find(response_format_name)
            session_id = str(getattr(coordinator, "session_id", ""))
        if self.default_provider is None and len(providers) == 1:
            [name] = providers
        else:
            name = choose_provider(providers, self.default_provider, self.module)
        turn = self.make_turn(
            context=context,
            provider_name=name,
            provider=providers[name],
            tools=tools,
            specs=[spec for named in tools.items() if (spec := self._describe(*named)) is not None] or None,
            signals=signals(hooks, coordinator, self.module),
            interrupts=self._interrupts,
            stream=self._stream,
            max_iterations=self.max_iterations,
            session_id=session_id,
            run_again=again,
            held=held,
            response_format=response_format,
            max_parallel_tools=self._max_parallel_tools,
            max_result_chars=self._max_result_chars,
        )
        return await turn.run(prompt)

    def adapt_messages(self, messages: list[dict[str, Any]], provider: Provider) -> list[dict[str, Any]]:
        """Return messages of the context as a request to this provider has them: without images it cannot see."""
        from .contents import adapt_messages

        return adapt_messages(messages, provider)

    def make_turn(self, **parts: Any) -> Turn:
        """Return a new turn of these parts, the fields of `Turn`."""
        *_, make = _import_parts()
        return make(**parts)

    def _describe(self, name: str, tool: Tool) -> ToolSpec | None:
        """Return the description of a tool for the model, made again only after a change.

        A tool without a right description is not offered to the model, and the log says so once; its session goes on.
        """
        try:
            schema, description = getattr(tool, "input_schema", None), getattr(tool, "description", None)
            if name in self._specs:
                known_schema, known_description, spec = self._specs[name]
                if known_schema is schema and known_description == description:
                    return spec
            from .descriptions import describe_tool

            spec = describe_tool(name, schema, description)
        except Exception as error:
            from .descriptions import explain

            text = f"tool '{name}' is not offered to the model: {explain(error, tool)}"
            if text not in self._told:
                self._told.add(text)
                logger.warning("%s", text)
            return None
        self._specs[name] = (schema, description, spec)
        return spec


@cache
def _import_parts() -> tuple[type[Signals], type[Stream], str, type[Turn]]:
    """Return what a turn needs, and the name of the capability with its response format."""
    from .signals import Signals
    from .streams import Stream
    from .turn import RESPONSE_FORMAT, Turn

    return Signals, Stream, RESPONSE_FORMAT, Turn


def choose_provider(providers: Mapping[str, Provider], preferred: str | None = None, module: str = NAME) -> str:
    """Return the name of the provider to use: the preferred one, else that of the lowest priority, else the first."""
    if not providers:
        raise RuntimeError("No providers mounted")
    if preferred is None:
        return min(providers, key=lambda name: _read_priority(providers[name]))
    for name in (preferred, preferred.removeprefix("provider-")):
        if name in providers:
            return name
    raise LookupError(
        f"{module}: default_provider '{preferred}' is not mounted. Mounted: {', '.join(sorted(providers))}"
    )


def _read_priority(provider: Any) -> float:
    """Return the provider's own priority, or its config's; by default 100."""
    config = getattr(provider, "config", None)
    value = getattr(provider, "priority", None)
    if value is None and isinstance(config, dict):
        value = config.get("priority")
    return value if isinstance(value, int | float) else 100
