"""Deliver notifications: on the desktop, to a command, or to a webhook.

Every delivery has a time limit, and raises `NotDelivered` when it fails. None follows a redirect or uses a shell.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from amplifier_core.errors import AmplifierError
from amplifier_core.utils import REFERENCE
from amplifier_core.utils.secrets import hide_secret, redact_text

if TYPE_CHECKING:
    from collections.abc import Mapping

TIME_LIMIT = 10.0
"""Seconds for one delivery."""


class NotDelivered(AmplifierError):
    """A target did not take a notification."""


class Target(Protocol):
    """One place that is told."""

    def __str__(self) -> str:
        """Return its name without secrets."""
        ...

    async def deliver(self, notification: Mapping[str, Any]) -> None:
        """Tell it. Raises `NotDelivered`."""
        ...


def make_target(entry: Mapping[str, Any]) -> Target:
    """Return the target of an entry of the setting `notify`."""
    if entry.get("command"):
        return Command(entry["command"])
    return Webhook(entry) if entry.get("webhook") else Desktop()


class Command:
    """A program that reads the notification as JSON, and the facts of its first event in its environment."""

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv

    def __str__(self) -> str:
        return redact_text(f"the command {self._argv[0]}")

    async def deliver(self, notification: Mapping[str, Any]) -> None:
        """Run the program to its end, and end it after the time limit."""
        first = notification["events"][0]
        facts = {
            "AMPLIFIER_EVENT": first["event"],
            "AMPLIFIER_COUNT": notification["count"],
            "AMPLIFIER_TEXT": notification["text"],
            "AMPLIFIER_BACKGROUND_SESSION": first["background_session"],
            "AMPLIFIER_PROJECT": first["project"],
        }
        environment = {**os.environ, **{name: str(value).replace("\0", "") for name, value in facts.items()}}
        await run_program(self._argv, environment, json.dumps(notification).encode() + b"\n")


class Desktop:
    """The desktop of this user, by `notify-send`."""

    def __init__(self) -> None:
        self._is_missing = False

    def __str__(self) -> str:
        return "the desktop"

    async def deliver(self, notification: Mapping[str, Any]) -> None:
        """Show it; without `notify-send`, fail at the first time alone."""
        program = shutil.which("notify-send")
        if program is None:
            if self._is_missing:
                return
            self._is_missing = True
            raise NotDelivered("notify-send is not installed. Install it with: apt install libnotify-bin")
        lines = [each["text"] for each in notification["events"]]
        body = "\n".join(lines[:5]).replace("\0", "")
        await run_program([program, "--app-name=amplifier", "--", notification["text"].replace("\0", ""), body])


async def run_program(argv: list[str], environment: Mapping[str, str] | None = None, text: bytes = b"") -> None:
    """Run a program in a session of its own, and end everything in it afterwards. Raises `NotDelivered`."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise NotDelivered(f"it does not start: {error}") from None
    try:
        async with asyncio.timeout(TIME_LIMIT):
            _, said = await process.communicate(text)
    except TimeoutError:
        raise NotDelivered(f"it has not ended after {TIME_LIMIT:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode:
        line = redact_text(said.decode(errors="replace")).strip().partition("\n")[0]
        raise NotDelivered(f"it ended with {process.returncode}{f': {line[:200]}' if line else ''}")


class Webhook:
    """An address that takes the notification as a POST of JSON."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._url, self._token = str(entry["webhook"]), str(entry.get("token", ""))
        self._header = str(entry.get("header", "Authorization"))
        self._insecure = bool(entry.get("insecure", False))

    def __str__(self) -> str:
        is_secret = REFERENCE.fullmatch(self._url)
        return "the webhook" if is_secret else f"the webhook at {urlsplit(self._url).hostname}"

    async def deliver(self, notification: Mapping[str, Any]) -> None:
        """POST it; any answer but 2xx is a failure, a redirect too."""
        from ..settings.schema import check_webhook

        body = json.dumps(notification).encode()
        try:
            async with asyncio.timeout(TIME_LIMIT):
                url, token = await _expand(self._url), await _expand(self._token)
                check_webhook(url, insecure=self._insecure)
                bearer = f"Bearer {token}" if self._header.lower() == "authorization" else token
                headers = {self._header: bearer} if token else {}
                if any(ord(each) < 32 for each in token):
                    raise NotDelivered("its token has control characters")
                status = await asyncio.to_thread(post, url, body, headers)
        except TimeoutError:
            raise NotDelivered(f"it has not answered after {TIME_LIMIT:g} s") from None
        except (OSError, LookupError, ValueError) as error:
            raise NotDelivered(redact_text(str(error)) or type(error).__name__) from None
        if 300 <= status < 400:
            raise NotDelivered(f"it redirects (HTTP {status}), which is not followed. Name the final address")
        if not 200 <= status < 300:
            raise NotDelivered(f"it answers HTTP {status}")


def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """POST JSON without a proxy, and return the status of the answer. Raises `OSError`, `ValueError`.

    `http.client` follows no redirect.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=TIME_LIMIT)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    about = {"User-Agent": "amplifier", "Content-Type": "application/json", **headers}
    try:
        connection.request("POST", target, body, about)
        return connection.getresponse().status
    except HTTPException as error:
        raise ValueError(f"it does not answer as a web server: {type(error).__name__}") from None
    finally:
        connection.close()


async def _expand(value: str) -> str:
    found = REFERENCE.fullmatch(value)
    if not found:
        return value
    from ..settings.keys import find_key

    secret = await asyncio.to_thread(find_key, found[1])
    hide_secret(secret)
    return secret
