"""Kill `amplifier up` again and again while workers do issues: each is closed once, with its branch or merge once.

`KILLS` is how often, of `ISSUES` issues; `make foreman` has 100 kills and 50 issues. `SEED` chooses other moments.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.isolation.process_table import find_below, parents_of_all
from tests import forks
from tests.programs import require

from .yard import RULES, Yard, providers, workers

KILLS = int(os.environ.get("KILLS", "3"))
ISSUES = int(os.environ.get("ISSUES", "8"))
SEED = int(os.environ.get("SEED", "20261123"))
WORKERS = 3
SPAN = (0.0, 1.6)
"""Seconds that it works after its start before it is killed."""


@pytest.fixture
async def yard(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Yard]:
    require("git")
    finish = {"branch": "issue-{issue_id}", "finish": request.param}
    pool = workers(pool_size=WORKERS, worktree=finish, max_attempts=100, retry={"delay": 0.05})
    runner = {"name": "test-runner", "bundle": "./worker.md", "triggers": [{"type": "manual"}]}
    given: dict[str, Any] = {"background_sessions": [pool, runner], "providers": providers(RULES, delay_ms=50)}
    made = Yard(tmp_path / "yard", tmp_path / "home", **given)
    made.commit_all()
    yield made
    await made.store.close()


async def kill_up(yard: Yard, seconds: float, chance: random.Random) -> int:
    """Start `up`, and kill it so long after its first process of a session; now and then one of those before.

    Return the kills. Every process below it ends.
    """
    with forks.Popen(["-q", "up"], cwd=yard.folder, env=yard.environment, stdout=subprocess.DEVNULL) as process:

        async def works() -> bool:
            assert process.poll() is None, "it ended by itself"
            return bool(find_below([process.pid])) or await is_done(yard)

        await yard.until(works)
        await asyncio.sleep(seconds)
        below = find_below([process.pid])
        is_below_killed = bool(below) and chance.random() < 0.3
        if is_below_killed:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(below), signal.SIGKILL)
            await asyncio.sleep(chance.uniform(0, 0.2))
        below += find_below([process.pid])
        process.kill()

    async def have_ended() -> bool:
        return not set(below) & set(parents_of_all())

    await yard.until(have_ended)
    return 1 + is_below_killed


async def is_done(yard: Yard) -> bool:
    return not await yard.tracker.find(status=["open", "in_progress", "escalated"], limit=1)


async def file_issues(yard: Yard, chance: random.Random) -> None:
    """File further issues; a third of them wait for earlier ones."""
    first = len(await yard.issues()) + 1
    for number in range(first, first + ISSUES):
        waits = chance.sample(range(first, number), min(2, number - first)) if number % 3 == 0 else []
        await yard.tracker.create(f"write {number}.txt issue {number}", blocked_by=waits)


async def check(yard: Yard, finish: str) -> None:
    """Assert that each issue was closed once, in the order of their dependencies, and that nothing is left over."""
    issues = await yard.issues()
    count = len(issues)
    assert [each.state for each in issues] == ["closed"] * count
    assert {each.failures for each in issues} == {0}
    closed = [int(event.data["id"]) for event in await yard.events("issue:closed")]
    assert sorted(closed) == list(range(1, count + 1))
    assert all(closed.index(each.id) > closed.index(other) for each in issues for other in each.blocked_by)
    done = [each for each in (await yard.deliveries()).values() if each.queue == "yard/coding-workers"]
    assert Counter(each.state for each in done) - Counter({"skipped": len(done)}) == Counter({"done": count})
    names = [f"issue-{number}" for number in range(1, count + 1)]
    if finish == "branch":
        assert yard.branches() == sorted([*names, "main"])
        for number, name in enumerate(names, 1):
            assert yard.git("diff", "--name-only", "main", name) == f"{number}.txt"
            assert yard.git("rev-list", "--count", f"main..{name}") == "1"
    else:
        assert yard.branches() == ["main"]
        merges = yard.git("log", "--format=%s", "--merges").splitlines()
        assert sorted(merges) == sorted(f"Merge branch '{name}'" for name in names)
        assert yard.git("rev-list", "--count", "--no-merges", "main") == str(count + 1)
        for number in range(1, count + 1):
            assert (yard.folder / f"{number}.txt").read_text() == f"issue {number}\n"
    assert yard.git("status", "--porcelain") == ""
    assert len(yard.git("worktree", "list").splitlines()) == 1
    assert list((yard.home / "worktrees").glob("[!.]*")) == []  # a kill may leave a half-written `.new-*` note


@pytest.mark.parametrize(("yard", "finish"), [("branch", "branch"), ("merge", "merge")], indirect=["yard"])
async def test_issues_are_done_once_however_often_the_workers_are_killed(yard: Yard, finish: str) -> None:
    chance, kills = random.Random(f"{SEED}-{finish}"), 0
    while kills < KILLS:
        if await is_done(yard):
            await file_issues(yard, chance)
        kills += await kill_up(yard, chance.uniform(*SPAN), chance)
    done = await yard.run("-q", "up", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    await check(yard, finish)
    sys.stdout.write(f"{finish}: {len(await yard.issues())} issues, {kills} kills\n")
