"""Make the record of a session from its bundle, and change it when the session is resumed."""

from __future__ import annotations

import marshal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict
from amplifier_core.storage import SessionRecord

from .presence import KEY, refuse_running, running_members, this_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.storage import SessionStore

    from ..bundle.model import PreparedBundle

_TREE = 2
"""The format of `marshal` in which equal configs are equal bytes: see `spawning.inheritance`."""
AGENT = "agent"
"""The member of a record's metadata with the agent of its session."""
FORKED = "forked"
"""The member of the metadata of a fork that goes its own way: it is no work of its source."""
WORKTREE = "worktree"
"""The member of a record's metadata with the git worktree of its session."""
MOST_LEFT_OUT = 5
"""Files named that git has not kept."""
INHERITED_TURNS = "inherited_turns"
"""The member of a record's metadata with the number of turns that its session has not executed, but begun with."""


class RunningMetadata:
    """The metadata of a running session's record; its members change independently and are written together.

    Invariant: once another writer has the session (`is_lost`), nothing more of the record is written here.
    """

    def __init__(self, session_id: str, store: SessionStore, metadata: Mapping[str, Any], count: int) -> None:
        self.values = dict(metadata)
        self.count = count
        """The number of messages that this writer knows to be stored."""
        self.is_lost = False
        self._session_id = session_id
        self._store = store

    async def require_place(self) -> SessionRecord:
        """Return the record of the session if that is still free for its next turn.

        While another process runs it, it may be free later; with messages of somebody else it is lost. Raises
        `SessionConflict`, and the errors of the store. Between hosts, a moment remains until the turn is stored as
        running; then the first message decides.
        """
        record = await self._store.get(self._session_id)
        refuse_running(record)
        is_own = record.status == "running" and record.metadata.get(KEY) == this_process()  # its messages come just now
        if self.is_lost or (record.message_count != self.count and not is_own):
            self.is_lost = True
            raise SessionConflict(
                record.session_id,
                f"session '{record.session_id}' has {record.message_count} messages, not {self.count}: somebody else "
                f"wrote it. Resume it to go on",
            )
        return record

    async def write(self, **changes: Any) -> None:
        """Change members, and store all; an empty value removes its member. Raises the errors of the store."""
        self.values = with_members(self.values, changes)
        if not self.is_lost:
            await self._store.update(self._session_id, metadata=self.values)


def with_members(metadata: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a record with these members instead of its own; an empty value removes its member."""
    kept = {name: value for name, value in metadata.items() if name not in changes}
    return {**kept, **{name: value for name, value in changes.items() if value}}


def new_record(
    prepared: PreparedBundle,
    session_id: str,
    *,
    config: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    lock: str = "",
    **fields: Any,
) -> SessionRecord:
    """Return the record of a session made from `prepared`; secrets in its config are redacted.

    `lock` is the session whose lock is held while this one runs, if any.
    """
    from amplifier_core.utils.secrets import known_forms, redact_all

    plan = dict(config if config is not None else prepared.mount_plan)
    try:
        redacted = marshal.loads(_redact_written(marshal.dumps(plan, _TREE), known_forms()))
    except ValueError:  # a value of another kind than JSON has
        redacted = redact_all(plan)
    return SessionRecord(
        session_id=session_id,
        **bundle_identity(prepared),
        config=redacted,
        metadata=with_members(metadata or {}, running_members(lock)),
        **fields,
    )


@lru_cache(maxsize=64)
def _redact_written(config: bytes, secrets: tuple[str, ...]) -> bytes:
    """Do as `redact_all`, once for the sessions with the same config and the same known secrets."""
    from amplifier_core.utils.secrets import redact_all

    return marshal.dumps(redact_all(marshal.loads(config)), _TREE)


def resume_changes(record: SessionRecord, *, lock: str = "") -> dict[str, Any]:
    """Return the changes of a record for a session resumed by this process, under the lock of session `lock`."""
    return {"status": "running", "error": None, "metadata": with_members(record.metadata, running_members(lock))}


def bundle_identity(prepared: PreparedBundle) -> dict[str, Any]:
    """Return the fields of a record for the bundle of its session."""
    bundle = prepared.bundle
    return {"bundle": bundle.name, "bundle_source": str(bundle.source_path or ""), "bundle_digest": bundle.digest}


def agent_of(record: SessionRecord) -> str:
    """Return the agent of a session; '' for a session without one."""
    agent = record.metadata.get(AGENT)
    return agent if isinstance(agent, str) else ""


def inherited_turns(metadata: Mapping[str, Any]) -> int:
    """Return the number of turns in the history that a session began with."""
    turns = metadata.get(INHERITED_TURNS)
    return turns if isinstance(turns, int) else 0


def describe_worktree(metadata: Mapping[str, Any]) -> str:
    """Return what has become of a session's branch, and what git has not kept; '' without a worktree, or changes."""
    worktree = metadata.get(WORKTREE)
    if not isinstance(worktree, dict):
        return ""
    said, branch = [], worktree.get("branch")
    if branch and "merged" not in worktree:
        said = [f"works on branch {branch}"]
    elif branch and worktree["merged"]:
        said = [f"merged {branch}"]
    elif branch:
        said = [f"left branch {branch}" + (f": {worktree['reason']}" if worktree.get("reason") else "")]
    if left_out := worktree.get("left_out"):
        others = worktree.get("left_out_count", len(left_out)) - MOST_LEFT_OUT
        more = f" and {others} more" if others > 0 else ""
        said.append(f"not kept by git: {', '.join(left_out[:MOST_LEFT_OUT])}{more}")
    return "; ".join(said)
