"""Hold the runtime state of background sessions, and report each change."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING, Any, Literal, cast

from amplifier_core.cancellation import own_failure
from amplifier_core.clock import Clock, SystemClock
from amplifier_core.frozen import frozen, slotted
from amplifier_core.utils.secrets import redact_text

from .budgets import Allowance
from .file_causes import FileCauses
from .keys import triggers_by_key
from .log_events import BACKGROUND_STALLED
from .lookout import Lookout
from .lost_claims import LostClaims
from .outages import Outage
from .queue_room import QueueRoom
from .refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.shared_stores import Bounds
    from amplifier_core.storage import Delivery, DurableStore
    from amplifier_core.triggers import TriggerEvent

    from ..bundle.background_config import BackgroundSessionConfig, TriggerConfig
    from ..bundle.model import Bundle, PreparedBundle
    from ..events import EventRouter
    from ..spawning.child import Spawn
    from ..spawning.own_loops import SessionLoops
    from .admission import Gate, SlidingCount
    from .hosts.leading import Leadership
    from .hosts.member import Member
    from .hosts.sharing import Share
    from .lifecycle import Wish
    from .status_log import StatusLog
    from .tracking import Tracking
    from .trigger_making import TriggerLoader

logger = logging.getLogger(__name__)

SHARED_POLL = 5.0
"""Seconds between two looks at a shared store; idle workers hear of news before, most of the time."""

BackgroundStatus = Literal["starting", "running", "paused", "degraded", "failed", "stopping", "stopped"]
"""`degraded`: a component has a problem and is tried again; `failed`: it is not tried again."""

ActivityKind = Literal[
    "armed",
    "accepted",
    "duplicate",
    "refused",
    "refusals",
    "started",
    "session",
    "completed",
    "retried",
    "postponed",
    "held",
    "budget_spent",
    "dead",
    "cancelled",
    "skipped",
    "trigger_failed",
    "store_failed",
    "stalled",
    "unversioned",
    "failed",
    "state",
]


@frozen
class Activity:
    """One observable step of a background session; `facts` depend on the kind.

    `trigger` in facts is a trigger's key in the store, and `module` its module.
    """

    kind: ActivityKind
    name: str
    """The background session's name in its bundle."""
    facts: dict[str, Any] = field(default_factory=dict)
    queue: str = ""
    project: str = ""


@frozen
class Problem:
    """The problem of one component; `next_try` is None for one that is not tried again, or is tried all the time."""

    status: BackgroundStatus
    reason: str
    next_try: datetime | None = None


@slotted
class Running:
    """A delivery in the hands of a worker, and the task to cancel for it."""

    delivery: Delivery
    task: asyncio.Task[None]
    spawn: Spawn | None = None
    """The session of the attempt, once it is prepared."""
    is_over: bool = False
    """Whether the session has ended, and its end is being stored."""
    is_stored: bool = False
    """Whether the end of the delivery is stored: the claim is over, and what follows needs none."""
    hung: bool = False
    """Whether nobody has tried to renew the claim since its last renewal: true at its end if this process hung."""
    lost: Exception | None = None
    """Why the claim is given up here: others may have the delivery."""
    cancelled_by: str = ""
    """The person who wants the turn to end."""
    is_cancelled: bool = False
    """Whether that is stored."""

    def check(self) -> None:
        """Raise why the claim is given up here, if it is: its session stores nothing more.

        The session is cut then, and its last messages tell so: a server that answers again would carry out their write
        before anybody else takes the delivery over, and the next attempt would find its open calls answered.
        """
        if self.lost is not None:
            raise self.lost


@slotted
class BackgroundSessionState:
    """The runtime state of one background session; the store keeps its deliveries under `(project, queue)`."""

    session_id: str
    queue: str
    project: str
    config: BackgroundSessionConfig
    prepared: PreparedBundle
    gate: Gate
    clock: Clock
    status_log: StatusLog
    tracking: Tracking
    """The tracker of the work that its events are about."""
    declared_in: Bundle | None = None
    """The bundle with the places of its keys; None: a program declares it."""
    throttle: SlidingCount | None = None
    status: BackgroundStatus = "starting"
    reason: str = ""
    trigger_count: int = 0
    last_trigger: datetime | None = None
    restart_count: int = 0
    next_try: datetime | None = None
    paused: bool = False
    problems: dict[str, Problem] = field(default_factory=dict)
    """Problems by component (a trigger, the store); the worst one sets the status."""
    running: dict[str, Running] = field(default_factory=dict)
    """Deliveries being handled now, by their id."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held from the look at the throttle until the claim: two workers never take one place."""
    postponed: set[str] = field(default_factory=set)
    """Ids of deliveries postponed by a plugin, until the next claim."""
    outage: Outage = field(default_factory=Outage)
    """The failures of its providers since the last answer."""
    allowance: Allowance = field(default_factory=Allowance)
    """Its budgets."""
    given_up: int = 0
    """Dead letters since the start."""
    task: asyncio.Task[None] | None = None
    stop_asked: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    """Set once it begins no new work."""

    unstored: Outage = field(init=False, default_factory=Outage)
    """The failures of the store to take what its sessions did, since it took that of one."""
    blocked: str = field(init=False, default="")
    """Why all events wait: the text of a `QueueBlocked`."""
    blocked_at: float = field(init=False, default=0.0)
    """When an attempt met that, in seconds of the monotonic clock."""
    places: dict[str, datetime] = field(init=False, default_factory=dict)
    """Earlier due times by delivery id, of those put back by an outage, a spent budget or a failed store."""
    room: QueueRoom = field(init=False)
    """The room for further waiting events."""
    declared: dict[str, TriggerConfig] = field(init=False)
    """Its triggers by their keys in the store."""
    refusals: Refusals = field(init=False)

    def __post_init__(self) -> None:
        self.declared = triggers_by_key(self.queue, self.config.triggers)
        self.refusals = Refusals(self.clock)
        self.room = QueueRoom(self.config.max_waiting, self.clock)

    def is_called(self, name: str) -> bool:
        """Return whether that is its id, its name, or the name of its queue."""
        return name in (self.session_id, self.config.name, self.queue)

    def look_again(self) -> None:
        """Have the workers look for events now; where a spent budget holds them, an event is tried all the same."""
        if self.allowance.until is not None:
            self.allowance.until = self.clock.now()
        self.wake.set()

    def cancel_replaced(self, by: Delivery) -> None:
        """Cancel the work on other deliveries of the same key: `by` takes their place."""
        for each in list(self.running.values()):
            if each.delivery.key == by.key and each.delivery.delivery_id != by.delivery_id:
                each.task.cancel()

    async def cancel_stale(self, delivery: Delivery) -> None:
        """Cancel the work under an earlier claim on this delivery; its lease ran out, as when the machine slept."""
        before = self.running.get(delivery.delivery_id)
        if before is not None:
            before.task.cancel()
            await asyncio.wait({before.task})

    def finish(self, delivery: Delivery) -> None:
        """Forget the work under this claim; a newer claim on the delivery stays."""
        work = self.running.get(delivery.delivery_id)
        if work is not None and work.delivery.epoch == delivery.epoch:
            del self.running[delivery.delivery_id]

    @property
    def bounds(self) -> Bounds | None:
        """The bounds that count on all hosts of a shared store."""
        throttle = self.config.throttle
        if throttle is None and self.config.max_running is None:
            return None
        from amplifier_core.shared_stores import Bounds

        limit, period = (throttle.limit, throttle.period) if throttle is not None else (None, 0.0)
        return Bounds(self.config.max_running, limit, period)

    @property
    def wish(self) -> Wish:
        """What it does now, as people wish it."""
        return "stopped" if self.stopping else "paused" if self.paused else "running"

    @property
    def stopping(self) -> bool:
        """Whether it begins no new work."""
        return self.status in ("stopping", "stopped")

    def status_row(self) -> dict[str, Any]:
        """Return the row of `get_status`."""
        return {
            "name": self.config.name,
            "queue": self.queue,
            "status": self.status,
            "reason": self.reason,
            "next_try": self.next_try.isoformat(timespec="seconds") if self.next_try else None,
            "trigger_count": self.trigger_count,
            "last_trigger": self.last_trigger.isoformat() if self.last_trigger else None,
            "restart_count": self.restart_count,
            "refused": self.refusals.total,
            "postponed": len(self.postponed),
            "given_up": self.given_up,
            "running": sorted(str(each.delivery.session_id) for each in self.running.values()),
        }


@slotted
class Engine:
    """The parts shared by all background sessions of one manager."""

    parent: AmplifierSession
    store: DurableStore
    router: EventRouter
    plugins: Plugins
    owner: str
    clock: Clock = field(default_factory=SystemClock)
    trigger_loader: TriggerLoader | None = None
    files: FileCauses = field(default_factory=FileCauses)
    random: Random = field(default_factory=Random)
    lease: float = 60.0
    """Seconds a claim holds without being renewed."""
    poll: float = 1.0
    """Seconds between two looks at the store for idle workers: other processes accept events too."""
    observers: list[Callable[[Activity], None]] = field(default_factory=list)
    session_observers: Sequence[Callable[[AmplifierSession], None]] = ()
    """Called with each session, and each below it, after its modules are mounted."""
    check_folder: Callable[[], None] = lambda: None
    """Raises `StoreUnavailable` when the data folder is gone."""
    loops: SessionLoops | None = None
    """The loops of running sessions; None: sessions run in the loop of the manager."""
    share: Share | None = None
    """The part of this process in the work of several hosts; None: no other host works on the store."""
    held_by: set[str] = field(default_factory=set)
    """The components with a problem that lets all events wait."""
    lost: LostClaims = field(default_factory=LostClaims)
    """The lost claims of this process."""
    lookout: Lookout = field(init=False)

    def __post_init__(self) -> None:
        self.lookout = Lookout(self)
        if self.member is not None:
            self.owner, self.clock = self.member.process, self.member.clock
            self.lease, self.poll, self.lost = self.member.lease, SHARED_POLL, self.member.lost

    @property
    def member(self) -> Member | None:
        """This process among the hosts of a shared store."""
        return self.share.member if self.share is not None else None

    @property
    def leadership(self) -> Leadership | None:
        """The leadership that the triggers wait for which are not bound to a host; None: they run here."""
        return self.share.leadership if self.share is not None else None

    def store_for(self, running: Running) -> DurableStore:
        """Return the store for the session of a delivery: writes of one that was lost or taken over are refused."""
        if self.member is None:
            return self.store
        from ..spawning.own_loops import FencedStore

        return cast("DurableStore", FencedStore(self.member.store.fenced(running.delivery), running))

    def set_status(self, background: BackgroundSessionState, status: BackgroundStatus, reason: str = "") -> None:
        """Set the status, and report it when it differs from before."""
        if (background.status, background.reason) == (status, reason):
            return
        background.status, background.reason = status, reason
        if background.stopping:
            background.stop_asked.set()
        change = {"session_id": background.session_id, "name": background.config.name, "status": status}
        place = {"queue": background.queue, "project": background.project}
        background.status_log.add({**change, "reason": reason, **place})
        self.notify("state", background, status=status, reason=reason)

    def report_problem(
        self,
        background: BackgroundSessionState,
        component: str,
        status: BackgroundStatus,
        reason: str,
        next_try: datetime | None = None,
    ) -> None:
        """Record the problem of a component, in place of an earlier one."""
        background.problems[component] = Problem(status, redact_text(reason), next_try)
        self.update_status(background)

    def clear_problem(self, background: BackgroundSessionState, component: str) -> None:
        """Record that a component works again."""
        if background.problems.pop(component, None) is not None:
            self.update_status(background)

    def update_status(self, background: BackgroundSessionState) -> None:
        """Set the status by the worst problem, unless the background session is stopping."""
        if not background.stopping:
            well = Problem("paused" if background.paused else "running", "")
            worst = min(background.problems.values(), key=lambda problem: problem.status != "failed", default=well)
            background.next_try = worst.next_try
            self.set_status(background, worst.status, worst.reason)

    def refuse(self, background: BackgroundSessionState, event: TriggerEvent, reason: str, trigger: str) -> None:
        """Count a refused or skipped event, and report the refusals when a report is due."""
        self.notify("refused", background, event=event, reason=reason, trigger=trigger)
        background.refusals.note(event, reason)
        self.lookout.refusing[background.session_id] = background
        self.report_refusals(background)

    def report_refusals(self, background: BackgroundSessionState, *, now: bool = False) -> None:
        """Report the refusals since the last report when a minute is over, or `now`."""
        report = background.refusals.report(now=now)
        if not background.refusals.waits:
            self.lookout.refusing.pop(background.session_id, None)
        if report is not None:
            self.notify("refusals", background, count=report.count, text=report.text, event=report.last)
            logger.warning("background session '%s': %s", background.config.name, report.text)

    def report_stall(self, background: BackgroundSessionState, text: str, queue: str | None = None) -> None:
        """Report a blocking call; `queue` says whose it is, unless it is that of `background`."""
        place = {"queue": background.queue if queue is None else queue, "project": background.project}
        background.status_log.add({"session_id": background.session_id, "text": text, **place}, BACKGROUND_STALLED)
        self.notify("stalled", background, text=text)

    def notify(self, kind: ActivityKind, background: BackgroundSessionState, **facts: Any) -> None:
        """Call the observers; the failure of one is logged and changes nothing."""
        for observer in self.observers:
            try:
                observer(Activity(kind, background.config.name, facts, background.queue, background.project))
            except (Exception, asyncio.CancelledError) as raised:  # an exit is the program's own
                logger.error("an observer of background sessions failed", exc_info=own_failure(raised))

    def backoff(self, attempt: int, base: float, cap: float) -> float:
        """Return seconds to wait before attempt number `attempt` + 1: full jitter under an exponential bound."""
        doublings = min(max(0, attempt - 1), 100)  # an outage may last for thousands; 2.0**1024 is no number
        return self.random.uniform(0.0, min(cap, base * 2.0**doublings))
