"""Answer requests with Google's Gemini models."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from warnings import filterwarnings

from amplifier_core.models import ConfigField, ProviderInfo
from amplifier_providers.hidden import reveal_error
from amplifier_providers.lines import keep_data
from amplifier_providers.provider import SDKProvider
from amplifier_providers.redirects import refuse_redirect
from amplifier_providers.tls import make_transport

from .config import KEY_VARIABLE, OTHER_KEY_VARIABLE
from .errors import Refusal, Translator, is_about_signatures
from .models import CAPABILITIES, converses, describe_model, list_known
from .requests import make_call, make_counted
from .responses import follow, read_answer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    import httpx
    from google.genai import Client
    from google.genai.types import GenerateContentResponse

    from amplifier_core import ChatRequest, ChatResponse, HookRegistry, ModelInfo
    from amplifier_core.llm_errors import LLMError
    from amplifier_providers.streaming import BlockStream

    from .config import Settings
    from .requests import Call

_responses: ContextVar[list[httpx.Response] | None] = ContextVar("_responses", default=None)
"""The HTTP responses of the running attempt: the SDK closes one that is left in the middle when memory is collected."""


class Opened(NamedTuple):
    """The SDK's client, and the HTTP client below it."""

    sdk: Client
    http: httpx.AsyncClient


class GeminiProvider(SDKProvider["Opened"]):
    """Gemini by Google's own SDK; one client for all requests of a session."""

    name = "gemini"
    sdk = "google-genai"
    key_variable = KEY_VARIABLE

    def __init__(self, settings: Settings, hooks: HookRegistry | None = None) -> None:
        super().__init__(settings, hooks, key=settings.find_key(), address=settings.find_address())
        self._settings = settings
        if self._key is not None:
            self.begin(_build_client, self._key, self._address, settings.connect_timeout)

    def get_info(self) -> ProviderInfo:
        """Describe this provider, with the limits of its default model."""
        model = describe_model(self._settings.resolve_model(None), None)
        limits = {
            "context_window": self._settings.context_window or model.context_window,
            "max_output_tokens": self._settings.max_output_tokens or model.max_output_tokens,
        }
        return ProviderInfo(
            id=self.name,
            display_name="Gemini",
            credential_env_vars=[KEY_VARIABLE, OTHER_KEY_VARIABLE],
            capabilities=list(CAPABILITIES),
            defaults={"model": model.id, **limits},
            config_fields=[
                ConfigField(
                    id="api_key",
                    display_name="API key",
                    field_type="secret",
                    prompt="API key of https://aistudio.google.com",
                    env_var=KEY_VARIABLE,
                ),
                ConfigField(id="base_url", display_name="Address", prompt="Address of a gateway", required=False),
            ],
        )

    async def list_models(self) -> list[ModelInfo]:
        """Return the models of the account; without an API key those that this package knows. Raises an `LLMError`."""
        if self._building is None:
            return list_known()

        async def read_pages(client: Opened) -> list[ModelInfo]:
            async with asyncio.timeout(self._settings.idle_timeout):
                found = [model async for model in await client.sdk.aio.models.list(config={"page_size": 1000})]
            named = {(model.name or "").removeprefix("models/"): model for model in found}
            talks = {
                name: model
                for name, model in named.items()
                if name and converses(name) and "generateContent" in (model.supported_actions or ["generateContent"])
            }
            return [describe_model(name, model) for name, model in talks.items()]

        return await self.ask(read_pages, self.translator(""))

    async def count_tokens(self, request: ChatRequest) -> int:
        """Return the tokens of a request, counted by the service. Raises an `LLMError`."""
        call = make_call(self.make_sendable(request), self._settings)

        async def count(client: Opened) -> int:
            async with asyncio.timeout(self._settings.idle_timeout):
                counted = await client.sdk.aio.models.count_tokens(
                    model=call.model, contents=cast("Any", make_counted(call))
                )
            return counted.total_tokens or 0

        return await self.ask(count, self.translator(call.model))

    def translator(self, model: str) -> Translator:
        """Return the translator of errors for a request to this model."""
        return Translator(model, [self._key])

    def make_call(self, request: ChatRequest, *, with_thinking: bool = True) -> Call:
        """Return a request in the form of the service."""
        return make_call(request, self._settings, signed=with_thinking)

    def refuses_thinking(self, call: Call, error: LLMError) -> bool:
        """Return whether the service refused a call for its thinking."""
        return is_about_signatures(error)

    async def close_client(self, client: Opened) -> None:
        """Close the connections."""
        await client.http.aclose()
        client.sdk.close()

    async def stream(self, client: Opened, call: Call, blocks: BlockStream) -> ChatResponse:
        """Ask once. Leaving closes the connection, however it happens."""
        opened: list[httpx.Response] = []
        token = _responses.set(opened)
        contents, config = cast("Any", call.contents), cast("Any", call.config)
        try:
            async with self.limit_silence(within=True) as hear:
                models = client.sdk.aio.models
                asked = await models.generate_content_stream(model=call.model, contents=contents, config=config)
                async with aclosing(cast("AsyncGenerator[GenerateContentResponse]", asked)) as pieces:
                    answer = await follow(pieces, blocks, hear, call.model)
        finally:
            _responses.reset(token)
            for response in opened:
                await response.aclose()
        return read_answer(answer, call)


def _build_client(key: str, address: str | None, connect_timeout: float) -> Opened:
    """Return the SDK's client, and the HTTP client below it: the SDK's own has no limit for a connection."""
    import httpx
    from google import genai
    from google.genai import types

    # The SDK warns of each word of the service that it does not know yet; the words are read here.
    filterwarnings("ignore", r".* is not a valid \w+", module=r"google\.genai\._common")

    async def limit(request: httpx.Request) -> None:
        request.extensions["timeout"] = httpx.Timeout(None, connect=connect_timeout).as_dict()

    way = make_transport("httpx")
    context = way["verify"]
    hooks: dict[str, list[Callable[..., Any]]] = {
        "request": [limit],
        "response": [refuse_redirect, reveal_error, _take_response, keep_data],
    }
    http = httpx.AsyncClient(**way, follow_redirects=True, event_hooks=hooks)
    shared = {"verify": context, "ssl": context}
    options = types.HttpOptions(
        base_url=address,
        httpx_async_client=http,
        client_args={"verify": context, "trust_env": False},
        async_client_args=shared,
    )
    return Opened(genai.Client(vertexai=False, api_key=key, http_options=options), http)


async def _take_response(response: httpx.Response) -> None:
    """Note the response for its attempt. Raises `Refusal` for the status of an error."""
    if (opened := _responses.get()) is not None:
        opened.append(response)
    if response.status_code < 300 or response.has_redirect_location:
        return
    await response.aread()
    try:
        body = response.json()
    except ValueError:
        body = response.text
    raise Refusal(response.status_code, body, response.headers)
