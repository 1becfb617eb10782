"""Keep the tokens of remote servers where `amplifier auth` keeps keys, and log in with a browser.

What is kept belongs to one name and one address: another server never gets it. The key's name ends with a part of the
digest of the address, as in `MCP_DOCS_1A2B3C4D`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from amplifier_core.listening import close_server

from .errors import ServerError, describe_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

LOGGING_IN = 300.0
"""Seconds that a person has to log in."""
_DONE = "You are logged in, and can close this page."
_NOT_DONE = "The login was refused; the terminal says why."


def key_name(name: str, url: str) -> str:
    """Return the name that the tokens of a server are kept under."""
    plain = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")
    return f"MCP_{plain}_{sha256(url.encode()).hexdigest()[:8].upper()}"


class KeptTokens:
    """The tokens of one server, with what refreshing them needs."""

    def __init__(self, name: str, url: str) -> None:
        self.key = key_name(name, url)
        self.data: dict[str, Any] = {}
        self.provider: OAuthClientProvider | None = None

    async def load(self) -> bool:
        """Read what is kept; return whether there is anything."""
        from amplifier_foundation.settings.keys import KeyNotFound, find_key, list_kept

        if self.key not in list_kept():
            return False
        try:
            self.data = json.loads(await asyncio.to_thread(find_key, self.key))
        except (KeyNotFound, ValueError):
            return False
        self._hide()
        return bool(self.data.get("tokens"))

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, None without any."""
        from mcp.shared.auth import OAuthToken

        found = self.data.get("tokens")
        return None if found is None else OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens, with the time at which they expire."""
        from amplifier_foundation.settings.keys import keep_key

        self.data["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        self.data["expires"] = None if tokens.expires_in is None else time.time() + tokens.expires_in
        context = self.provider.context if self.provider is not None else None
        if context is not None and context.oauth_metadata is not None:
            self.data["authority"] = context.oauth_metadata.model_dump(mode="json", exclude_none=True)
        if context is not None and context.protected_resource_metadata is not None:
            self.data["resource"] = context.protected_resource_metadata.model_dump(mode="json", exclude_none=True)
        self._hide()
        await asyncio.to_thread(keep_key, self.key, json.dumps(self.data))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client that was registered, None without one."""
        from mcp.shared.auth import OAuthClientInformationFull

        found = self.data.get("client")
        return None if found is None else OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Note the client; it is kept with its tokens."""
        self.data["client"] = client_info.model_dump(mode="json", exclude_none=True)

    def _hide(self) -> None:
        from amplifier_core.utils.secrets import hide_secret

        secrets = [self.data.get("tokens", {}).get(each) for each in ("access_token", "refresh_token")]
        for secret in (*secrets, (self.data.get("client") or {}).get("client_secret")):
            if secret:
                hide_secret(secret)

    def make_provider(
        self,
        url: str,
        place: str,
        show: Callable[[str], Awaitable[None]] | None = None,
        hear: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> OAuthClientProvider:
        """Return the SDK's provider; `place` is the address that a browser is sent back to."""
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata

        about = OAuthClientMetadata.model_validate(
            {
                "client_name": "Amplifier",
                "redirect_uris": [place],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
            }
        )
        self.provider = provider = OAuthClientProvider(url, about, self, show, hear)
        # The SDK forgets these between two processes: it would send an old token, and refresh it at the wrong address.
        context = provider.context
        context.token_expiry_time = self.data.get("expires")
        if "authority" in self.data:
            context.oauth_metadata = OAuthMetadata.model_validate(self.data["authority"])
        if "resource" in self.data:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(self.data["resource"])
        return provider


async def find_auth(name: str, url: str) -> OAuthClientProvider | None:
    """Return what authorises the requests to a server, with the kept tokens; None without any."""
    try:
        kept = KeptTokens(name, url)
        if not await kept.load():
            return None
    except ImportError:  # another program's foundation, or none
        return None

    async def refuse(address: str) -> None:
        raise ServerError(f"its login has expired. Log in again with: amplifier mcp login {name}")

    async def never() -> Any:
        raise ServerError("nobody can log in here")

    return kept.make_provider(url, "http://127.0.0.1/callback", refuse, never)


class Callback:
    """The page on this machine that the browser is sent back to."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator[str]:
        """Yield the address of the page while it is served. Raises `OSError` for a port in use."""
        server = await asyncio.start_server(self._serve_request, "127.0.0.1", port)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
        finally:
            await close_server(server)

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = (await reader.readuntil(b"\r\n")).decode("ascii", "replace").split()
            place = urlsplit(line[1] if len(line) == 3 and line[0] == "GET" else "")
            given = {name: values[0] for name, values in parse_qs(place.query).items()}
            is_ours = place.path == "/callback" and bool({"code", "error"} & given.keys())
            if is_ours and not self._answer.done():
                self._answer.set_result(given)
            text = (_DONE if "code" in given else _NOT_DONE) if is_ours else "There is nothing here."
            status = "200 OK" if is_ours else "404 Not Found"
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close"
            writer.write(f"{head}\r\n\r\n{text}".encode())
            await writer.drain()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def wait(self) -> AuthorizationCodeResult:
        """Return what the browser brings. Raises `ServerError` for a refusal, and after `LOGGING_IN` seconds."""
        from mcp.shared.auth import AuthorizationCodeResult

        try:
            async with asyncio.timeout(LOGGING_IN):
                given = await self._answer
        except TimeoutError:
            raise ServerError(f"nobody has logged in within {LOGGING_IN:g} seconds") from None
        if "code" not in given:
            raise ServerError(f"the login was refused: {given.get('error_description') or given['error']}")
        return AuthorizationCodeResult(code=given["code"], state=given.get("state"), iss=given.get("iss"))


async def log_in(
    name: str,
    url: str,
    headers: dict[str, str],
    show: Callable[[str], Awaitable[None]],
    *,
    client_id: str | None = None,
    port: int = 0,
) -> bool:
    """Log in to a server; return False if it asks for no login. `show` gets the address for the person's browser.

    Raises `ServerError`, and `OSError` for a port in use.
    """
    from mcp import Client
    from mcp.client.auth import OAuthFlowError

    from .connection import CONNECTING
    from .http import BoundedTransport, open_http
    from .sieve import Sieve

    kept, callback = KeptTokens(name, url), Callback()
    limit, now = asyncio.timeout(CONNECTING), asyncio.get_running_loop().time

    async def show_unlimited(address: str) -> None:
        limit.reschedule(None)  # the person has a limit of their own
        await show(address)

    async def hear() -> AuthorizationCodeResult:
        heard = await callback.wait()
        limit.reschedule(now() + CONNECTING)
        return heard

    async with callback.serve(port) as place:
        if client_id is not None:
            kept.data["client"] = {"client_id": client_id, "redirect_uris": [place]}
        auth = kept.make_provider(url, place, show_unlimited, hear)
        client = Client(open_http(url, headers, BoundedTransport(), Sieve().keeps, auth), cache=None)
        try:
            async with limit, client:
                pass
        except BaseException as error:
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            if isinstance(cause, OAuthFlowError):
                raise ServerError(f"the login to '{name}' failed: {cause}") from None
            if isinstance(cause, ServerError):
                raise cause from None
            if "tokens" in kept.data:
                return True
            if isinstance(cause, TimeoutError):
                raise ServerError(f"the MCP server '{name}' has not answered for {CONNECTING:g} seconds") from None
            if isinstance(cause, Exception):
                raise ServerError(f"the MCP server '{name}' cannot be used: {describe_error(cause)}") from None
            raise
    return "tokens" in kept.data
