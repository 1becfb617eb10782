"""Workflows: what a durable task costs beyond its commit, graphs of many tasks, and a thousand forks of one history."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core import load_plugins
from amplifier_core.storage import SessionRecord
from amplifier_core.testing import MemoryStore
from amplifier_foundation import Bundle, PreparedBundle
from amplifier_foundation.flows.graph import Graph
from amplifier_foundation.flows.runs import run_workflow
from amplifier_foundation.flows.tasks import Parallel, Sequence, Task, Workflow
from amplifier_foundation.sessions.storages import open_store

from .measure import Row, awaited, called, in_turns, timed
from .storing import MESSAGE, closing_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.storage import SessionStore

TASKS, TASK_AT_MOST = 300, 1e-3  # goal: seconds of a task beyond its commit
WIDE, GRAPH_AT_MOST = 10_000, 0.5  # goal: seconds
GROWTH_AT_MOST = 1.3  # goal: times a task among a tenth of them
FORKS, FORK_AT_MOST, BYTES_AT_MOST = 1_000, 3e-3, 2_048  # goal: seconds and bytes of each
HISTORY = 10 * 1024 * 1024
"""Bytes of the history that is forked."""
FLAT_AT_MOST = 1.2  # goal: times the forks of a short history

SAYING = """
class Saying:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        await context.add_message({"role": "user", "content": prompt})
        await context.add_message({"role": "assistant", "content": "done"})
        return "done"

async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Saying())
"""
"""A loop that reads nothing of the history: a model's own time is not measured."""


async def rows() -> AsyncIterator[Row]:
    """Measure all of them."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        (Path(folder) / "saying.py").write_text(SAYING, encoding="utf-8")
        loop = {"orchestrator": {"module": "loop-saying", "source": "./saying.py"}}
        providers = [{"module": "provider-playbook"}]
        bundle = PreparedBundle.of(Bundle("flows", session=loop, providers=providers, base_path=Path(folder)))
        yield await _task(bundle, folder)
        for row in await _graphs(bundle):
            yield row
        async for row in _forks(bundle, folder):
            yield row


def _store(folder: str) -> SessionStore:
    return open_store(load_plugins(), None, Path(folder) / "store.db")


async def _task(bundle: PreparedBundle, folder: str) -> Row:
    """Measure tasks one after the other, beside as many commits of one message."""
    plugins = load_plugins()
    workflow = Workflow("chain", Sequence(*(Task(f"t{n}", compute=lambda inputs: 1) for n in range(TASKS))))
    async with closing_store(_store(folder)) as store:

        async def chain() -> None:
            await run_workflow(workflow, bundle, store, plugins)

        async def commits() -> None:
            name = f"commits-{perf_counter()}".replace(".", "-")
            await store.create(SessionRecord(name))
            for at in range(TASKS):
                await store.append(name, [MESSAGE], at=at)

        ours, raw = await in_turns(awaited(chain, 1), awaited(commits, 1), rounds=5)
    return timed("a durable task of a workflow, beyond a commit", (ours - raw) / TASKS, at_most=TASK_AT_MOST)


async def _graphs(bundle: PreparedBundle) -> list[Row]:
    """Measure the graph of many tasks, and a task among many beside one among a tenth of them."""
    rows = [Parallel(*(Task(f"t{row}-{n}", value=n) for n in range(100))) for row in range(WIDE // 100)]
    wide = Workflow("wide", Sequence(*rows))
    waiting = [Task(f"w{n}", value=n, depends_on=(f"w{n - 1}",) if n else ()) for n in range(WIDE)]
    narrow = Workflow("narrow", Parallel(*waiting, max_concurrency=4))
    built, limited = await in_turns(called(lambda: Graph(wide), 1), called(lambda: Graph(narrow), 1), rounds=5)

    def run(count: int) -> Any:
        tasks = [Task(f"t{n}", value=n, depends_on=(f"t{n - 1}",) if n else ()) for n in range(count)]
        workflow = Workflow("many", Parallel(*tasks))

        async def sample() -> float:
            began = perf_counter()
            await run_workflow(workflow, bundle, MemoryStore(), load_plugins())
            return (perf_counter() - began) / count

        return sample

    many, few = await in_turns(run(4_000), run(400), rounds=5)
    return [
        timed(f"the graph of {WIDE:,} tasks", built, at_most=GRAPH_AT_MOST),
        timed(f"the graph of {WIDE:,} tasks that wait for each other, four at a time", limited, at_most=GRAPH_AT_MOST),
        Row("a task among 4,000 that wait for each other / among 400", many, few, at_most_ratio=GROWTH_AT_MOST),
    ]


async def _forks(bundle: PreparedBundle, folder: str) -> AsyncIterator[Row]:
    """Measure tasks that fork one long history: the time and the bytes of each, and those of a short history."""
    taken, stored = {}, {}
    for name, size in (("short", 10_000), ("long", HISTORY)):
        at = Path(folder) / name
        at.mkdir()
        source = Task("source", agent="self", prompt="x" * size)
        async with closing_store(_store(str(at))) as store:
            run = await run_workflow(Workflow("first", source), bundle, store, load_plugins())
        before = _bytes(at)
        forks = [Task(f"f{n}", agent="self", fork="source", prompt="go") for n in range(FORKS)]
        steps = Workflow("first", Sequence(source, Parallel(*forks, max_concurrency=16)))
        async with closing_store(_store(str(at))) as store:
            began = perf_counter()
            await run_workflow(steps, bundle, store, load_plugins(), resume=run.run_id)
            taken[name] = (perf_counter() - began) / FORKS
        stored[name] = (_bytes(at) - before) / FORKS
    yield timed("one of 1,000 tasks that fork 10 MB", taken["long"], at_most=FORK_AT_MOST)
    yield Row("the same / forks of 10 kB", taken["long"], taken["short"], at_most_ratio=FLAT_AT_MOST)
    yield Row("bytes of one of 1,000 tasks that fork 10 MB", stored["long"], at_most=BYTES_AT_MOST, unit="B")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
