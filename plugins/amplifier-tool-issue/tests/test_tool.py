"""Test the tool on the kernel's real coordinator and a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.loader import ModuleLoader
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_core.utils.secrets import hide_secret
from amplifier_core.validation.behavioral import ToolBehaviorTests
from amplifier_core.validation.structural import ToolStructuralTests
from amplifier_tool_issue import Tracker, config_schema, mount
from amplifier_tool_issue.config import OPERATIONS
from amplifier_tool_issue.issues import LABELS, WAITS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_core.storage import DurableStore
    from amplifier_foundation.sessions.documents import SessionDocuments

    Of = Callable[..., SessionDocuments]


class TestStructure(ToolStructuralTests):
    """The structure of every tool's module."""


class TestBehavior(ToolBehaviorTests):
    """The behavior of every tool."""


class Agent:
    """A session that calls the tool."""

    def __init__(self, documents: SessionDocuments | None, gate: PermissionGate | None = None) -> None:
        self.coordinator = ModuleCoordinator(session_id="s")
        self.coordinator.permissions = gate
        self.key: str | None = None
        self.coordinator.register_capability("tool.call", lambda: {"idempotency_key": self.key} if self.key else None)
        if documents is not None:
            self.coordinator.register_capability("documents", documents)

    async def mount(self, config: dict[str, Any] | None = None) -> Agent:
        await mount(self.coordinator, config)
        return self

    async def __call__(self, operation: str, **given: Any) -> Any:
        result = await self.coordinator.get("tools", "issue").execute({"operation": operation, **given})
        assert result.success, result.error
        return result.output

    async def refused(self, given: Any) -> str:
        result = await self.coordinator.get("tools", "issue").execute(given)
        assert not result.success, result.output
        assert result.error is not None
        return f"{result.error['type']}: {result.error['message']}"


@pytest.fixture
async def agent(documents: Of) -> Agent:
    return await Agent(documents("s")).mount()


async def test_an_issue_is_made_and_shown_with_what_was_given(agent: Agent) -> None:
    line = {"id": 1, "title": "Ä bug", "type": "bug", "priority": 0, "state": "open", "labels": ["ui", "a"]}
    given = {"type": "bug", "priority": 0, "labels": ["ui", " a ", "ui"], "description": "Line 1\nLine 2\x1b[0m"}
    assert await agent("create", title="  Ä bug ", **given) == line
    shown = await agent("show", id=1)
    assert {name: shown[name] for name in line} == line
    assert (shown["description"], shown["created_by"], shown["said"]) == ("Line 1\nLine 2\x1b[0m", "s", [])
    assert "reason" not in shown


@pytest.mark.parametrize("number", [1, "1", "#1", " #1 "])
async def test_a_number_may_be_text(number: Any, agent: Agent) -> None:
    await agent("create", title="one")
    assert (await agent("show", id=number))["title"] == "one"
    waiting = await agent("create", title="two", blocked_by=[number])
    assert (waiting["state"], waiting["blocked_by"]) == ("blocked", [1])


async def test_issues_are_listed_the_most_urgent_first_and_closed_ones_last(agent: Agent) -> None:
    await agent("create", title="usual")
    await agent("create", title="urgent", priority=0, labels=["a"])
    await agent("create", title="waits", blocked_by=[1], type="bug")
    await agent("create", title="done", priority=0)
    await agent("close", id=4)

    async def titles(**given: Any) -> list[str]:
        listed = await agent("list", **given)
        assert listed["count"] == len(listed["issues"])
        return [each["title"] for each in listed["issues"]]

    assert await titles() == ["urgent", "usual", "waits", "done"]
    assert await titles(ready=True) == ["urgent", "usual"]
    assert await titles(status="blocked") == ["waits"]
    assert await titles(status="open") == ["urgent", "usual", "waits"]
    assert await titles(status="closed") == ["done"]
    assert await titles(type="bug") == ["waits"]
    assert await titles(label="a") == ["urgent"]
    assert await titles(label="none") == []


async def test_a_long_list_is_cut_and_says_so(agent: Agent) -> None:
    for number in range(51):
        await agent("create", title=f"{number}")
    listed = await agent("list")
    assert (len(listed["issues"]), listed["count"], listed["cut"]) == (50, 51, True)


async def test_comments_are_kept_in_their_order_and_the_last_ones_are_shown(agent: Agent) -> None:
    await agent("create", title="one")
    for number in range(52):
        await agent("comment", id=1, text=f"comment {number}")
    shown = await agent("show", id=1)
    assert (shown["comments"], len(shown["said"])) == (52, 50)
    assert [shown["said"][0]["text"], shown["said"][-1]["text"]] == ["comment 2", "comment 51"]
    assert shown["said"][0]["author"] == "s"


async def test_long_texts_are_cut_where_they_are_shown(agent: Agent) -> None:
    await agent("create", title="one", description="x" * 100_000)
    await agent("comment", id=1, text="y" * 100_000)
    shown = await agent("show", id=1)
    assert shown["description"].endswith("(cut; the issue has 100,000 characters)")
    assert len(shown["description"]) + len(shown["said"][0]["text"]) < 41_000


async def test_an_answer_to_a_model_stays_short_however_much_is_kept(agent: Agent) -> None:
    for number in range(50):
        await agent("create", title=f"{number}")
        await agent("update", id=number + 1, status="escalated", reason="r" * 10_000)
        await agent("comment", id=1, text="y" * 10_000)
    assert len(str(await agent("list"))) < 40_000
    assert len(str(await agent("show", id=1))) < 45_000


async def test_facts_are_changed_and_the_line_says_how_it_is_now(agent: Agent) -> None:
    await agent("create", title="one")
    line = await agent("update", id=1, title="two", type="bug", priority=4, labels=[], status="escalated", reason="why")
    assert line == {"id": 1, "title": "two", "type": "bug", "priority": 4, "state": "escalated", "reason": "why"}
    assert (await agent("update", id=1, status="in_progress"))["state"] == "in_progress"
    assert (await agent("show", id=1))["assignee"] == "s"
    assert (await agent("update", id=1, status="closed", reason="not needed"))["state"] == "closed"
    assert (await agent("show", id=1))["reason"] == "not needed"
    assert (await agent("update", id=1, status="open"))["state"] == "open"


async def test_closing_twice_keeps_the_first_result(agent: Agent) -> None:
    await agent("create", title="one")
    assert (await agent("close", id=1, resolution="wontfix", result="-"))["state"] == "closed"
    await agent("close", id=1, resolution="duplicate", result="other")
    shown = await agent("show", id=1)
    assert (shown["resolution"], shown["result"]) == ("wontfix", "-")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "IssueError: the input must be an object, not NoneType"),
        ({}, "IssueError: operation: None is none of create, list, show, update, comment, depend, close"),
        ({"operation": ["create"]}, "operation: ['create'] is none of"),
        ({"operation": "create"}, "create needs 'title'"),
        ({"operation": "create", "title": " "}, "title: must not be empty"),
        ({"operation": "create", "title": 5}, "title: must be str, not int"),
        ({"operation": "create", "title": "x" * 201}, "title: has 201 characters; at most 200 are kept"),
        ({"operation": "create", "title": "a\nb"}, "title: must be one line of printable characters"),
        ({"operation": "create", "title": "a\x1b[31mb"}, "title: must be one line of printable characters"),
        ({"operation": "create", "title": "a\u202eb"}, "title: must be one line of printable characters"),
        ({"operation": "create", "title": "a\ud800"}, "title: must be one line of printable characters"),
        ({"operation": "create", "title": "a", "type": "b\x00"}, "type: must be one line of printable characters"),
        ({"operation": "create", "title": "a", "type": ""}, "type: must not be empty"),
        ({"operation": "create", "title": "a", "description": "x" * 100_001}, "description: has 100,001 characters"),
        ({"operation": "create", "title": "a", "descripton": "x"}, "create has no field 'descripton'; it takes title,"),
        ({"operation": "create", "title": "a", "status": "open"}, "create has no field 'status'"),
        ({"operation": "create", "title": "a", "priority": 5}, "priority: must be 0 (the most urgent) to 4, not 5"),
        ({"operation": "create", "title": "a", "priority": True}, "priority: must be 0"),
        ({"operation": "create", "title": "a", "priority": "1"}, "priority: must be 0"),
        ({"operation": "create", "title": "a", "labels": "ui"}, "labels: must be a list of texts"),
        ({"operation": "create", "title": "a", "labels": [1]}, "labels: must be a list of texts"),
        ({"operation": "create", "title": "a", "labels": [""]}, "labels: at most 20, each of 1 to 64 printable"),
        ({"operation": "create", "title": "a", "labels": [f"{n}" for n in range(LABELS + 1)]}, "labels: at most 20"),
        ({"operation": "create", "title": "a", "blocked_by": 1}, "blocked_by: must be a list of numbers"),
        ({"operation": "create", "title": "a", "blocked_by": [True]}, "True is no number of an issue"),
        ({"operation": "create", "title": "a", "blocked_by": [7]}, "IssueNotFound: there is no issue 7 here"),
        (
            {"operation": "list", "status": "done"},
            "status: 'done' is none of open, in_progress, escalated, closed, blo",
        ),
        ({"operation": "list", "status": ["open"]}, "status: must be str, not list"),
        ({"operation": "list", "type": 5}, "type: must be str, not int"),
        ({"operation": "list", "label": ["a"]}, "label: must be str, not list"),
        ({"operation": "list", "ready": "no"}, "ready: must be bool, not str"),
        ({"operation": "show"}, "show needs 'id'"),
        ({"operation": "show", "id": 2}, "IssueNotFound: there is no issue 2 here; `issue list` shows those there are"),
        ({"operation": "show", "id": 0}, "0 is no number of an issue; give one such as 3"),
        ({"operation": "show", "id": -1}, "-1 is no number"),
        ({"operation": "show", "id": 1.5}, "1.5 is no number"),
        ({"operation": "show", "id": "one"}, "'one' is no number"),
        ({"operation": "show", "id": "\u0661"}, "is no number"),
        ({"operation": "show", "id": 10**10}, "is no number"),
        ({"operation": "show", "id": "9" * 5_000}, f"'{'9' * 59} is no number"),
        ({"operation": "update", "id": 1, "status": "blocked"}, "status: 'blocked' is none of open, in_progress,"),
        ({"operation": "update", "id": 1, "reason": "x" * 10_001}, "reason: has 10,001 characters"),
        ({"operation": "update", "id": 2, "title": "b"}, "IssueNotFound"),
        ({"operation": "comment", "id": 1}, "comment needs 'text'"),
        ({"operation": "comment", "id": 1, "text": "\n"}, "text: must not be empty"),
        ({"operation": "comment", "id": 2, "text": "a"}, "IssueNotFound"),
        ({"operation": "depend", "id": 1, "on": 1}, "issue 1 cannot wait for itself"),
        ({"operation": "depend", "id": 1, "on": 2}, "IssueNotFound"),
        ({"operation": "depend", "id": 1, "on": 1, "remove": "no"}, "remove: must be bool, not str"),
        ({"operation": "close", "id": 1, "resolution": "a\nb"}, "resolution: must be one line"),
        ({"operation": "close", "id": 1, "result": "x" * 100_001}, "result: has 100,001 characters"),
        ({"operation": "close", "id": 2}, "IssueNotFound"),
    ],
)
async def test_what_cannot_be_done_is_a_failed_result_and_changes_nothing(
    given: Any, message: str, agent: Agent, told: Any
) -> None:
    await agent("create", title="one")
    assert len(await told()) == 1
    assert message in await agent.refused(given)
    assert (await told(), (await agent("list"))["count"]) == ([], 1)


async def test_fields_without_a_value_count_as_absent(agent: Agent) -> None:
    await agent("create", title="one", description=None, blocked_by=None, priority=None, id=None)
    assert (await agent("show", id=1))["priority"] == 2


async def test_without_documents_the_result_says_what_keeps_them() -> None:
    agent = await Agent(None).mount()
    said = "IssueError: the storage of this session keeps no issues; storage-sqlite does"
    assert await agent.refused({"operation": "list"}) == said


async def test_a_circle_is_refused_however_long(agent: Agent, told: Any) -> None:
    await agent("create", title="1")
    for number in range(1, 6):
        await agent("create", title=f"{number + 1}", blocked_by=[number])
    await told()
    said = "IssueError: issue 1 cannot wait for 6: 6 waits for 1 already"
    assert await agent.refused({"operation": "depend", "id": 1, "on": 6}) == said
    assert await told() == []


async def test_too_many_dependencies_are_refused(documents: Of, agent: Agent) -> None:
    mine, numbers = documents(), list(range(1, WAITS + 2))
    tracker = Tracker(mine)
    for number in numbers:
        await tracker.create(f"{number}")
    most = await agent("create", title="all", blocked_by=numbers[:WAITS])
    assert len(most["blocked_by"]) == WAITS
    said = await agent.refused({"operation": "depend", "id": most["id"], "on": WAITS + 1})
    assert f"issue {most['id']} waits for {WAITS} others already" in said


async def test_an_issue_that_is_not_closed_is_made_once(agent: Agent, told: Any) -> None:
    agent.key = "call-1"
    first = await agent("create", title="one")
    assert await agent("create", title="one") == first
    assert await agent("create", title=" one ", priority=2) == first
    assert (await agent("create", title="one", type="bug"))["id"] == 2
    await agent("close", id=1)
    assert (await agent("create", title="one"))["id"] == 3  # also with the same key: a context may forget its messages
    assert [name for name, _, _ in await told()] == ["created", "created", "closed", "created"]


async def test_other_sessions_and_people_make_issues_of_their_own(agent: Agent, documents: Of) -> None:
    await agent("create", title="one")
    assert (await (await Agent(documents("other")).mount())("create", title="one"))["id"] == 2
    assert [(await Tracker(documents()).create("one")).id for _ in range(2)] == [3, 4]


async def test_only_the_operations_of_the_bundle_are_offered(documents: Of) -> None:
    agent = await Agent(documents("s")).mount({"allow": ["list", "show"]})
    tool = agent.coordinator.get("tools", "issue")
    assert tool.input_schema["properties"]["operation"]["enum"] == ["list", "show"]
    assert "title" not in tool.input_schema["properties"]
    assert "create" not in tool.description
    said = "IssueError: operation: 'create' is none of list, show"
    assert await agent.refused({"operation": "create", "title": "a"}) == said


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"alow": []}, "alow: unknown key; did you mean 'allow'?"),
        ({"zzz": 1}, "zzz: unknown key; known are allow"),
        ({"allow": []}, "allow: List should have at least 1 item after validation, not 0"),
        ({"allow": "list"}, "allow: Input should be a valid list"),
        ({"allow": ["delete"]}, "allow: Input should be 'create', 'list'"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^tool-issue: ") as caught:
        await Agent(None).mount(config)
    assert str(caught.value).startswith(f"tool-issue: {message}")


def test_the_schema_of_the_configuration_describes_every_key() -> None:
    assert all(about["description"] for about in config_schema()["properties"].values())


async def test_the_schema_of_the_input_knows_each_field_of_each_operation(agent: Agent) -> None:
    tool = agent.coordinator.get("tools", "issue")
    assert tool.input_schema["properties"]["operation"]["enum"] == list(OPERATIONS)
    assert {"id", "title", "blocked_by", "on", "remove", "result"} < set(tool.input_schema["properties"])
    assert tool.input_schema["additionalProperties"] is False


async def test_the_installed_entry_point_mounts_it() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    load = await ModuleLoader().load("tool-issue", {}, coordinator=coordinator)
    await load(coordinator)
    assert coordinator.get("tools", "issue").input_schema["required"] == ["operation"]


def gate_of(folder: Path, *denied: str) -> PermissionGate:
    return PermissionGate(Policy([parse_permissions({"mode": "auto", "deny": [*denied]}, "mine")]), folder)


@pytest.mark.parametrize(
    ("operation", "event"),
    [
        ({"operation": "create", "title": "a"}, "issue:created"),
        ({"operation": "update", "id": 1, "priority": 1}, "issue:updated"),
        ({"operation": "comment", "id": 1, "text": "a"}, "issue:updated"),
        ({"operation": "depend", "id": 1, "on": 2}, "issue:updated"),
        ({"operation": "close", "id": 1}, "issue:closed"),
        ({"operation": "update", "id": 1, "status": "closed"}, "issue:closed"),
    ],
)
async def test_a_rule_about_an_event_denies_the_operations_that_emit_it(
    operation: dict[str, Any], event: str, agent: Agent, tmp_path: Path
) -> None:
    tool = agent.coordinator.get("tools", "issue")
    assert gate_of(tmp_path, f"issue({event})").decide("issue", operation, tool.accesses).effect == "deny"
    assert gate_of(tmp_path, "issue(issue:other)").decide("issue", operation, tool.accesses).effect == "allow"
    for reading in ({"operation": "list"}, {"operation": "show", "id": 1}):
        assert gate_of(tmp_path, "issue(issue:*)").decide("issue", reading, tool.accesses).effect == "allow"


@pytest.mark.parametrize(
    "write",
    [
        {"operation": "create", "title": "a", "description": "from the net"},
        {"operation": "update", "id": 1, "title": "from the net"},
        {"operation": "comment", "id": 1, "text": "from the net"},
        {"operation": "close", "id": 1, "result": "from the net"},
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        {"operation": "list"},
        {"operation": "show", "id": "it"},
        {"operation": "comment", "id": "it", "text": "a"},
        {"operation": "close", "id": "it"},
        {"operation": "update", "id": "it", "status": "open"},
        {"operation": "depend", "id": "it", "on": 1},
    ],
)
async def test_text_of_a_session_that_has_read_text_of_strangers_taints_its_readers(
    write: dict[str, Any], read: dict[str, Any], documents: Of, store: DurableStore, tmp_path: Path
) -> None:
    await Tracker(documents()).create("one")
    writing, reading = gate_of(tmp_path), gate_of(tmp_path)
    writing.untrusted = "a webhook woke it"
    writer, reader = await Agent(documents("w"), writing).mount(), await Agent(documents("r"), reading).mount()
    number = (await writer(**write))["id"]
    told = (await store.events())[-1]
    assert (told.data["untrusted"], told.data["id"]) == ("a webhook woke it", number)
    assert reading.untrusted == ""
    if not (read["operation"] == "depend" and number == 1):
        await reader(**{name: number if value == "it" else value for name, value in read.items()})
        assert reading.untrusted == "it has read an issue with text of strangers"


async def test_reading_what_trusted_sessions_wrote_taints_nobody(documents: Of, tmp_path: Path) -> None:
    gate = gate_of(tmp_path)
    agent = await Agent(documents("s"), gate).mount()
    await agent("create", title="one")
    await agent("list")
    await agent("show", id=1)
    assert gate.untrusted == ""


async def test_a_secret_reaches_neither_the_issue_nor_its_event(agent: Agent, store: DurableStore) -> None:
    hide_secret("correct-horse-battery")
    await agent("create", title="correct-horse-battery fails", description="Bearer sk-ant-api03-0123456789abcdefghij")
    await agent("comment", id=1, text="correct-horse-battery")
    await agent("close", id=1, result="correct-horse-battery")
    stored = f"{await agent('show', id=1)} {await agent('list')} {[each.data for each in await store.events()]}"
    assert "correct-horse" not in stored
    assert "0123456789" not in stored
    assert "[REDACTED]" in stored
