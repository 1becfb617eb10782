"""An orchestrator: model and tools in turns, tools side by side, steered while it runs."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from amplifier_core import HookRegistry, ModuleCoordinator, ToolResult
from amplifier_core.events import (
    CANCEL_REQUESTED,
    CONTENT_BLOCK_END,
    CONTENT_BLOCK_START,
    ORCHESTRATOR_COMPLETE,
    PROMPT_COMPLETE,
    PROMPT_SUBMIT,
    PROVIDER_ERROR,
    PROVIDER_REQUEST,
    TOOL_ERROR,
    TOOL_POST,
    TOOL_PRE,
)
from amplifier_core.llm_errors import LLMError
from amplifier_core.message_models import ChatRequest, Message, ToolSpec

try:
    from amplifier_foundation import ProviderPreference
except ImportError:
    ProviderPreference = None

__amplifier_module_type__ = "orchestrator"


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    loop = StreamingLoop(config or {})
    coordinator.register_contributor("observability.events", "loop-stream", lambda: ["orchestrator:steered"])
    coordinator.register_capability("session.steer", loop.steer)
    await coordinator.mount("orchestrator", loop)


class StreamingLoop:
    def __init__(self, config: dict[str, Any]) -> None:
        self.max_iterations = config.get("max_iterations", 20)
        self.steering: list[str] = []

    def steer(self, text: str) -> None:
        self.steering.append(text)

    async def execute(
        self,
        prompt: str,
        context: Any,
        providers: dict[str, Any],
        tools: dict[str, Any],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator | None = None,
        **kwargs: Any,
    ) -> str:
        if coordinator is None:
            raise ValueError("loop-stream needs a coordinator")
        coordinator._tool_dispatch_contexts = {}
        submitted = await hooks.emit(PROMPT_SUBMIT, {"prompt": prompt})
        submitted = await coordinator.process_hook_result(submitted, PROMPT_SUBMIT, "orchestrator")
        if submitted.action == "deny":
            return f"Operation denied: {submitted.reason}"
        await hooks.emit("execution:start", {"prompt": prompt})
        await context.add_message({"role": "user", "content": prompt})
        status, turns, text = "incomplete", 0, ""
        try:
            for turns in range(1, self.max_iterations + 1):
                response = await self._ask(turns, context, providers, tools, hooks, coordinator)
                calls = _provider(providers)[1].parse_tool_calls(response)
                text = "".join(block.text for block in response.content if block.type == "text")
                await context.add_message(_assistant(response, calls))
                if not calls:
                    status = "success"
                    break
                await self._run_all(calls, context, tools, hooks, coordinator)
                if coordinator.cancellation.is_cancelled:
                    status = "cancelled"
                    await self._stop(hooks, coordinator)
                    break
        except LLMError:
            status = "error"
            raise
        finally:
            await hooks.emit("execution:end", {"response": text, "status": status})
            complete = {"orchestrator": "loop-stream", "turn_count": turns, "status": status}
            await hooks.emit(ORCHESTRATOR_COMPLETE, complete)
        await hooks.emit(PROMPT_COMPLETE, {"response_preview": text[:200], "length": len(text)})
        return text

    async def _stop(self, hooks: HookRegistry, coordinator: ModuleCoordinator) -> None:
        """Tell the others: some kernels only set the state."""
        state = getattr(coordinator.cancellation.state, "value", coordinator.cancellation.state)
        await hooks.emit(CANCEL_REQUESTED, {"level": state, "orchestrator": "loop-stream"})
        await coordinator.cancellation.trigger_callbacks()

    async def _ask(
        self,
        turn: int,
        context: Any,
        providers: dict[str, Any],
        tools: dict[str, Any],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator,
    ) -> Any:
        name, provider = _provider(providers)
        while self.steering:
            text = self.steering.pop(0)
            await context.add_message({"role": "user", "content": text})
            await hooks.emit("orchestrator:steered", {"text": text})
        asked = await hooks.emit(PROVIDER_REQUEST, {"provider": name, "iteration": turn})
        await coordinator.process_hook_result(asked, PROVIDER_REQUEST, "orchestrator")
        messages = [Message(**message) for message in await context.get_messages_for_request(provider=provider)]
        goal = coordinator.session_state.get("goal")
        if goal:
            messages.append(Message(role="developer", content=f"The goal: {goal}"))
        specs = [
            ToolSpec(name=tool.name, description=tool.description, parameters=tool.input_schema)
            for tool in tools.values()
        ]
        try:
            response = await provider.complete(ChatRequest(messages=messages, tools=specs or None))
        except LLMError as error:
            told = {"provider": name, "error": {"type": type(error).__name__, "msg": str(error)}}
            await hooks.emit(PROVIDER_ERROR, {**told, "retryable": error.retryable, "status_code": error.status_code})
            raise
        blocks = response.content_blocks or []
        for index, block in enumerate(blocks):
            await hooks.emit(CONTENT_BLOCK_START, {"block_type": block.type.value, "block_index": index})
            end = {"block_index": index, "total_blocks": len(blocks), "block": block.to_dict()}
            await hooks.emit(CONTENT_BLOCK_END, end)
        return response

    async def _run_all(
        self,
        calls: list[Any],
        context: Any,
        tools: dict[str, Any],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator,
    ) -> None:
        group = str(uuid.uuid4())
        for call in calls:
            coordinator._tool_dispatch_contexts[call.id] = {"parallel_group_id": group}
        outputs = await asyncio.gather(*(self._run(call, group, tools, hooks, coordinator) for call in calls))
        for call, output in zip(calls, outputs, strict=True):
            del coordinator._tool_dispatch_contexts[call.id]
            await context.add_message({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": output})

    async def _run(
        self, call: Any, group: str, tools: dict[str, Any], hooks: HookRegistry, coordinator: ModuleCoordinator
    ) -> str:
        about = {
            "tool_name": call.name,
            "tool_call_id": call.id,
            "tool_input": call.arguments,
            "parallel_group_id": group,
        }
        allowed = await hooks.emit(TOOL_PRE, about)
        allowed = await coordinator.process_hook_result(allowed, TOOL_PRE, call.name)
        if allowed.action == "deny":
            return f"Denied by hook: {allowed.reason}"
        coordinator.cancellation.register_tool_start(call.id, call.name)
        try:
            result = await tools[call.name].execute(call.arguments)
        except Exception as error:
            await hooks.emit(TOOL_ERROR, {**about, "error": {"type": type(error).__name__, "msg": str(error)}})
            result = ToolResult(success=False, error={"message": str(error)})
        finally:
            coordinator.cancellation.register_tool_complete(call.id)
        seen = await hooks.emit(TOOL_POST, {**about, "result": result.model_dump()})
        await coordinator.process_hook_result(seen, TOOL_POST, call.name)
        return result.get_serialized_output()


def _provider(providers: dict[str, Any]) -> tuple[str, Any]:
    name = min(providers, key=lambda each: getattr(providers[each], "priority", 100))
    return name, providers[name]


def _assistant(response: Any, calls: list[Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": [block.model_dump() for block in response.content]}
    if calls:
        message["tool_calls"] = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in calls]
    return message
