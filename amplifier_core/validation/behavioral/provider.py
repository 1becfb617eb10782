"""Test the behaviour of providers without asking a model."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import pytest

from ...message_models import ChatResponse, TextBlock, ToolCall
from ...models import ModelInfo, ProviderInfo


class ProviderBehaviorTests:
    """The behaviour of every provider without asking a model."""

    module_kind: ClassVar[str] = "provider"

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, provider_module: Any) -> None:
        """A provider is mounted."""
        assert provider_module is not None, "mount() must mount a provider"

    @pytest.mark.asyncio
    async def test_get_info_returns_valid_provider_info(self, provider_module: Any) -> None:
        """`get_info` describes the provider."""
        info = provider_module.get_info()
        assert isinstance(info, ProviderInfo), f"get_info() must return ProviderInfo, not {type(info).__name__}"
        assert info.id and info.display_name, "get_info() must give an id and a display name that are not empty"

    @pytest.mark.asyncio
    async def test_list_models_returns_list(self, provider_module: Any) -> None:
        """`list_models` returns a list of `ModelInfo`; it may be empty."""
        models = await provider_module.list_models()
        assert isinstance(models, list), f"list_models() must return a list, not {type(models).__name__}"
        odd = [model for model in models if not isinstance(model, ModelInfo)]
        assert not odd, f"list_models() must list ModelInfo, not {odd[:3]!r}"

    @pytest.mark.asyncio
    async def test_provider_has_name_attribute(self, provider_module: Any) -> None:
        """A provider has a name."""
        name = getattr(provider_module, "name", None)
        assert isinstance(name, str) and name, f"name must be a text that is not empty, not {name!r}"

    @pytest.mark.asyncio
    async def test_parse_tool_calls_returns_list(self, provider_module: Any) -> None:
        """A response without tool calls parses to an empty list, and at once: the method is not async."""
        response = ChatResponse(content=[TextBlock(text="Hello")])
        calls = provider_module.parse_tool_calls(response)
        if inspect.iscoroutine(calls):
            calls.close()
        assert isinstance(calls, list), f"parse_tool_calls() must return a list, not {type(calls).__name__}"
        odd = [call for call in calls if not isinstance(call, ToolCall)]
        assert not odd, f"parse_tool_calls() must list ToolCall, not {odd[:3]!r}"
