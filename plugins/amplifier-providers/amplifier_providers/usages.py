"""Add up what the attempts of one request have used: one that failed is paid, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.message_models import Usage

_TOKENS = (
    *("input_tokens", "output_tokens", "total_tokens"),
    *("reasoning_tokens", "cache_read_tokens", "cache_write_tokens"),
)


def add_up(usages: Sequence[Usage]) -> dict[str, Any]:
    """Return the sum as events tell it, with the number of `requests` if there are several; {} of none.

    The cost is that of the attempts whose cost is known; `cost_is_partial` says that others are among them.
    """
    if len(usages) < 2:
        return usages[0].model_dump(mode="json", exclude_none=True) if usages else {}
    whole: dict[str, Any] = {"requests": len(usages)}
    for name in _TOKENS:
        counts = [count for each in usages if (count := getattr(each, name)) is not None]
        whole |= {name: sum(counts)} if counts else {}
    costs = [each.cost_usd for each in usages if each.cost_usd is not None]
    if costs:
        whole |= {"cost_usd": str(sum(costs)), "cost_is_partial": len(costs) < len(usages)}
    return whole
