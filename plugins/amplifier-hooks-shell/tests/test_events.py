"""Run commands at the events of real sessions."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.permissions import PermissionGate, Policy, parse_permissions

if TYPE_CHECKING:
    from pathlib import Path


KEEP = "cat >> seen; echo >> seen"
DENIED = "Denied by hook: "


def say(**output: Any) -> str:
    """Return a command that answers with JSON."""
    return f"cat <<'E'\n{json.dumps(output)}\nE"


def decide(decision: str, **more: Any) -> str:
    special = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": "because"}
    return say(hookSpecificOutput={**special, **more})


def read_seen(work: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (work / "seen").read_text().splitlines()]


async def test_a_command_gets_the_event_as_json(make: Any, work: Path) -> None:
    session = make(**dict.fromkeys(("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart"), KEEP))
    await session.execute("write a.txt")
    facts = {"session_id": "s", "cwd": str(work)}
    call = {"tool_name": "write_file", "tool_alias": "Write", "tool_use_id": "call_1"}
    given = {"tool_input": {"file_path": "a.txt", "content": "new"}}
    start, prompt, before, after, stop = read_seen(work)
    assert start == {**facts, "hook_event_name": "SessionStart", "source": "startup"}
    assert prompt == {**facts, "hook_event_name": "UserPromptSubmit", "prompt": "write a.txt"}
    assert before == {**facts, **call, **given, "hook_event_name": "PreToolUse"}
    assert after.pop("tool_response")["success"] is True
    assert after == {**facts, **call, **given, "hook_event_name": "PostToolUse"}
    assert stop == {**facts, "hook_event_name": "Stop", "stop_hook_active": False}


async def test_exit_code_2_denies_a_call_and_its_error_output_is_the_reason(
    make: Any, work: Path, texts_of: Any
) -> None:
    session = make(PreToolUse="echo not today >&2; exit 2")
    await session.execute("write a.txt")
    assert await texts_of(session, "tool") == [f"{DENIED}not today"]
    assert not (work / "a.txt").exists()


@pytest.mark.parametrize(
    ("matcher", "name"),
    [
        ("Write", "Write"),
        ("Write|Edit", "Write"),
        ("write_file", "write_file"),
        ("W.*", "Write"),
        ("*", "write_file"),
        ("", "write_file"),
    ],
)
async def test_a_pattern_may_use_the_names_of_claude_code(make: Any, work: Path, matcher: str, name: str) -> None:
    session = make(PreToolUse=[{"matcher": matcher, "hooks": [{"type": "command", "command": KEEP}]}])
    await session.execute("write a.txt")
    assert [each["tool_name"] for each in read_seen(work)] == [name]


@pytest.mark.parametrize("matcher", ["Read", "write", "Writ", "xWrite", "rite_file"])
async def test_a_pattern_for_other_tools_runs_nothing(make: Any, work: Path, matcher: str) -> None:
    session = make(PreToolUse=[{"matcher": matcher, "hooks": [{"command": "exit 2"}]}])
    await session.execute("write a.txt")
    assert (work / "a.txt").read_text() == "new"


async def test_the_strictest_of_several_answers_counts(make: Any, work: Path, answers: Any, texts_of: Any) -> None:
    hooks = [{"command": each} for each in (decide("allow"), decide("ask"), decide("deny"))]
    session = make(PreToolUse=[{"hooks": hooks}])
    await session.execute("write a.txt")
    assert await texts_of(session, "tool") == [f"{DENIED}because"]
    assert answers.asked == []


async def test_commands_of_one_event_run_at_the_same_time(make: Any, work: Path) -> None:
    meet = "mkfifo {0} 2>/dev/null; echo > {0} & cat {1} > /dev/null; wait"
    hooks = [{"command": f"mkfifo a b 2>/dev/null; {meet.format(*each)}", "timeout": 30} for each in ("ab", "ba")]
    session = make(PreToolUse=[{"hooks": hooks}])
    await session.execute("write a.txt")
    assert (work / "a.txt").exists()


@pytest.mark.parametrize(("answer", "is_written"), [("Allow once", True), ("Deny", False)])
async def test_a_command_may_have_a_person_asked(
    make: Any, work: Path, answers: Any, answer: str, is_written: bool
) -> None:
    answers.answer = answer
    session = make(PreToolUse=decide("ask"))
    told: list[tuple[str, Any]] = []
    for event in ("approval:required", "approval:granted", "approval:denied"):
        session.coordinator.hooks.register(event, lambda event, data: told.append((event, data["tool_name"])))
    await session.execute("write a.txt")
    [asked] = answers.asked
    assert asked.splitlines()[0] == 'write_file({"file_path": "a.txt", "content": "new"}): because'
    assert (work / "a.txt").exists() is is_written
    assert told == [
        ("approval:required", "write_file"),
        ("approval:granted" if is_written else "approval:denied", "write_file"),
    ]


async def test_the_allow_of_a_command_overrides_no_permission(make: Any, work: Path, answers: Any) -> None:
    layer = parse_permissions({"deny": ["write_file(a.txt)"], "ask": ["write_file(b.txt)"]}, "user settings")
    session = make(gate=PermissionGate(Policy([layer]), work), PreToolUse=decide("allow"))
    await session.execute("write a.txt")
    await session.execute("write b.txt")
    assert [path.name for path in work.iterdir()] == []
    assert len(answers.asked) == 1


async def test_a_changed_input_is_used_and_checked_again(make: Any, work: Path, texts_of: Any) -> None:
    layer = parse_permissions({"deny": ["write_file(closed/**)"]}, "user settings")
    moved = decide("allow", updatedInput={"file_path": "other.txt", "content": "changed"})
    session = make(gate=PermissionGate(Policy([layer]), work), PreToolUse=moved)
    await session.execute("write a.txt")
    assert (work / "other.txt").read_text() == "changed"
    closed = decide("allow", updatedInput={"file_path": "closed/x.txt", "content": "changed"})
    session = make(gate=PermissionGate(Policy([layer]), work), session_id="t", PreToolUse=closed)
    await session.execute("write a.txt")
    assert "not permitted" in (await texts_of(session, "tool"))[0]
    assert not (work / "closed").exists()


async def test_a_later_guard_and_the_person_see_the_changed_input(make: Any, work: Path, answers: Any) -> None:
    change = {"file_path": "other.txt", "content": "changed"}
    session = make(PreToolUse=decide("ask", updatedInput=change, additionalContext="it was moved"))
    seen: list[Any] = []
    session.coordinator.hooks.register("tool:pre", lambda event, data: seen.append(data["tool_input"]))
    await session.execute("write a.txt")
    assert seen == [change]
    assert answers.asked[0].startswith('write_file({"file_path": "other.txt"')


async def test_what_a_command_adds_reaches_the_model(make: Any, texts_of: Any) -> None:
    context = {"hookEventName": "PreToolUse", "additionalContext": "before it"}
    session = make(
        PreToolUse=say(hookSpecificOutput=context),
        PostToolUse=say(decision="block", reason="format it"),
        UserPromptSubmit="echo the day is Monday",
        SessionStart="echo three issues are open",
    )
    await session.execute("write a.txt")
    added = [text for text in await texts_of(session, "user") if text != "write a.txt"]
    assert added == ["the day is Monday", "three issues are open", "before it", "format it"]


async def test_a_prompt_may_be_refused(make: Any) -> None:
    session = make(UserPromptSubmit=say(decision="block", reason="no secrets here"))
    assert await session.execute("write a.txt") == f"{DENIED}no secrets here"
    assert await session.history() == []


async def test_a_stop_may_send_the_turn_on_and_knows_that_it_did(make: Any, work: Path, texts_of: Any) -> None:
    session = make(Stop=f"{KEEP}; test -e once || {{ touch once; echo run the tests >&2; exit 2; }}")
    await session.execute("hello")
    assert [each["stop_hook_active"] for each in read_seen(work)] == [False, True]
    assert await texts_of(session, "user") == ["hello", "run the tests"]
    await session.execute("again")
    assert [each["stop_hook_active"] for each in read_seen(work)] == [False, True, False]


async def test_a_stop_that_always_blocks_comes_to_an_end(make: Any, answers: Any, texts_of: Any) -> None:
    session = make(Stop=say(decision="block", reason="more"), settings={"max_stop_blocks": 2})
    await session.execute("hello")
    assert await texts_of(session, "user") == ["hello", "more", "more"]
    assert answers.shown == ["warning: the turn ends here: Stop has sent it on 2 times"]


async def test_a_command_may_end_the_turn(make: Any, work: Path, answers: Any) -> None:
    session = make(
        PostToolUse=say(**{"continue": False, "stopReason": "enough", "systemMessage": "look"}), Stop="touch stopped"
    )
    assert await session.execute("write a.txt") == "enough"
    assert (work / "a.txt").exists()
    assert answers.shown == ["info: look"]
    assert not (work / "stopped").exists()


async def test_the_end_of_a_session_runs_its_command(make: Any, work: Path) -> None:
    session = make(SessionEnd=KEEP)
    await session.execute("hello")
    await session.cleanup()
    assert [each["reason"] for each in read_seen(work)] == ["completed"]


async def test_an_agent_runs_what_is_for_agents_alone(make: Any, work: Path) -> None:
    events = ("UserPromptSubmit", "SessionStart", "SessionEnd", "Stop", "SubagentStop", "PreToolUse")
    session = make(entry={"inherited": True}, **dict.fromkeys(events, KEEP))
    await session.execute("write a.txt")
    await session.cleanup()
    assert [each["hook_event_name"] for each in read_seen(work)] == ["PreToolUse", "SubagentStop"]


async def test_a_fork_is_no_agent(make: Any, work: Path) -> None:
    session = make(**dict.fromkeys(("UserPromptSubmit", "Stop", "SubagentStop"), KEEP))
    await session.execute("hello")
    (work / "seen").unlink()
    fork = await session.fork()
    await fork.execute("hello")
    assert [each["hook_event_name"] for each in read_seen(work)] == ["UserPromptSubmit", "Stop"]
    assert read_seen(work)[0]["parent_id"] == "s"
    await fork.cleanup()


async def test_a_notification_does_not_hold_up_its_question(make: Any, work: Path, answers: Any) -> None:
    session = make(PreToolUse=decide("ask"), Notification="mkfifo go; read line < go; cat > seen")
    await session.execute("write a.txt")
    assert answers.asked
    while not (work / "go").exists():
        await asyncio.sleep(0.01)
    (work / "go").write_text("go\n")
    while not (work / "seen").exists() or not (work / "seen").read_text():
        await asyncio.sleep(0.01)
    [seen] = read_seen(work)
    assert (seen["hook_event_name"], seen["notification_type"]) == ("Notification", "permission_prompt")


async def test_guards_of_two_bundles_with_one_text_are_both_asked(make: Any, work: Path, tmp_path: Path) -> None:
    folders = {"one": "exit 2", "two": "exit 0"}
    for name, text in folders.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "guard.sh").write_text(f"echo {name} >> {work}/asked; {text}\n")
    command = {"command": 'sh "$CLAUDE_PLUGIN_ROOT/guard.sh"'}
    guards = [{"hooks": [{**command, "bundle_dir": str(tmp_path / name)}]} for name in (*folders, "one")]
    await make(PreToolUse=guards).execute("write a.txt")
    assert sorted((work / "asked").read_text().split()) == ["one", "two"]
    assert not (work / "a.txt").exists()


async def test_an_entry_that_goes_on_after_a_failure_does_not_stand_for_one_that_denies(make: Any, work: Path) -> None:
    commands = [{"command": "exit 1"}, {"command": "exit 1", "on_error": "continue"}]
    await make(PreToolUse=[{"hooks": commands}]).execute("write a.txt")
    assert not (work / "a.txt").exists()


async def test_two_sessions_at_once_do_not_mix(make: Any, work: Path) -> None:
    sessions = [make(session_id=name, PreToolUse=f"cat > {name}.seen") for name in ("one", "two")]
    await asyncio.gather(*(each.execute(f"write {each.session_id}.txt") for each in sessions))
    for name in ("one", "two"):
        seen = json.loads((work / f"{name}.seen").read_text())
        assert (seen["session_id"], seen["tool_input"]["file_path"]) == (name, f"{name}.txt")


async def test_no_text_of_a_call_reaches_the_shell(make: Any, work: Path) -> None:
    session = make(PreToolUse="cat > /dev/null", UserPromptSubmit="cat > /dev/null")
    await session.execute("write $(touch${IFS}bad);`touch${IFS}worse`")
    assert not (work / "bad").exists()
    assert not (work / "worse").exists()
