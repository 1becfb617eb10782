"""What becomes of a hook's wish: to tell the model something, to ask the user, to show a message."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.models import ContextInjection, HookResult
from amplifier_core.testing import MockContextManager


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return ModuleCoordinator(session_id="s", parent_id="p")


# injections


@pytest.fixture
async def context(coordinator: ModuleCoordinator) -> MockContextManager:
    context = MockContextManager()
    await coordinator.mount("context", context)
    return context


def injection(content: str, **fields: Any) -> HookResult:
    return HookResult(action="inject_context", context_injection=content, **fields)


async def test_an_injection_becomes_a_message_that_says_where_it_comes_from(
    coordinator: ModuleCoordinator, context: MockContextManager
) -> None:
    result = injection("look out", context_injection_role="user")
    assert await coordinator.process_hook_result(result, "tool:post", "linter") is result
    [message] = context.messages
    about = message.pop("metadata")
    assert message == {"role": "user", "content": "look out"}
    assert about.pop("timestamp").endswith("+00:00")
    assert about == {"source": "hook", "hook_name": "linter", "event": "tool:post"}


async def test_injections_of_several_hooks_become_one_message_each(
    coordinator: ModuleCoordinator, context: MockContextManager
) -> None:
    def injecting(name: str, role: Any) -> None:
        answer = HookResult(action="inject_context", context_injection=name, context_injection_role=role)
        coordinator.hooks.register("e", lambda event, data: answer, name=name)

    injecting("first", "system")
    injecting("second", "user")
    await coordinator.process_hook_result(await coordinator.hooks.emit("e", {}), "e", "caller")
    assert [(each["role"], each["content"], each["metadata"]["hook_name"]) for each in context.messages] == [
        ("system", "first", "first"),
        ("user", "second", "second"),
    ]


@pytest.mark.parametrize("result", [injection("now", ephemeral=True), injection(""), HookResult(action="modify")])
async def test_what_is_ephemeral_or_empty_is_not_kept(
    coordinator: ModuleCoordinator, context: MockContextManager, result: HookResult
) -> None:
    assert await coordinator.process_hook_result(result, "e", "h") is result
    assert context.messages == []


async def test_an_ephemeral_injection_of_one_hook_does_not_lose_the_lasting_one_of_another(
    coordinator: ModuleCoordinator, context: MockContextManager
) -> None:
    parts = [ContextInjection(content="now", ephemeral=True), ContextInjection(content="always")]
    result = HookResult(action="inject_context", ephemeral=True, context_injections=parts)
    await coordinator.process_hook_result(result, "e", "h")
    assert [each["content"] for each in context.messages] == ["always"]


async def test_an_injection_without_a_context_is_no_failure(coordinator: ModuleCoordinator) -> None:
    result = injection("text")
    assert await coordinator.process_hook_result(result, "e", "h") is result


async def test_an_injection_over_the_size_limit_is_an_error_that_names_the_hook(
    coordinator: ModuleCoordinator, context: MockContextManager
) -> None:
    coordinator.config = {"session": {"injection_size_limit": 10_240}}
    await coordinator.process_hook_result(injection("x" * 10_240), "e", "fits")
    with pytest.raises(ValueError, match="Context injection exceeds 10240 characters: hook 'talker' sent 10241"):
        await coordinator.process_hook_result(injection("x" * 10_241), "e", "talker")
    assert len(context.messages) == 1


@pytest.mark.parametrize(("limit", "accepted"), [(None, True), (5, False), (6, True)])
async def test_the_size_limit_is_the_config_s(limit: int | None, accepted: bool) -> None:
    coordinator = ModuleCoordinator(config={"session": {"injection_size_limit": limit}})
    assert coordinator.injection_size_limit == limit
    outcome = await asyncio.gather(
        coordinator.process_hook_result(injection("123456"), "e", "h"), return_exceptions=True
    )
    assert isinstance(outcome[0], HookResult) is accepted


async def test_the_budget_of_a_turn_warns_and_lets_through(
    context: MockContextManager, coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.config = {"session": {"injection_budget_per_turn": 10}}
    for _ in range(3):
        await coordinator.process_hook_result(injection("x" * 20), "e", "h")
    assert caplog.messages == ["hooks injected more than 10 tokens in this turn, last 'h'"]
    assert len(context.messages) == 3
    coordinator.reset_turn()
    caplog.clear()
    await coordinator.process_hook_result(injection("x" * 20), "e", "h")
    assert caplog.messages == []


@pytest.mark.parametrize("session", [{}, {"injection_budget_per_turn": None, "injection_size_limit": None}])
async def test_injections_have_no_limits_unless_the_configuration_sets_them(
    session: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = ModuleCoordinator(config={"session": session})
    assert (coordinator.injection_size_limit, coordinator.injection_budget_per_turn) == (None, None)
    await coordinator.process_hook_result(injection("x" * 1_000_000), "e", "h")
    assert caplog.messages == []


# approvals


class Approvals:
    """Answers every question with `answer`, or raises it, and remembers the questions."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: Any) -> str:  # noqa: ASYNC109 - a published signature
        self.asked.append((prompt, options, timeout, default))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return str(self.answer)


async def asked(coordinator: ModuleCoordinator, answer: Any, **fields: Any) -> HookResult:
    coordinator.approval_system = Approvals(answer)
    question = HookResult(action="ask_user", data={"n": 1}, **fields)
    return await coordinator.process_hook_result(question, "tool:pre", "guard")


@pytest.mark.parametrize(
    "answer",
    ["Allow", "allow", " ALLOW ", "Allow once", "Allow always", "Always allow", "always", "yes", "Approved", "ok"],
)
async def test_an_answer_that_allows_lets_the_data_pass(coordinator: ModuleCoordinator, answer: str) -> None:
    assert await asked(coordinator, answer) == HookResult(action="continue", data={"n": 1})


@pytest.mark.parametrize(
    "answer",
    ["Deny", "no", "", " ", "None", "Always deny", "always reject", "disallow", "allowed?", "not ok", "Proceed", "1"],
)
async def test_any_other_answer_denies(coordinator: ModuleCoordinator, answer: str) -> None:
    result = await asked(coordinator, answer, approval_prompt="Delete it?")
    assert (result.action, result.reason) == ("deny", "User denied: Delete it?")


async def test_the_user_is_asked_what_the_hook_wants_to_know(coordinator: ModuleCoordinator) -> None:
    await asked(
        coordinator,
        "Yes",
        approval_prompt="Delete?",
        approval_options=["Yes", "No"],
        approval_timeout=5.0,
        approval_default="allow",
    )
    assert vars(coordinator.approval_system)["asked"] == [("Delete?", ["Yes", "No"], 5.0, "allow")]
    await asked(coordinator, "Allow")
    assert vars(coordinator.approval_system)["asked"] == [
        ("Allow this operation?", ["Allow", "Deny"], 300.0, "deny"),
    ]


async def test_nobody_to_ask_denies(coordinator: ModuleCoordinator) -> None:
    result = await coordinator.process_hook_result(HookResult(action="ask_user"), "e", "h")
    assert (result.action, result.reason) == ("deny", "No approval system available")


@pytest.mark.parametrize(("default", "action"), [("allow", "continue"), ("deny", "deny")])
async def test_the_hook_s_default_stands_when_nobody_answers_in_time(
    coordinator: ModuleCoordinator, default: str, action: str
) -> None:
    result = await asked(coordinator, ApprovalTimeoutError("too late"), approval_default=default)
    assert result.action == action


async def test_a_denial_for_want_of_an_answer_says_that_the_time_ran_out(coordinator: ModuleCoordinator) -> None:
    result = await asked(coordinator, ApprovalTimeoutError("too late"), approval_prompt="Delete it?")
    assert (result.action, result.reason) == ("deny", "Approval timeout - denied by default: Delete it?")


@pytest.mark.parametrize("error", [RuntimeError("no terminal"), TimeoutError("no terminal")], ids=repr)
async def test_an_approval_system_that_fails_denies_even_where_the_default_allows(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    result = await asked(coordinator, error, approval_default="allow")
    assert (result.action, result.reason) == ("deny", "Approval failed: no terminal")
    assert caplog.messages == ["the approval system failed for hook 'guard': no terminal"]


async def test_a_cancellation_while_the_user_is_asked_is_no_answer(coordinator: ModuleCoordinator) -> None:
    with pytest.raises(asyncio.CancelledError):
        await asked(coordinator, asyncio.CancelledError())


# messages for the user


class Display:
    def __init__(self, error: Exception | None = None) -> None:
        self.shown: list[tuple[str, str, str]] = []
        self.error = error

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        if self.error is not None:
            raise self.error
        self.shown.append((message, level, source))


async def test_a_message_is_shown_with_its_level_and_its_hook(coordinator: ModuleCoordinator) -> None:
    display = coordinator.display_system = Display()
    result = HookResult(user_message="careful", user_message_level="warning")
    assert await coordinator.process_hook_result(result, "e", "linter") is result
    named = HookResult(action="deny", user_message="stopped", user_message_source="policy")
    await coordinator.process_hook_result(named, "e", "linter")
    await coordinator.process_hook_result(HookResult(), "e", "silent")
    assert display.shown == [("careful", "warning", "hook:linter"), ("stopped", "info", "hook:policy")]


async def test_a_question_shows_no_message_besides(coordinator: ModuleCoordinator) -> None:
    display = coordinator.display_system = Display()
    assert (await asked(coordinator, "Deny", user_message="I asked")).action == "deny"
    assert display.shown == []


async def test_without_a_display_a_message_goes_to_the_log(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await coordinator.process_hook_result(HookResult(user_message="hello"), "e", "h")
    assert caplog.messages == ["hook:h: hello"]


async def test_a_display_that_fails_costs_the_message_and_nothing_else(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.display_system = Display(OSError("terminal is gone"))
    result = HookResult(user_message="hello")
    assert await coordinator.process_hook_result(result, "e", "h") is result
    assert caplog.messages == ["the display failed to show a message of hook:h: terminal is gone"]


@pytest.mark.parametrize(
    ("answer", "outcome"), [("Allow", "approval:granted"), ("Deny", "approval:denied"), (None, "approval:denied")]
)
async def test_each_question_and_its_answer_are_events(
    coordinator: ModuleCoordinator, answer: str | None, outcome: str
) -> None:
    class System:
        async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:  # noqa: ASYNC109 - a published signature
            assert answer is not None
            return answer

    told: list[tuple[str, Any]] = []
    for event in ("approval:required", "approval:granted", "approval:denied"):
        coordinator.hooks.register(event, lambda event, data: told.append((event, data)))
    coordinator.approval_system = System() if answer else None
    data = {"tool_name": "bash", "tool_call_id": "7", "tool_input": {"command": "ls"}}
    question = HookResult(action="ask_user", approval_prompt="bash?", reason="a rule", data=data)
    await coordinator.process_hook_result(question, "tool:pre", "loop")
    assert [event for event, _ in told] == ["approval:required", outcome]
    about = {"tool_name": "bash", "tool_call_id": "7", "event": "tool:pre", "hook": "loop", "prompt": "bash?"}
    assert about.items() <= told[0][1].items()
    assert "tool_input" not in told[0][1]


async def test_a_question_that_is_held_has_no_answer_yet(coordinator: ModuleCoordinator) -> None:
    class Inbox:
        async def answer_call(self, coordinator: ModuleCoordinator, question: HookResult) -> HookResult:
            return HookResult(action="deny", reason="it waits", data={"held": "id"})

    told: list[str] = []
    for event in ("approval:required", "approval:granted", "approval:denied"):
        coordinator.hooks.register(event, lambda event, data: told.append(event))
    coordinator.approval_system = Inbox()  # type: ignore[assignment]
    await coordinator.process_hook_result(HookResult(action="ask_user"), "tool:pre", "loop")
    assert told == ["approval:required"]
