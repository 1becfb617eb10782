"""The record of a session that is made from a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.storage import SessionRecord

from ..presence import KEY as PROCESS
from ..presence import this_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..bundles.model import PreparedBundle

AGENT = "agent"
"""The member of a record's metadata that names what its session was made from."""


def new_record(
    prepared: PreparedBundle,
    session_id: str,
    *,
    config: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **fields: Any,
) -> SessionRecord:
    """Return the record of a session made from `prepared`; secrets in its config are redacted."""
    from amplifier_core.utils import redact_secrets

    return SessionRecord(
        session_id=session_id,
        **bundle_identity(prepared),
        config=redact_secrets(dict(config if config is not None else prepared.mount_plan)),
        metadata={**(metadata or {}), PROCESS: this_process()},
        **fields,
    )


def taken_up(record: SessionRecord) -> dict[str, Any]:
    """Return the fields of a record that change when this process goes on with its session."""
    return {"status": "running", "error": None, "metadata": {**record.metadata, PROCESS: this_process()}}


def bundle_identity(prepared: PreparedBundle) -> dict[str, Any]:
    """Return the fields of a record that say which bundle its session is made from."""
    bundle = prepared.bundle
    return {"bundle": bundle.name, "bundle_source": str(bundle.source_path or ""), "bundle_digest": bundle.digest}


def agent_of(record: SessionRecord) -> str:
    """Return what a session was made from by name; '' when it was not."""
    agent = record.metadata.get(AGENT)
    return agent if isinstance(agent, str) else ""
