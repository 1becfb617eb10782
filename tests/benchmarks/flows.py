"""Workflows: what a durable task costs beyond its commit, graphs of many tasks, and a thousand forks of one history."""

from __future__ import annotations

from contextlib import closing, contextmanager
from graphlib import TopologicalSorter
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

from .measure import Figure, Row, awaited, called, in_turns
from .storing import MESSAGE, closing_store, one_row, raw_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from amplifier_core.storage import SessionStore

    from .measure import Sample

TASKS, TASK_AT_MOST = 300, 6.0  # goal: times its commit, which takes 150 µs on the machine where 1 ms is allowed
WIDE, GRAPH_AT_MOST = 10_000, 6.0  # goal: times the sorted graph of the standard library
GROWTH_AT_MOST = 1.3  # goal: times a task among a tenth of them
FORKS, FORK_AT_MOST = 250, 20.0  # goal: times a one-row transaction
BYTES_AT_MOST = 1 / 5_000  # goal: times the bytes of the history: 2 kB
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


@contextmanager
def _prepared() -> Iterator[tuple[PreparedBundle, Path]]:
    """Yield a bundle whose agent answers at once, and its folder."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        (Path(folder) / "saying.py").write_text(SAYING, encoding="utf-8")
        loop = {"orchestrator": {"module": "loop-saying", "source": "./saying.py"}}
        providers = [{"module": "provider-playbook"}]
        yield (
            PreparedBundle.of(Bundle("flows", session=loop, providers=providers, base_path=Path(folder))),
            Path(folder),
        )


def _store(folder: Path) -> SessionStore:
    return open_store(load_plugins(), None, folder / "store.db")


async def _task() -> AsyncIterator[Row]:
    """Measure tasks one after the other, beside as many commits of one message."""
    plugins = load_plugins()
    workflow = Workflow("chain", Sequence(*(Task(f"t{n}", compute=lambda inputs: 1) for n in range(TASKS))))
    with _prepared() as (bundle, folder):
        async with closing_store(_store(folder)) as store:

            async def chain() -> None:
                await run_workflow(workflow, bundle, store, plugins)

            async def commits() -> None:
                name = f"commits-{perf_counter()}".replace(".", "-")
                await store.create(SessionRecord(name))
                for at in range(TASKS):
                    await store.append(name, [MESSAGE], at=at)

            ours, raw = await in_turns(awaited(chain, 1), awaited(commits, 1), rounds=7)
    yield Row("a durable task of a workflow, beyond its commit / a commit", ours - raw, raw, at_most_ratio=TASK_AT_MOST)


async def _graphs() -> AsyncIterator[Row]:
    """Measure the graphs of many tasks beside the standard library's."""
    rows = [Parallel(*(Task(f"t{row}-{n}", value=n) for n in range(100))) for row in range(WIDE // 100)]
    wide = Workflow("wide", Sequence(*rows))
    waiting = [Task(f"w{n}", value=n, depends_on=(f"w{n - 1}",) if n else ()) for n in range(WIDE)]
    narrow = Workflow("narrow", Parallel(*waiting, max_concurrency=4))
    built, limited, wide_by_hand, narrow_by_hand = await in_turns(
        called(lambda: Graph(wide), 1),
        called(lambda: Graph(narrow), 1),
        called(lambda: _sort(_wide()), 1),
        called(lambda: _sort({n: [n - 1] for n in range(WIDE)}), 1),
        rounds=9,
    )
    what = f"the graph of {WIDE:,} tasks"
    yield Row(f"{what} / graphlib", built, wide_by_hand, at_most_ratio=GRAPH_AT_MOST)
    yield Row(f"{what} that wait for each other / graphlib", limited, narrow_by_hand, at_most_ratio=GRAPH_AT_MOST)


def _wide() -> dict[Any, list[Any]]:
    """Return a graph of rows of 100 tasks, each of which waits for the row before."""
    rows = {row: [(row, number) for number in range(100)] for row in range(WIDE // 100)}
    return {**rows, **{task: [row - 1] for row, tasks in rows.items() for task in tasks}}


def _sort(graph: Mapping[Any, Iterable[Any]]) -> None:
    list(TopologicalSorter(graph).static_order())


async def _runs() -> AsyncIterator[Row]:
    """Measure a task among many that wait for each other, beside one among a tenth of them."""

    def run(count: int) -> Sample:
        tasks = [Task(f"t{n}", value=n, depends_on=(f"t{n - 1}",) if n else ()) for n in range(count)]
        workflow = Workflow("many", Parallel(*tasks))

        async def sample() -> float:
            began = perf_counter()
            await run_workflow(workflow, bundle, MemoryStore(), load_plugins())
            return (perf_counter() - began) / count

        return sample

    with _prepared() as (bundle, _):
        many, few = await in_turns(run(4_000), run(400), rounds=5)
    yield Row("a task among 4,000 that wait for each other / among 400", many, few, at_most_ratio=GROWTH_AT_MOST)


async def _forks() -> AsyncIterator[Row]:
    """Measure tasks that fork one history: the time and the bytes of each, of a long and of a short one."""
    grown: list[float] = []
    with _prepared() as (bundle, folder), closing(raw_in(folder)) as raw:
        samples = [
            _forking(bundle, folder / name, size, grown) for name, size in (("short", 10_000), ("long", HISTORY))
        ]
        short, long, limit = await in_turns(*samples, one_row(raw, 200), rounds=7)
    what = f"one of {FORKS:,} tasks that fork 10 MB"
    yield Row(f"{what} / a one-row transaction", long, limit, at_most_ratio=FORK_AT_MOST)
    yield Row("the same / forks of 10 kB", long, short, at_most_ratio=FLAT_AT_MOST)
    yield Row(f"bytes of {what} / of the history", Figure(grown), HISTORY, at_most_ratio=BYTES_AT_MOST, unit="B")


def _forking(bundle: PreparedBundle, folder: Path, size: int, grown: list[float]) -> Sample:
    """Return a sample of a task that forks a history of so many bytes, among many; each time in a new run.

    The history comes from a function: a text would be in the description of the workflow, which is stored once a run.
    `grown` gets the bytes by which the store grows for each task.
    """
    folder.mkdir()
    source = Task("source", agent="self", prompt=lambda inputs: "x" * size)
    forks = [Task(f"f{n}", agent="self", fork="source", prompt="go") for n in range(FORKS)]
    steps = Workflow("first", Sequence(source, Parallel(*forks, max_concurrency=16)))

    async def sample() -> float:
        async with closing_store(_store(folder)) as store:
            run = await run_workflow(Workflow("first", source), bundle, store, load_plugins())
        before = _bytes(folder)
        async with closing_store(_store(folder)) as store:
            began = perf_counter()
            await run_workflow(steps, bundle, store, load_plugins(), resume=run.run_id, accept=True)
            taken = perf_counter() - began
        grown.append((_bytes(folder) - before) / FORKS)
        return taken / FORKS

    return sample


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


PARTS = (_task, _graphs, _runs, _forks)
