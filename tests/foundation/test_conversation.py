"""One turn of a stored session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import PreparedBundle, converse


async def test_a_session_that_somebody_fails_to_watch_is_ended_and_kept_as_failed(
    make_bundle: Callable[..., PreparedBundle], store: DurableStore, plugins: Plugins, tmp_path: Path
) -> None:
    watched: list[AmplifierSession] = []

    def fail(session: AmplifierSession) -> None:
        watched.append(session)
        raise LookupError("nowhere to show it")

    bundle = make_bundle("shown").bundle
    with pytest.raises(LookupError, match="nowhere to show it"):
        await converse(bundle, "hello", store, plugins, working_dir=tmp_path, observe=fail)
    [session] = watched
    assert session.ended_at is not None
    record = await store.get(session.session_id)
    assert (record.status, record.error) == ("failed", "LookupError: nowhere to show it")
