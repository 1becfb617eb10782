"""Check the contract of a tool; its author runs the check.

    async def test_the_contract():
        await check_tool(WordCount(), {"text": "two words"})

The tool acts on the given input: choose a harmless one. A broken rule raises `AssertionError` with a sentence about it.
Nothing here needs a test runner.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ..models import ToolResult
from .process_watch import watch_process
from .store_checks.rules import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..interfaces import Tool

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names that OpenAI and Anthropic both take: https://platform.openai.com/docs/api-reference/chat/create."""


async def check_tool(tool: Tool, example_input: Mapping[str, Any], *, patience: float = 10.0) -> ToolResult:
    """Check the description, a call with `example_input`, one without it, and one that is cancelled.

    Returns the result of the first call. `patience` is the most seconds for each. Raises `AssertionError`.
    """
    check_tool_description(tool)
    async with watch_process("execute"):
        result = await call_tool(tool, example_input, patience)
        if required := _required(tool):
            refused = await call_tool(tool, {}, patience)
            told = refused.get_serialized_output()
            require(not refused.success, f"execute({{}}) must fail: the schema requires {', '.join(required)}")
            require(bool(told), "a failed result must say why in error['message'] or output")
        await _check_cancelling(tool, example_input, patience)
    return result


def check_tool_description(tool: Any) -> None:
    """Check the name, the description, the schema, and the signature of `execute`."""
    for name in ("name", "description"):
        text = getattr(tool, name, None)
        require(isinstance(text, str) and bool(text.strip()), f"a tool's {name} must be a text, not {text!r}")
    told = f"a tool's name must be 1 to 64 letters of a-z, digits, _ and -: services of models refuse {tool.name!r}"
    require(_NAME.fullmatch(tool.name) is not None, told)
    schema = getattr(tool, "input_schema", {})
    require(isinstance(schema, dict), f"input_schema must be a dict with a JSON Schema, not {type(schema).__name__}")
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"input_schema must be JSON: {error}") from error
    require(schema.get("type", "object") == "object", "input_schema must describe an object: {'type': 'object', …}")
    unknown = sorted(set(_required(tool)) - set(schema.get("properties", {})))
    require(not unknown, f"input_schema requires what its properties do not have: {', '.join(unknown)}")
    is_async = inspect.iscoroutinefunction(getattr(tool, "execute", None))
    require(is_async, "a tool must have `async def execute(self, input)`")


def _required(tool: Any) -> list[str]:
    return list(getattr(tool, "input_schema", {}).get("required", ()))


async def call_tool(tool: Any, given: Mapping[str, Any], patience: float) -> ToolResult:
    """Call a tool, and check the result: its type, its JSON, and that the input is unchanged."""
    arguments = deepcopy(dict(given))
    try:
        async with asyncio.timeout(patience):
            result = await tool.execute(arguments)
    except TimeoutError:
        raise AssertionError(f"execute must end; it did not within {patience:g} s") from None
    except Exception as error:
        what = f"execute({dict(given)}) must return a result with success=False"
        raise AssertionError(f"{what}; it raised {type(error).__name__}: {error}") from error
    require(isinstance(result, ToolResult), f"execute must return a ToolResult, not {type(result).__name__}")
    require(arguments == given, "execute must not change its input: it is the session's own")
    require(isinstance(result.get_serialized_output(), str), "the output must be a text, or JSON")
    return result  # type: ignore[no-any-return]  # it is one: see above


async def _check_cancelling(tool: Any, given: Mapping[str, Any], patience: float) -> None:
    """Check that a call cancelled at its first wait ends as cancelled; a call that waits for nothing may finish."""
    ended: list[str] = []

    async def call() -> None:
        try:
            await tool.execute(deepcopy(dict(given)))
            ended.append("result")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with asyncio.TaskGroup() as group:
        calling = group.create_task(call())
        await asyncio.sleep(0)
        is_waiting = not ended
        calling.cancel()
        await asyncio.wait((calling,), timeout=patience)
        is_prompt = calling.done()
    require(is_prompt, f"a cancelled call must end promptly; it went on for {patience:g} s")
    kept = ended == ["cancelled"] or not is_waiting
    require(kept, "a cancelled call must raise CancelledError: catch Exception, never BaseException or CancelledError")
