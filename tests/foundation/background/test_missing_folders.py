"""Events wait while the folder of their project is gone: no session runs where its tools find nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from amplifier_core import AmplifierSession

OpenBench = Callable[..., Any]


async def test_events_wait_for_their_folder_and_lose_no_attempt(
    open_bench: OpenBench, flaky: Any, parent: AmplifierSession, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    folder.mkdir()
    parent.coordinator.register_capability("session.working_dir", str(folder))
    async with open_bench(providers=flaky("fine")) as bench:
        session_id = await bench.start(max_attempts=1)
        folder.rename(elsewhere)
        bench.trigger.feed(1)
        await bench.until("postponed")
        (waiting,) = await bench.deliveries()
        assert (waiting.state, waiting.attempts) == ("pending", 0)
        assert f"the folder {folder} is gone" in waiting.reason
        row = bench.manager.get_status(session_id)
        assert (row["status"], "is gone" in row["reason"]) == ("degraded", True)
        elsewhere.rename(folder)
        await bench.until("completed", step=1.0)
        assert bench.statuses() == {"queue": "running"}
