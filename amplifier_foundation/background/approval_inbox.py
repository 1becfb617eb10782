"""Put a question about a tool call into the inbox, stop the session there, and answer it when the session goes on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from amplifier_core.frozen import slotted
from amplifier_core.permissions import parse_rule
from amplifier_core.permissions.gate import ALWAYS, SESSION, call_hash
from amplifier_core.storage import PromptDeliveries
from amplifier_core.utils.scripts import digest_scripts, find_changed

from ..sessions.asked import Answer, answer_or_hold
from .approvals import WAITS, Approval, read_approvals, save, settle

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.models import HookResult
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import Delivery, DurableStore

    from ..sessions.asked import AskedCall

LOOK = 30.0
"""Seconds between two looks at a waiting delivery whose store cannot make it due."""


@slotted
class ApprovalInbox:
    """Asks for the approvals of one delivery: an approval system whose answers come after the session has ended.

    It serves the delivery's session and all below it, in their event loops.
    """

    store: DurableStore
    delivery: Delivery
    digest: str
    """Of the bundle of the sessions."""
    lifetime: float
    """Seconds until an unanswered question counts as denied."""
    clock: Clock
    parent: AmplifierSession | None = None
    """The session above: what a person allows for good holds for its next sessions, too."""
    _before: dict[str, Approval] = field(default_factory=dict)
    """The answers at the beginning of the attempt."""
    _found: dict[str, Approval] = field(default_factory=dict)
    """New questions that are not kept yet."""
    _is_used: bool = False

    async def read(self) -> list[Approval]:
        """Return the approvals of the delivery as they are now."""
        known = await read_approvals(self.store, self.delivery.project, self.delivery.queue)
        now = self.clock.now()
        return [each.at(now) for each in known.values() if each.delivery_id == self.delivery.delivery_id]

    async def begin(self) -> list[Approval]:
        """Return the questions to wait for before the attempt; none, when there is an answer to go on with.

        None either when the bundle has changed since: the attempt asks anew.
        """
        if self.delivery.epoch == 1:
            return []  # nobody has asked about it yet
        found = await self.read()
        self._is_used = bool(found)
        self._before = {each.id: each for each in found if each.is_decided}
        waiting = [each for each in found if each.state == "pending"]
        return waiting if not self._before and all(each.is_of(self.digest) for each in waiting) else []

    async def end_attempt(self) -> list[Approval]:
        """Return the questions to wait for after an attempt that was held; the answers before it are used up.

        The questions of another bundle are void: the attempt has asked its own.
        """
        found, now = await self.read(), self.clock.now()
        waiting = [each for each in found if each.state == "pending"]
        changes = {
            each.id: replace(each, state="used") for each in found if each.is_decided and each.id in self._before
        }
        for each in waiting:
            if not each.is_of(self.digest):
                changes[each.id] = replace(each, state="void", said="the bundle has changed", decided=now)
        await save(self.store, self.delivery.project, self.delivery.queue, changes)
        return [each for each in waiting if each.id not in changes]

    async def forget(self) -> None:
        """Forget the approvals of a finished delivery, but for the answers."""
        if self._is_used:
            known = await read_approvals(self.store, self.delivery.project, self.delivery.queue)
            gone = [each for each in known.values() if each.delivery_id == self.delivery.delivery_id or each.is_kept]
            await save(self.store, self.delivery.project, self.delivery.queue, settle(gone, self.clock.now()))

    def due(self, questions: Iterable[Approval]) -> datetime:
        """Return the time at which the delivery is due without an answer."""
        first = min((each.expires for each in questions), default=self.clock.now())
        if isinstance(self.store, PromptDeliveries):
            return first
        return min(first, self.clock.now() + timedelta(seconds=LOOK))

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - a published signature
        default: Literal["allow", "deny"],
    ) -> str:
        """Deny: only questions about tool calls can wait."""
        return next((each for each in options if each.lower().startswith("deny")), "Deny")

    async def answer_call(self, coordinator: ModuleCoordinator, question: HookResult) -> HookResult:
        """Return the answer to a question about a call, or hold the call."""
        return await answer_or_hold(self, coordinator, question)

    async def find(self, call: AskedCall) -> Answer:
        """Return the answer to a question as it is now.

        An answer for the session holds for the same call again, and a used one for a call that `continues` another
        session.
        """
        found = await self._find(await asyncio.to_thread(self._describe, call), continues=call.continues)
        if found.state == "pending":
            self._found[found.id] = found
            return Answer(found.id, "pending", f"{WAITS} {found.id}")
        if found.state != "approved":
            return Answer(found.id, "denied", self._explain(found))
        if not found.answer.startswith(ALWAYS) or found.rule is None:
            return Answer(found.id, "approved")
        gate = self.parent.coordinator.permissions if self.parent is not None else None
        if gate is not None:
            gate.policy = gate.policy.with_own(parse_rule("allow", found.rule))
        return Answer(found.id, "approved", said=found.answer)

    async def keep(self, approval_id: str, messages: list[dict[str, str]]) -> None:
        """Store a new question, in place of an earlier one about the same call."""
        approval = self._found.pop(approval_id)
        known = {each.id: each for each in await self.read()}
        if approval.id in known and known[approval.id].state not in ("used", "void"):
            return
        earlier = {
            each.id: replace(each, state="void", said=_find_change(each, approval), decided=self.clock.now())
            for each in known.values()
            if (each.session_id, each.key) == (approval.session_id, approval.key) and each.state != "void"
        }
        said = [each.said for each in earlier.values() if known[each.id].state != "used"]
        question = f"{approval.question} (asked anew: {said[-1]})" if said else approval.question
        changes = {**earlier, approval.id: replace(approval, messages=messages, question=question)}
        self._is_used = True
        await save(self.store, approval.project, approval.queue, changes)

    def _explain(self, approval: Approval) -> str:
        if approval.state == "expired":
            return f"nobody answered before {approval.expires:%Y-%m-%d %H:%M} UTC, which counts as a denial"
        return f"the user denied this call{f': {approval.said}' if approval.said else ''}"

    async def _find(self, fresh: Approval, *, continues: bool) -> Approval:
        """Return the stored approval for a new question, or the new one."""
        known = {each.id: each for each in await self.read()}
        same = (fresh.session_id, fresh.call_hash, fresh.scripts)
        for each in known.values():
            is_same = (each.session_id, each.call_hash, each.scripts) == same
            if is_same and each.answer == SESSION and each.state in ("approved", "used"):
                return replace(each, state="approved")
        found = known.get(fresh.id, fresh)
        if found.state == "void":
            return fresh
        if found.state == "used":
            return replace(found, state="approved") if continues and found.answer else fresh
        return found

    def _describe(self, call: AskedCall) -> Approval:
        values = [value for value in call.arguments.values() if isinstance(value, str)]
        scripts, is_known = digest_scripts(call.commands, call.folder, values)
        options = call.options
        if not is_known:  # it may run other files the next time; a rule covers this very command alone
            options = [each for each in options if each != SESSION]
        now = self.clock.now()
        asked = Approval(
            id="",
            state="pending",
            project=self.delivery.project,
            queue=self.delivery.queue,
            delivery_id=self.delivery.delivery_id,
            session_id=call.session_id,
            tool=call.tool,
            arguments=json.loads(json.dumps(call.arguments, default=repr)),
            call_hash=call_hash(call.tool, call.arguments),
            key=call.key,
            question=call.question,
            reason=call.reason,
            scripts=scripts,
            preview=call.preview,
            options=options,
            created=now,
            expires=now + timedelta(seconds=self.lifetime),
        )
        return replace(asked, id=asked.make_id(self.digest))


def _find_change(before: Approval, after: Approval) -> str:
    """Return what has changed since a question about the same call."""
    if before.call_hash != after.call_hash:
        return "the arguments have changed"
    if changed := find_changed(before.scripts, after.scripts):
        return f"{', '.join(changed)} has changed"
    return "what it would change has changed" if before.preview != after.preview else "the bundle has changed"
