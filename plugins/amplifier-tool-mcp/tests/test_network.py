"""Remote servers in a company's network: through its proxy, with its certificates, and their faults."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from amplifier_tool_mcp import connection
from amplifier_tool_mcp.errors import ServerError
from amplifier_tool_mcp.oauth import log_in
from tests.proxies import SILENT, VARIABLES, Proxy, SecureServer

from .test_http import SAID, serving

ADDRESS = "https://corp.test/mcp"


@pytest.fixture(autouse=True)
def _own_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


async def show(address: str) -> None:
    raise AssertionError(address)


async def fail_to_log_in(url: str = ADDRESS) -> str:
    with pytest.raises(ServerError) as caught:
        await log_in("far", url, {}, show)
    return str(caught.value)


async def test_a_server_is_asked_through_the_proxy(open_room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda text, usual: (200, "application/json", usual), []) as server:
        port = int(server["url"].rpartition(":")[2].partition("/")[0])
        with Proxy(("127.0.0.1", port)) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            async with open_room({"far": {"url": "http://corp.test/mcp"}}) as room:
                assert await room.echo("a", "far") == SAID.replace("one", "far")
            assert proxy.asked[0] == "POST http://corp.test/mcp HTTP/1.1"


async def test_a_server_with_a_certificate_of_the_company_is_asked_through_the_proxy(
    open_room: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SecureServer(tmp_path) as server, Proxy(server.address) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with open_room({"far": {"url": ADDRESS}}) as room:
            assert "the certificate is not trusted (self-signed certificate)" in room.shown[0]
            assert "set SSL_CERT_FILE to a file" in room.shown[0]
        assert server.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        async with open_room({"far": {"url": ADDRESS}}) as room:
            assert "certificate" not in room.shown[0]
        assert server.asked[0] == "/mcp"


async def test_a_login_tells_what_is_wrong_with_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    message = await fail_to_log_in(f"https://127.0.0.1:{port}/mcp")
    assert message == "the MCP server 'far' cannot be used: All connection attempts failed"
    with SecureServer(tmp_path) as server, Proxy(server.address) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert "the certificate is not trusted (self-signed certificate). If your network" in await fail_to_log_in()
    with Proxy(does="407 Proxy Authentication Required") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert "of HTTPS_PROXY answers 407 Proxy Authentication Required. Put your user" in await fail_to_log_in()


async def test_a_login_at_a_silent_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTING", 0.2)
    with Proxy(does=SILENT) as silent:
        message = await fail_to_log_in(f"{silent.url}/mcp")
    assert message == "the MCP server 'far' has not answered for 0.2 seconds"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("SSL_CERT_FILE", "/nonexistent.pem", "SSL_CERT_FILE=/nonexistent.pem holds no certificates that can be read"),
        ("HTTPS_PROXY", "http://ann:S3CRETpw#x@127.0.0.1:1", "HTTPS_PROXY is no address of a proxy"),
    ],
)
async def test_a_variable_that_cannot_be_used_is_named(
    open_room: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv(variable, value)
    async with open_room({"far": {"url": ADDRESS}}) as room:
        assert told in room.shown[0]
        assert "S3CRET" not in room.shown[0]
    with pytest.raises((ValueError, ServerError), match=told.partition("=")[0]):
        await log_in("far", ADDRESS, {}, show)


async def test_a_server_on_this_machine_is_asked_without_the_proxy_and_a_proxy_that_fails_is_named(
    open_room: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda text, usual: (200, "application/json", usual), []) as server, Proxy(does="502 No") as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with open_room({"far": server}) as room:
            assert await room.echo("a", "far") == SAID.replace("one", "far")
        assert proxy.asked == []
        async with open_room({"far": {"url": "http://corp.test/mcp"}}) as room:
            assert f"(HTTP 502 through the proxy 127.0.0.1:{proxy.port} of HTTP_PROXY)" in room.shown[0]


async def test_a_variable_that_a_server_does_not_need_does_not_take_it_away(
    open_room: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://ann:S3CRETpw#x@127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "socks4://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(lambda text, usual: (200, "application/json", usual), []) as server:
        async with open_room({"far": server}) as room:
            assert await room.echo("a", "far") == SAID.replace("one", "far")
