"""Run a session in a process of its own, from a program: the published name of the room `isolation`.

    result = await run_session_in_subprocess(config, "Review a.py", parent_id, "/work/project", timeout=600)
    print(result.output, result.usage)

The configuration, with its secrets, crosses a socket: it is never on a disk, and never in a command line.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from amplifier_core.hook_data import SpawnRequest
from amplifier_core.ids import new_session_id, validate_session_id

from .bundle.model import Bundle
from .bundle.module_resolver import BundleModuleResolver
from .bundle.prepared import PreparedBundle, with_default_session
from .isolation.runner import SubprocessRunner
from .isolation.zygotes import MAX_SUBPROCESS, Zygotes
from .sessions.session_storage import as_session_store
from .spawning.child import prepare_spawn
from .spawning.life import run_spawn, settle_spawn
from .spawning.requests import spawn_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.display import DisplaySystem
    from amplifier_core.hook_data import SpawnOutcome
    from amplifier_core.storage import SessionStorage, SessionStore

__all__ = ["SubprocessResult", "configure_subprocess_limit", "run_session_in_subprocess"]

_limit = MAX_SUBPROCESS


class SubprocessResult(str):
    """The result of a session: its values as attributes, and itself their JSON, as published programs parse it.

    `status` is `success` or `error`; `turn_count` counts turns, `usage` is as in `SpawnOutcome`, `error` is one line
    without secrets.
    """

    __slots__ = ("error", "output", "session_id", "status", "turn_count", "usage")

    output: str
    status: Literal["success", "error"]
    turn_count: int
    usage: Mapping[str, Any]
    error: str | None
    session_id: str

    @classmethod
    def of(cls, outcome: SpawnOutcome) -> Self:
        """Return the result of an ended session."""
        status: Literal["success", "error"] = "success" if outcome.status == "completed" else "error"
        told = {
            "output": outcome.output,
            "status": status,
            "turn_count": outcome.turn_count,
            "metadata": {"session_id": outcome.session_id, "usage": dict(outcome.usage)},
        }
        error = outcome.error if outcome.error is not None or status == "success" else f"it is {outcome.status}"
        result = cls(json.dumps({**told, "error": error} if error is not None else told))
        result.output, result.status, result.turn_count = outcome.output, status, outcome.turn_count
        result.usage, result.error, result.session_id = dict(outcome.usage), error, outcome.session_id
        return result


def configure_subprocess_limit(most: int) -> None:
    """Set the number of sessions in processes of their own at a time, before the first one.

    Raises `ValueError` for a number below 1, and `RuntimeError` after the first session.
    """
    global _limit
    if most < 1:
        raise ValueError(f"the limit of processes must be 1 or more, not {most}")
    if _runner.cache_info().currsize and most != _limit:
        raise RuntimeError("the limit of processes cannot be changed after the first session")
    _limit = most


@cache
def _runner() -> SubprocessRunner:
    return SubprocessRunner(Zygotes(_limit))


async def run_session_in_subprocess(
    config: Mapping[str, Any],
    prompt: str,
    parent_id: str,
    project_path: str | Path,
    session_id: str | None = None,
    timeout: float | None = 1800,  # noqa: ASYNC109 - a published signature
    module_paths: Mapping[str, str | Path] | None = None,
    bundle_package_paths: Sequence[str | Path] | None = None,
    sys_paths: Sequence[str | Path] | None = None,
    mention_mappings: Mapping[str, str | Path] | None = None,
    *,
    store: SessionStore | SessionStorage | None = None,
    approval_system: ApprovalSystem | None = None,
    display_system: DisplaySystem | None = None,
    runner: SubprocessRunner | None = None,
) -> SubprocessResult:
    """Run `prompt` in a new session made from the mount plan `config`, in a process of its own, and return its result.

    The session works in `project_path`, a folder. `timeout` is in seconds; None: no limit. `module_paths` are the
    absolute paths of modules by their ids, `mention_mappings` the folders of `@name:path`, the other paths are
    searched for modules after the installed ones. With a `store`, each message is durable before the next step. The
    systems answer here what the session asks and shows there. At most 4 sessions run at a time
    (`configure_subprocess_limit`); the others wait.

    A failure of the session is a result with the status `error`. Raises `ValueError` for a path that is no folder,
    `SessionProcessEnded` and `LimitReached` (both are `RuntimeError`s) when the process ends before the session, and
    `SpawnTimeout` (a `TimeoutError`). Whatever happens, and when it is cancelled: nothing of the process is left.
    """
    from amplifier_core.errors import LimitReached, SessionProcessEnded, SpawnTimeout

    folder = validate_project_path(project_path)
    named = {name: str(path) for name, path in (module_paths or {}).items()}
    bundle = Bundle("subprocess", source_base_paths={name: Path(at) for name, at in (mention_mappings or {}).items()})
    prepared = PreparedBundle.of(bundle, BundleModuleResolver({}, named))
    request = SpawnRequest(
        session_id=validate_session_id(session_id) if session_id else new_session_id("subprocess"),
        parent_id=parent_id,
        bundle=bundle.name,
        instruction=prompt,
        config=with_default_session(config),
        working_dir=str(folder),
    )
    spawn = spawn_of(
        request,
        store=as_session_store(store) if store is not None else None,
        prepared=prepared,
        approval_system=approval_system,
        display_system=display_system,
        runner=(runner or _runner()).with_paths([*(bundle_package_paths or ()), *(sys_paths or ())]),
    )
    if store is not None:
        await prepare_spawn(spawn)
    outcome = await run_spawn(spawn, timeout)
    await settle_spawn(spawn, outcome)
    if isinstance(spawn.error, SessionProcessEnded | LimitReached | SpawnTimeout) or (
        spawn.error is not None and not isinstance(spawn.error, Exception)
    ):
        raise spawn.error
    return SubprocessResult.of(outcome)


def validate_project_path(path: str | Path) -> Path:
    """Return a folder as an absolute path without links. Raises `ValueError` for anything else."""
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise ValueError(f"project_path {path} does not exist or is not a directory")
    return folder
