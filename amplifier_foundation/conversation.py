"""One turn of a stored session that a person asks for: new, resumed, or as a fork of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplifier_core.ids import new_session_id
from amplifier_core.transcript import Transcript

from .history import turn_starts
from .paths import project_of
from .recording import recorded
from .runners import take_turn
from .spawn import bundle_identity, child_config, new_record, prepared_bundle, taken_up
from .stored_history import stored_transcript, turns_so_far

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore

    from .bundles.model import Bundle, PreparedBundle


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn gave."""

    session_id: str
    output: str
    status: str
    turn_count: int


async def converse(
    bundle: Bundle,
    prompt: str,
    store: SessionStore,
    plugins: Plugins,
    *,
    resume: SessionRecord | None = None,
    working_dir: Path | None = None,
    observe: Callable[[AmplifierSession], None] | None = None,
) -> Turn:
    """Take one turn in a new session made from `bundle`, or in the stored one `resume`; every message is durable.

    A session that is resumed is the bundle's from then on: its instruction is applied anew, and the record names it. A
    fork does not go on with what a provider keeps of its source's conversation. Raises what the orchestrator raises;
    the session is stored as failed then, and can be resumed.
    """
    prepared = await prepared_bundle(bundle)
    record = resume or await _created(prepared, store, project_of(working_dir))
    transcript = stored_transcript(store, record) if resume else Transcript()
    stored, turns = record.message_count, turns_so_far(record, transcript)
    session = await prepared.create_session(
        session_id=record.session_id,
        parent_id=record.parent_id,
        session_cwd=record.project,
        is_resumed=bool(stored),
        config=_config(prepared, record) if resume else None,
        transcript=transcript,
        plugins=plugins,
    )
    status, error = "failed", None
    try:
        async with recorded(session, store, stored):
            if observe is not None:
                observe(session)
            await store.update(record.session_id, **taken_up(record), **bundle_identity(prepared))
            output = await take_turn(session, prompt)
        status = session.state
    except BaseException as problem:
        error = f"{type(problem).__name__}: {problem}"
        status = "failed" if isinstance(problem, Exception) else "interrupted"
        raise
    finally:
        turns += len(turn_starts(session.transcript.since(stored)))
        await store.update(session.session_id, status=status, turn_count=turns, error=error)
    return Turn(session.session_id, output, status, turns)


async def _created(prepared: PreparedBundle, store: SessionStore, project: str) -> SessionRecord:
    session_id = new_session_id(prepared.bundle.name)
    return await store.create(new_record(prepared, session_id, name=prepared.bundle.name, project=project))


def _config(prepared: PreparedBundle, record: SessionRecord) -> dict[str, object]:
    """Return the plan to resume with: the bundle's, and what the session had taken from its parent."""
    return child_config(prepared.mount_plan, record.config, providers=True, tools=False, hooks=False)
