"""Run workflows: tasks of agents and functions, in order, side by side and in loops, that fork each other's sessions.

    plan = Task("plan", agent="planner", prompt="Plan {input.goal}")
    build = Task("build", agent="coder", fork="plan", prompt="Do it.")
    checks = Parallel(Task("test", agent="coder", fork="build", prompt="Test it."),
                      Task("read", agent="critic", fork="plan", prompt="Was the plan good?"))
    workflow = Workflow("feature", Sequence(plan, build, checks))
    result = await run_workflow(workflow, bundle, store, plugins, {"goal": "a better README"})

`tasks.py` has what people write, `graph.py` checks it, `engine.py` runs it, `journal.py` keeps what is done, and
`turns.py` takes the turns of agents. `claims.py` gives a run one owner, `asking.py` asks people, `run_events.py` tells
the triggers of others. `runs.py` and `runner.py` begin runs, by hand and for events. `description.py` makes plain data
of a workflow, for a run to keep; `drawing.py`, `picture.py` and `layout.py` draw that. A run is a session: its messages
are its journal, so a run is forked, listed and deleted like any other session.

Every name is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import FlowError
    from .reading import find_workflow
    from .runs import RunResult, run_workflow
    from .tasks import Approval, Branch, ForEach, Loop, Parallel, RetryPolicy, Sequence, Task, Workflow

_HOMES = {
    ".errors": "FlowError",
    ".reading": "find_workflow",
    ".runs": "RunResult run_workflow",
    ".tasks": "Approval Branch ForEach Loop Parallel RetryPolicy Sequence Task Workflow",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Approval",
    "Branch",
    "FlowError",
    "ForEach",
    "Loop",
    "Parallel",
    "RetryPolicy",
    "RunResult",
    "Sequence",
    "Task",
    "Workflow",
    "find_workflow",
    "run_workflow",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value
