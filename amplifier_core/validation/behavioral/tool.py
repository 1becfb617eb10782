"""Test the behaviour of tools with unexpected input."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ...models import ToolResult
from ..base import is_async, takes


class ToolBehaviorTests:
    """The behaviour of every tool with unexpected input.

    No test invents an input for the tool to act on; a suite with `example_input` has it executed.
    """

    module_kind: ClassVar[str] = "tool"
    example_input: ClassVar[dict[str, Any]] = {}

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, tool_module: Any) -> None:
        """A tool is mounted."""
        assert tool_module is not None, "mount() must mount a tool"

    @pytest.mark.asyncio
    async def test_tool_has_name(self, tool_module: Any) -> None:
        """A tool has a name."""
        name = getattr(tool_module, "name", None)
        assert isinstance(name, str) and name, f"name must be a text that is not empty, not {name!r}"

    @pytest.mark.asyncio
    async def test_tool_has_description(self, tool_module: Any) -> None:
        """A tool has a description: a model chooses by it."""
        description = getattr(tool_module, "description", None)
        told = isinstance(description, str) and description.strip()
        assert told, f"description must be a text that is not empty, not {description!r}"

    @pytest.mark.asyncio
    async def test_tool_has_execute_method(self, tool_module: Any) -> None:
        """A tool can be executed."""
        execute = getattr(tool_module, "execute", None)
        fits = is_async(execute) and takes(execute, "input")
        assert fits, "a tool must have `async def execute(self, input)`"

    @pytest.mark.asyncio
    async def test_execute_returns_tool_result(self, tool_module: Any) -> None:
        """`execute` returns a `ToolResult`."""
        result = await tool_module.execute(dict(self.example_input))
        assert isinstance(result, ToolResult), f"execute() must return ToolResult, not {type(result).__name__}"

    @pytest.mark.asyncio
    async def test_tool_result_has_required_fields(self, tool_module: Any) -> None:
        """A result says whether it succeeded, and has something for the model to read."""
        result = await tool_module.execute(dict(self.example_input))
        success = getattr(result, "success", None)
        assert isinstance(success, bool), f"the result's success must be true or false, not {success!r}"
        assert hasattr(result, "output"), "the result must have an output"
        if not success:
            assert result.get_serialized_output(), "a failed result must say why in error['message'] or output"

    @pytest.mark.asyncio
    async def test_invalid_input_returns_error_result(self, tool_module: Any) -> None:
        """An input without a required key gives a result with `success=False`, never an exception."""
        try:
            result = await tool_module.execute({})
        except Exception as error:
            pytest.fail(f"execute({{}}) must return an error result; it raised {type(error).__name__}: {error}")
        assert isinstance(result, ToolResult), f"execute() must return ToolResult, not {type(result).__name__}"
        schema = getattr(tool_module, "input_schema", None)
        required = schema.get("required") if isinstance(schema, dict) else None
        assert not (required and result.success), f"execute({{}}) must not succeed: the schema requires {required}"
