"""Put a question about a tool call into the inbox, stop the session there, and answer it when the session goes on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from amplifier_core.errors import StoreError
from amplifier_core.models import HookResult
from amplifier_core.permissions import Call
from amplifier_core.permissions.gate import ALWAYS, SESSION, call_hash
from amplifier_core.storage import PromptDeliveries

from ..sessions.held import CAPABILITY, HeldCalls
from ..sessions.history import text_of
from .approvals import WAITS, Approval, read_approvals, save, settle
from .script_digests import digest_scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.storage import Delivery, DurableStore

LOOK = 30.0
"""Seconds between two looks at a waiting delivery whose store cannot make it due."""
MESSAGES, LONGEST = 6, 500
"""The last messages that an approval shows, and the characters of each."""


@dataclass(slots=True)
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
    allow: Callable[[str], None] = lambda rule: None
    """Called with a rule that a person adds for good: it holds for the next sessions, too."""
    _before: dict[str, Approval] = field(default_factory=dict)
    """The answers at the beginning of the attempt."""
    _is_used: bool = False

    async def read(self) -> list[Approval]:
        """Return the approvals of the delivery as they are now."""
        known = await read_approvals(self.store, self.delivery.project, self.delivery.queue)
        now = self.clock.now()
        return [each.at(now) for each in known.values() if each.delivery_id == self.delivery.delivery_id]

    async def begin(self) -> list[Approval]:
        """Return the questions to wait for before the attempt; none, when there is an answer to go on with."""
        found = await self.read()
        self._is_used = bool(found)
        self._before = {each.id: each for each in found if each.is_decided}
        return [] if self._before else [each for each in found if each.state == "pending"]

    async def end_attempt(self) -> list[Approval]:
        """Return the questions to wait for after an attempt that was held; the answers before it are used up."""
        found = await self.read()
        used = {each.id: replace(each, state="used") for each in found if each.is_decided and each.id in self._before}
        await save(self.store, self.delivery.project, self.delivery.queue, used)
        return [each for each in found if each.state == "pending"]

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
        held: HeldCalls | None = coordinator.get_capability(CAPABILITY)
        if held is None or not getattr(coordinator.get("orchestrator"), "holds_calls", False):
            return HookResult(action="deny", reason="No approval system available")
        data = question.data or {}
        call_id, tool = str(data.get("tool_call_id")), str(data.get("tool_name"))
        try:
            found = await self._find(coordinator, question, held.session_of(call_id) is not None)
            if found.state == "pending":
                await held.hold(call_id, tool)  # first: without an approval, the call is asked about anew
                await self._keep(coordinator, found)
                return HookResult(action="deny", reason=f"{WAITS} {found.id}", data={"held": found.id})
        except StoreError as error:
            held.fail(error)
            return HookResult(action="deny", reason=f"the question cannot be stored: {error}", data={"held": True})
        if found.state == "approved":
            if found.answer.startswith(ALWAYS) and found.rule is not None:
                self.allow(found.rule)
                if coordinator.permissions is not None:
                    # Not for the session: the gate would forget that the scripts must be the same.
                    coordinator.permissions.hear(question.approval_prompt or "", found.answer)
            return HookResult(action="continue", data=question.data)
        return HookResult(action="deny", reason=self._explain(found))

    def _explain(self, approval: Approval) -> str:
        if approval.state == "expired":
            return f"nobody answered before {approval.expires:%Y-%m-%d %H:%M} UTC, which counts as a denial"
        return f"the user denied this call{f': {approval.said}' if approval.said else ''}"

    async def _find(self, coordinator: ModuleCoordinator, question: HookResult, continues: bool) -> Approval:
        """Return the approval for a question as it is now: the stored one, or a new one.

        An answer for the session holds for the same call again, and a used one for a call that `continues` another
        session.
        """
        fresh = await asyncio.to_thread(self._describe, coordinator, question)
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

    def _describe(self, coordinator: ModuleCoordinator, question: HookResult) -> Approval:
        data: Mapping[str, Any] = question.data or {}
        tool, arguments = str(data.get("tool_name")), cast("dict[str, Any]", data.get("tool_input") or {})
        key, exact = str(data.get("idempotency_key") or data.get("tool_call_id")), call_hash(tool, arguments)
        accesses = getattr((coordinator.get("tools") or {}).get(tool), "accesses", None)
        folder = str(coordinator.get_capability("session.working_dir") or Path.cwd())
        declared = accesses if isinstance(accesses, dict) or callable(accesses) else {}
        described = (Call.of(tool, arguments, folder), Call.of(tool, arguments, folder, declared))
        commands = [access.value for call in described for access in call.accesses if access.kind == "command"]
        values = [value for value in arguments.values() if isinstance(value, str)]
        scripts, is_known = digest_scripts(dict.fromkeys(commands), folder, values)
        options = list(question.approval_options or ["Allow", "Deny"])
        if not is_known:  # it may run other files the next time
            options = [each for each in options if not each.startswith((SESSION, ALWAYS))]
        about = json.dumps([coordinator.session_id, key, exact, self.digest, scripts])
        now = self.clock.now()
        return Approval(
            id=sha256(about.encode()).hexdigest()[:12],
            state="pending",
            project=self.delivery.project,
            queue=self.delivery.queue,
            delivery_id=self.delivery.delivery_id,
            session_id=coordinator.session_id,
            tool=tool,
            arguments=json.loads(json.dumps(arguments, default=repr)),
            call_hash=exact,
            key=key,
            question=question.approval_prompt or "Allow this operation?",
            reason=question.reason or "a hook asks",
            scripts=scripts,
            options=options,
            created=now,
            expires=now + timedelta(seconds=self.lifetime),
        )

    async def _keep(self, coordinator: ModuleCoordinator, approval: Approval) -> None:
        """Store a new question, in place of an earlier one about the same call."""
        known = {each.id: each for each in await self.read()}
        if approval.id in known and known[approval.id].state not in ("used", "void"):
            return
        assert coordinator.session is not None  # it makes the call
        history = await coordinator.session.history()
        last = [{"role": str(each.get("role")), "text": _shorten(text_of(each))} for each in history[-MESSAGES:]]
        earlier = {
            each.id: replace(each, state="void", said=_find_change(each, approval), decided=self.clock.now())
            for each in known.values()
            if (each.session_id, each.key) == (approval.session_id, approval.key) and each.state != "void"
        }
        changes = {**earlier, approval.id: replace(approval, messages=last)}
        self._is_used = True
        await save(self.store, approval.project, approval.queue, changes)


def _find_change(before: Approval, after: Approval) -> str:
    """Return what has changed since a question about the same call."""
    if before.call_hash != after.call_hash:
        return "the arguments have changed"
    changed = [
        name
        for name in sorted({*before.scripts, *after.scripts})
        if before.scripts.get(name) != after.scripts.get(name)
    ]
    return f"{', '.join(changed)} has changed" if changed else "the bundle has changed"


def _shorten(text: str) -> str:
    from amplifier_core.utils.secrets import redact_text

    safe = redact_text(text)
    return safe if len(safe) <= LONGEST else f"{safe[:LONGEST]}…"
