"""Log in to a remote server of this machine, with an authorization server of its own."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
import uvicorn
from mcp.server.auth.provider import AccessToken, AuthorizationCode, AuthorizationParams, RefreshToken
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from amplifier_foundation.settings.keys import find_key, keep_key, list_kept
from amplifier_tool_mcp import oauth
from amplifier_tool_mcp.errors import ServerError
from amplifier_tool_mcp.oauth import key_name, log_in

pytestmark = pytest.mark.slow


class Authority:
    """Gives tokens to everybody who asks by the rules, and remembers for how long."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refreshing: dict[str, RefreshToken] = {}
        self.lifetime = 3600
        self.refreshed = 0
        self.refuses = False

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.refuses:
            return f"{params.redirect_uri}?{urlencode({'error': 'access_denied', 'state': params.state})}"
        code = f"code-{secrets.token_hex(8)}"
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return f"{params.redirect_uri}?{urlencode({'code': code, 'state': params.state})}"

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._give(str(client.client_id))

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        self.refreshed += 1
        del self.refreshing[refresh_token.token]
        return self._give(str(client.client_id))

    def _give(self, client: str) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        expires = int(time.time()) + self.lifetime
        self.tokens[access] = AccessToken(token=access, client_id=client, scopes=[], expires_at=expires)
        self.refreshing[refresh] = RefreshToken(token=refresh, client_id=client, scopes=[])
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.lifetime)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.tokens.pop(token.token, None)


@pytest.fixture
def authority() -> Authority:
    """The authorization server."""
    return Authority()


@pytest.fixture
async def address(authority: Authority) -> AsyncIterator[str]:
    """The address of a server that asks for a login."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        place = f"http://127.0.0.1:{held.getsockname()[1]}"
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(place),
            resource_server_url=AnyHttpUrl(f"{place}/mcp"),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            validate_token_resource=False,
        )
        server = MCPServer("guarded", auth_server_provider=authority, auth=settings)

        @server.tool()
        def whisper() -> str:
            """Tells a secret."""
            return "psst"

        program = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical", lifespan="on"))
        task = asyncio.create_task(program.serve(sockets=[held]))
        while not program.started:
            await asyncio.sleep(0.01)
        yield f"{place}/mcp"
        program.should_exit = True
        await task


async def browse(address: str) -> None:
    """Do as the browser of a person does who agrees."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        answer = await browser.get(address)
    assert answer.status_code == 200, answer.text


async def test_a_login_lets_sessions_use_a_server(open_room: Any, address: str, home: Any) -> None:
    async with open_room({"far": {"url": address}}) as room:
        assert room.tools == {}
    assert room.shown == [
        "the MCP server 'far' is missing: it asks for a login (HTTP 401). Log in with: amplifier mcp login far"
    ]
    assert await log_in("far", address, {}, browse) is True
    assert list(list_kept()) == [key_name("far", address)]
    assert (home / "keys.json").stat().st_mode & 0o777 == 0o600
    async with open_room({"far": {"url": address}}) as room:
        assert (await room.call("mcp__far__whisper")).output == "psst"
    async with open_room({"near": {"url": address}}) as room:
        assert room.tools == {}  # the tokens belong to one name


async def test_tokens_that_have_expired_are_refreshed_by_the_next_process(
    open_room: Any, address: str, authority: Authority
) -> None:
    await log_in("far", address, {}, browse)
    name = key_name("far", address)
    kept = json.loads(find_key(name))
    authority.tokens.clear()
    keep_key(name, json.dumps({**kept, "expires": time.time() - 10}))
    async with open_room({"far": {"url": address}}) as room:
        assert (await room.call("mcp__far__whisper")).output == "psst"
    assert authority.refreshed == 1
    assert json.loads(find_key(name))["tokens"]["refresh_token"] != kept["tokens"]["refresh_token"]


async def test_a_login_that_was_taken_back_is_asked_for_again(
    open_room: Any, address: str, authority: Authority
) -> None:
    await log_in("far", address, {}, browse)
    authority.tokens.clear()
    authority.refreshing.clear()
    async with open_room({"far": {"url": address}}) as room:
        assert room.tools == {}
    assert room.shown == [
        "the MCP server 'far' is missing: its login has expired. Log in again with: amplifier mcp login far"
    ]


async def test_a_refused_login_says_so_and_keeps_nothing(address: str, authority: Authority) -> None:
    authority.refuses = True
    with pytest.raises(ServerError, match=r"^the login was refused: access_denied$"):
        await log_in("far", address, {}, browse)
    assert list_kept() == {}


async def test_an_answer_that_nobody_asked_for_is_no_login(address: str) -> None:
    async def forge(asked: str) -> None:
        place = httpx2.URL(asked).params["redirect_uri"]
        async with httpx2.AsyncClient() as stranger:
            assert (await stranger.get(f"{place}/other")).status_code == 404
            await stranger.get(place, params={"code": "forged", "state": "forged"})

    with pytest.raises(ServerError, match="the login to 'far' failed: State parameter mismatch"):
        await log_in("far", address, {}, forge)
    assert list_kept() == {}


async def test_a_person_who_does_not_log_in_is_not_waited_for_for_ever(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "LOGGING_IN", 0.1)

    async def ignore(asked: str) -> None:
        pass

    with pytest.raises(ServerError, match=r"^nobody has logged in within 0.1 seconds$"):
        await log_in("far", address, {}, ignore)
