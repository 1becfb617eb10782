"""One background session at work: what it was declared as, and how it fares."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.clock import Clock, SystemClock
from amplifier_core.events import SessionEvent

from .own_writes import OwnWrites

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import Delivery, DurableStore

    from ..bundles.model import PreparedBundle
    from ..events import EventRouter
    from .admission import Gate, SlidingCount
    from .config import BackgroundSessionConfig, TriggerConfig

logger = logging.getLogger(__name__)

LaneStatus = Literal["starting", "running", "backing_off", "stopping", "stopped", "failed"]

ActivityKind = Literal[
    "armed",
    "accepted",
    "duplicate",
    "refused",
    "started",
    "session",
    "completed",
    "retried",
    "dead",
    "trigger_failed",
    "store_failed",
    "failed",
    "state",
]


BACKGROUND_STATE = "background:state"
"""The event, to subscribers of this process, that tells a state of a background session and its reason."""
MANUAL = "trigger-manual"
"""The source of an event that a person fires."""


def lane_key(bundle: str, session: str) -> str:
    """Return the key of a background session's inbox: the same at every start."""
    return f"{bundle}/{session}"


def triggers_by_key(lane: str, triggers: Sequence[TriggerConfig]) -> dict[str, TriggerConfig]:
    """Return the triggers of a lane in their order, by what the store knows each as."""
    return {f"{lane}/{each.name or each.module}#{number}": each for number, each in enumerate(triggers, start=1)}


def manual_key(lane: str, triggers: Sequence[TriggerConfig]) -> str:
    """Return what an event that a person fires is stored under: the `trigger-manual` that the lane declares, if any."""
    declared = triggers_by_key(lane, triggers).items()
    return next((key for key, trigger in declared if trigger.module == MANUAL), f"{lane}/{MANUAL}")


@dataclass(frozen=True, slots=True)
class Activity:
    """Something that happened, for whoever watches: `facts` depend on the kind."""

    kind: ActivityKind
    lane: str
    facts: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    """Of the lane's inbox."""
    project: str = ""


@dataclass(frozen=True, slots=True)
class AtWork:
    """A delivery that a worker handles, in a task that can be cancelled."""

    delivery: Delivery
    task: asyncio.Task[None]


@dataclass(slots=True)
class Lane:
    """The runtime state of one background session; its inbox is the deliveries of `(project, key)`."""

    session_id: str
    key: str
    project: str
    config: BackgroundSessionConfig
    prepared: PreparedBundle
    gate: Gate
    throttle: SlidingCount | None = None
    status: LaneStatus = "starting"
    reason: str = ""
    trigger_count: int = 0
    last_trigger: datetime | None = None
    restart_count: int = 0
    troubles: dict[str, tuple[LaneStatus, str]] = field(default_factory=dict)
    """What ails which part of it, a trigger or the store; the worst is its state."""
    running: dict[str, AtWork] = field(default_factory=dict)
    """Each delivery that is being handled now."""
    own_writes: OwnWrites = field(default_factory=OwnWrites)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a throttled one is counted and claimed: no worker overtakes the count of another."""
    task: asyncio.Task[None] | None = None

    declared: dict[str, TriggerConfig] = field(init=False)
    """Its triggers, by what the store knows each as."""

    def __post_init__(self) -> None:
        self.declared = triggers_by_key(self.key, self.config.triggers)

    def replaced(self, by: Delivery) -> None:
        """End what is at work on other deliveries of its key: `by` is handled in their place."""
        for each in list(self.running.values()):
            if each.delivery.key == by.key and each.delivery.delivery_id != by.delivery_id:
                each.task.cancel()

    async def outlived(self, by: Delivery) -> None:
        """End what is at work under an earlier claim on this delivery; a lease runs out so when the machine sleeps."""
        before = self.running.get(by.delivery_id)
        if before is not None:
            before.task.cancel()
            await asyncio.wait({before.task})

    def over(self, delivery: Delivery) -> None:
        """Note that nothing is at work any more under this claim."""
        work = self.running.get(delivery.delivery_id)
        if work is not None and work.delivery.epoch == delivery.epoch:
            del self.running[delivery.delivery_id]

    @property
    def stopping(self) -> bool:
        """Whether no new work is to begin."""
        return self.status in ("stopping", "stopped")

    def status_row(self) -> dict[str, Any]:
        """Return the lane as `get_status` shows it."""
        return {
            "name": self.config.name,
            "status": self.status,
            "reason": self.reason,
            "trigger_count": self.trigger_count,
            "last_trigger": self.last_trigger.isoformat() if self.last_trigger else None,
            "restart_count": self.restart_count,
            "running": sorted(str(each.delivery.session_id) for each in self.running.values()),
        }


@dataclass(slots=True)
class Engine:
    """What every lane of one manager shares."""

    parent: AmplifierSession
    store: DurableStore
    router: EventRouter
    plugins: Plugins
    owner: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    lease: float = 60.0
    """Seconds a claim holds without being renewed."""
    poll: float = 1.0
    """Seconds after which an idle worker looks for what has come due, or was accepted by another process."""
    observers: list[Callable[[Activity], None]] = field(default_factory=list)

    def turn(self, lane: Lane, status: LaneStatus, reason: str = "") -> None:
        """Bring a lane into a state, and tell it where it is another one."""
        if (lane.status, lane.reason) != (status, reason):
            lane.status, lane.reason = status, reason
            told = {"session_id": lane.session_id, "name": lane.config.name, "status": status, "reason": reason}
            self.router.publish(SessionEvent(BACKGROUND_STATE, told, lane.session_id, timestamp=self.clock.now()))
            self.tell("state", lane, status=status, reason=reason)

    def troubled(self, lane: Lane, part: str, status: LaneStatus, reason: str) -> None:
        """Note what ails a part of a lane."""
        lane.troubles[part] = status, reason
        self.judge(lane)

    def well(self, lane: Lane, part: str) -> None:
        """Note that nothing ails it any more."""
        if lane.troubles.pop(part, None) is not None:
            self.judge(lane)

    def judge(self, lane: Lane) -> None:
        """Bring a lane that is not stopping into the state of the worst of its parts."""
        if not lane.stopping:
            worst = min(lane.troubles.values(), key=lambda trouble: trouble[0] != "failed", default=("running", ""))
            self.turn(lane, *worst)

    def tell(self, kind: ActivityKind, lane: Lane, **facts: Any) -> None:
        """Tell the observers; one that fails is logged, and changes nothing."""
        for observer in self.observers:
            try:
                observer(Activity(kind, lane.config.name, facts, lane.key, lane.project))
            except Exception:
                logger.exception("an observer of background sessions failed")

    def backoff(self, attempt: int, base: float, cap: float) -> float:
        """Return seconds to wait before attempt number `attempt` + 1: full jitter under an exponential bound."""
        return self.random.uniform(0.0, min(cap, base * 2.0 ** max(0, attempt - 1)))


class RestartWindow:
    """Counts restarts within a sliding window of seconds, not over a lifetime."""

    def __init__(self, allowed: int, seconds: float, clock: Clock) -> None:
        self._allowed = allowed
        self._seconds = seconds
        self._clock = clock
        self._times: deque[float] = deque()

    def note(self) -> int:
        """Count one restart now; return how many the window holds."""
        now = self._clock.monotonic()
        self._times.append(now)
        while self._times and now - self._times[0] > self._seconds:
            self._times.popleft()
        return len(self._times)

    @property
    def exhausted(self) -> bool:
        """Whether the window holds more restarts than are allowed."""
        return len(self._times) > self._allowed
