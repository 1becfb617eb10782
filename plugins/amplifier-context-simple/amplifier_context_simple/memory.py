"""Remember, in the messages themselves, where a history is cut, and what the model has counted of it.

The first message after a new cut keeps the cut in its metadata: a resumed session and a fork send the same beginning
again, which a provider has in its cache. After a refusal it keeps what the model may take, too: what was refused is not
sent again. A stored answer has the usage of its request.
"""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .cut import Cut, Ledger

COMPACTION = "compaction"
"""The member of a message's metadata: `{"budget": …, "first": …, "head": […]}`, positions in the history.

After a refusal it has `"most"` as well, the tokens that the model may take, and `"model"`. Each answer raises them.
"""
RISE = 1.05
"""How much more than before a request may have after each one that the model has taken."""
_RISES = 1_000
"""Answers after which no limit is left of a refusal."""
_LARGEST = 1e12
"""Tokens that no request has: a larger number is a fault of what has stored it, and may be none for `float`."""


class Memory(NamedTuple):
    """The last cut of a history with its budget, and the position and the input tokens of its last measured answer."""

    cut: Cut | None = None
    budget: int | None = None
    answer: int | None = None
    input_tokens: float = 0
    most: float = inf
    """The tokens that `model` may take by now, since it has refused a request."""
    model: Any = None


def describe_cut(cut: Cut, budget: int | None, most: float, model: str) -> dict[str, Any]:
    """Return a cut for the metadata of a message; `most` is infinite without a refusal."""
    described = {"budget": budget, "first": cut.first, "head": list(cut.places)}
    return described if most == inf else {**described, "most": int(most), "model": model}


def recall(history: Sequence[Mapping[str, Any]], ledger: Ledger, start: int) -> Memory:
    """Return what the messages from `start` on remember; a cut that cannot be is none."""
    answer, tokens, answers = None, 0.0, 0
    for at, message in zip(count(len(history) - 1, -1), reversed(history[start:])):
        answers += message.get("role") == "assistant"
        about = message.get("metadata")
        if not isinstance(about, dict):
            continue
        if answer is None and message.get("role") == "assistant" and (told := read_input_tokens(about.get("usage"))):
            answer, tokens = at, told
        if isinstance(noted := about.get(COMPACTION), dict):
            first, places = noted.get("first"), noted.get("head")
            if isinstance(first, int) and isinstance(places, list) and ledger.opening <= first <= at:
                known = tuple(each for each in places if isinstance(each, int) and ledger.opening <= each < first)
                most = noted.get("most")
                by_now = most * RISE ** min(answers, _RISES) if _is_count(most) else inf
                cut = ledger.recut(first, known)
                return Memory(cut, noted.get("budget"), answer, tokens, by_now, noted.get("model"))
    return Memory(None, None, answer, tokens)


def read_input_tokens(usage: Any) -> float:
    """Return the tokens of one request by a reported usage, 0 if they are unknown."""
    if not isinstance(usage, dict):
        return 0
    tokens, requests = usage.get("input_tokens"), usage.get("requests")
    if not _is_count(tokens):
        return 0
    return tokens / requests if _is_count(requests) and requests > 1 else tokens


def _is_count(value: Any) -> TypeGuard[float]:
    """Return whether a stored value is a number of tokens or of requests that can be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LARGEST
