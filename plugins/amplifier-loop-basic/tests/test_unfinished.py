"""Test answers that their model did not finish: told, kept with the reason, and gone on with."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core.message_models import ChatResponse, TextBlock


def answer(text: str, reason: str | None) -> ChatResponse:
    return ChatResponse(content=[TextBlock(text=text)] if text else [], finish_reason=reason)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("length", "length"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("max_output_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
    ],
)
async def test_an_unfinished_answer_is_told_and_kept_with_its_reason(room: Any, said: str, reason: str) -> None:
    assert await room.run("go", answer("Once upon", said)) == "Once upon"
    (end,) = room.data("orchestrator:complete")
    assert (end["status"], end["finish_reason"]) == ("incomplete", reason)
    assert room.context.messages[-1]["metadata"] == {"finish_reason": reason}


@pytest.mark.parametrize("said", [None, "stop", "end_turn", "tool_calls", "completed"])
async def test_a_whole_answer_has_no_reason(room: Any, said: str | None) -> None:
    assert await room.run("go", answer("The end.", said)) == "The end."
    (end,) = room.data("orchestrator:complete")
    assert (end["status"], "finish_reason" in end) == ("success", False)
    assert "metadata" not in room.context.messages[-1]


async def test_a_refusal_without_a_word_leaves_the_question_open(room: Any) -> None:
    assert await room.run("go", answer("", "refusal")) == "The model gave no answer (refusal)."
    assert room.history() == [("user", "go")]
    assert await room.run("", "then so") == "then so"
    assert [role for role, _ in room.history()] == ["user", "assistant"]


async def test_an_answer_without_a_word_or_a_reason_is_empty(room: Any) -> None:
    await room.run("go", answer("", None))
    (end,) = room.data("orchestrator:complete")
    assert (end["status"], end["finish_reason"]) == ("incomplete", "empty")


async def test_an_answer_without_a_word_that_ends_as_it_should_is_whole(room: Any) -> None:
    assert await room.run("go", answer("", "end_turn")) == ""
    (end,) = room.data("orchestrator:complete")
    assert end["status"] == "success"


async def test_the_reason_of_a_published_provider_is_in_its_metadata(room: Any) -> None:
    cut = ChatResponse(
        content=[TextBlock(text="Once upon")],
        metadata={"openai:status": "incomplete", "openai:incomplete_reason": "max_output_tokens"},
    )
    await room.run("go", cut)
    (end,) = room.data("orchestrator:complete")
    assert end["finish_reason"] == "length"


async def test_an_answer_that_was_cut_goes_on_where_it_ends(room: Any) -> None:
    await room.run("go", answer("Once upon", "length"))
    assert await room.run("", " a time") == " a time"
    assert room.model.requests[-1].messages[-1].role == "user"


async def test_calls_of_a_cut_answer_run(room: Any) -> None:
    room.tool("read")
    calls = room.calls("read")
    calls.finish_reason = "length"
    assert await room.run("go", calls, "done") == "done"
    assert room.results() == [("1", "read")]
