"""Speak the protocol for `Calls`, over stdin and stdout; `http` serves it over HTTP."""

from __future__ import annotations

import json
import logging
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from amplifier_core.errors import AmplifierError
from amplifier_core.utils.secrets import redact_text
from amplifier_foundation.cli import exits
from amplifier_foundation.sessions.failures import describe_failure

from ..stdio import read_message, replace_halves
from ..streams import ChangedStream
from .lines import read_stdin
from .open_requests import OpenRequests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from .calls import Calls
    from .offers import Offer

logger = logging.getLogger(__name__)

LONGEST_NUMBER = 18
"""Digits of an id that is read from a line that is no message."""


def make_server(offers: Mapping[str, Offer], calls: Calls) -> Server[Any]:
    """Return a server with these tools; a call that fails is a result with `isError`, and no error of the protocol."""

    async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = [
            types.Tool(name=each.name, description=each.description, input_schema=each.input_schema)
            for each in offers.values()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        begun = 0

        async def report(tool: str) -> None:
            nonlocal begun
            begun += 1
            with suppress(Exception):  # a caller that is gone hears nothing
                await ctx.session.report_progress(begun, message=tool)

        arguments = params.arguments or {}
        if (problem := _find_problem(offers, params.name, arguments)) is not None:
            return _make_result(problem, failed=True)
        try:
            answer = await calls.call(params.name, arguments, report)
        except AmplifierError as error:
            return _make_result(redact_text(str(error)), failed=True)
        except Exception as error:
            return _make_result(describe_failure(error), failed=True)
        return _make_result(answer.text, answer.facts, failed=answer.failed)

    instructions = (
        "Agents and background sessions of amplifier. Tools named ask_… take a whole turn: it may take minutes."
    )
    return Server(
        "amplifier",
        version=version("amplifier"),
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _find_problem(offers: Mapping[str, Offer], name: str, arguments: Mapping[str, Any]) -> str | None:
    if name not in offers:
        return f"there is no tool {name[:80]!r}; there are {', '.join(offers)}"
    found = Draft202012Validator(offers[name].input_schema).iter_errors(dict(arguments))
    return next((f"{each.json_path}: {each.message[:300]}" for each in found), None)


def _make_result(text: str, facts: Mapping[str, Any] | None = None, *, failed: bool) -> types.CallToolResult:
    text, facts = replace_halves([text, facts])
    content: list[Any] = [types.TextContent(type="text", text=text)]
    structured = {"answer": text, **facts} if facts is not None else None
    return types.CallToolResult(content=content, structured_content=structured, is_error=failed)


async def serve_stdio(server: Server[Any]) -> int:
    """Serve the caller at stdin and stdout until it closes them, or a signal asks for the end; return the exit code.

    At the end of stdin, what was asked is answered first. A line that is no message is answered with an error, with the
    id that it has, unless it is a broken answer.
    """
    lines: Any = read_stdin()  # the SDK needs no more of a file
    async with end_on_signal() as codes, stdio_server(lines) as (reading, writing):
        requests = OpenRequests(writing)

        async def repair(item: Any) -> Any:
            found = _repair(item) if isinstance(item, ValidationError) else item
            if not isinstance(found, types.JSONRPCError):
                requests.hear(getattr(found, "message", None))
                return found
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the caller has left
                await writing.send(SessionMessage(found))
            return None

        heard = ChangedStream(reading, repair, requests.wait)
        await server.run(heard, requests, server.create_initialization_options())
    return codes[0]


def _repair(error: ValidationError) -> SessionMessage | types.JSONRPCError | None:
    """Return the message of a line that the SDK does not take, or the answer to it.

    None for an empty line, and for an answer of the caller: its id is not one of the caller's own requests.
    """
    problems = error.errors(include_url=False)
    whole: Any = None
    if problems[0]["type"] == "json_invalid":
        line = str(problems[0]["input"])
        if not line.strip():
            return None
        with suppress(ValueError):
            return SessionMessage(read_message(line.encode("utf-8", "replace")))
        with suppress(ValueError, RecursionError):  # JSON that goes too deep, or has a number that is too long
            whole = json.loads(line, parse_int=lambda digits: int(digits[:LONGEST_NUMBER]))
        problem = types.ErrorData(code=types.PARSE_ERROR, message="the line is no JSON that can be read")
    else:
        # The SDK tried each kind of message: what a kind misses is missing in the whole line.
        whole = next((each["input"] for each in problems if each["type"] == "missing"), None)
        problem = types.ErrorData(code=types.INVALID_REQUEST, message="the line is no message of JSON-RPC 2.0")
    if isinstance(whole, dict) and "method" not in whole and whole.keys() & {"result", "error"}:
        return None
    number = whole.get("id") if isinstance(whole, dict) else None
    is_number = isinstance(number, int | str) and not isinstance(number, bool)
    return types.JSONRPCError(jsonrpc="2.0", id=replace_halves(number) if is_number else None, error=problem)


@asynccontextmanager
async def end_on_signal(end: Callable[[], None] | None = None) -> AsyncIterator[list[int]]:
    """Call `end` when a signal asks for the end of the program while the block runs; None: cancel the block.

    The first of the yielded codes is the exit code of the program.
    """
    codes = [exits.OK]
    with anyio.open_signal_receiver(*exits.BY_SIGNAL) as signals:

        async def wait() -> None:
            async for number in signals:
                codes[0] = exits.BY_SIGNAL[number]
                (end or group.cancel_scope.cancel)()
                return

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            yield codes
            group.cancel_scope.cancel()
