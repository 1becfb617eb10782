"""Answer requests with OpenAI's models, or those of a service with the same API."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from amplifier_core.models import ConfigField, ProviderInfo
from amplifier_providers.call_ids import plain_id
from amplifier_providers.hidden import reveal_error
from amplifier_providers.lines import keep_data
from amplifier_providers.provider import SDKProvider
from amplifier_providers.redirects import refuse_redirect
from amplifier_providers.silence import hear_bytes
from amplifier_providers.tls import make_transport

from . import chat_api, responses_api
from .config import KEY_VARIABLE
from .errors import Translator, is_about_reasoning
from .models import CAPABILITIES, converses, describe_model, list_known

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

    from amplifier_core import ChatRequest, ChatResponse, HookRegistry, ModelInfo
    from amplifier_core.llm_errors import LLMError
    from amplifier_providers.streaming import BlockStream

    from .config import Settings
    from .content import Call

_COUNTED = ("model", "input", "instructions", "tools", "tool_choice", "reasoning", "text")
CHARACTERS_PER_TOKEN = 4
NO_KEY = "none"
"""The key for a service that wants none: the SDK insists on one, and it is not sent."""


class OpenAIProvider(SDKProvider["AsyncOpenAI"]):
    """OpenAI's models by the official SDK; one client for all requests of a session."""

    name = "openai"
    sdk = "openai"
    key_variable = KEY_VARIABLE

    def __init__(self, settings: Settings, hooks: HookRegistry | None = None) -> None:
        super().__init__(settings, hooks, key=settings.find_key(), address=settings.find_address())
        self._settings = settings
        self._api = settings.api or ("chat" if self._address else "responses")
        if self._key or self._address:
            limits = settings.idle_timeout, settings.connect_timeout
            self.begin(_build_client, self._api, self._key, self._address, *limits)

    def get_info(self) -> ProviderInfo:
        """Describe this provider, with the limits of its default model."""
        model = describe_model(self._settings.resolve_model(None))
        limits = {
            "context_window": self._settings.context_window or model.context_window,
            "max_output_tokens": self._settings.max_output_tokens or model.max_output_tokens,
        }
        return ProviderInfo(
            id=self.name,
            display_name="OpenAI",
            credential_env_vars=[KEY_VARIABLE],
            capabilities=[each for each in CAPABILITIES if each != "vision" or self._settings.vision],
            defaults={"model": model.id, **limits},
            config_fields=[
                ConfigField(
                    id="api_key",
                    display_name="API key",
                    field_type="secret",
                    prompt="API key of https://platform.openai.com",
                    env_var=KEY_VARIABLE,
                ),
                ConfigField(id="base_url", display_name="Address", prompt="Address of a service", required=False),
            ],
        )

    async def list_models(self) -> list[ModelInfo]:
        """Return the models of the account; without an API key those that this package knows. Raises an `LLMError`."""
        if self._building is None:
            return list_known()

        async def read_pages(client: AsyncOpenAI) -> list[ModelInfo]:
            names = [model.id async for model in client.models.list()]
            return [describe_model(name) for name in names if self._address or converses(name)]

        return await self.ask(read_pages, self.translator(""))

    async def count_tokens(self, request: ChatRequest) -> int:
        """Return the tokens of a request, counted by the service. Raises an `LLMError`.

        Chat Completions cannot count: there, the count is the length of the request divided by four.
        """
        call = self.make_call(self.make_sendable(request))
        if self._api == "chat":
            return len(str(call.body)) // CHARACTERS_PER_TOKEN
        body = {name: call.body[name] for name in _COUNTED if name in call.body}

        async def count(client: AsyncOpenAI) -> int:
            return (await client.responses.input_tokens.count(**body)).input_tokens

        return await self.ask(count, self.translator(call.model))

    def translator(self, model: str) -> Translator:
        """Return the translator of errors for a request to this model."""
        return Translator(model, [self._key])

    def make_call(self, request: ChatRequest, *, with_thinking: bool = True) -> Call:
        """Return a request in the form of the API."""
        if self._api == "chat":
            return chat_api.make_call(request, self._settings)
        return responses_api.make_call(request, self._settings, with_reasoning=with_thinking)

    def spell_id(self, call_id: str) -> str:
        """Return an id of a call as the API takes it; another service of Chat Completions gets its own ids as they are.

        Some tell what they need by their ids, as `functions.look:0`.
        """
        if self._api == "responses":
            return plain_id(call_id, 64)
        return call_id if self._address else plain_id(call_id, 40)

    def refuses_thinking(self, call: Call, error: LLMError) -> bool:
        """Return whether the service refused a call for its thinking."""
        return self._api == "responses" and is_about_reasoning(error)

    async def close_client(self, client: AsyncOpenAI) -> None:
        """Close the connections."""
        await client.close()

    async def stream(self, client: AsyncOpenAI, call: Call, blocks: BlockStream) -> ChatResponse:
        """Ask once. Leaving closes the connection, however it happens."""
        import openai

        waiting = openai.Timeout(None, connect=self._settings.connect_timeout)
        async with self.limit_silence(within=False) as hear:
            if self._api == "chat":
                async with await client.chat.completions.create(**call.body, stream=True, timeout=waiting) as chunks:
                    answer = await chat_api.follow(chunks, blocks, hear, call.model)
                return chat_api.read_answer(answer, call)
            async with await client.responses.create(**call.body, stream=True, timeout=waiting) as events:
                whole, items = await responses_api.follow(events, blocks, hear)
            return responses_api.read_answer(whole, items, call)


def _build_client(
    api: str, key: str | None, address: str | None, idle_timeout: float, connect_timeout: float
) -> AsyncOpenAI:
    """Return the SDK's client; the part of the SDK for the API is imported, too, and not at the first request."""
    import openai

    import_module("openai.resources.chat.completions" if api == "chat" else "openai.resources.responses")
    timeout = openai.Timeout(idle_timeout, connect=connect_timeout)
    http = openai.DefaultAsyncHttpxClient(
        **make_transport("httpx2"),
        timeout=timeout,
        event_hooks={
            "request": [] if key else [_leave_out_key],
            "response": [refuse_redirect, reveal_error, hear_bytes, keep_data],
        },
    )
    return openai.AsyncOpenAI(api_key=key or NO_KEY, base_url=address, max_retries=0, timeout=timeout, http_client=http)


async def _leave_out_key(request: httpx2.Request) -> None:
    request.headers.pop("authorization", None)
