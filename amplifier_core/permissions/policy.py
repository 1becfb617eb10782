"""Put rules into layers, and let the strictest decision count."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from amplifier_core.errors import AmplifierError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .calls import Access, Call, Kind
    from .rules import Effect, Rule, RuleGroup

Mode = Literal["read-only", "ask", "auto"]
STRICTNESS: dict[Effect, int] = {"allow": 0, "ask": 1, "deny": 2}
EFFECTS: tuple[Effect, ...] = ("deny", "ask", "allow")
KEYS = ("mode", "deny", "ask", "allow")


class PermissionsError(AmplifierError, ValueError):
    """A section `permissions` cannot be read; nothing may start without it."""


class Decision(NamedTuple):
    """What happens to a call, and why."""

    effect: Effect
    reason: str
    rule: Rule | None = None
    """The deciding rule; None: a mode, a default or a protection."""
    source: str = ""
    """The layer that decided; "" for a default or a protection."""


class Layer:
    """The rules of one source: deny wins over ask, ask over allow. A call without a rule is for the mode.

    `is_own` marks the settings of the person who runs the program: they alone may allow what is protected, or asked by
    default. Every other layer can only tighten.
    """

    def __init__(
        self, source: str, rules: Iterable[Rule] = (), mode: Mode | None = None, *, is_own: bool = False
    ) -> None:
        self.source = source
        self.rules = tuple(rules)
        self.mode = mode
        self.is_own = is_own
        self._groups: dict[tuple[str, Kind], tuple[tuple[Effect, RuleGroup], ...]] = {}

    def find(self, tool: str, access: Access) -> tuple[Effect, Rule] | None:
        """Return the strictest rule about an access of a tool's call, with its effect."""
        key = (tool, access.kind)
        groups = self._groups.get(key)
        if groups is None:
            groups = self._groups[key] = tuple(self._group(*key))
        for effect, group in groups:
            rule = group.find(access)
            if rule is not None:
                return effect, rule
        return None

    def _group(self, tool: str, kind: Kind) -> Iterable[tuple[Effect, RuleGroup]]:
        from .rules import RuleGroup, holds_for

        for effect in EFFECTS:
            about = [rule for rule in self.rules if rule.effect == effect and holds_for(rule, tool, kind)]
            if about:
                yield effect, RuleGroup(effect, about, kind)

    def decide(self, tool: str, access: Access) -> Decision | None:
        """Return what this layer says of an access; None: nothing."""
        found = self.find(tool, access)
        if found is not None:
            return Decision(found[0], f"the rule {found[1]}", found[1], self.source)
        if self.mode is None or self.mode == "auto" or access.form == "harmless":
            return None
        if access.kind == "read" and not access.value.startswith("/"):
            return None
        return Decision("deny" if self.mode == "read-only" else "ask", f"the mode {self.mode}", None, self.source)


class Policy:
    """The layers of a session: the person's own settings, the project's, the bundle's, and those of its ancestors.

    `remember` keeps a rule in the person's own settings when the person answers "always". `refresh` returns the policy
    of changed settings, None for unchanged ones.
    """

    def __init__(
        self,
        layers: Iterable[Layer] = (),
        remember: Callable[[str], None] | None = None,
        refresh: Callable[[], Policy | None] | None = None,
    ) -> None:
        self.layers = tuple(layers)
        self.remember = remember
        self.refresh = refresh

    def below(self, *layers: Layer) -> Policy:
        """Return the policy of a child with layers of its own: it has no more than all its ancestors."""
        refresh = self.refresh

        def refresh_below() -> Policy | None:
            newer = refresh() if refresh is not None else None
            return newer.below(*layers) if newer is not None else None

        below = (layer for layer in layers if layer.rules or layer.mode)
        return Policy((*self.layers, *below), self.remember, refresh_below if refresh is not None else None)

    def with_own(self, rule: Rule) -> Policy:
        """Return the policy with one more rule in the person's own settings."""
        own = next((layer for layer in self.layers if layer.is_own), Layer("user settings", is_own=True))
        extended = Layer(own.source, (*own.rules, rule), own.mode, is_own=True)
        others = (layer for layer in self.layers if layer is not own)
        return Policy((extended, *others), self.remember, self.refresh)

    def decide(self, call: Call) -> Decision:
        """Return the strictest decision about a call, with its reason."""
        strictest: Decision | None = None
        for access in call.accesses or (_whole_call(),):
            decision = self._decide(call.tool, access)
            if decision.effect == "deny":
                return decision
            if strictest is None or STRICTNESS[decision.effect] > STRICTNESS[strictest.effect]:
                strictest = decision
        assert strictest is not None  # there is at least one access
        return strictest

    def allows(self, tool: str, access: Access) -> bool:
        """Return whether one access of a tool's call needs no question."""
        return self._decide(tool, access).effect == "allow"

    def find_closed(self, tool: str, roots: Iterable[Access]) -> list[str]:
        """Return regular expressions of the folded paths that a tool leaves out when it walks below `roots`."""
        from .rules import describe_pattern, holds_for

        rules = [rule for layer in self.layers for rule in layer.rules if rule.effect != "allow" and rule.pattern]
        about = [rule for rule in rules if holds_for(rule, tool, "read")]
        closed = [rule for rule in about if rule.effect == "deny" or not all(map(rule.fits, roots))]
        return [describe_pattern(rule.pattern, "read", folds=True) for rule in closed]

    def doubts(self, call: Call) -> bool:
        """Return whether a call does more than read, and no rule of the person's own settings allows it."""
        own = [layer for layer in self.layers if layer.is_own]
        acting = [access for access in call.accesses if access.kind != "read" and access.form != "harmless"]
        if not call.accesses and not call.is_reading:
            acting = [_whole_call()]
        found = [[layer.find(call.tool, access) for layer in own] for access in acting]
        return not all(any(each is not None and each[0] == "allow" for each in rules) for rules in found)

    def _decide(self, tool: str, access: Access) -> Decision:
        if access.problem:
            return Decision("deny", f"{access.value!a}: {access.problem}")
        strictest: Decision | None = None
        is_lifted = False
        for layer in self.layers:
            decision = layer.decide(tool, access)
            if decision is None:
                continue
            if layer.is_own and decision.effect == "allow" and decision.rule is not None:
                is_lifted = decision.rule.is_specific or _protection(access) is None
            if strictest is None or STRICTNESS[decision.effect] > STRICTNESS[strictest.effect]:
                strictest = decision
        if not is_lifted:
            default = _protection(access) or _default(access)
            if strictest is None or STRICTNESS[default.effect] > STRICTNESS[strictest.effect]:
                return default
        assert strictest is not None  # what is lifted has a rule
        return strictest


@cache
def _whole_call() -> Access:
    from .calls import Access

    return Access("other", "")


def _protection(access: Access) -> Decision | None:
    """Return the refusal of a protected file; None for any other access."""
    from .protected import is_secret, what_obeys

    if access.kind == "write" and (reader := access.reader or what_obeys(access.value)):
        return Decision("deny", f"{access.value} is protected: {reader} obeys it")
    if access.kind == "read" and is_secret(access.value):
        return Decision("deny", f"{access.value} is protected: its name says that it holds secrets")
    return None


_ALLOWED = Decision("allow", "the bundle's tools may do this in its working folder")
_ASKED: Mapping[str, Decision] = {
    "command": Decision("ask", "commands are asked for"),
    "host": Decision("ask", "the network is asked for"),
    "bundle": Decision("ask", "bundles by path or address are asked for"),
    "server": Decision("ask", "tools of servers are asked for"),
    "read": Decision("ask", "it is outside of the working folder"),
    "write": Decision("ask", "it is outside of the working folder"),
}
_IS_ASKED: Mapping[Kind, Callable[[str], bool]] = {
    "command": bool,
    "host": bool,
    "server": bool,
    "bundle": lambda value: "/" in value or ":" in value or value.endswith((".md", ".yaml", ".yml")),
    "read": lambda value: value.startswith("/"),
    "write": lambda value: value.startswith("/"),
}


def _default(access: Access) -> Decision:
    """Return what counts without a rule and a mode: a trusted bundle grants its tools inside the working folder."""
    if access.form == "harmless":
        return _ALLOWED
    is_asked = _IS_ASKED.get(access.kind)
    return _ASKED[access.kind] if is_asked is not None and is_asked(access.value) else _ALLOWED


def parse_permissions(
    section: Any, source: str, *, is_own: bool = False, place: Callable[[tuple[str | int, ...]], str] | None = None
) -> Layer:
    """Return the layer of a section `permissions: {mode, deny, ask, allow}`.

    `place` returns the file and line of a key path within the section. Raises `PermissionsError` for anything that
    cannot be read: an unreadable layer is no empty one.
    """
    from .rules import PermissionRuleError, parse_rule

    where = f"{source}: permissions"
    if not isinstance(section, dict):
        raise PermissionsError(f"{where}: must be a mapping with {', '.join(KEYS)}, not {type(section).__name__}")
    if unknown := [key for key in section if key not in KEYS]:
        raise PermissionsError(f"{where}: unknown key '{unknown[0]}'. Known: {', '.join(KEYS)}")
    mode = section.get("mode")
    if mode is not None and mode not in get_args(Mode):
        raise PermissionsError(f"{where}.mode: must be one of {', '.join(get_args(Mode))}, not {mode!r}")
    rules = []
    for effect in EFFECTS:
        listed = section.get(effect)
        if listed is not None and not isinstance(listed, list):
            raise PermissionsError(f"{where}.{effect}: must be a list of rules, not {type(listed).__name__}")
        for index, text in enumerate(listed or ()):
            at = place((effect, index)) if place is not None else ""
            try:
                rules.append(parse_rule(effect, text, at))
            except PermissionRuleError as error:
                raise PermissionsError(f"{at or f'{where}.{effect}[{index}]'}: {error}") from None
    return Layer(source, rules, mode, is_own=is_own)
