"""Answer requests with Anthropic's models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.models import ConfigField, ProviderInfo
from amplifier_providers.call_ids import plain_id
from amplifier_providers.hidden import reveal_error
from amplifier_providers.provider import SDKProvider
from amplifier_providers.redirects import refuse_redirect
from amplifier_providers.silence import hear_bytes
from amplifier_providers.tls import make_transport

from .config import KEY_VARIABLE
from .errors import Translator, is_about_thinking
from .models import CAPABILITIES, DEFAULT_CONTEXT, describe_model, find_model, list_known
from .requests import choose_output, make_call
from .responses import follow, read_answer

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

    from amplifier_core import ChatRequest, ChatResponse, HookRegistry, ModelInfo
    from amplifier_core.llm_errors import LLMError
    from amplifier_providers.streaming import BlockStream

    from .config import Settings
    from .requests import Call


class AnthropicProvider(SDKProvider["AsyncAnthropic"]):
    """Claude, by the official SDK; one client for all requests of a session."""

    name = "anthropic"
    sdk = "anthropic"
    key_variable = KEY_VARIABLE

    def __init__(self, settings: Settings, hooks: HookRegistry | None = None) -> None:
        super().__init__(settings, hooks, key=settings.find_key(), address=settings.find_address())
        self._settings = settings
        if self._key is not None:
            limits = settings.idle_timeout, settings.connect_timeout
            self.begin(_build_client, self._key, self._address, *limits)

    def get_info(self) -> ProviderInfo:
        """Describe this provider, with the limits of its default model."""
        model = self._settings.resolve_model(None)
        known = find_model(model)
        window = self._settings.context_window or (known.context if known else DEFAULT_CONTEXT)
        output = choose_output(self._settings, model)
        return ProviderInfo(
            id=self.name,
            display_name="Anthropic",
            credential_env_vars=[KEY_VARIABLE],
            capabilities=list(CAPABILITIES),
            defaults={"model": model, "context_window": window, "max_output_tokens": output},
            config_fields=[
                ConfigField(
                    id="api_key",
                    display_name="API key",
                    field_type="secret",
                    prompt="API key of https://platform.claude.com",
                    env_var=KEY_VARIABLE,
                ),
                ConfigField(id="base_url", display_name="Address", prompt="Address of a gateway", required=False),
            ],
        )

    async def list_models(self) -> list[ModelInfo]:
        """Return the models of the account; without an API key those that this package knows. Raises an `LLMError`."""
        if self._key is None:
            return list_known()

        async def read_pages(client: AsyncAnthropic) -> list[ModelInfo]:
            return [describe_model(model) async for model in client.models.list(limit=1000)]

        return await self.ask(read_pages, self.translator(""))

    async def count_tokens(self, request: ChatRequest) -> int:
        """Return the tokens of a request, counted by the service. Raises an `LLMError`."""
        call = make_call(self.make_sendable(request), self._settings)
        counted = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config")
        body = {name: call.body[name] for name in counted if name in call.body}

        async def count(client: AsyncAnthropic) -> int:
            return (await client.messages.count_tokens(**body)).input_tokens

        return await self.ask(count, self.translator(call.model))

    def translator(self, model: str) -> Translator:
        """Return the translator of errors for a request to this model."""
        return Translator(model, [self._key])

    def make_call(self, request: ChatRequest, *, with_thinking: bool = True) -> Call:
        """Return a request in the form of the service."""
        return make_call(request, self._settings, with_thinking=with_thinking)

    def spell_id(self, call_id: str) -> str:
        """Return an id of a call in the characters that the service takes."""
        return plain_id(call_id, 64)

    def refuses_thinking(self, call: Call, error: LLMError) -> bool:
        """Return whether the service refused a call for its thinking."""
        return is_about_thinking(error)

    async def close_client(self, client: AsyncAnthropic) -> None:
        """Close the connections."""
        await client.close()

    async def stream(self, client: AsyncAnthropic, call: Call, blocks: BlockStream) -> ChatResponse:
        """Ask once. Leaving closes the connection, however it happens."""
        import anthropic

        waiting = anthropic.Timeout(None, connect=self._settings.connect_timeout)
        async with (
            self.limit_silence(within=False) as hear,
            await client.messages.create(**call.body, stream=True, timeout=waiting) as events,
        ):
            message, inputs = await follow(events, blocks, hear)
        return read_answer(message, inputs, call)


def _build_client(key: str, address: str | None, idle_timeout: float, connect_timeout: float) -> AsyncAnthropic:
    import anthropic

    timeout = anthropic.Timeout(idle_timeout, connect=connect_timeout)
    http = anthropic.DefaultAsyncHttpxClient(
        **make_transport("httpx2"),
        timeout=timeout,
        event_hooks={"response": [refuse_redirect, reveal_error, hear_bytes]},
    )
    return anthropic.AsyncAnthropic(api_key=key, base_url=address, max_retries=0, timeout=timeout, http_client=http)
