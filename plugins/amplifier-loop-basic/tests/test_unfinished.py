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
        ("model_context_window_exceeded", "context_length"),
        ("refusal", "refusal"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
        ("OTHER", "broken_off"),
        ("LANGUAGE", "broken_off"),
        ("MISSING_THOUGHT_SIGNATURE", "broken_off"),
        ("incomplete", "broken_off"),
        ("unload", "broken_off"),
        ("pause_turn", "broken_off"),
        ("insufficient_system_resource", "broken_off"),
    ],
)
async def test_an_unfinished_answer_is_told_and_kept_with_its_reason(room: Any, said: str, reason: str) -> None:
    assert await room.run("go", answer("Once upon", said)) == "Once upon"
    (end,) = room.data("orchestrator:complete")
    assert (end["status"], end["finish_reason"]) == ("incomplete", reason)
    assert room.context.messages[-1]["metadata"] == {"finish_reason": reason}


@pytest.mark.parametrize("said", [None, "", "stop", "STOP", "end_turn", "tool_calls", "completed", "eos", "end"])
async def test_a_whole_answer_has_no_reason(room: Any, said: str | None, caplog: pytest.LogCaptureFixture) -> None:
    assert await room.run("go", answer("The end.", said)) == "The end."
    (end,) = room.data("orchestrator:complete")
    assert (end["status"], "finish_reason" in end) == ("success", False)
    assert "metadata" not in room.context.messages[-1]
    assert caplog.text == ""


@pytest.mark.parametrize("said", ["null", "odd_word"])
async def test_a_text_with_an_unknown_word_is_whole_and_the_word_is_told(
    room: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await room.run("go", answer("The end.", said)) == "The end."
    assert room.data("orchestrator:complete")[0]["status"] == "success"
    assert f"'{said}', an unknown word" in caplog.text


async def test_a_refusal_without_a_word_leaves_the_question_open(room: Any) -> None:
    assert await room.run("go", answer("", "refusal")) == "The model gave no answer (refusal)."
    assert room.history() == [("user", "go")]
    assert await room.run("", "then so") == "then so"
    assert [role for role, _ in room.history()] == ["user", "assistant"]


@pytest.mark.parametrize("said", [None, "tool_calls", "odd_word"])
@pytest.mark.parametrize("text", ["", "\n\n"])
async def test_an_answer_without_a_word_is_empty(room: Any, said: str | None, text: str) -> None:
    assert await room.run("go", answer(text, said)) == "The model gave no answer (empty)."
    (end,) = room.data("orchestrator:complete")
    assert (end["status"], end["finish_reason"]) == ("incomplete", "empty")


@pytest.mark.parametrize("said", ["end_turn", "stop", "STOP"])
async def test_a_model_may_have_nothing_to_say(room: Any, said: str) -> None:
    assert await room.run("say nothing", answer("", said)) == ""
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
    cut.metadata = {"openai:incomplete_reason": "odd_word"}
    await room.run("go", cut)
    assert room.data("orchestrator:complete")[-1]["finish_reason"] == "broken_off"


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
