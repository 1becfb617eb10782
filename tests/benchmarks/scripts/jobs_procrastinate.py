"""Jobs of procrastinate, in PostgreSQL; dead workers' jobs are retried as its documentation says."""

from __future__ import annotations

import asyncio

from jobs import COUNT, LEASE, PLACE, ROLE, leave_effect, print_latencies
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

app = App(connector=(SyncPsycopgConnector if ROLE in ("enqueue", "latency") else PsycopgConnector)(conninfo=PLACE))


@app.task(name="job")
async def job(number: int) -> None:
    leave_effect(number)


async def main() -> None:
    async with app.open_async():
        if ROLE == "prepare":
            await app.schema_manager.apply_schema_async()
        elif ROLE == "worker":
            await app.run_worker_async(update_heartbeat_interval=LEASE / 3, stalled_worker_timeout=LEASE)
        while ROLE == "restore":
            for stalled in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LEASE):
                await app.job_manager.retry_job(stalled)
            await asyncio.sleep(LEASE / 3)


if ROLE in ("enqueue", "latency"):
    with app.open():
        if ROLE == "enqueue":
            job.batch_defer(*({"number": number} for number in range(COUNT)))
        else:
            print_latencies(lambda number: job.defer(number=number))
else:
    asyncio.run(main())
