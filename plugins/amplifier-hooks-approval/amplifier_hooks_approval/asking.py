"""Connect the rules with one session: as a layer of its permissions, or as a guard of its own without such."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.models import HookResult

from .config import NAME
from .plain import decide

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import ApprovalProvider, ModuleCoordinator

    from .config import ApprovalConfig

logger = logging.getLogger(__name__)

PRIORITY = -10
NEEDS_CHECK = "approval.needs_check"
"""The capability of a module that wants calls of a tool asked about: it is called with the tool's name."""
REGISTER = "approval.register_provider"
"""The capability by which a program without an approval system offers an `ApprovalProvider`."""
ANSWERS = ("approval:required", "approval:granted", "approval:denied")


class Asking:
    """The questions of one session."""

    def __init__(self, coordinator: ModuleCoordinator, config: ApprovalConfig) -> None:
        self._coordinator = coordinator
        self._config = config
        self._registrations: list[Callable[[], None]] = []
        self._has_gate = False

    def listen(self) -> None:
        """Begin to guard the calls of the session."""
        gate = getattr(self._coordinator, "permissions", None)
        if gate is not None:
            from .layer import make_layer

            self._has_gate = True
            layer = make_layer(self._config)
            if layer not in gate.policy.layers:  # a fork shares the gate, and an agent inherits the layer
                gate.policy = gate.policy.below(layer)
            if self._config.default_action == "continue":
                logger.warning("%s: default_action: continue has no effect: an unanswered question denies here", NAME)
        self._register("tool:pre", self._before_tool, PRIORITY)
        self._coordinator.register_capability(REGISTER, self.take_provider)
        if self._config.audit.enabled:
            from .audit import Audit

            audit = Audit(self._config.audit.file, str(self._coordinator.session_id or ""))
            for event in ANSWERS:
                self._register(event, audit.write, 0)

    def _register(self, event: str, handler: Callable[..., Any], priority: int) -> None:
        register = self._coordinator.hooks.register
        self._registrations.append(register(event, handler, priority=priority, name=NAME))

    def take_provider(self, provider: ApprovalProvider) -> None:
        """Ask a provider of the program, unless the session has an approval system."""
        known = self._coordinator.approval_system
        if known is None or isinstance(known, ProviderAnswers):
            self._coordinator.approval_system = ProviderAnswers(provider)

    def close(self) -> None:
        """Stop listening; the layer stays."""
        while self._registrations:
            self._registrations.pop()()

    async def _before_tool(self, event: str, data: dict[str, Any]) -> HookResult | None:
        tool, arguments = str(data.get("tool_name")), data.get("tool_input")
        if (needs_check := self._coordinator.get_capability(NEEDS_CHECK)) is not None and needs_check(tool):
            return await self._ask(data, "another module wants a person to look at it")
        if self._has_gate:
            return None
        effect = decide(self._config, tool, arguments) if isinstance(arguments, dict) else "deny"
        if effect == "deny":
            return HookResult(action="deny", reason=f"not permitted: a rule of {NAME} denies this call")
        return await self._ask(data, f"a rule of {NAME} asks") if effect == "ask" else None

    async def _ask(self, data: dict[str, Any], reason: str) -> HookResult:
        call = f"{data.get('tool_name')}({json.dumps(data.get('tool_input'), default=repr)})"
        prompt = f"{call}: {reason}"
        if getattr(self._coordinator, "permissions", _NO_KERNEL) is _NO_KERNEL:  # no one else tells it
            about = {"tool_name": data.get("tool_name"), "prompt": prompt, "reason": reason}
            await self._coordinator.hooks.emit("approval:required", about)
        seconds = self._config.timeout or self._config.default_timeout
        return HookResult(
            action="ask_user",
            reason=reason,
            approval_prompt=prompt,
            approval_options=["Allow once", "Deny"],
            approval_default="allow" if self._config.default_action == "continue" and not self._has_gate else "deny",
            approval_timeout=seconds or 300.0,
        )


class ProviderAnswers:
    """Puts the questions of a session to an `ApprovalProvider`."""

    def __init__(self, provider: ApprovalProvider) -> None:
        self._provider = provider

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - a published signature
        default: Literal["allow", "deny"],
    ) -> str:
        """Return the option of the answer. Raises `ApprovalTimeoutError` after `timeout` seconds."""
        from amplifier_core import ApprovalRequest
        from amplifier_core.approval import ApprovalTimeoutError

        request = ApprovalRequest(
            tool_name=prompt.partition("(")[0], action=prompt, details={}, risk_level="medium", timeout=timeout
        )
        try:
            response = await asyncio.wait_for(self._provider.request_approval(request), timeout)
        except TimeoutError:
            raise ApprovalTimeoutError(prompt) from None
        word = "allow" if response.approved else "deny"
        return next((each for each in options if each.lower().startswith(word)), word)


_NO_KERNEL = object()
