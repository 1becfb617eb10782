"""Jobs as deliveries of the store in PostgreSQL."""

from __future__ import annotations

import asyncio
import os

from jobs import COUNT, LEASE, PLACE, ROLE, leave_effect

from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_postgres import open_postgres


async def main() -> None:
    store = open_postgres({"dsn": PLACE})
    if ROLE == "enqueue":
        for number in range(COUNT):
            await store.enqueue("/p", "jobs", "trigger", TriggerEvent(TriggerType.MANUAL, "me", data={"n": number}))
    while ROLE == "worker":
        job = await store.claim("/p", "jobs", owner=f"{os.getpid()}@here", lease=LEASE, session_id="session")
        if job is None:
            await asyncio.sleep(0.01)
            continue
        leave_effect(job.event.data["n"])
        await store.commit(job)
    await store.close()


asyncio.run(main())
