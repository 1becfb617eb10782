"""Jobs of Celery, in Redis, acknowledged when they are done."""

from __future__ import annotations

import os

from celery import Celery
from jobs import COUNT, LEASE, PLACE, ROLE, leave_effect, print_latencies

app = Celery("jobs", broker=PLACE)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
    broker_transport_options={"visibility_timeout": LEASE},
    broker_connection_retry_on_startup=True,
)


@app.task(name="job")
def job(number: int) -> None:
    leave_effect(number)


if ROLE == "worker":
    app.worker_main(["worker", "--pool", "solo", "--loglevel", "ERROR", "--hostname", f"{os.getpid()}@%h"])
elif ROLE == "enqueue":
    for number in range(COUNT):
        job.delay(number)
elif ROLE == "latency":
    print_latencies(job.delay)
