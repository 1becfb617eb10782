"""Images in the results of tools, on their way to the model."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core.message_models import ImageBlock
from amplifier_core.models import HookResult, ProviderInfo, ToolResult

DATA = "iVBORw0KGgo="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
UNSEEN = "[An image is left out here: the model sees no images.]"


def shows(*content: Any, **more: Any) -> Any:
    async def look(input: dict[str, Any]) -> ToolResult:
        return ToolResult(content=[ImageBlock(**each) if isinstance(each, dict) else each for each in content], **more)

    return look


def told(room: Any) -> Any:
    """Return the content of the result as the model and the history have it."""
    [message] = [each for each in room.context.messages if each["role"] == "tool"]
    return message["content"]


async def test_a_result_with_an_image_goes_to_the_model_as_text_and_image(room: Any) -> None:
    room.tool("look", shows(IMAGE, output={"width": 3}))
    await room.run("go", room.calls("look"), "seen")
    assert told(room) == [{"type": "text", "text": '{"width": 3}'}, IMAGE]
    sent = room.model.requests[-1].messages[-1].content
    assert [block.model_dump(exclude_none=True) for block in sent] == told(room)


async def test_blocks_without_an_output_keep_their_order(room: Any) -> None:
    room.tool("look", shows("before", IMAGE, "after"))
    await room.run("go", room.calls("look"), "seen")
    assert [block["type"] for block in told(room)] == ["text", "image", "text"]


async def test_blocks_of_text_alone_are_a_text(room: Any) -> None:
    room.tool("look", shows("one", "two"))
    await room.run("go", room.calls("look"), "seen")
    assert told(room) == "one\ntwo"


async def test_hooks_see_no_bytes_and_change_the_text_without_losing_the_image(room: Any) -> None:
    async def change(event: str, data: dict[str, Any]) -> HookResult:
        assert DATA not in repr(data)
        return HookResult(action="modify", data={**data, "result": {**data["result"], "output": "changed"}})

    room.hooks.register("tool:post", change)
    room.tool("look", shows(IMAGE, output="plain"))
    await room.run("go", room.calls("look"), "seen")
    assert told(room) == [{"type": "text", "text": "changed"}, IMAGE]


async def test_a_provider_that_names_no_vision_gets_a_text_and_the_history_keeps_the_image(room: Any) -> None:
    info = ProviderInfo(id="blind", display_name="Blind", capabilities=["tools"])
    room.model.get_info = lambda: info
    room.tool("look", shows(IMAGE, output="plain"))
    await room.run("go", room.calls("look"), "no")
    assert room.model.requests[-1].messages[-1].content == f"plain\n{UNSEEN}"
    assert told(room)[1] == IMAGE


@pytest.mark.parametrize(
    ("image", "note"),
    [
        ({**IMAGE, "source": {**IMAGE["source"], "data": "A" * 7_000_001}}, "[An image of 5,250,000 bytes is left out"),  # type: ignore[dict-item]
        ({**IMAGE, "source": {"type": "base64"}}, "[An image is left out here.]"),
    ],
)
async def test_an_image_that_no_service_takes_is_left_out_by_name(room: Any, image: Any, note: str) -> None:
    room.tool("look", shows(image, output="plain"))
    await room.run("go", room.calls("look"), "no")
    assert told(room)[1]["type"] == "text" and told(room)[1]["text"].startswith(note)


async def test_an_injection_is_appended_to_a_result_with_an_image(room: Any) -> None:
    async def inject(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(
            action="inject_context", context_injection="mind", ephemeral=True, append_to_last_tool_result=True
        )

    room.hooks.register("tool:post", inject)
    room.tool("look", shows(IMAGE, output="plain"))
    await room.run("go", room.calls("look"), "no")
    assert room.model.requests[-1].messages[-1].content[-1].text == "mind"
