"""Questions about tool calls, with what the calls would change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_core import previews
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.events import TOOL_PRE
from amplifier_core.models import HookResult


class Approvals:
    """Answers every question, and remembers it; `meanwhile` happens before the answer."""

    def __init__(self, answer: str = "Allow", meanwhile: Any = lambda: None) -> None:
        self.asked: list[str] = []
        self.answer = answer
        self.meanwhile = meanwhile

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: Any) -> str:  # noqa: ASYNC109
        self.asked.append(prompt)
        self.meanwhile()
        return self.answer


class Writer:
    """A tool with a preview."""

    name, description = "write", "Writes."

    def __init__(self, shown: Any = "-old\n+new") -> None:
        self.shown = shown

    async def preview(self, input: dict[str, Any]) -> Any:
        if isinstance(self.shown, BaseException):
            raise self.shown
        return await self.shown() if callable(self.shown) else self.shown

    async def execute(self, input: dict[str, Any]) -> Any: ...


async def ask(tool: Any, approvals: Any, event: str = TOOL_PRE) -> HookResult:
    coordinator = ModuleCoordinator(session_id="s")
    coordinator.approval_system = approvals
    await coordinator.mount("tools", tool, name="write")
    data = {"tool_name": "write", "tool_input": {"a": 1}}
    question = HookResult(action="ask_user", approval_prompt="Write?", data=data)
    return await coordinator.process_hook_result(question, event, "gate")


async def test_a_question_has_what_the_call_would_change_after_it() -> None:
    approvals = Approvals()
    assert (await ask(Writer(), approvals)).action == "continue"
    assert approvals.asked == ["Write?\n-old\n+new"]


async def test_a_call_that_would_change_something_else_now_is_refused_and_a_denial_stays_one() -> None:
    tool = Writer()
    approvals = Approvals(meanwhile=lambda: setattr(tool, "shown", "-other\n+new"))
    refused = await ask(tool, approvals)
    assert (refused.action, refused.reason) == ("deny", previews.CHANGED)
    denied = await ask(Writer(), Approvals("Deny"))
    assert (denied.action, denied.reason) == ("deny", "User denied: Write?")


async def hang() -> str:
    await asyncio.Event().wait()
    return "late"


@pytest.mark.parametrize("shown", [ValueError("no"), hang, 5, "", None])
async def test_a_preview_that_fails_hangs_or_is_no_text_shows_nothing_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, shown: Any
) -> None:
    monkeypatch.setattr(previews, "TIME_LIMIT", 0.01)
    approvals = Approvals()
    assert (await ask(Writer(shown), approvals)).action == "continue"
    assert approvals.asked == ["Write?"]


async def test_an_attribute_that_is_no_coroutine_function_is_not_called() -> None:
    tool, approvals = Writer(), Approvals()
    vars(tool)["preview"] = lambda input: 1 / 0
    assert (await ask(tool, approvals)).action == "continue"
    assert approvals.asked == ["Write?"]


async def test_a_preview_is_bounded_escaped_and_without_secrets() -> None:
    approvals = Approvals()
    await ask(Writer("+a\x1b[31m\u202e\r\n\tAPI_KEY=sk-abcdefghijklmnop1234\n" + "+x\n" * 10_000), approvals)
    [prompt] = approvals.asked
    assert prompt.startswith("Write?\n+a\\x1b[31m\\u202e\\r\n\tAPI_KEY=[REDACTED]\n+x\n")
    assert len(prompt) < previews.LONGEST + 200 and "characters are not shown; sha256 of all: " in prompt


async def test_what_is_beyond_the_bound_counts_too() -> None:
    tool = Writer("+x\n" * 10_000 + "+y")
    approvals = Approvals(meanwhile=lambda: setattr(tool, "shown", "+x\n" * 10_000 + "+z"))
    assert (await ask(tool, approvals)).reason == previews.CHANGED


async def test_a_system_may_do_without_and_questions_of_other_events_have_none() -> None:
    approvals = Approvals()
    approvals.shows_previews = False  # type: ignore[attr-defined]
    await ask(Writer(), approvals)
    other = Approvals()
    await ask(Writer(), other, event="prompt:submit")
    assert approvals.asked == other.asked == ["Write?"]


async def test_a_system_that_answers_calls_gets_the_preview_beside_the_question() -> None:
    class Inbox:
        async def answer_call(self, coordinator: Any, question: HookResult) -> HookResult:
            self.question = question
            return HookResult(action="continue", data=question.data)

    inbox = Inbox()
    assert (await ask(Writer(), inbox)).action == "continue"
    assert (inbox.question.approval_prompt, inbox.question.approval_preview) == ("Write?", "-old\n+new")


def test_many_scattered_changes_are_one_hunk_between_what_stays() -> None:
    kept = ["same"] * 3
    old = [f"old {number % 7 and number}" for number in range(40_000)]
    new = [f"new {number % 7 and number}" for number in range(40_000)]
    lines = previews.compare_lines([*kept, *old, *kept], [*kept, *new, *kept], "a", "b")
    assert lines[:4] == ["--- a", "+++ b", "@@ -4,40000 +4,40000 @@", "-old 0"]
    assert (len(lines), lines[-1]) == (80_003, f"+{new[-1]}")


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (["a"], ["a"], []),
        ([], ["a"], ["--- x", "+++ y", "@@ -0,0 +1 @@", "+a"]),
        (["a", "a"], ["a"], ["--- x", "+++ y", "@@ -1,2 +1 @@", " a", "-a"]),
    ],
)
def test_few_changes_are_a_unified_diff(old: list[str], new: list[str], shown: list[str]) -> None:
    assert previews.compare_lines(old, new, "x", "y") == shown
