"""Answer requests with the models of an Ollama server."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from amplifier_core.models import ConfigField, ProviderInfo
from amplifier_providers.hidden import reveal_error
from amplifier_providers.lines import divide_json_lines
from amplifier_providers.provider import SDKProvider
from amplifier_providers.redirects import refuse_redirect
from amplifier_providers.tls import make_transport

from .config import ADDRESS_VARIABLE, KEY_VARIABLE, LOCAL_ADDRESS, read_host
from .errors import Refusal, Translator, is_about_thinking
from .models import CAPABILITIES, describe_model
from .requests import make_call, without_images
from .responses import follow, read_answer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx
    from ollama import AsyncClient, ShowResponse
    from ollama import ChatResponse as Piece

    from amplifier_core import ChatRequest, ChatResponse, HookRegistry, ModelInfo
    from amplifier_core.llm_errors import LLMError
    from amplifier_providers.streaming import BlockStream

    from .config import Settings
    from .requests import Call

CHARACTERS_PER_TOKEN = 4


class OllamaProvider(SDKProvider["AsyncClient"]):
    """Models of Ollama by its own SDK; one client for all requests of a session."""

    name = "ollama"
    sdk = "ollama"
    key_variable = KEY_VARIABLE
    place = f"base_url and {ADDRESS_VARIABLE}"

    def __init__(self, settings: Settings, hooks: HookRegistry | None = None) -> None:
        self._server = settings.find_address()
        super().__init__(settings, hooks, key=settings.find_key(), address=self._server)
        self._settings = settings
        self._seeing: dict[str, bool] = {}
        self.begin(_build_client, self._server, self._key, settings.connect_timeout)

    def get_info(self) -> ProviderInfo:
        """Describe this provider, with the limits of its default model."""
        settings = self._settings
        return ProviderInfo(
            id=self.name,
            display_name="Ollama",
            credential_env_vars=[],
            capabilities=list(CAPABILITIES),
            defaults={
                "model": settings.resolve_model(None),
                "context_window": settings.context_window,
                "max_output_tokens": min(
                    settings.max_output_tokens or settings.context_window, settings.context_window
                ),
            },
            config_fields=[
                ConfigField(
                    id="base_url",
                    display_name="Address",
                    prompt="Address of Ollama",
                    env_var=ADDRESS_VARIABLE,
                    required=False,
                    default=LOCAL_ADDRESS,
                )
            ],
        )

    async def list_models(self) -> list[ModelInfo]:
        """Return the models that the server has. Raises an `LLMError`."""
        settings = self._settings

        async def show(client: AsyncClient, name: str) -> ShowResponse | None:
            try:
                return await client.show(name)
            except Refusal:  # a model that is just being deleted, or a server without this request
                return None

        async def read(client: AsyncClient) -> list[ModelInfo]:
            async with asyncio.timeout(settings.idle_timeout):
                names = [model.model for model in (await client.list()).models if model.model]
                shown = await asyncio.gather(*(show(client, name) for name in names))
            limits = (settings.context_window, settings.max_output_tokens, self._server)
            return [describe_model(name, each, *limits) for name, each in zip(names, shown, strict=True)]

        return await self.ask(read, self.translator(""))

    async def count_tokens(self, request: ChatRequest) -> int:
        """Return about the tokens of a request: Ollama cannot count, so its characters are divided by four."""
        body = make_call(request, self._settings).body
        counted = [{**message, "images": ()} for message in body["messages"]]
        return len(json.dumps([counted, body.get("tools", ())], ensure_ascii=False)) // CHARACTERS_PER_TOKEN

    def translator(self, model: str) -> Translator:
        """Return the translator of errors for a request to this model."""
        return Translator(model, [self._key], self._server)

    def make_call(self, request: ChatRequest, *, with_thinking: bool = True) -> Call:
        """Return a request in the form of the service."""
        return make_call(request, self._settings, with_thinking=with_thinking)

    def refuses_thinking(self, call: Call, error: LLMError) -> bool:
        """Return whether the service refused a call for its thinking."""
        return "think" in call.body and is_about_thinking(error)

    async def close_client(self, client: AsyncClient) -> None:
        """Close the connections."""
        await client.close()  # type: ignore[no-untyped-call]

    async def stream(self, client: AsyncClient, call: Call, blocks: BlockStream) -> ChatResponse:
        """Ask once. Leaving closes the connection, however it happens."""
        if any("images" in each for each in call.body["messages"]) and not await self._sees(client, call.model):
            call = without_images(call)
        async with self.limit_silence(within=True) as hear:
            asked = await client.chat(**call.body, stream=True)
            async with aclosing(cast("AsyncGenerator[Piece]", asked)) as pieces:
                answer = await follow(pieces, blocks, hear)
        return read_answer(answer, call, self._server)

    async def _sees(self, client: AsyncClient, model: str) -> bool:
        """Return whether a model may have vision, as its server says; it is asked once."""
        if model not in self._seeing:
            try:
                async with asyncio.timeout(self._settings.idle_timeout):
                    told = (await client.show(model)).capabilities
            except Refusal:  # a server without this request
                told = None
            self._seeing[model] = told is None or "vision" in told
        return self._seeing[model]


def _build_client(address: str, key: str | None, connect_timeout: float) -> AsyncClient:
    """Return the SDK's client. It sends the key, and no other: the SDK sends `OLLAMA_API_KEY` to any address."""
    from ssl import PROTOCOL_TLS_CLIENT, SSLContext

    import httpx
    from ollama import AsyncClient

    def authorize(request: httpx.Request) -> httpx.Request:
        request.headers.pop("authorization", None)
        if key:
            request.headers["authorization"] = f"Bearer {key}"
        return request

    host = read_host(address)
    is_local = host in ("localhost", "::1") or host.startswith("127.")
    # Without TLS there are no certificates to read; the other context trusts nobody, should a server redirect.
    plain = is_local and not address.startswith("https:")
    return AsyncClient(
        host=address,
        **make_transport(
            "httpx", uses_proxies=not is_local, context=SSLContext(PROTOCOL_TLS_CLIENT) if plain else None
        ),
        timeout=httpx.Timeout(None, connect=connect_timeout),
        auth=authorize,
        event_hooks={"response": [refuse_redirect, reveal_error, _refuse_errors, divide_json_lines]},
    )


async def _refuse_errors(response: httpx.Response) -> None:
    """Raise `Refusal` for the status of an error: the SDK's own error has no headers, and breaks on some bodies."""
    if response.status_code < 300 or response.has_redirect_location:
        return
    await response.aread()
    try:
        body = response.json()
    except ValueError:
        body = response.text
    said = body.get("error", body) if isinstance(body, dict) else body
    said = said.get("message", said) if isinstance(said, dict) else said
    raise Refusal(response.status_code, said if isinstance(said, str) else str(said), response.headers)
