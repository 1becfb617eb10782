"""Test the rules as a layer of a session's permissions."""

from __future__ import annotations

import json
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import AmplifierSession, ApprovalRequest, ApprovalResponse, ModuleCoordinator
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_core.testing import MockTool
from amplifier_hooks_approval import mount
from amplifier_hooks_approval.audit import Audit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Answers:
    """An approval system that gives one answer."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:  # noqa: ASYNC109 - a published signature
        self.asked.append(prompt)
        return self.answer


async def make_gate(folder: Path, config: dict[str, Any], own: dict[str, Any] | None = None) -> PermissionGate:
    """Return a gate with the layer of a configuration; the person's own settings allow what they say."""
    layers = [parse_permissions(own, "user settings", is_own=True)] if own else []
    coordinator = ModuleCoordinator(session_id="s")
    coordinator.guard(PermissionGate(Policy(layers), folder))
    await mount(coordinator, config)
    gate = coordinator.permissions
    assert gate is not None
    return gate


ALL = {"allow": ["*"]}


@pytest.mark.parametrize(
    ("config", "tool", "given", "effect"),
    [
        ({}, "bash", {"command": "make"}, "ask"),
        ({}, "bash", {"command": "ls src"}, "allow"),
        ({}, "bash", {"command": "ls src; rm x"}, "ask"),
        ({}, "write_file", {"file_path": "a"}, "ask"),
        ({}, "read_file", {"file_path": "a"}, "allow"),
        ({"policy_driven_only": True}, "write_file", {"file_path": "a"}, "allow"),
        ({"rules": [{"pattern": "make *", "action": "auto_approve"}]}, "bash", {"command": "make test"}, "allow"),
        ({"rules": [{"pattern": "make *", "action": "auto_deny"}]}, "bash", {"command": "make test"}, "deny"),
        (
            {"rules": [{"pattern": "git *", "action": "allow"}, {"pattern": "git push*", "action": "deny"}]},
            "bash",
            {"command": "git push"},
            "allow",
        ),
        (
            {"rules": [{"pattern": "git push*", "action": "deny"}, {"pattern": "git *", "action": "allow"}]},
            "bash",
            {"command": "git push"},
            "deny",
        ),
        ({"rules": [{"tool": "delegate", "action": "ask"}]}, "delegate", {"agent": "clerk"}, "ask"),
        ({"rules": [{"tool": "read_*", "action": "ask"}]}, "read_file", {"file_path": "a"}, "ask"),
        (
            {"rules": [{"tool": "write_file", "pattern": "src/**", "action": "allow"}]},
            "write_file",
            {"file_path": "src/a"},
            "allow",
        ),
        (
            {"rules": [{"tool": "write_file", "pattern": "src/**", "action": "allow"}]},
            "write_file",
            {"file_path": "src/../b"},
            "ask",
        ),
        ({"patterns": ["DROP TABLE"], "rules": []}, "bash", {"command": "psql -c 'DROP TABLE x'"}, "ask"),
        ({"tools": ["emit"]}, "emit", {"event": "a"}, "ask"),
        ({"tools": {"emit": {"require_approval": True}}}, "emit", {"event": "a"}, "ask"),
        ({"tools": {"emit": {"require_approval": False}}}, "emit", {"event": "a"}, "allow"),
        ({"rules": [{"tool": "emit", "require_approval": True}]}, "emit", {"event": "a"}, "ask"),
    ],
)
async def test_the_first_rule_that_fits_counts_and_the_usual_tools_are_asked_about(
    tmp_path: Path, config: dict[str, Any], tool: str, given: dict[str, Any], effect: str
) -> None:
    gate = await make_gate(tmp_path, config, ALL)
    assert gate.decide(tool, given).effect == effect


async def test_the_rules_only_tighten(tmp_path: Path) -> None:
    config = {"rules": [{"pattern": "*", "action": "auto_approve"}, {"tool": "write_file", "action": "auto_approve"}]}
    gate = await make_gate(tmp_path, config, {"deny": ["write_file(a)"]})
    assert gate.decide("bash", {"command": "make"}).effect == "ask"
    assert gate.decide("write_file", {"file_path": "a"}).effect == "deny"
    assert gate.decide("write_file", {"file_path": ".git/config"}).effect == "deny"


async def test_the_reason_names_the_rule_and_the_module(tmp_path: Path) -> None:
    gate = await make_gate(tmp_path, {"rules": [{"pattern": "rm *", "action": "auto_deny"}]}, ALL)
    refused = gate.check({"tool_name": "bash", "tool_input": {"command": "rm x"}}, {})
    assert refused is not None
    assert refused.reason == "not permitted: the rule bash(rm *) of hooks-approval"


async def test_forks_and_agents_have_the_rules_once(tmp_path: Path) -> None:
    config = {"rules": [{"pattern": "rm *", "action": "auto_deny"}]}
    gate = await make_gate(tmp_path, config)
    coordinator = ModuleCoordinator(session_id="s-fork-1")
    coordinator.guard(gate)
    await mount(coordinator, config)
    assert [layer.source for layer in gate.policy.layers] == ["hooks-approval"]
    await mount(coordinator, {"rules": [{"pattern": "mv *", "action": "auto_deny"}]})
    assert (
        gate.decide("bash", {"command": "rm x"}).effect == gate.decide("bash", {"command": "mv x y"}).effect == "deny"
    )


async def test_a_module_that_goes_leaves_its_rules(tmp_path: Path) -> None:
    coordinator = ModuleCoordinator(session_id="s")
    coordinator.guard(PermissionGate(Policy(), tmp_path))
    (await mount(coordinator, {}))()
    assert coordinator.permissions is not None
    assert coordinator.permissions.decide("write_file", {"file_path": "a"}).effect == "ask"


async def test_the_rules_cross_into_another_process(tmp_path: Path) -> None:
    gate = await make_gate(tmp_path, {"rules": [{"pattern": "ls *", "action": "allow"}]}, ALL)
    gate.decide("bash", {"command": "ls x"})
    there = PermissionGate(Policy(pickle.loads(pickle.dumps(gate.policy.layers))), tmp_path)
    assert there.decide("bash", {"command": "ls x"}).effect == "allow"
    assert there.decide("bash", {"command": "rm x"}).effect == "ask"


def make_plan(*calls: str, **config: Any) -> dict[str, Any]:
    call = [{"tool": "save", "input": {"text": text}} for text in calls]
    rules = [{"when": {"user": "go"}, "call": call}, {"when": {"tool": "save"}, "say": "said"}]
    return {
        "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-playbook", "config": {"rules": rules}}],
        "hooks": [{"module": "hooks-approval", "config": config}],
    }


@pytest.fixture
def listen() -> Callable[[AmplifierSession], list[str]]:
    """Collect the events about questions."""

    def collect(session: AmplifierSession) -> list[str]:
        told: list[str] = []
        for event in ("approval:required", "approval:granted", "approval:denied"):
            session.coordinator.hooks.register(event, lambda event, data: told.append(f"{event} {data['tool_name']}"))
        return told

    return collect


@pytest.mark.parametrize(
    ("answer", "runs", "told"),
    [
        ("Allow once", 2, ["approval:required save", "approval:granted save"] * 2),
        ("Allow for this session", 2, ["approval:required save", "approval:granted save"]),
        ("Deny", 0, ["approval:required save", "approval:denied save"] * 2),
    ],
)
async def test_questions_are_those_of_the_permissions(
    tmp_path: Path, listen: Any, answer: str, runs: int, told: list[str]
) -> None:
    answers, tool = Answers(answer), MockTool("save")
    gate = PermissionGate(Policy(), tmp_path)
    plan = make_plan("x", tools=["save"])
    async with AmplifierSession(plan, approval_system=answers, permissions=gate, strict=True) as session:  # type: ignore[arg-type]
        await session.coordinator.mount("tools", tool)
        events = listen(session)
        await session.execute("go")
        await session.execute("go")
    assert tool.call_count == runs
    assert events == told
    assert answers.asked[0] == 'save(text="x"): hooks-approval asks about this tool'


async def test_another_module_may_want_a_question(tmp_path: Path) -> None:
    answers, tool = Answers("Deny"), MockTool("save")
    plan = make_plan("x", policy_driven_only=True)
    gate = PermissionGate(Policy(), tmp_path)
    async with AmplifierSession(plan, approval_system=answers, permissions=gate, strict=True) as session:  # type: ignore[arg-type]
        await session.coordinator.mount("tools", tool)
        session.coordinator.register_capability("approval.needs_check", lambda name: name == "save")
        await session.execute("go")
    assert (tool.call_count, len(answers.asked)) == (0, 1)


async def test_the_audit_has_a_private_line_for_each_question_and_answer(tmp_path: Path) -> None:
    file, tool = tmp_path / "audit" / "lines.jsonl", MockTool("save")
    file.parent.mkdir()
    file.touch(0o644)
    plan = make_plan("token=sk-1234567890abcdefghij", tools=["save"], audit={"enabled": True, "file": str(file)})
    gate = PermissionGate(Policy(), tmp_path)
    async with AmplifierSession(plan, approval_system=Answers("Deny"), permissions=gate, strict=True) as session:  # type: ignore[arg-type]
        await session.coordinator.mount("tools", tool)
        await session.execute("go")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["event"], line["tool"]) for line in lines] == [
        ("approval:required", "save"),
        ("approval:denied", "save"),
    ]
    assert "sk-1234567890" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_an_audit_leaves_the_mode_of_a_pipe_and_of_a_file_of_another_user(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o666)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    await Audit(str(tmp_path / "pipe"), "s").write("approval:denied", {})
    assert json.loads(os.read(reader, 10_000))["event"] == "approval:denied"
    os.close(reader)
    assert (tmp_path / "pipe").stat().st_mode & 0o777 == 0o666
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.touch()
        os.chown(foreign, 1, 1234)
        foreign.chmod(0o622)
        await Audit(str(foreign), "s").write("approval:denied", {})
        assert json.loads(foreign.read_text())["session_id"] == "s"
        assert foreign.stat().st_mode & 0o777 == 0o622


async def test_an_audit_that_cannot_be_written_is_reported_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit").write_text("a file")
    tool = MockTool("save")
    plan = make_plan("x", tools=["save"], audit={"enabled": True, "file": str(tmp_path / "audit" / "lines.jsonl")})
    gate = PermissionGate(Policy(), tmp_path)
    async with AmplifierSession(plan, approval_system=Answers("Allow once"), permissions=gate) as session:  # type: ignore[arg-type]
        await session.coordinator.mount("tools", tool)
        await session.execute("go")
    assert tool.call_count == 1
    assert [record.message for record in caplog.records if "cannot be written" in record.message] != []


@pytest.mark.parametrize(("approved", "runs"), [(True, 1), (False, 0), (None, 0)])
async def test_a_program_may_answer_by_a_provider(tmp_path: Path, approved: bool | None, runs: int) -> None:
    class Provider:
        async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
            assert (request.tool_name, request.timeout) == ("save", 300.0)
            if approved is None:
                raise TimeoutError
            return ApprovalResponse(approved=approved)

    tool = MockTool("save")
    async with AmplifierSession(
        make_plan("x", tools=["save"]), permissions=PermissionGate(Policy(), tmp_path), strict=True
    ) as session:
        await session.coordinator.mount("tools", tool)
        session.coordinator.get_capability("approval.register_provider")(Provider())
        await session.execute("go")
    assert tool.call_count == runs


async def test_a_provider_takes_no_approval_system_s_place(tmp_path: Path) -> None:
    answers = Answers("Deny")
    coordinator = ModuleCoordinator(session_id="s", approval_system=answers)  # type: ignore[arg-type]
    await mount(coordinator, {})
    coordinator.get_capability("approval.register_provider")(object())
    assert coordinator.approval_system is answers
