"""Keep the questions of background sessions until a person answers: the approvals inbox.

    pending ──approve──▶ approved ──▶ used        the delivery goes on; the call runs once
       ├──────deny─────▶ denied ────▶ used        the model is told so, with the reason
       └─────expires───▶ expired ───▶ used        counts as a denial

An approval is one row of the state `QUEUE#approvals`, beside the states of triggers. It is written before its delivery
is given back. Its id is a hash of the call's idempotency key, its exact arguments, the bundle, and the scripts of its
command, or what it would change: when one of them changes, the approval is `void`, and the call is asked about anew,
under another id. Only `decide` answers; nothing at the socket of `up` and no event does. When the delivery is finished,
the newest answers stay for a while, without the arguments.
"""

from __future__ import annotations

import fcntl
import json
from contextlib import asynccontextmanager
from dataclasses import field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.errors import AmplifierError, SessionConflict
from amplifier_core.frozen import frozen
from amplifier_core.permissions.gate import ALWAYS, ONCE, SESSION

from ..documents.dicts import known_members
from ..paths import data_home, make_private
from .giving_back import make_due
from .store_clock import clock_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from amplifier_core.storage import DurableStore

State = Literal["pending", "approved", "denied", "expired", "used", "void"]
Scope = Literal["once", "session", "always"]

KEPT, MOST_KEPT = timedelta(days=7), 50
"""How long an answer stays after its delivery, and how many of a background session."""
WAITS = "waits for approval"
"""The first words of the reason of a waiting delivery."""


class ApprovalNotFound(AmplifierError, LookupError):
    """No approval has this id, or an id that begins so; `shortest` are the characters that are enough."""

    def __init__(self, text: str, shortest: int = 0) -> None:
        enough = f"; type {shortest} characters of its id, or more" if len(text) < shortest else ""
        super().__init__(f"no approval '{text}' waits{enough}. See: amplifier approvals list")


_TIMES = ("created", "expires", "decided")


@frozen
class Approval:
    """A tool call that waits for a person, or the answer to it. Times are UTC."""

    id: str
    state: State
    project: str
    queue: str
    delivery_id: str
    session_id: str
    """The session that makes the call: that of the delivery, or one below it."""
    tool: str
    arguments: Mapping[str, Any]
    call_hash: str
    key: str
    """The idempotency key of the call."""
    question: str
    reason: str
    """Why it is asked: the rule, with its layer and its place."""
    options: list[str]
    created: datetime
    expires: datetime
    scripts: Mapping[str, str] = field(default_factory=dict)
    """The hash of each file that a word of its command names."""
    preview: str = ""
    """What the call would change, as its tool says; without secrets."""
    messages: list[dict[str, str]] = field(default_factory=list)
    """The last messages of its session: `role` and `text`, shortened, without secrets."""
    answer: str = ""
    """The chosen option."""
    said: str = ""
    """The person's reason; of a void one, what has changed."""
    decided: datetime | None = None
    """When it was answered, or became void."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Approval:
        """Read the output of `to_dict`."""
        times = {name: datetime.fromisoformat(data[name]) for name in _TIMES if data.get(name)}
        return cls(**known_members(cls, {**data, **times}))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**data, **{name: data[name].isoformat() for name in _TIMES if data[name]}}

    def at(self, now: datetime) -> Approval:
        """Return it as it is at a time: a pending one may have expired."""
        return replace(self, state="expired") if self.state == "pending" and now >= self.expires else self

    def is_of(self, digest: str) -> bool:
        """Return whether a bundle with this digest asks the same; a changed one asks anew."""
        return self.id == self.make_id(digest)

    def make_id(self, digest: str) -> str:
        """Return the id that it has when a bundle with this digest asks."""
        shown = [self.preview] if self.preview else []
        about = [self.session_id, self.key, self.call_hash, digest, self.scripts, *shown]
        return sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def rule(self) -> str | None:
        """The rule that "always" would add to the person's settings; None: there is none."""
        found = (option for option in self.options if option.startswith(f"{ALWAYS}: "))
        return next((option.removeprefix(f"{ALWAYS}: ") for option in found), None)

    @property
    def outcome(self) -> State:
        """The answer, also of a used one."""
        if self.state != "used":
            return self.state
        return "approved" if self.answer else "denied" if self.decided else "expired"

    def describe_answer(self) -> str:
        """Return what became of it, and when; "is asked" for a pending one."""
        if self.state == "void":
            since = f"is void since {self.decided:%Y-%m-%d %H:%M} UTC"
            return f"{since}: {self.said}, so the call is asked about anew, if at all"
        if self.decided is None:
            return "is asked" if self.state == "pending" else f"is {self.outcome} already"
        chosen = f' ("{self.answer}")' if self.answer else f" ({self.said})" if self.said else ""
        return f"is {self.outcome} already{chosen}, since {self.decided:%Y-%m-%d %H:%M} UTC"

    @property
    def is_kept(self) -> bool:
        """Whether only the answer is left: its delivery is finished."""
        return self.decided is not None and not self.question

    @property
    def is_decided(self) -> bool:
        """Whether its session can go on with the answer."""
        return self.state in ("approved", "denied", "expired")


def _state_key(queue: str) -> str:
    return f"{queue}#approvals"


async def read_approvals(store: DurableStore, project: str, queue: str) -> dict[str, Approval]:
    """Return the approvals of a background session by id, answered ones of unfinished deliveries included."""
    stored = await store.trigger_state(project, _state_key(queue))
    return {its_id: Approval.from_dict(data) for its_id, data in stored.items()}


async def read_all(store: DurableStore, now: datetime | None = None, *, finished: bool = False) -> list[Approval]:
    """Return the approvals of unfinished deliveries, the oldest first; with `finished`, also the kept answers.

    They are as they are `now` (None: by the clock of the store, where it has one).
    """
    now = now or (await clock_of(store)).now()
    counts = await store.delivery_counts()
    queues = {(each.project, each.queue) for each in counts if finished or each.waiting_since is not None}
    found = [each for key in sorted(queues) for each in (await read_approvals(store, *key)).values()]
    open_ids = await _find_unfinished(store, found)
    shown = [each for each in found if each.delivery_id in open_ids or (finished and each.decided is not None)]
    return sorted((each.at(now) for each in shown), key=lambda each: each.created)


async def _find_unfinished(store: DurableStore, approvals: Iterable[Approval]) -> set[str]:
    """Return the ids of those deliveries of approvals that are pending or claimed."""
    found = [await store.find_deliveries(each) for each in {approval.delivery_id for approval in approvals}]
    return {each.delivery_id for group in found for each in group if each.state in ("pending", "claimed")}


async def save(store: DurableStore, project: str, queue: str, changes: Mapping[str, Approval | None]) -> None:
    """Store approvals by id; None deletes one."""
    if changes:
        plain = {its_id: each.to_dict() if each is not None else None for its_id, each in changes.items()}
        await store.save_trigger_state(project, _state_key(queue), plain, merge=True)


def settle(finished: Iterable[Approval], now: datetime) -> dict[str, Approval | None]:
    """Return the changes for approvals of finished deliveries: the newest answers stay, without arguments and texts."""
    before = {each.id: each for each in finished}
    answered = [each for each in before.values() if each.decided is not None and now - each.decided < KEPT]
    newest = sorted(answered, key=lambda each: each.decided or now)[-MOST_KEPT:]
    after: dict[str, Approval | None] = dict.fromkeys(before)
    for each in newest:
        state: State = "void" if each.state == "void" else "used"
        after[each.id] = replace(each, state=state, arguments={}, question="", scripts={}, preview="", messages=[])
    return {its_id: each for its_id, each in after.items() if each != before[its_id]}


async def decide(
    store: DurableStore,
    approval: Approval,
    state: Literal["approved", "denied"],
    scope: Scope = "once",
    said: str = "",
    *,
    now: datetime | None = None,
) -> Approval:
    """Answer a pending approval, durably, and make its delivery due. Raises `SessionConflict` for another one.

    The first one counts, of all processes and hosts. The same answer again is no error. `always` is only the answer:
    the caller adds the `rule` to the settings.
    """
    now = now or (await clock_of(store)).now()
    from .hosts.sharing import alone

    async with _deciding(), alone(store, "answers to approvals"):
        known = (await read_approvals(store, approval.project, approval.queue)).get(approval.id)
        if known is None or known.at(now).state not in ("pending", state):
            what = "is no longer asked for" if known is None else known.at(now).describe_answer()
            raise SessionConflict(approval.id, f"approval {approval.id} {what}")
        if known.state == "pending":
            answer = _choose(known, scope) if state == "approved" else ""
            known = replace(known, state=state, said=said, answer=answer, decided=now)
            await save(store, known.project, known.queue, {known.id: known})
    await make_due(store, known.delivery_id, now)
    return known


@asynccontextmanager
async def _deciding() -> AsyncIterator[None]:
    """Let one answer be given at a time, of all processes of the data folder."""
    import asyncio  # not above: `amplifier ps` needs no event loop

    path = make_private(data_home() / "locks") / "approvals.lock"
    with path.open("a", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.005)
        yield


def _choose(approval: Approval, scope: Scope) -> str:
    """Return the option that a person chooses. Raises `SessionConflict` when it is not offered."""
    from amplifier_core.hook_results import allows

    wanted = {"once": ONCE, "session": SESSION, "always": f"{ALWAYS}: "}[scope]
    for option in approval.options:
        if option.startswith(wanted) or (scope == "once" and allows(option)):
            return option
    offered = ", ".join(approval.options)
    raise SessionConflict(approval.id, f"approval {approval.id} cannot be given with --{scope}; it offers: {offered}")


async def resume_answered(store: DurableStore, project: str, queue: str, now: datetime, digest: str) -> set[str]:
    """Make the deliveries with answers due, and forget approvals of finished ones, after a kill at any moment.

    Those that wait for the answer to another bundle than that of `digest` are due too: it asks anew.

    Return the ids of the deliveries that wait.
    """
    known = await read_approvals(store, project, queue)
    open_ids = await _find_unfinished(store, known.values())
    gone = [each for each in known.values() if each.delivery_id not in open_ids]
    await save(store, project, queue, settle(gone, now))
    answered = {each.delivery_id for each in known.values() if each.at(now).is_decided} & open_ids
    waiting = [each for each in known.values() if each.state == "pending" and each.delivery_id in open_ids - answered]
    anew = {each.delivery_id for each in waiting if not each.is_of(digest)}
    for delivery_id in answered | anew:
        await make_due(store, delivery_id, now)
    return {each.delivery_id for each in waiting} - anew
