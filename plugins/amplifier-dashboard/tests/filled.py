"""Fill a store as background sessions do, for views to show: a small one with everything, or a large one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.events import SESSION_COMPLETED, SessionEvent
from amplifier_core.storage import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation.background.approvals import WAITS, Approval, save
from amplifier_foundation.background.log_events import BACKGROUND_STATE, TRIGGER_ERROR
from amplifier_foundation.background.up import root_id
from amplifier_foundation.flows.journal import Entry
from amplifier_foundation.sessions.accounts import ACCOUNTS, queue_account
from amplifier_foundation.sessions.once import ONCE

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.storage import Delivery, DurableStore

SHOP = """---
bundle: {name: shop, version: 1.0.0}
background_sessions:
  - name: reviewer
    instruction: Review the file.
    triggers:
      - module: trigger-file-watcher
        config: {patterns: ["*.py"]}
    on_complete_emit: review:completed
  - name: nightly
    instruction: Sum up the day.
    triggers:
      - module: trigger-timer
        config: {cron: "30 2 * * *", timezone: Europe/Berlin}
---
Answer in one line.
"""
GARDEN = """---
bundle: {name: garden, version: 1.0.0}
background_sessions:
  - name: watcher
    instruction: Look at the beds.
    triggers:
      - module: trigger-timer
        config: {interval_seconds: 900}
      - module: trigger-webhook
        config: {port: 0, path: /rain}
---
Answer in one line.
"""
CONFIG = {
    "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
    "providers": [{"module": "provider-anthropic", "config": {"model": "large", "max_tokens": 8192}}],
    "tools": [{"module": f"tool-{name}", "config": {}} for name in ("bash", "filesystem", "grep", "todo", "web")],
    "instruction": "Read the file, name each bug with its line, and say how to mend it. " * 8,
}
"""The mount plan of a session, as long as one of a small bundle."""
HOSTILE = '<script>window.hacked = true</script><img src="https://example.org/x.png">'
"""Text of a stranger; it stays text on every page."""


@dataclass
class Filled:
    """What `fill` has stored, by names that tests use."""

    shop: str
    garden: str
    """The projects: the folders of two bundles."""
    sessions: dict[str, str] = field(default_factory=dict)
    """Ids: `reviewed`, `helper` (below it), `fork` (of `reviewed`), `talk` (of a person), `cut`, `working`, `run`."""
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    """By what happened: done, dead, uncertain, refused, skipped, waiting, retried, held, working."""
    approval: str = ""


async def fill(store: DurableStore, folder: Path, now: datetime | None = None) -> Filled:
    """Store two projects with a delivery in each state, sessions with tools, forks, costs and a waiting approval."""
    now = now or datetime.now(UTC)
    filled = Filled(str(_bundle(folder / "shop", SHOP)), str(_bundle(folder / "garden", GARDEN)))
    for name, project in (("shop", filled.shop), ("garden", filled.garden)):
        root = SessionRecord(root_id(name, project), name=name, bundle=name, project=project, status="interrupted")
        await store.create(_with_source(root))
    await _fill_reviewer(store, filled, now)
    await _fill_garden(store, filled, now)
    await _fill_talk(store, filled, now)
    await _fill_run(store, filled)
    return filled


def _bundle(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "bundle.md").write_text(text, encoding="utf-8")
    return folder.resolve()


def _with_source(record: SessionRecord) -> SessionRecord:
    return replace(record, bundle_source=f"{record.project}/bundle.md")


def spent(now: datetime, model: str = "anthropic/large", cost: str = "0.0125", tokens: int = 1200) -> dict[str, Any]:
    """Return the metadata of a session with one request to a model."""
    usage = {"input_tokens": tokens, "output_tokens": tokens // 4, "cost_usd": cost, "requests": 1}
    day = {"turns": 1, "seconds": 2.5, "models": {model: usage}}
    return {"ledger": {now.date().isoformat(): day}, "usage": usage, "duration": 2.5}


def charged(delivery: Delivery) -> dict[str, Any]:
    """Return the member of the metadata that charges a session to its background session."""
    return {ACCOUNTS: [queue_account(delivery.project, delivery.queue)]}


def exchange(question: str, answer: str) -> list[dict[str, Any]]:
    """Return the messages of a turn with one tool call."""
    call = {"id": "call-1", "tool": "read_file", "arguments": {"path": "app.py"}}
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "name": "read_file", "content": "print('hello')"},
        {"role": "assistant", "content": answer},
    ]


async def deliver(
    store: DurableStore, project: str, queue: str, trigger: str, event: TriggerEvent, at: datetime, **how: Any
) -> Delivery:
    """Hand over an event as its trigger does at that time."""
    delivery = await store.enqueue(project, queue, f"{queue}/{trigger}#1", event, now=at, **how)
    assert delivery is not None
    return delivery


async def begin(store: DurableStore, delivery: Delivery, session_id: str, at: datetime, **facts: Any) -> Delivery:
    """Claim the due delivery of a queue, and store its session."""
    claimed = await store.claim(
        delivery.project, delivery.queue, owner="1-test", lease=3600.0, session_id=session_id, now=at
    )
    assert claimed is not None
    assert claimed.delivery_id == delivery.delivery_id
    bundle, _, name = delivery.queue.rpartition("/")
    root = root_id(bundle, delivery.project)
    woken = {"parent_id": root, "event_id": delivery.event.event_id, "created": at, "updated": at}
    record = SessionRecord(session_id, name=name, bundle=bundle, project=delivery.project, **woken, **facts)
    await store.create(_with_source(record))
    return claimed


async def finish(
    store: DurableStore, claimed: Delivery, question: str, answer: str, at: datetime, metadata: dict[str, Any]
) -> None:
    """Store a turn, and commit the delivery with its event."""
    session_id = str(claimed.session_id)
    await store.append(session_id, exchange(question, answer), at=0)
    event = SessionEvent(
        SESSION_COMPLETED,
        {"output": answer},
        session_id,
        timestamp=at,
        cause=claimed.event.event_id,
        project=claimed.project,
    )
    metadata = {**metadata, **charged(claimed)}
    await store.commit(claimed, emits=[event], session={"status": "completed", "turn_count": 1, "metadata": metadata})


def file_change(path: str, at: datetime) -> TriggerEvent:
    """Return the event of a changed file."""
    return TriggerEvent(
        TriggerType.FILE_CHANGE, "trigger-file-watcher", at, {"path": path}, file_path=path, change_type="modified"
    )


async def _fill_reviewer(store: DurableStore, filled: Filled, now: datetime) -> None:
    """One delivery in each state, the finished ones first: a queue hands out the longest due."""
    queue, trigger = "shop/reviewer", "trigger-file-watcher"

    async def came(name: str, minutes: float, **how: Any) -> tuple[Delivery, datetime]:
        at = now - timedelta(minutes=minutes)
        event = file_change(f"{name}.py", at)
        filled.deliveries[name] = await deliver(store, filled.shop, queue, trigger, event, at, **how)
        return filled.deliveries[name], at

    delivery, at = await came("done", 90)
    claimed = await begin(store, delivery, "reviewer-000000000001", at, turn_count=1)
    await finish(store, claimed, "Review done.py", "One bug: done.py divides by zero.\nLine 3.", at, spent(now))
    helper = SessionRecord(
        "helper-000000000002",
        parent_id="reviewer-000000000001",
        name="helper",
        bundle="shop",
        project=filled.shop,
        status="completed",
        metadata=spent(now, "openai/small", "0.001"),
    )
    await store.create(_with_source(helper))
    await store.append(helper.session_id, exchange("Count the lines.", "There are 12."), at=0)
    fork = SessionRecord(
        "fork-000000000003",
        fork_of="reviewer-000000000001",
        fork_at=2,
        name="another way",
        bundle="shop",
        project=filled.shop,
        status="completed",
    )
    await store.create(_with_source(fork))
    filled.sessions |= {"reviewed": "reviewer-000000000001", "helper": helper.session_id, "fork": fork.session_id}

    for name, minutes, reason in (
        ("dead", 60, "ProviderError: the model does not answer\nTry again later."),
        ("dead-too", 58, "ProviderError: the model does not answer"),
        ("uncertain", 55, "the call of 'pay' was interrupted: it may have had its effect"),
    ):
        delivery, at = await came(name, minutes)
        number = len(filled.deliveries)
        claimed = await begin(store, delivery, f"reviewer-00000000001{number}", at)
        changes: dict[str, Any] = {
            "status": "failed",
            "error": reason,
            "metadata": {**spent(now, cost="0.02"), **charged(claimed)},
        }
        if name == "uncertain":
            call = {"id": "call-9", "tool": "pay", "arguments": {"amount": 3}}
            messages = [{"role": "user", "content": "Pay."}, {"role": "assistant", "content": "", "tool_calls": [call]}]
            await store.append(str(claimed.session_id), messages, at=0)
            changes["metadata"][ONCE] = {"call-9": {"tool": "pay", "key": "k9"}}
            filled.sessions["cut"] = str(claimed.session_id)
        await store.dead_letter(claimed, reason=reason, session=changes)

    await came("refused", 50, refused="the queue is full: 100 events wait")
    delivery, at = await came("skipped", 49)
    filled.deliveries["skipped"] = await store.drop(delivery.delivery_id, reason="dropped by hand")
    delivery, at = await came("retried", 40)
    claimed = await begin(store, delivery, "reviewer-000000000020", at)
    await store.nack(claimed, reason="RateLimit: slow down", available_at=now + timedelta(hours=1))
    delivery, at = await came("held", 30)
    claimed = await begin(store, delivery, "reviewer-000000000021", at)
    await _ask(store, filled, claimed, now)
    await store.nack(claimed, reason=f"{WAITS}: bash", available_at=now + timedelta(days=7), counted=False)
    delivery, at = await came("working", 3)
    await begin(store, delivery, "reviewer-000000000022", at)
    await store.append("reviewer-000000000022", exchange("Review working.py", "Reading.")[:3], at=0)
    filled.sessions["working"] = "reviewer-000000000022"
    await came("waiting", 1)
    failed = {"queue": queue, "project": filled.shop, "error": "trigger-file-watcher: no such folder"}
    await store.emit(SessionEvent(TRIGGER_ERROR, failed, project=filled.shop))
    ends = {name: (await store.find_deliveries(each.delivery_id))[0] for name, each in filled.deliveries.items()}
    filled.deliveries |= ends


async def _ask(store: DurableStore, filled: Filled, delivery: Delivery, now: datetime) -> None:
    """Keep the question whether a command may run."""
    filled.approval = "a1b2c3d4e5f6"
    approval = Approval(
        id=filled.approval,
        state="pending",
        project=delivery.project,
        queue=delivery.queue,
        delivery_id=delivery.delivery_id,
        session_id=str(delivery.session_id),
        tool="bash",
        arguments={"command": f"rm -r build # {HOSTILE}"},
        call_hash="0" * 64,
        key="k21",
        question="May bash run 'rm -r build'?",
        reason="permissions.ask: bash in bundle.md",
        options=["Allow once", "Allow for this session", "Deny"],
        created=now - timedelta(minutes=30),
        expires=now + timedelta(days=7),
        preview="Removes the folder build.",
        messages=[{"role": "user", "text": "Clean up."}],
    )
    await save(store, delivery.project, delivery.queue, {approval.id: approval})


async def _fill_garden(store: DurableStore, filled: Filled, now: datetime) -> None:
    """A quiet background session; the text of a webhook is a stranger's."""
    queue = "garden/watcher"
    for number in range(3):
        at = now - timedelta(hours=20 - 6 * number)
        event = TriggerEvent(TriggerType.TIMER, "trigger-timer", at, {"tick": number})
        delivery = await deliver(store, filled.garden, queue, "trigger-timer", event, at)
        claimed = await begin(store, delivery, f"watcher-00000000010{number}", at, turn_count=1)
        metadata = spent(now - timedelta(days=number), "openai/small", "0.002")
        await finish(store, claimed, f"Tick {number}", f"All beds are wet ({number}).", at, metadata)
    at = now - timedelta(minutes=10)
    event = TriggerEvent(TriggerType.WEBHOOK, "trigger-webhook", at, {"body": {"text": HOSTILE}})
    delivery = await deliver(store, filled.garden, queue, "trigger-webhook", event, at)
    claimed = await begin(store, delivery, "watcher-000000000110", at, turn_count=1)
    await finish(store, claimed, HOSTILE, f"It says {HOSTILE}", at, spent(now, "openai/small", "0.002"))
    filled.deliveries["hostile"] = (await store.find_deliveries(delivery.delivery_id))[0]
    filled.sessions["hostile"] = "watcher-000000000110"
    change = {
        "status": "degraded",
        "reason": "trigger-webhook: port 8080 is taken",
        "queue": queue,
        "project": filled.garden,
        "name": "watcher",
        "at": now.isoformat(),
    }
    await store.emit(SessionEvent(BACKGROUND_STATE, change, project=filled.garden))


async def _fill_talk(store: DurableStore, filled: Filled, now: datetime) -> None:
    """A session of a person, as long as a conversation gets."""
    record = SessionRecord(
        "talk-000000000200", name="talk", bundle="shop", project=filled.shop, status="completed", turn_count=30
    )
    await store.create(_with_source(replace(record, metadata=spent(now, cost="0.5"))))
    messages = [each for number in range(30) for each in exchange(f"Question {number}?", f"Answer {number}.")]
    await store.append(record.session_id, messages, at=0)
    filled.sessions["talk"] = record.session_id


async def _fill_run(store: DurableStore, filled: Filled) -> None:
    """A run that has failed in its second task; its words are a stranger's."""
    about = {"name": "release", "input": {}}
    run = SessionRecord("release-000000000300", name="release", bundle="shop", project=filled.shop, status="failed")
    await store.create(_with_source(replace(run, error="publish: no network", metadata={"flow": about})))
    steps = [
        {"id": "build", "kind": "agent", "agent": "self", "prompt": HOSTILE},
        {"id": "publish", "kind": "agent", "agent": "self", "prompt": "Publish.", "fork": "build"},
    ]
    built = Entry("build", "build", "completed", output=HOSTILE, session=filled.sessions["reviewed"], attempts=1)
    failed = Entry("publish", "publish", "failed", attempts=2, error={"message": "no network"})
    begun = {"role": "user", "content": "Run release", "metadata": {"flow": {"name": "release", "steps": steps}}}
    await store.append(run.session_id, [begun, built.to_message(), failed.to_message()], at=0)
    filled.sessions["run"] = run.session_id


async def fill_large(
    store: DurableStore,
    *,
    sessions: int = 10_000,
    deliveries: int = 100_000,
    queues: int = 40,
    days: int = 14,
    folder: str = "/work",
) -> None:
    """Store so many sessions and deliveries, spread over queues and days; one delivery in a hundred is a dead letter.

    The last deliveries have a session each; those of the others are purged. The four projects are in `folder`.
    """
    now = datetime.now(UTC)

    async def one_queue(number: int) -> None:
        project, queue = f"{folder}/project-{number % 4}", f"bundle-{number % 5}/session-{number}"
        for at in range(number, deliveries, queues):
            moment = now - timedelta(days=days) * (1 - at / deliveries)
            event = file_change(f"src/file-{at % 500}.py", moment)
            delivery = await deliver(store, project, queue, "trigger-file-watcher", event, moment)
            session_id = f"session-{at:012}"
            claimed = await store.claim(project, queue, owner="1-test", lease=60.0, session_id=session_id, now=moment)
            assert claimed is not None
            assert claimed.delivery_id == delivery.delivery_id
            emits = []
            if at >= deliveries - sessions:
                await _store_session(store, claimed, session_id, moment)
                about = {"source_session_id": session_id, "cause": event.event_id, "project": project}
                emits = [SessionEvent(SESSION_COMPLETED, {"output": "Nothing found."}, timestamp=moment, **about)]
            if at % 100 == 99:
                await store.dead_letter(claimed, reason=f"ProviderError: number {at % 7} does not answer")
            else:
                await store.commit(claimed, emits=emits)

    for number in range(min(queues, 20)):  # the numbers of projects and of bundles repeat together
        project, bundle = f"{folder}/project-{number % 4}", f"bundle-{number % 5}"
        root = SessionRecord(
            root_id(bundle, project), name=bundle, bundle=bundle, project=project, status="interrupted"
        )
        await store.create(root)
    await asyncio.gather(*map(one_queue, range(queues)))


async def _store_session(store: DurableStore, claimed: Delivery, session_id: str, at: datetime) -> None:
    bundle, _, name = claimed.queue.rpartition("/")
    facts = {"status": "completed", "event_id": claimed.event.event_id, "created": at, "updated": at}
    record = SessionRecord(
        session_id,
        parent_id=root_id(bundle, claimed.project),
        name=name,
        bundle=bundle,
        project=claimed.project,
        config=CONFIG,
        metadata={**spent(at), **charged(claimed)},
        message_count=0,
        **facts,  # type: ignore[arg-type]
    )
    await store.create(record)
    await store.append(session_id, exchange("Review it.", f"Session {session_id} found nothing."), at=0)
