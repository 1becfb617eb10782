"""Put the rules into a layer of the session's permissions: it can only tighten what the others allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.permissions import Decision, Layer, Rule
from amplifier_core.permissions.rules import RuleGroup

from .config import NAME, SHELL

if TYPE_CHECKING:
    from amplifier_core.permissions import Access

    from .config import ApprovalConfig


class OrderedLayer(Layer):
    """Rules of which the first one that fits an access counts; what it lets through is for the other layers.

    The last `usual` rules are about whole tools: they do not count for reads, nor for what a tool calls harmless.
    """

    def __init__(self, rules: list[Rule], usual: int) -> None:
        super().__init__(NAME, rules)
        self._usual = usual
        self._single: dict[tuple[int, str], RuleGroup] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrderedLayer) and (self.rules, self._usual) == (other.rules, other._usual)

    def __hash__(self) -> int:
        return hash((self.rules, self._usual))

    def decide(self, tool: str, access: Access) -> Decision | None:
        """Return what the first rule that fits says; None: nothing."""
        first_usual = len(self.rules) - self._usual
        is_free = access.kind == "read" or access.form == "harmless"
        for number, rule in enumerate(self.rules):
            if number >= first_usual and is_free:
                return None
            if rule.names(tool) and self._fits(number, access):
                if number >= first_usual:
                    return Decision("ask", f"{NAME} asks about this tool", rule)
                return None if rule.effect == "allow" else Decision(rule.effect, f"the rule {rule}", rule, self.source)
        return None

    def _fits(self, number: int, access: Access) -> bool:
        group = self._single.get((number, access.kind))
        if group is None:
            rule = self.rules[number]
            group = self._single[number, access.kind] = RuleGroup(rule.effect, (rule,), access.kind)
        return group.find(access) is not None


def make_layer(config: ApprovalConfig) -> OrderedLayer:
    """Return the layer of a configuration."""
    rules = [Rule(each.effect, each.tool or SHELL, each.pattern) for each in config.ordered]
    usual = [Rule("ask", tool) for tool in config.asked_tools]
    return OrderedLayer([*rules, *usual], len(usual))
