"""Providers in a company's network: through its proxy, with its certificates, and their faults."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib import request as urllib_request

import pytest

from amplifier_core import http_transport
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.llm_errors import ConfigurationError, LLMError, NetworkError
from amplifier_foundation.background.outages import waits_for_person
from amplifier_foundation.cli import exits
from amplifier_foundation.flows.failures import explain
from amplifier_foundation.operations.history import REASON, first_line
from amplifier_foundation.sessions.failures import describe_failure
from amplifier_providers import tls
from amplifier_providers.errors import BaseTranslator
from amplifier_providers.redirects import Redirected, refuse_redirect
from amplifier_providers.tls import make_transport
from tests.proxies import CLOSING, SILENT, VARIABLES, Proxy, SecureServer, make_certificate

from .test_providers import REQUEST, EchoProvider, Settings

if TYPE_CHECKING:
    from amplifier_core.message_models import ChatResponse
    from amplifier_providers.streaming import BlockStream

ADDRESS = "https://corp.test/v1"


class Translator(BaseTranslator):
    provider = "echo"

    def translate_foreign(self, error: Exception) -> LLMError | None:
        return None


class SilentSocks:
    """Tells of its progress as the libraries do with `socksio`, which is not installed, and gets no answer."""

    def __init__(self, **options: Any) -> None:
        pass

    async def handle_async_request(self, request: Any) -> None:
        for event in ("connect_tcp.complete", "setup_socks5_connection.started"):
            await request.extensions["trace"](f"socks.{event}", {})
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _own_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tls, "_contexts", {})


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


async def ask(library: str, connect: float = 30.0, address: str = ADDRESS) -> Any:
    """Return the answer of the server, asked as providers ask. Raises an `LLMError`."""
    http = import_module(library)
    timeout = http.Timeout(60, connect=connect)
    async with http.AsyncClient(**make_transport(library), timeout=timeout) as client:
        try:
            return await client.post(address, json={})
        except http.HTTPError as error:
            raise Translator("m", ()).translate(error) from None


@pytest.mark.parametrize(
    ("said", "is_page"),
    [
        (b"\xef\xbb\xbf\r\n <!doctype html>", True),
        (b'data: {"said": "<b>"}', False),
        (b" \n", False),
        (b"", False),
    ],
)
async def test_a_page_is_known_by_its_first_character(
    library: str, said: bytes, is_page: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its type says little: some servers call all that they send HTML."""
    with SecureServer(tmp_path, said, "text/html; charset=utf-8") as server, Proxy(server.address) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        hooks: Any = {"response": [refuse_redirect]}
        async with import_module(library).AsyncClient(**make_transport(library), event_hooks=hooks) as client:
            if is_page:
                with pytest.raises(Redirected, match="200: a web page answers"):
                    await client.get(ADDRESS)
            else:
                assert (await client.get(ADDRESS)).content == said


async def failure(library: str, connect: float = 30.0, address: str = ADDRESS) -> Any:
    with pytest.raises(LLMError) as caught:
        await ask(library, connect, address)
    return caught.value


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
async def test_requests_go_through_the_proxy_with_its_password(
    library: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SecureServer(tmp_path) as server, Proxy(server.address) as proxy:
        monkeypatch.setenv(variable, proxy.url.replace("://", "://ann:p%23ss@"))
        monkeypatch.setenv("NO_PROXY", "localhost,[::1],fd00::/8")
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        assert (await ask(library)).text == "there"
        assert (proxy.asked, proxy.signed) == (["CONNECT corp.test:443 HTTP/1.1"], ["Basic YW5uOnAjc3M="])


async def test_the_limit_to_connect_covers_a_silent_proxy(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transport, "TUNNEL", 0)
    with Proxy(does=SILENT) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        begun = time.monotonic()
        error = await failure(library, connect=0.2)
        assert time.monotonic() - begun < 30  # and not the minute that an answer may take
        assert (
            str(error)
            == f"no connection: the proxy 127.0.0.1:{proxy.port} of HTTPS_PROXY has not answered within 0.2 s"
        )
        assert (type(error), error.retryable) == (NetworkError, True)
        assert error.remedy.endswith("longer with connect_timeout.")


async def test_the_limit_to_connect_covers_a_silent_socks_proxy(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("socksio") is None:
        monkeypatch.setattr(import_module(library), "AsyncHTTPTransport", SilentSocks)
    monkeypatch.setattr(http_transport, "TUNNEL", 0)
    with Proxy(does=SILENT) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("http", "socks5"))
        async with asyncio.timeout(30):
            error = await failure(library, connect=0.2)
    assert f"the proxy 127.0.0.1:{proxy.port} of HTTPS_PROXY has not answered within 0.2 s" in str(error)


async def test_a_slow_proxy_may_take_longer_than_the_limit_to_connect(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(does="502 Bad Gateway") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        proxy.answers.clear()
        asyncio.get_running_loop().call_later(1, proxy.answers.set)
        assert "answers 502 Bad Gateway" in str(await failure(library, connect=0.5))


@pytest.mark.parametrize(
    ("does", "told", "remedy", "is_lasting"),
    [
        ("407 Proxy Authentication Required", "answers 407 Proxy Auth", "before the host in HTTPS_PROXY.", True),
        ("502 Bad Gateway", "answers 502 Bad Gateway", "corp.test in NO_PROXY.", False),
        (CLOSING, "corp.test cannot be reached through the proxy", "the network and the proxy.", False),
    ],
)
async def test_a_fault_of_the_proxy_names_it(
    library: str, does: str, told: str, remedy: str, is_lasting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(does=does) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        error = await failure(library)
    assert told in str(error)
    assert f"the proxy 127.0.0.1:{proxy.port} of HTTPS_PROXY" in str(error)
    assert not str(error).endswith((":", "()"))
    assert error.remedy.endswith(remedy)
    assert (error.is_of_environment, error.retryable) == (is_lasting, True)


async def test_what_a_person_mends_is_tried_again_and_has_events_wait(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AskingProvider(EchoProvider):
        async def stream(self, client: Any, call: Any, blocks: BlockStream) -> ChatResponse:
            await client.post(ADDRESS, json={})
            raise AssertionError("there is no tunnel")

    with Proxy(does="407 Proxy Authentication Required") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        settings = Settings.read({"min_retry_delay": 0, "max_retries": 2})
        hooks = ModuleCoordinator(session_id="test").hooks
        provider = AskingProvider(settings, hooks, key="key-1", address=None)
        provider.begin(lambda: import_module(library).AsyncClient(**make_transport(library)))
        with pytest.raises(NetworkError, match="answers 407") as caught:
            await provider.complete(REQUEST)
        assert len(proxy.asked) == 3
    assert explain(caught.value, "task").is_retryable
    assert exits.exit_code(caught.value) == exits.TRY_AGAIN
    assert waits_for_person(caught.value)


async def test_the_exceptions_of_the_system_are_looked_at_beside_the_event_loop(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS and Windows ask for the address of the host, for which no system here does."""
    asked, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def bypass(host: str) -> bool:
        loop.call_soon_threadsafe(asked.set)
        return not goes_on.wait(30)

    monkeypatch.setattr(urllib_request, "proxy_bypass", bypass)
    with Proxy(does="403 Forbidden") as proxy:
        monkeypatch.setattr(urllib_request, "getproxies", lambda: {"https": proxy.url})
        failing = asyncio.create_task(failure(library))
        await asked.wait()
        goes_on.set()
        assert "of the system's settings answers 403 Forbidden" in str(await failing)


async def test_a_variable_that_cannot_be_read_is_not_tried_again(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:S3CRETpw#x@127.0.0.1:1")
    error = await failure(library)
    assert "HTTPS_PROXY is no address of a proxy" in str(error)
    assert (error.is_of_environment, error.retryable, "S3CRET" in str(error)) == (True, False, False)


async def test_a_proxy_that_wants_a_password_names_itself_without_a_tunnel_too(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(does="407 Proxy Authentication Required") as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        error = await failure(library, address="http://corp.test/v1")
    assert f"the proxy 127.0.0.1:{proxy.port} of HTTP_PROXY answers 407 Proxy Authentication Required" in str(error)
    assert error.remedy == "Put your user and password before the host in HTTP_PROXY."
    assert error.is_of_environment


async def test_a_proxy_that_is_not_there_is_told_apart_from_the_service(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy() as proxy:
        pass
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    error = await failure(library)
    assert f"the proxy 127.0.0.1:{proxy.port} of HTTPS_PROXY cannot be reached (" in str(error)
    assert error.remedy == "Check HTTPS_PROXY and the network."


async def test_an_untrusted_certificate_names_the_variable_to_its_end(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "corp.pem")
    with SecureServer(tmp_path) as server, Proxy(server.address) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        error = await failure(library)
    assert "corp.test" in str(error)
    assert "the certificate is not trusted (self-signed certificate)" in str(error)
    assert "set SSL_CERT_FILE to a file" in error.remedy
    assert (error.is_of_environment, error.retryable) == (True, True)
    assert first_line(describe_failure(error), REASON).endswith("REQUESTS_CA_BUNDLE does not count here.")


async def test_a_certificate_is_trusted_as_soon_as_its_authority_is_in_the_file(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = make_certificate(tmp_path, "other.test")[0]
    with SecureServer(tmp_path) as server, Proxy(server.address) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
        assert "is not trusted" in str(await failure(library))
        with authorities.open("ab") as file:
            file.write(server.certificate.read_bytes())
        assert (await ask(library)).text == "there"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("HTTPS_PROXY", "http://ann:S3CRETpw#x@127.0.0.1:1", "HTTPS_PROXY is no address"),
        ("ALL_PROXY", "socks4://127.0.0.1:1", "ALL_PROXY names a proxy of the scheme socks4"),
        ("ALL_PROXY", "socks5://127.0.0.1:1", r"SOCKS proxy \(ALL_PROXY\) needs a package"),
    ],
)
async def test_a_variable_that_cannot_be_used_is_told_and_marked_for_events_to_wait(
    library: str, variable: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    error = await failure(library)
    assert re.search(told, str(error))
    assert error.is_of_environment
    assert "S3CRET" not in f"{error} {error.remedy}"


async def test_certificates_that_cannot_be_used_are_told_and_marked_for_events_to_wait(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent.pem")
    provider = EchoProvider(Settings(), ModuleCoordinator(session_id="test").hooks, key="key-1", address=None)
    provider.begin(lambda: import_module(library).AsyncClient(**make_transport(library)))
    with pytest.raises(ConfigurationError, match=r"SSL_CERT_FILE=/nonexistent\.pem holds no certificates") as caught:
        await provider.complete(REQUEST)
    assert caught.value.is_of_environment


async def test_an_exception_that_an_sdk_cannot_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ollama's SDK makes a client of its own when it is imported."""
    monkeypatch.setenv("NO_PROXY", "localhost,[::1]")
    provider = EchoProvider(Settings(), ModuleCoordinator(session_id="test").hooks, key="key-1", address=None)
    provider.begin(pytest.importorskip("httpx").AsyncClient)
    with pytest.raises(ConfigurationError, match="NO_PROXY has an entry that the HTTP library"):
        await provider.complete(REQUEST)
