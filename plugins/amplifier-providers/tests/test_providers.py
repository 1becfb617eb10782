"""The common parts of providers, with the smallest provider that is built on them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.llm_errors import AuthenticationError, ConfigurationError, LLMError, LLMTimeoutError, RateLimitError
from amplifier_core.message_models import ChatRequest, ChatResponse, TextBlock
from amplifier_core.models import ModelInfo, ProviderInfo
from amplifier_core.testing import check_stream
from amplifier_providers.config import BaseSettings, Model
from amplifier_providers.errors import BaseTranslator, Kind
from amplifier_providers.provider import SDKProvider
from amplifier_providers.silence import hear_bytes
from amplifier_providers.texts import well_formed
from amplifier_providers.tls import share_tls_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_providers.streaming import BlockStream

BUSY = Kind(RateLimitError, "Wait.")


class Settings(BaseSettings):
    module: ClassVar = "provider-echo"
    short_names: ClassVar = {"fast": "echo-1"}

    default_model: Model = "echo-2"


class Busy(Exception):
    """The service asks to wait."""


class Translator(BaseTranslator):
    provider = "echo"

    def translate_foreign(self, error: Exception) -> LLMError | None:
        return self.refuse(BUSY, 429, str(error), 0.0) if isinstance(error, Busy) else None


class Call(NamedTuple):
    model: str
    words: list[str]


class Echo:
    """An SDK: it repeats words, and is busy at first."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.is_closed = False


class EchoProvider(SDKProvider[Echo]):
    name = "echo"
    sdk = "echo"
    key_variable = "ECHO_API_KEY"

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name="Echo")

    async def list_models(self) -> list[ModelInfo]:
        return []

    def translator(self, model: str) -> Translator:
        return Translator(model, [self._key])

    def make_call(self, request: ChatRequest, *, with_thinking: bool = True) -> Call:
        return Call("echo-2", str(request.messages[-1].content).split())

    async def stream(self, client: Echo, call: Call, blocks: BlockStream) -> ChatResponse:
        async with self.limit_silence(within=True) as hear:
            await blocks.start("text")
            for word in call.words:
                hear()
                await asyncio.sleep(0)
                await blocks.delta(word)
                if client.refusals:
                    client.refusals -= 1
                    raise Busy("slow down, key=the-secret-key")
            await blocks.end()
        return ChatResponse(content=[TextBlock(text="".join(call.words))])

    async def close_client(self, client: Echo) -> None:
        client.is_closed = True


def make(coordinator: ModuleCoordinator, refusals: int = 0, key: str = "the-secret-key", **config: Any) -> EchoProvider:
    settings = Settings.read({"min_retry_delay": 0, **config})
    provider = EchoProvider(settings, coordinator.hooks, key=key, address=None)
    provider.begin(Echo, refusals)
    return provider


REQUEST = ChatRequest.model_validate({"messages": [{"role": "user", "content": "one two three"}]})


async def test_a_provider_with_four_methods_streams_as_the_contract_says() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    await check_stream(make(coordinator), coordinator, request=REQUEST)


async def test_a_failed_attempt_is_void_and_followed_by_another() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    heard: list[str] = []

    async def hear(event: str, data: dict[str, Any]) -> None:
        heard.append(event)

    for event in ("llm:stream_aborted", "provider:retry", "llm:request", "llm:response"):
        coordinator.hooks.register(event, hear)
    response = await make(coordinator, refusals=1).complete(REQUEST)
    assert response.content == [TextBlock(text="onetwothree")]
    assert heard == ["llm:request", "llm:stream_aborted", "provider:retry", "llm:response"]


class Body:
    """The bytes of an answer, as a client gives them."""

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b": ping"


async def test_bytes_end_the_silence_within_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = make(ModuleCoordinator(session_id="test"), first_token_timeout=5, idle_timeout=5)
    body, loop, passed = Body(), asyncio.get_running_loop(), 0.0
    start = loop.time()
    monkeypatch.setattr(loop, "time", lambda: start + passed)
    with pytest.raises(LLMTimeoutError, match="fell silent for 5 s"):
        async with provider.limit_silence(within=False) as begin:
            await hear_bytes(body)
            begin()
            async for _ in body.aiter_bytes():
                passed += 4
                await asyncio.sleep(0)
            passed += 4
            await asyncio.Event().wait()


async def test_an_error_has_a_remedy_and_no_secret() -> None:
    provider = make(ModuleCoordinator(session_id="test"), refusals=9, max_retries=0)
    with pytest.raises(RateLimitError) as caught:
        await provider.complete(REQUEST)
    assert str(caught.value) == "429: slow down, key=[REDACTED]"
    assert vars(caught.value)["remedy"] == "Wait."


async def test_a_key_as_short_as_a_word_takes_no_words_from_an_error() -> None:
    provider = make(ModuleCoordinator(session_id="test"), refusals=9, max_retries=0, key="o")
    with pytest.raises(RateLimitError, match="^429: slow down, key="):
        await provider.complete(REQUEST)


async def test_without_a_client_the_error_tells_what_is_missing() -> None:
    hooks = ModuleCoordinator(session_id="test").hooks
    keyless = EchoProvider(Settings(), hooks, key=None, address=None)
    with pytest.raises(AuthenticationError, match="there is no API key"):
        await keyless.complete(REQUEST)
    await keyless.close()
    odd = make(ModuleCoordinator(session_id="test"), key="line\nbreak")
    with pytest.raises(AuthenticationError, match="odd characters"):
        await odd.complete(REQUEST)

    def fail() -> Echo:
        raise ValueError("no such port")

    broken = EchoProvider(Settings(), hooks, key="k", address="http://host:1")
    broken.begin(fail)
    with pytest.raises(ConfigurationError, match="the address http://host:1 cannot be used: no such port"):
        await broken.complete(REQUEST)


@pytest.mark.parametrize("address", ["127.0.0.1:4929/v1", "ftp://127.0.0.1", "http://:80", "http://[::1"])
async def test_an_address_that_is_none_is_no_outage(address: str) -> None:
    """Events wait while a service is out: of an address of the environment none would ever be tried."""
    provider = EchoProvider(Settings(), ModuleCoordinator(session_id="test").hooks, key="k", address=address)
    provider.begin(Echo, 0)
    with pytest.raises(ConfigurationError) as caught:
        await provider.complete(REQUEST)
    assert str(caught.value).startswith(f"the address {address} cannot be used: ")
    assert not caught.value.retryable


@pytest.mark.skipif(find_spec("socksio") is not None, reason="the package for SOCKS proxies is there")
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
async def test_a_socks_proxy_without_its_package_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    provider = EchoProvider(Settings(), ModuleCoordinator(session_id="test").hooks, key="key-1", address=None)
    provider.begin(pytest.importorskip(library).AsyncClient)
    with pytest.raises(ConfigurationError, match=r"a SOCKS proxy \(ALL_PROXY\) needs a package") as caught:
        await provider.complete(REQUEST)
    assert vars(caught.value)["remedy"] == "Run: pip install 'httpx[socks]', or unset ALL_PROXY."


@pytest.mark.parametrize("text", [None, "nothing"], ids=["missing", "no certificates"])
async def test_an_unreadable_file_of_certificates_is_named(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "certificates.pem"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    provider = EchoProvider(Settings(), ModuleCoordinator(session_id="test").hooks, key="key-1", address=None)
    provider.begin(pytest.importorskip("httpx").AsyncClient)
    with pytest.raises(ConfigurationError, match=f"SSL_CERT_FILE={file} holds no certificates") as caught:
        await provider.complete(REQUEST)
    assert vars(caught.value)["remedy"] == "Correct or unset SSL_CERT_FILE."


async def test_readable_certificates_are_not_blamed_for_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", pytest.importorskip("certifi").where())
    provider = EchoProvider(Settings(), ModuleCoordinator(session_id="test").hooks, key="key-1", address=None)
    provider.begin(lambda: (tmp_path / "credentials").read_text())
    with pytest.raises(ConfigurationError, match="credentials") as caught:
        await provider.complete(REQUEST)
    assert "SSL_CERT_FILE" not in str(caught.value)


async def test_closing_closes_the_client_once_it_is_there() -> None:
    provider = make(ModuleCoordinator(session_id="test"))
    clients: list[Echo] = []

    async def keep(client: Echo) -> None:
        clients.append(client)

    await provider.ask(keep, provider.translator(""))
    await provider.close()
    assert [client.is_closed for client in clients] == [True]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"timeout": 0}, "provider-echo: timeout: Input should be greater than 0"),
        ({"time_out": 5}, "provider-echo: time_out: unknown key; did you mean 'timeout'?"),
        ({"default_modle": "x"}, "provider-echo: default_modle: unknown key; did you mean 'default_model'?"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match="provider-echo") as caught:
        Settings.check(config)
    assert str(caught.value) == message


def test_an_alias_is_a_model() -> None:
    settings = Settings.read({"model": "fast", "aliases": {"mine": "echo-3"}})
    assert [settings.resolve_model(name) for name in (None, "mine", "other")] == ["echo-1", "echo-3", "other"]


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_all_clients_of_a_process_share_one_tls_context(library: str) -> None:
    pytest.importorskip(library)
    with ThreadPoolExecutor(8) as threads:
        contexts = list(threads.map(share_tls_context, [library] * 32))
    assert len({id(context) for context in contexts}) == 1


def test_what_has_no_half_of_a_pair_is_the_same_object() -> None:
    request = ChatRequest.model_validate(
        {"messages": [{"role": "user", "content": "é"}], "tools": [{"name": "a", "parameters": {"type": "object"}}]}
    )
    assert well_formed(request) is request
    halved = request.model_copy(update={"metadata": {"\udce9": ["\ud83d", 1, None]}})
    mended = well_formed(halved)
    assert (mended.metadata, mended.messages) == ({"\ufffd": ["\ufffd", 1, None]}, request.messages)
