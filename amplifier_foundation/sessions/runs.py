"""Tell the runs of workflows from other sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import SessionConflict

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord

RUN = "flow"
"""The member of the metadata of a run's record: the name of its workflow, and its input."""


def is_run(record: SessionRecord) -> bool:
    """Return whether a session is the run of a workflow."""
    about = record.metadata.get(RUN)
    return isinstance(about, dict) and "name" in about


def refuse_run(record: SessionRecord) -> None:
    """Return for any other session. Raises `SessionConflict` for a run: its messages are what its tasks have done."""
    if is_run(record):
        run = record.session_id
        raise SessionConflict(
            run,
            f"'{run}' is the run of a workflow, and takes no turn. Run the rest of it: amplifier flow resume {run}; "
            f"or that of a fork: amplifier flow fork {run} --at TASK",
        )
