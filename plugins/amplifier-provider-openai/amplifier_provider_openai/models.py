"""Know OpenAI's models: what they read and write, and their prices.

Prices are in US dollars per million tokens, as of 2026-10-27, from https://developers.openai.com/api/docs/pricing.
A model without a price here costs an unknown amount.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from amplifier_core.models import ModelInfo

if TYPE_CHECKING:
    from amplifier_core.message_models import Usage

MILLION = Decimal(1_000_000)
CAPABILITIES = ("tools", "streaming", "thinking", "vision", "json_mode")
CONTEXT, OUTPUT = 1_050_000, 128_000
"""Tokens of all models in the table."""
DEFAULT_CONTEXT, DEFAULT_OUTPUT = 128_000, 16_384
"""Tokens of a model that is unknown."""
LONG_PROMPT = 272_000
"""Tokens of the longest prompt at the usual price."""
USUAL_TIERS = (None, "auto", "default", "standard")

_DATED = re.compile(r"-20\d\d-\d\d-\d\d$")
_CHATTING = re.compile(r"(gpt-|chatgpt-|codex-|o\d)")
_OTHER_WORK = ("audio", "realtime", "transcribe", "tts", "image", "embedding", "moderation", "instruct", "live")


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens. A long prompt costs twice that, cached or not, and its answer half as much more."""

    input: Decimal
    output: Decimal
    cache_read: Decimal

    @property
    def cache_write(self) -> Decimal:
        """The price of a token that is kept for half an hour; one for twelve hours costs twice that."""
        return self.input * Decimal("1.25")


def _price(given: str, output: str, cache_read: str) -> Price:
    return Price(Decimal(given), Decimal(output), Decimal(cache_read))


PRICES = {
    "gpt-6-astra": _price("10", "50", "1"),
    "gpt-6.1-sol": _price("2", "10", "0.10"),
    "gpt-6-sol": _price("2", "10", "0.20"),
    "gpt-6.1-terra": _price("1", "5", "0.05"),
    "gpt-6-luna": _price("0.10", "0.50", "0.01"),
    "gpt-5.6-sol": _price("4", "20", "0.40"),
    "gpt-5.6-terra": _price("2", "12", "0.20"),
    "gpt-5.6-luna": _price("0.20", "1.20", "0.02"),
}


def find_price(model_id: str) -> Price | None:
    """Return the price of a model; a date at the end of its id does not matter."""
    return PRICES.get(_DATED.sub("", model_id))


def is_reasoning(model_id: str) -> bool:
    """Whether a model is known to reason before it answers."""
    return model_id.startswith(("gpt-5", "gpt-6", "o1", "o3", "o4"))


def compute_cost(model_id: str, usage: Usage, *, kept_longer: int = 0, tier: str | None = None) -> Decimal | None:
    """Return the dollars of an answer; `kept_longer` of the tokens written to the cache stay for twelve hours.

    None if the price of its model, or of its service tier, is unknown.
    """
    price = find_price(model_id)
    if price is None or tier not in USUAL_TIERS:
        return None
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    given = (
        (usage.input_tokens - read - written) * price.input
        + read * price.cache_read
        + (written + kept_longer) * price.cache_write
    )
    answer = usage.output_tokens * price.output
    if usage.input_tokens > LONG_PROMPT:
        given, answer = given * 2, answer * Decimal("1.5")
    return (given + answer) / MILLION


def list_known() -> list[ModelInfo]:
    """Return the models of the table."""
    return [describe_model(name) for name in PRICES]


def converses(model_id: str) -> bool:
    """Whether a model of OpenAI answers messages: others draw, speak or compare."""
    return bool(_CHATTING.match(model_id)) and not any(word in model_id for word in _OTHER_WORK)


def describe_model(model_id: str) -> ModelInfo:
    """Return a model; the service tells its name only, and the table the rest."""
    price = find_price(model_id)
    info = {
        "id": model_id,
        "display_name": model_id,
        "context_window": CONTEXT if price else DEFAULT_CONTEXT,
        "max_output_tokens": OUTPUT if price else DEFAULT_OUTPUT,
        "capabilities": [
            *(CAPABILITIES if price else ("tools", "streaming")),
            *(["fast"] if "luna" in model_id else []),
        ],
    }
    if price is not None:
        info["pricing"] = {
            "input_per_million": float(price.input),
            "output_per_million": float(price.output),
            "cache_read_per_million": float(price.cache_read),
            "cache_write_per_million": float(price.cache_write),
        }
    return ModelInfo.model_validate(info)
