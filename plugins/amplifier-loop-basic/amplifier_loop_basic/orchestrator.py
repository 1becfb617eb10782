"""What a session mounts: the settings of the loop, and the start of each turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.message_models import ToolSpec

from .interrupts import Interrupts
from .signals import Signals
from .turn import Turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core import ContextManager, HookRegistry, Provider, Tool

DEFAULT_MAX_ITERATIONS = 50
UNLIMITED = -1


class BasicOrchestrator:
    """The loop of one session.

    `max_iterations` is the number of model calls a turn may make, -1 for any number. `default_provider` names the
    provider to use; without it the one of the lowest priority number is used, or the first mounted.
    """

    continues_history = True
    """An empty prompt goes on with a history that waits for the model, and adds no message to it."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        config = config or {}
        self.max_iterations = _iterations(config.get("max_iterations", DEFAULT_MAX_ITERATIONS))
        self.default_provider: str | None = config.get("default_provider")
        self._interrupts = Interrupts()
        self._specs: dict[str, tuple[Any, ToolSpec]] = {}

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

        The exception of a provider is raised as it is. Raises `RuntimeError` without a provider, and `LookupError` when
        `default_provider` is not mounted.
        """
        coordinator = kwargs.get("coordinator")
        self._interrupts.listen_to(coordinator)
        name = choose_provider(providers, self.default_provider)
        turn = Turn(
            context=context,
            provider_name=name,
            provider=providers[name],
            tools=tools,
            specs=[self._spec(tool_name, tool) for tool_name, tool in tools.items()] or None,
            signals=Signals(hooks, coordinator),
            interrupts=self._interrupts,
            max_iterations=self.max_iterations,
        )
        return await turn.run(prompt)

    def _spec(self, name: str, tool: Tool) -> ToolSpec:
        """Return what the model is told of a tool; made once for a tool that says the same thing again."""
        schema, description = getattr(tool, "input_schema", None), tool.description
        known = self._specs.get(name)
        if known is None or known[0] is not schema or known[1].description != description:
            parameters = schema or {"type": "object", "properties": {}}
            known = self._specs[name] = (schema, ToolSpec(name=name, description=description, parameters=parameters))
        return known[1]


def _iterations(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and value != UNLIMITED):
        raise ValueError(
            f"loop-basic: max_iterations: must be a whole number from 1 on, or -1 for no limit, not {value!r}"
        )
    return value


def choose_provider(providers: Mapping[str, Provider], preferred: str | None = None) -> str:
    """Return the name of the provider to use: the preferred, else the one with the lowest priority, else the first."""
    if not providers:
        raise RuntimeError("No providers mounted")
    if preferred is None:
        return min(providers, key=lambda name: _priority(providers[name]))
    for name in (preferred, preferred.removeprefix("provider-")):
        if name in providers:
            return name
    raise LookupError(
        f"loop-basic: default_provider '{preferred}' is not mounted. Mounted: {', '.join(sorted(providers))}"
    )


def _priority(provider: Any) -> float:
    """Return the provider's own priority, or its config's; 100 when neither says."""
    config = getattr(provider, "config", None)
    value = getattr(provider, "priority", None)
    if value is None and isinstance(config, dict):
        value = config.get("priority")
    return value if isinstance(value, int | float) else 100
