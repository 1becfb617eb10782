"""Name the queues and the triggers of background sessions in the store, the same at every start."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from amplifier_core.ids import BEFORE_HOST, session_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.storage import Delivery

    from ..bundle.background_config import TriggerConfig
    from .approvals import Approval

RUNS = "flow"
"""The queue of the runs that people begin; those of background sessions have a `/`."""
_OF_RUN = "flow:"
MANUAL = "trigger-manual"
"""The source of events fired by hand."""
TAG = 4
"""Characters of a session's tag in the lines of `up` and `logs`."""


def queue_key(bundle: str, session: str) -> str:
    """Return the name of a background session's queue."""
    return f"{bundle}/{session}"


def root_id(bundle_name: str, project: str) -> str:
    """Return the id of the session above a bundle's background sessions: the same at every start."""
    place = f"{project}:{bundle_name}".encode(errors="surrogateescape")
    return session_id_of(bundle_name, sha256(place).hexdigest()[:12])


def project_of_run(run_id: str) -> str:
    """Return the project of the delivery of a run: of that one alone, so that it can be released alone."""
    return f"{_OF_RUN}{run_id}"


def run_of(owned: Delivery | Approval) -> str | None:
    """Return the run that somebody began by hand; None: the delivery is that of a background session."""
    return owned.project.removeprefix(_OF_RUN) if owned.queue == RUNS else None


def triggers_by_key(queue: str, triggers: Sequence[TriggerConfig]) -> dict[str, TriggerConfig]:
    """Return the triggers of a queue in their order, each by its key in the store."""
    return {f"{queue}/{each.name or each.module}#{number}": each for number, each in enumerate(triggers, start=1)}


def key_on_host(trigger: str, host: str) -> str:
    """Return the key of a trigger that each of several hosts runs, on one of them."""
    return f"{trigger}{BEFORE_HOST}{host}"


def declared_key(trigger: str) -> str:
    """Return the key of the declaration for the key of a trigger, that of one host or of all."""
    return trigger.partition(BEFORE_HOST)[0]


def manual_key(queue: str, triggers: Sequence[TriggerConfig]) -> str:
    """Return the trigger key of events fired by hand: of the declared `trigger-manual`, if any."""
    declared = triggers_by_key(queue, triggers).items()
    return next((key for key, trigger in declared if trigger.module == MANUAL), f"{queue}/{MANUAL}")


def tag_of(session_id: str) -> str:
    """Return the tag of a session, from the end of its id: it tells the sessions of one background session apart."""
    return session_id.rpartition("-")[2][:TAG]
