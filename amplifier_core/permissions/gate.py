"""Stand ahead of every handler of `tool:pre`: decide, ask, and look again at what a handler changed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from .hidden import is_printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_core.models import HookResult

    from ..utils.scripts import Scripts
    from .calls import Call, Declared
    from .policy import Decision, Policy
    from .rules import Rule

ONCE, SESSION, ALWAYS, DENY = "Allow once", "Allow for this session", "Allow always", "Deny"
MAY_VARY = "it may run other files the next time"
"""Why a call cannot be allowed for the session."""


class Grants:
    """What a person allowed for the rest of a session: exact calls, by the hash of their arguments."""

    def __init__(self) -> None:
        self._calls: dict[str, Mapping[str, str] | None] = {}
        """By the hash of a call, the digests of its scripts."""
        self._rules: list[Rule] = []

    def add(self, tool: str, arguments: Mapping[str, Any], scripts: Mapping[str, str] | None = None) -> None:
        """Allow a call with exactly these arguments, while its scripts have these digests (None: any)."""
        self._calls[call_hash(tool, arguments)] = scripts

    def add_rule(self, text: str) -> None:
        """Allow what a rule covers. Raises `PermissionRuleError`."""
        from .rules import parse_rule

        self._rules.append(parse_rule("allow", text, "this session"))

    def cover(self, call: Call, policy: Policy | None = None, folder: str = ".") -> bool:
        """Return whether a call in a folder was allowed before; what the `policy` allows by itself needs no rule."""
        key = call_hash(call.tool, call.arguments)
        if key in self._calls and (self._calls[key] is None or not self.find_changed(call, digest_call(call, folder))):
            return True
        return bool(self._rules and call.accesses) and all(
            any(rule.names(call.tool) and rule.fits(access) for rule in self._rules)
            or (policy is not None and policy.allows(call.tool, access))
            for access in call.accesses
        )

    def find_changed(self, call: Call, after: Scripts) -> list[str]:
        """Return the changed files of an allowed call with the files `after`; [] without an answer of its own."""
        from ..utils.scripts import find_changed

        before = self._calls.get(call_hash(call.tool, call.arguments))
        if before is None:
            return []
        changed = find_changed(before, after.digests)
        return changed if after.is_known else changed or ["what it runs"]


def call_hash(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a call and its exact arguments, in hex."""
    import hashlib

    exact = json.dumps([tool, arguments], sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(exact.encode()).hexdigest()


def digest_call(call: Call, folder: str) -> Scripts:
    """Return the files that the commands of a call run or obey, as they are now; none where it may name others."""
    from ..utils.scripts import digest_scripts

    values = [value for value in call.arguments.values() if isinstance(value, str)]
    return digest_scripts(call.find_commands(folder), folder, values, only_run=True)


class PermissionGate:
    """The policy of one session. `refusal`, when set, refuses every call: a guard is missing.

    `untrusted`, when set, says why the session has read text of strangers: what acts is asked for then, unless the
    person's own rules allow it, or the bundle lets the session act on such text (`acts`). A call of a tool with the
    attribute `untrusted_results` sets it.
    """

    def __init__(self, policy: Policy, folder: Path | str, grants: Grants | None = None) -> None:
        self.policy = policy
        self.folder = str(folder)
        self.grants = grants or Grants()
        self.refusal = ""
        self.untrusted = ""
        self.acts = False
        self._asked: dict[str, tuple[Call, Scripts]] = {}

    def decide(self, tool: str, arguments: Any, declared: Declared | None = None) -> Decision:
        """Return the decision about a call; `declared` is the tool's attribute `accesses`."""
        from .calls import Call
        from .policy import Decision

        if self.refusal:
            return Decision("deny", self.refusal)
        if not isinstance(arguments, dict):
            return Decision("deny", "its arguments are no mapping")
        call = Call.of(tool, arguments, self.folder, declared)
        decision = self.policy.decide(call)
        is_tainted = bool(self.untrusted) and not self.acts
        if is_tainted and decision.effect == "allow" and self.policy.doubts(call):
            decision = Decision("ask", f"{self.untrusted}, and text of strangers may ask for this")
        if decision.effect == "ask" and self.grants.cover(call, None if is_tainted else self.policy, self.folder):
            return Decision("allow", "allowed before in this session")
        return decision

    def check(self, data: Mapping[str, Any], tools: Mapping[str, Any]) -> HookResult | None:
        """Return the refusal of a call, or the question about it; None: it may run."""
        from amplifier_core.models import HookResult

        from .calls import Call

        tool = str(data.get("tool_name"))
        arguments, declared = data.get("tool_input"), getattr(tools.get(tool), "accesses", None)
        if not isinstance(declared, dict) and not callable(declared):
            declared = None
        decision = self.decide(tool, arguments, declared)
        if decision.effect != "deny" and getattr(tools.get(tool), "untrusted_results", False) is True:
            self.untrusted = self.untrusted or f"it has read a result of {tool}"
        if decision.effect == "allow":
            return None
        if decision.effect == "deny":
            return HookResult(action="deny", reason=describe_refusal(decision))
        call = Call.of(tool, arguments or {}, self.folder, declared)
        rule, scripts = self._rule_for_good(call), digest_call(call, self.folder)
        prompt = describe_question(call, decision)
        if changed := self.grants.find_changed(call, scripts):
            shown = [name if is_printable(name) else json.dumps(name) for name in changed[:3]]
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            prompt += f" (asked anew: {', '.join(shown)}{more} has changed)"
        if not scripts.is_known:
            prompt += f" ({'not for the session' if rule else 'only once'}: {MAY_VARY})"
        self._asked[prompt] = call, scripts
        return HookResult(
            action="ask_user",
            reason=describe_decision(decision),
            approval_prompt=prompt,
            # The answer for the session is bound to files; a rule is not, and covers this very command alone.
            approval_options=[
                ONCE,
                *([SESSION] if scripts.is_known else []),
                *([f"{ALWAYS}: {rule}"] if rule else []),
                DENY,
            ],
            approval_default="deny",
        )

    def find_closed(self, tool: str, root: str) -> list[str]:
        """Return what a tool that walks below `root` leaves out, as regular expressions of paths as `fold` makes them.

        Rules about the tool and about `read_file` count. The person has answered for an `ask` about the root itself.
        """
        from .calls import Call

        accesses = Call.of(tool, {"path": root}, self.folder, {"path": "read"}).accesses
        return self.policy.find_closed(tool, accesses)

    def hear(self, prompt: str, answer: str) -> None:
        """Take in the answer to a question of `check`: it may hold for the session, or for good."""
        # The questions of handlers stand before that of the gate, which is one line.
        asked = self._asked.pop(prompt.rpartition("\n")[2], None)
        if asked is None:
            return
        call, scripts = asked
        if answer == SESSION and scripts.is_known:
            self.grants.add(call.tool, call.arguments, scripts.digests)
        elif answer.startswith(ALWAYS) and self.policy.remember is not None and (rule := self._rule_for_good(call)):
            self.grants.add_rule(rule)
            self.policy.remember(rule)

    def _rule_for_good(self, call: Call) -> str | None:
        """Return the narrowest rule that allows a call from now on; None where none does, or nobody keeps it."""
        from .rules import narrowest_rule, parse_rule

        rule = narrowest_rule(call) if self.policy.remember is not None else None
        if rule is None or self.policy.with_own(parse_rule("allow", rule)).decide(call).effect != "allow":
            return None
        return rule


def describe_refusal(decision: Decision) -> str:
    """Return the sentence about a refusal for the model and the person."""
    return f"not permitted: {describe_decision(decision)}"


def describe_decision(decision: Decision) -> str:
    """Return the reason of a decision, with the place of its rule."""
    place = f" ({decision.rule.place})" if decision.rule is not None and decision.rule.place else ""
    source = f" of {decision.source}" if decision.source else ""
    return f"{decision.reason}{source}{place}"


def describe_question(call: Call, decision: Decision) -> str:
    """Return the question about a call with its exact arguments, in one line of printable characters."""
    shown = ", ".join(f"{_show_name(name)}={json.dumps(value, default=repr)}" for name, value in call.arguments.items())
    reason = decision.reason if is_printable(decision.reason) else json.dumps(decision.reason)
    return f"{_show_name(call.tool)}({shown}): {reason}"


def _show_name(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name, re.ASCII) else json.dumps(name)
