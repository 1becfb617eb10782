import subprocess
from pathlib import Path

from amplifier_core import TriggerContext
from amplifier_core.testing import VirtualClock, check_trigger

from amplifier_trigger_git_branch import GitBranchTrigger


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    return subprocess.check_output(["git", *who, *arguments], cwd=folder, text=True).strip()


def commit(folder: Path) -> str:
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "work")
    return git(folder, "rev-parse", "HEAD")


async def test_it_keeps_the_contract_of_a_trigger(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    clock, commits = VirtualClock(), [commit(tmp_path)]

    async def move() -> None:
        commits.append(commit(tmp_path))
        await clock.advance(1)

    context = TriggerContext(
        "test/git-branch#0", working_dir=tmp_path, clock=clock, state={"commit": commits[0], "moves": 0}
    )
    events = await check_trigger(GitBranchTrigger, {"branch": "main"}, provoke=move, context=context)
    assert [event.data["commit"] for event in events] == commits[1 : len(events) + 1]
    assert events[0].data["before"] == commits[0]


async def test_the_first_look_is_no_event_and_a_missing_branch_is_reported(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    told: list[str | None] = []
    trigger = GitBranchTrigger()
    trigger.bind(TriggerContext("test/git-branch#0", working_dir=tmp_path, reporter=told.append))
    assert [event async for event in trigger.poll()] == []
    commit(tmp_path)
    assert [event async for event in trigger.poll()] == []
    second = commit(tmp_path)
    assert [event.data["commit"] async for event in trigger.poll()] == [second]
    assert told == ["there is no branch main", None, None]
