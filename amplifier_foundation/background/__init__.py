"""Run background sessions: each wakes on its triggers and handles their events, once, whatever is killed when.

    trigger ─▶ watch.py ─▶ admission.py ─▶ [queue in the store] ─▶ worker.py ─▶ session ─▶ commit
    (trigger_making.py)    (the gate)       (worker.py draws a delivery's states)

| module | does |
|---|---|
| `manager` | starts, stops and reconciles the background sessions of one parent session |
| `up`, `asking`, `reloading` | bring up bundles in a process, ask such processes, take up edits |
| `control`, `commands` | answer other processes, and carry out what they ask |
| `watch`, `trigger_making` | run triggers, store their events, restart failed ones |
| `starting`, `lifecycle` | prepare a start; keep the wishes of people: running, paused, stopped |
| `admission`, `file_causes`, `refusals` | decide about an event, find the session behind a file, report refusals |
| `worker`, `attempts`, `shared_history` | claim a delivery, run its session |
| `attempt_ends`, `completion` | commit the result, put the delivery back, or give it up |
| `worktree_steps`, `worktrees`, `worktree_files` | give sessions git worktrees, and merge their changes |
| `git`, `branch_names` | run git where sessions write; name branches |
| `mistakes`, `outages`, `budgets` | classify errors; wait for a provider that is out, or for the next day |
| `draining` | waits until everything is handled |
| `keys`, `state`, `status_log`, `log_events` | names in the store; state; activities of observers, events of the log |
| `data_folder`, `descriptors` | notice that the data folder is gone, or no descriptor is free |
| `working_folder` | keeps the working folder of the process |
| `retention`, `store_upkeep` | forget old data, back up the store |
| `package_upkeep` | notices packages that change meanwhile |
| `partial_store`, `memory_inbox` | complete a small storage |
| `stalling`, `freezing` | report a blocked loop; end a process that C code holds |
| `live_feed`, `following` | show the turns of running sessions, and follow them from another process |
| `servers` | runs the servers of packages beside the background sessions |
| `tasks` | runs a coroutine while a block runs |
| `provenance` | finds the chain of causes of an event or a session |
| `service` | units of systemd and launchd |

A name of this package is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..bundle.background_config import BackgroundSessionConfig
    from .manager import BackgroundSessionManager
    from .state import BackgroundSessionState

_HOME_OF = {
    "BackgroundSessionConfig": "..bundle.background_config",
    "BackgroundSessionManager": ".manager",
    "BackgroundSessionState": ".state",
}

__all__ = ["BackgroundSessionConfig", "BackgroundSessionManager", "BackgroundSessionState"]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value
