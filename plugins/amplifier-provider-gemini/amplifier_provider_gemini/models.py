"""Know Google's models: what they read and write, and their prices.

Prices are in US dollars per million tokens, as of 2026-10-07, from https://ai.google.dev/gemini-api/docs/pricing:
those of text and images, in the standard tier. A model without a price here costs an unknown amount.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from amplifier_core.models import ModelInfo

if TYPE_CHECKING:
    from google.genai.types import Model as ServiceModel

    from amplifier_core.message_models import Usage

MILLION = Decimal(1_000_000)
CAPABILITIES = ("tools", "streaming", "thinking", "vision", "json_mode")
DEFAULT_CONTEXT, DEFAULT_OUTPUT = 1_048_576, 65_536
LONG_PROMPT = 200_000
"""Tokens of a prompt up to which a model's usual price holds."""

_THINKING = re.compile(r"gemini-(?:2\.5|[3-9]|\d\d)")
_OTHER_WORK = re.compile(r"embedding|image|tts|live|audio|transcribe|robotics|computer-use|veo|imagen|lyria|aqa")


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens; `long` holds for all tokens with a long prompt, `later` from the day `since` on."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    long: Price | None = None
    later: Price | None = None
    since: date | None = None


def _price(given: str, output: str, cache_read: str) -> Price:
    return Price(Decimal(given), Decimal(output), Decimal(cache_read))


def _pro(usual: Price, long: Price) -> Price:
    return Price(usual.input, usual.output, usual.cache_read, long=long)


PRICES = {
    "gemini-3.8-flash": Price(
        Decimal("0.75"),
        Decimal("3.75"),
        Decimal("0.075"),
        later=_price("1.50", "7.50", "0.15"),
        since=date(2027, 1, 1),
    ),
    "gemini-3.5-flash": _price("1.50", "9", "0.15"),
    "gemini-3.5-flash-lite": _price("0.30", "2.50", "0.03"),
    "gemini-3.1-pro-preview": _pro(_price("2", "12", "0.20"), _price("4", "18", "0.40")),
    "gemini-2.5-pro": _pro(_price("1.25", "10", "0.125"), _price("2.50", "15", "0.25")),
    "gemini-2.5-flash": _price("0.30", "2.50", "0.03"),
    "gemini-2.5-flash-lite": _price("0.10", "0.40", "0.01"),
}


def find_price(model: str, day: date | None = None) -> Price | None:
    """Return the price of a model on a day, without one today; None if it is unknown."""
    price = PRICES.get(model)
    if price is None or price.since is None or (day or datetime.now(UTC).date()) < price.since:
        return price
    return price.later


def compute_cost(model: str, usage: Usage) -> Decimal | None:
    """Return the dollars of an answer; None if the price of its model is unknown."""
    price = find_price(model)
    if price is None:
        return None
    if price.long is not None and usage.input_tokens > LONG_PROMPT:
        price = price.long
    read = usage.cache_read_tokens or 0
    given = (usage.input_tokens - read) * price.input + read * price.cache_read
    return (given + usage.output_tokens * price.output) / MILLION


def thinks(model: str) -> bool:
    """Whether a model thinks, as far as its name tells."""
    return bool(_THINKING.match(model)) and converses(model)


def converses(model: str) -> bool:
    """Whether a model holds conversations, and does not paint or speak instead."""
    return not _OTHER_WORK.search(model)


def list_known() -> list[ModelInfo]:
    """Return the models of the table."""
    return [describe_model(name, None) for name in PRICES]


def describe_model(name: str, told: ServiceModel | None) -> ModelInfo:
    """Return a model as the service describes it; the table fills what it leaves open."""
    price = find_price(name)
    thinking = told.thinking if told is not None and told.thinking is not None else thinks(name)
    info = {
        "id": name,
        "display_name": (told.display_name if told else None) or name,
        "context_window": (told.input_token_limit if told else None) or DEFAULT_CONTEXT,
        "max_output_tokens": (told.output_token_limit if told else None) or DEFAULT_OUTPUT,
        "capabilities": [
            *(each for each in CAPABILITIES if thinking or each != "thinking"),
            *(["fast"] if "flash" in name else []),
        ],
    }
    if price is not None:
        info["pricing"] = {
            "input_per_million": float(price.input),
            "output_per_million": float(price.output),
            "cache_read_per_million": float(price.cache_read),
        }
    return ModelInfo.model_validate(info)
