"""A provider: the models of a cloud service, reached over HTTP."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

from amplifier_core import (
    ConfigField,
    ModelInfo,
    ModuleCoordinator,
    ProviderInfo,
    TextContent,
    ThinkingContent,
    ToolCallContent,
)
from amplifier_core import llm_errors as kernel_errors
from amplifier_core.events import PROVIDER_RETRY, PROVIDER_THROTTLE
from amplifier_core.message_models import (
    ChatRequest,
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from amplifier_core.utils import redact_secrets
from amplifier_core.utils.retry import RetryConfig, retry_with_backoff

from .client import Client, as_kernel_error

__amplifier_module_type__ = "provider"

DOLLARS_PER_TOKEN = Decimal("0.000003")


class CloudResponse(ChatResponse):
    content_blocks: list[TextContent | ThinkingContent | ToolCallContent] | None = None


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    config = config or {}
    api_key = config.get("api_key") or os.environ.get("CLOUD_API_KEY")
    if not api_key:
        return None
    provider = CloudProvider(api_key, config, coordinator)
    await coordinator.mount("providers", provider, name="cloud")
    coordinator.register_contributor("session.cost", "provider-cloud", provider.cost)
    coordinator.register_contributor("observability.events", "provider-cloud", lambda: ["llm:request:raw"])
    return provider.close


class CloudProvider:
    name = "cloud"

    def __init__(self, api_key: str, config: dict[str, Any], coordinator: ModuleCoordinator) -> None:
        self.config = config
        self.priority = config.get("priority", 100)
        self.model = config.get("default_model", "large")
        self.coordinator = coordinator
        self.spent = Decimal(0)
        self._api_key = api_key
        self._client: Client | None = None
        self._retries = RetryConfig(
            max_retries=int(config.get("max_retries", 3)),
            initial_delay=float(config.get("min_retry_delay", 1.0)),
            max_delay=float(config.get("max_retry_delay", 60.0)),
            jitter=False,
        )

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.config["base_url"], self._api_key)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def cost(self) -> dict[str, Any]:
        return {"provider": "cloud", "cost_usd": self.spent}

    def get_info(self) -> ProviderInfo:
        key = ConfigField(
            id="api_key", display_name="API key", field_type="secret", prompt="Your key", env_var="CLOUD_API_KEY"
        )
        return ProviderInfo(
            id="cloud",
            display_name="Cloud",
            credential_env_vars=["CLOUD_API_KEY"],
            capabilities=["tools", "thinking"],
            defaults={"model": self.model, "context_window": 200_000, "max_output_tokens": 8_000},
            config_fields=[key],
        )

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id=self.model, display_name="Large", context_window=200_000, max_output_tokens=8_000)]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        messages = [message.model_dump(exclude_none=True) for message in request.messages]
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        if request.tools:
            body["tools"] = [tool.model_dump(exclude_none=True) for tool in request.tools]
        hooks = self.coordinator.hooks
        await hooks.emit("llm:request", {"provider": self.name, "model": self.model, "messages": len(request.messages)})
        await hooks.emit("llm:request:raw", redact_secrets({"params": body, "api_key": self._api_key}))
        started = time.monotonic()
        try:
            answer = await retry_with_backoff(lambda: self._post(body), self._retries, on_retry=self._on_retry)
        except kernel_errors.LLMError as error:
            await self._told(started, {"status": "error", "error": str(error)})
            raise
        response = _response(answer)
        self.spent += response.usage.cost_usd
        await self._told(started, {"status": "ok", "usage": response.usage.model_dump()})
        return response

    async def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self.client.post("/v1/messages", body)
        except Exception as error:
            raise as_kernel_error(error, self.name, self.model) from error

    async def _on_retry(self, attempt: int, delay: float, error: kernel_errors.LLMError) -> None:
        event = PROVIDER_THROTTLE if isinstance(error, kernel_errors.RateLimitError) else PROVIDER_RETRY
        told = {"provider": self.name, "attempt": attempt, "delay": delay, "error_type": type(error).__name__}
        await self.coordinator.hooks.emit(event, told)

    async def _told(self, started: float, outcome: dict[str, Any]) -> None:
        duration = int((time.monotonic() - started) * 1000)
        told = {"provider": self.name, "model": self.model, "duration_ms": duration, **outcome}
        await self.coordinator.hooks.emit("llm:response", told)

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []


def _response(answer: dict[str, Any]) -> CloudResponse:
    content, shown, calls = [], [], []
    for block in answer["content"]:
        if block["type"] == "thinking":
            content.append(ThinkingBlock(thinking=block["thinking"], signature=block["signature"]))
            shown.append(ThinkingContent(text=block["thinking"]))
        elif block["type"] == "text":
            content.append(TextBlock(text=block["text"]))
            shown.append(TextContent(text=block["text"], raw=block))
        else:
            content.append(ToolCallBlock(id=block["id"], name=block["name"], input=block["input"]))
            shown.append(ToolCallContent(id=block["id"], name=block["name"], arguments=block["input"]))
            calls.append(ToolCall(id=block["id"], name=block["name"], arguments=block["input"]))
    taken, given = answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]
    usage = Usage(
        input_tokens=taken,
        output_tokens=given,
        total_tokens=taken + given,
        cost_usd=(taken + given) * DOLLARS_PER_TOKEN,
    )
    return CloudResponse(
        content=content,
        tool_calls=calls or None,
        usage=usage,
        finish_reason=answer["stop_reason"],
        content_blocks=shown,
    )
