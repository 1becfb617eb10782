"""The gate stands ahead of every handler of `tool:pre`, and nothing that a handler does gets around it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import HookResult, ModuleCoordinator
from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.events import TOOL_PRE
from amplifier_core.permissions import Access, PermissionGate, Policy, parse_permissions

if TYPE_CHECKING:
    from pathlib import Path


class Asked:
    """An approval system with answers written in advance."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.questions: list[tuple[str, list[str]]] = []

    async def request_approval(self, prompt: str, options: list[str], *limits: Any) -> str:
        self.questions.append((prompt, options))
        if not self.answers:
            raise ApprovalTimeoutError(prompt)
        return self.answers.pop(0)


def guarded(
    section: dict[str, Any], *answers: str, kept: list[str] | None = None
) -> tuple[ModuleCoordinator, PermissionGate, Asked]:
    asked = Asked(*answers)
    coordinator = ModuleCoordinator(approval_system=asked, config={"session": {}})
    policy = Policy(
        [parse_permissions(section, "user settings", is_own=True)], kept.append if kept is not None else None
    )
    gate = PermissionGate(policy, "/work/project")
    coordinator.guard(gate)
    return coordinator, gate, asked


async def verdict(coordinator: ModuleCoordinator, tool: str, **arguments: Any) -> HookResult:
    """Return what a loop does with a call: emit, then carry out the result."""
    result = await coordinator.hooks.emit(TOOL_PRE, {"tool_name": tool, "tool_input": arguments})
    return await coordinator.process_hook_result(result, TOOL_PRE, "loop")


async def test_a_refused_call_reaches_no_handler() -> None:
    coordinator, _, _ = guarded({"deny": ["write_file(src/**)"]})
    heard: list[Any] = []
    coordinator.hooks.register(TOOL_PRE, lambda event, data: heard.append(data), priority=-100)
    assert coordinator.hooks.has_handlers(TOOL_PRE)
    refused = await verdict(coordinator, "write_file", path="src/a")
    assert refused.action == "deny"
    assert refused.reason == "not permitted: the rule write_file(src/**) of user settings"
    assert heard == []
    assert (await verdict(coordinator, "write_file", path="other")).action == "continue"
    assert len(heard) == 1


@pytest.mark.parametrize("in_place", [True, False])
async def test_a_changed_call_is_looked_at_again(in_place: bool) -> None:
    coordinator, _, _ = guarded({})

    async def change(event: str, data: dict[str, Any]) -> HookResult | None:
        if in_place:
            data["tool_input"]["path"] = ".git/config"
            return None
        return HookResult(action="modify", data={**data, "tool_input": {"path": ".git/config"}})

    coordinator.hooks.register(TOOL_PRE, change)
    refused = await verdict(coordinator, "write_file", path="a.txt")
    assert (refused.action, refused.reason) == ("deny", "not permitted: .git/config is protected: git obeys it")


@pytest.mark.parametrize("action", ["ask_user", "inject_context", "modify", "continue"])
@pytest.mark.parametrize("more", [{}, {"tool_name": "read_file"}])
async def test_no_result_of_a_handler_carries_a_call_past_the_gate(action: Any, more: dict[str, Any]) -> None:
    coordinator, _, asked = guarded({}, *["Allow"] * 4)
    changed = {"tool_input": {"path": ".git/config"}, **more}
    result = HookResult(action=action, data=changed, approval_prompt="Sure?", context_injection="x", user_message="x")
    coordinator.hooks.register(TOOL_PRE, lambda event, data: result)
    verdict_of_write = await verdict(coordinator, "write_file", path="a.txt")
    assert verdict_of_write.action == "deny" or (verdict_of_write.data or {})["tool_input"] == {"path": "a.txt"}
    assert asked.questions == [] or action == "continue"


async def test_a_handler_does_not_give_a_call_the_name_of_another_tool() -> None:
    async def rename(event: str, data: dict[str, Any]) -> None:
        data["tool_name"] = "read_file"

    coordinator, _, asked = guarded({"ask": ["write_file"]}, "Allow once")
    coordinator.hooks.register(TOOL_PRE, rename)
    allowed = await verdict(coordinator, "write_file", path="a.txt")
    assert asked.questions[0][0] == 'write_file(path="a.txt"): the rule write_file'
    assert (allowed.data or {})["tool_name"] == "write_file"


async def raising(event: str, data: dict[str, Any]) -> None:
    raise RuntimeError("no rules file")


async def cancelling(event: str, data: dict[str, Any]) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("handler", [raising, cancelling])
@pytest.mark.parametrize("with_gate", [True, False])
async def test_a_guard_that_fails_refuses_the_call(handler: Any, with_gate: bool) -> None:
    coordinator = guarded({})[0] if with_gate else ModuleCoordinator(config={"session": {}})
    coordinator.hooks.register(TOOL_PRE, handler, name="guard")
    refused = await verdict(coordinator, "write_file", path="a.txt")
    assert refused.action == "deny"
    assert refused.reason is not None and refused.reason.startswith("the guard 'guard' failed")


async def test_a_question_is_put_once_and_an_answer_holds_as_long_as_it_says() -> None:
    kept: list[str] = []
    answers = ("Allow once", "Allow for this session", "Allow always: bash(make)", "Deny")
    coordinator, _, asked = guarded({}, *answers, kept=kept)
    for command in ("ls", "ls", "ls", "make", "make"):
        assert (await verdict(coordinator, "bash", command=command)).action == "continue"
    assert (await verdict(coordinator, "bash", command="rm x")).action == "deny"
    assert [prompt for prompt, _ in asked.questions] == [
        'bash(command="ls"): commands are asked for',
        'bash(command="ls"): commands are asked for',
        'bash(command="make"): commands are asked for',
        'bash(command="rm x"): commands are asked for',
    ]
    assert asked.questions[0][1] == ["Allow once", "Allow for this session", "Allow always: bash(ls)", "Deny"]
    assert kept == ["bash(make)"]


async def test_an_answer_holds_for_these_arguments_alone() -> None:
    coordinator, _, asked = guarded({}, "Allow for this session")
    assert (await verdict(coordinator, "bash", command="ls", cwd="src")).action == "continue"
    assert (await verdict(coordinator, "bash", command="ls", cwd="src")).action == "continue"
    assert (await verdict(coordinator, "bash", command="ls", cwd="lib")).action == "deny"
    assert len(asked.questions) == 2


async def test_an_answer_for_the_session_holds_while_the_scripts_of_the_call_are_as_they_were(tmp_path: Path) -> None:
    coordinator, gate, asked = guarded({}, "Allow for this session")
    gate.folder = str(tmp_path)
    (tmp_path / "b.sh").write_text("echo seen")
    for _ in range(2):
        assert (await verdict(coordinator, "bash", command="sh b.sh")).action == "continue"
    (tmp_path / "b.sh").write_text("echo unseen")
    assert (await verdict(coordinator, "bash", command="sh b.sh")).action == "deny"
    assert len(asked.questions) == 2


async def test_an_answer_for_the_session_outlives_edits_of_what_is_not_run_and_a_question_names_what_changed(
    tmp_path: Path,
) -> None:
    coordinator, gate, asked = guarded({}, *["Allow for this session"] * 3)
    gate.folder = str(tmp_path)
    for text in ("first", "second"):
        (tmp_path / "test_a.py").write_text(text)
        for command in ("python -m pytest test_a.py -q", "git add test_a.py", "sh b.sh"):
            assert (await verdict(coordinator, "bash", command=command)).action == "continue"
    assert len(asked.questions) == 3
    (tmp_path / "b.sh").touch()
    assert (await verdict(coordinator, "bash", command="sh b.sh")).action == "deny"
    assert asked.questions[3][0] == 'bash(command="sh b.sh"): commands are asked for (asked anew: b.sh has changed)'


async def test_the_scripts_of_an_answer_are_those_of_the_question(tmp_path: Path) -> None:
    class Slow(Asked):
        async def request_approval(self, prompt: str, options: list[str], *limits: Any) -> str:
            (tmp_path / "Makefile").write_text("all:\n\ttrue")
            return await super().request_approval(prompt, options, *limits)

    coordinator, gate, _ = guarded({})
    coordinator.approval_system, gate.folder = Slow("Allow for this session"), str(tmp_path)
    assert (await verdict(coordinator, "bash", command="make")).action == "continue"
    assert (await verdict(coordinator, "bash", command="make")).action == "deny"


async def test_a_call_that_may_run_other_files_the_next_time_is_allowed_once_alone(tmp_path: Path) -> None:
    for command in ("cat a | sh", "x=a\nsh $x", "ls | xargs sh"):
        coordinator, gate, asked = guarded({}, "Allow for this session", kept=[])
        gate.folder = str(tmp_path)
        await verdict(coordinator, "bash", command=command)
        assert asked.questions[0][1] == ["Allow once", "Deny"]
        assert (await verdict(coordinator, "bash", command=command)).action == "deny"


async def test_a_question_says_why_an_answer_is_not_for_the_session_and_a_rule_for_this_very_command_is_kept() -> None:
    kept: list[str] = []
    coordinator, _, asked = guarded({}, "Allow once", "Allow always: bash(node -p x)", kept=kept)
    await verdict(coordinator, "bash", command="ls | xargs sh")
    for _ in range(2):
        assert (await verdict(coordinator, "bash", command="node -p x")).action == "continue"
    why = "it may run other files the next time"
    assert asked.questions == [
        (f'bash(command="ls | xargs sh"): commands are asked for (only once: {why})', ["Allow once", "Deny"]),
        (
            f'bash(command="node -p x"): commands are asked for (not for the session: {why})',
            ["Allow once", "Allow always: bash(node -p x)", "Deny"],
        ),
    ]
    assert kept == ["bash(node -p x)"]


async def test_always_is_not_offered_where_nobody_keeps_it_or_no_rule_is_narrow_enough() -> None:
    coordinator, _, asked = guarded({}, kept=[])
    await verdict(coordinator, "bash", command="ls; rm x")
    coordinator, _, other = guarded({})
    await verdict(coordinator, "bash", command="ls")
    for each in (asked, other):
        assert each.questions[0][1] == ["Allow once", "Allow for this session", "Deny"]


async def test_always_is_not_offered_where_a_rule_of_ones_own_would_change_nothing() -> None:
    for own, bundle, offered in (
        ({"mode": "ask"}, {}, True),
        ({}, {"mode": "ask"}, False),
        ({"ask": ["bash"]}, {}, False),
    ):
        coordinator, gate, asked = guarded(own, kept=[])
        gate.policy = gate.policy.below(parse_permissions(bundle, "bundle 'x'"))
        await verdict(coordinator, "bash", command="ls")
        assert any(option.startswith("Allow always") for option in asked.questions[0][1]) is offered


async def test_a_handlers_question_and_that_of_the_gate_are_one_and_a_refusal_wins() -> None:
    coordinator, _, asked = guarded({}, "Allow for this session")
    question = HookResult(action="ask_user", approval_prompt="Sure?", approval_options=["Allow", "Deny"])
    coordinator.hooks.register(TOOL_PRE, lambda event, data: question)
    assert (await verdict(coordinator, "bash", command="ls")).action == "continue"
    assert asked.questions[0][0] == 'Sure?\nbash(command="ls"): commands are asked for'
    coordinator.hooks.register(TOOL_PRE, lambda event, data: HookResult(action="deny", reason="no"))
    assert (await verdict(coordinator, "bash", command="ls -l")).reason == "no"


@pytest.mark.parametrize(
    "name",
    [
        'b="x"): fine\nbash(command',
        "b\rbash(command",
        "b\u202ebash(command",
        'b="x"): fine  bash(command',
        "b\u2028",
        "",
    ],
)
async def test_a_question_is_one_line_whatever_an_argument_is_called(name: str) -> None:
    coordinator, _, asked = guarded({})
    await verdict(coordinator, "bash", **{"command": "rm x", name: "ls"})
    written = json.dumps(name)
    assert asked.questions[0][0] == f'bash(command="rm x", {written}="ls"): commands are asked for'
    assert asked.questions[0][0].isprintable()


async def test_an_answer_is_for_the_call_of_the_question_and_for_no_other_that_the_question_ends_with() -> None:
    coordinator, _, asked = guarded({})
    assert (await verdict(coordinator, "bash", command="ls")).action == "deny"  # nobody answers
    asked.answers += ["Allow for this session"]
    longer = {"command": "pwd", 'cwd="."): fine; bash(command': "ls"}
    assert (await verdict(coordinator, "bash", **longer)).action == "continue"
    assert (await verdict(coordinator, "bash", command="ls")).action == "deny"
    assert (await verdict(coordinator, "bash", **longer)).action == "continue"
    assert len(asked.questions) == 3


async def test_nobody_to_ask_is_a_refusal() -> None:
    coordinator, _, _ = guarded({})
    coordinator.approval_system = None
    assert (await verdict(coordinator, "bash", command="ls")).action == "deny"


@pytest.mark.parametrize("arguments", [None, "text", ["a"]])
async def test_arguments_that_are_no_mapping_are_refused(arguments: Any) -> None:
    coordinator, _, _ = guarded({})
    result = await coordinator.hooks.emit(TOOL_PRE, {"tool_name": "bash", "tool_input": arguments})
    assert (result.action, result.reason) == ("deny", "not permitted: its arguments are no mapping")


async def test_a_tool_declares_its_arguments() -> None:
    class Deploy:
        name = "deploy"
        accesses = {"where": "host"}  # noqa: RUF012 - as an author writes it

    coordinator, _, _ = guarded({})
    coordinator.mount_points["tools"]["deploy"] = Deploy()
    assert "own network" in str((await verdict(coordinator, "deploy", where="127.0.0.1")).reason)


async def test_a_tool_that_stays_in_the_folder_is_refused_outside_of_it_without_a_question(tmp_path: Path) -> None:
    class Note:
        name = "note"
        accesses = {"where": "write inside", "about": "read inside", "copy": "write"}  # noqa: RUF012 - as an author writes it

    work = tmp_path / "work"
    work.mkdir()
    (work / "out").symlink_to(tmp_path)
    coordinator, gate, asked = guarded({"allow": ["note(/**)"]})
    gate.folder = str(work)
    coordinator.mount_points["tools"]["note"] = Note()
    for name, path in (("where", "/etc/x"), ("where", "../x"), ("about", "~/x"), ("where", "out/x"), ("about", "out")):
        refused = await verdict(coordinator, "note", **{name: path})
        assert refused.action == "deny"
        assert "it is outside of the working folder, and the tool stays inside" in str(refused.reason)
    assert (await verdict(coordinator, "note", where="a/x", about=str(work / "b"))).action == "continue"
    assert (await verdict(coordinator, "note", copy="/etc/x")).action == "continue"
    assert "git obeys it" in str((await verdict(coordinator, "note", where=".git/config")).reason)
    assert asked.questions == []


class Shell:
    """A tool that describes its calls itself."""

    name = "shell"

    def accesses(self, arguments: dict[str, Any]) -> list[Access]:
        return [Access("command", arguments["run"], form=arguments.get("form", "decoded"))]


async def test_after_text_of_strangers_what_acts_is_asked_and_what_reads_is_not() -> None:
    coordinator, gate, asked = guarded({"allow": ["bash(git status*)", "emit(report:*)"]})
    gate.untrusted = "a webhook woke it"
    for tool, arguments in (
        ("read_file", {"path": "a"}),
        ("get_time", {}),
        ("bash", {"command": "git status"}),
        ("emit", {"event_name": "report:done"}),
    ):
        assert (await verdict(coordinator, tool, **arguments)).action == "continue", tool
    for tool, arguments in (
        ("write_file", {"path": "a"}),
        ("emit", {"event_name": "deploy:approved"}),
        ("delegate", {"agent": "reviewer"}),
        ("send_mail", {"to": "ann"}),
    ):
        assert (await verdict(coordinator, tool, **arguments)).action == "deny", tool
    assert len(asked.questions) == 4
    assert "a webhook woke it, and text of strangers may ask for this" in asked.questions[0][0]
    coordinator.mount_points["tools"]["shell"] = Shell()
    assert (await verdict(coordinator, "shell", run="ls", form="harmless")).action == "continue"
    assert (await verdict(coordinator, "shell", run="git status", form="decoded")).action == "deny"
    gate.acts = True
    assert (await verdict(coordinator, "write_file", path="a")).action == "continue"


async def test_a_tool_describes_its_calls_itself() -> None:
    class Shells(Shell):
        def accesses(self, arguments: dict[str, Any]) -> list[Access]:
            return [
                Access("command", "ls", form="harmless"),
                *super().accesses(arguments),
                Access("write", "../outside"),
            ]

    coordinator, _, asked = guarded({"allow": ["shell(make 'a; b')", "shell(/work/outside)"], "deny": ["shell(rm *)"]})
    coordinator.mount_points["tools"]["shell"] = Shells()
    assert (await verdict(coordinator, "shell", run="make 'a; b'")).action == "continue"
    assert "the rule shell(rm *)" in str((await verdict(coordinator, "shell", run="rm y")).reason)
    assert "cannot say what the call reaches: KeyError" in str((await verdict(coordinator, "shell", walk="x")).reason)
    assert asked.questions == []


async def test_what_was_allowed_for_good_needs_no_question_beside_what_is_allowed_anyway() -> None:
    class Shells(Shell):
        def accesses(self, arguments: dict[str, Any]) -> list[Access]:
            return [Access("command", "ls", form="harmless"), *super().accesses(arguments)]

    coordinator, gate, asked = guarded({}, "Allow always: shell(make)", kept=[])
    coordinator.mount_points["tools"]["shell"] = Shell()
    assert (await verdict(coordinator, "shell", run="make")).action == "continue"
    coordinator.mount_points["tools"]["shell"] = Shells()
    assert (await verdict(coordinator, "shell", run="make")).action == "continue"
    assert len(asked.questions) == 1
    gate.untrusted = "a webhook woke it"
    assert (await verdict(coordinator, "shell", run="make install")).action == "deny"
    assert len(asked.questions) == 2


async def test_a_rule_for_good_has_no_wildcard_that_the_person_did_not_write() -> None:
    kept: list[str] = []
    coordinator, _, asked = guarded({}, r"Allow always: shell(grep 'a.\*b' f)", kept=kept)
    coordinator.mount_points["tools"]["shell"] = Shell()
    assert (await verdict(coordinator, "shell", run="grep 'a.*b' f")).action == "continue"
    assert kept == [r"shell(grep 'a.\*b' f)"]
    assert (await verdict(coordinator, "shell", run="grep 'a.*b' f")).action == "continue"
    assert (await verdict(coordinator, "shell", run="grep 'a.xb' f")).action == "deny"
    assert [prompt for prompt, _ in asked.questions][1:] == ["""shell(run="grep 'a.xb' f"): commands are asked for"""]
