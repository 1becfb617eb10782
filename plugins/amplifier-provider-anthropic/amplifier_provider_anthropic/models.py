"""Know Anthropic's models: what they read and write, and their prices.

Prices are in US dollars per million tokens, as of 2026-10-24, from https://platform.claude.com/docs/en/about-claude/pricing.
A model without a price here costs an unknown amount.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from amplifier_core.models import ModelInfo

if TYPE_CHECKING:
    from anthropic.types import ModelInfo as ServiceModel
    from anthropic.types import Usage as ServiceUsage

MILLION = Decimal(1_000_000)
CAPABILITIES = ("tools", "streaming", "thinking", "vision", "json_mode")
DEFAULT_CONTEXT, DEFAULT_OUTPUT = 200_000, 32_000
"""Tokens, for a model that is unknown; the second is also the longest answer unless the configuration has its own."""

_DATED = re.compile(r"-20\d{6}$")


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens; with a prompt of more than `long_prompt` tokens, all tokens have the price `long`."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    long_prompt: int | None = None
    long: Price | None = None

    @property
    def cache_write_5m(self) -> Decimal:
        """The price of a token that is kept for five minutes."""
        return self.input * Decimal("1.25")

    @property
    def cache_write_1h(self) -> Decimal:
        """The price of a token that is kept for an hour."""
        return self.input * 2


@dataclass(frozen=True, slots=True)
class Model:
    """A model's limits in tokens, its price, and whether it thinks as much as it sees fit (`thinking: adaptive`)."""

    context: int
    output: int
    price: Price | None
    is_adaptive: bool = True


def _price(given: str, output: str, cache_read: str) -> Price:
    return Price(Decimal(given), Decimal(output), Decimal(cache_read))


_FABLE = Model(1_000_000, 128_000, _price("10", "50", "0.25"))
_FABLE_5 = Model(1_000_000, 128_000, _price("10", "50", "1"))
_OPUS = Model(1_000_000, 128_000, _price("5", "25", "0.50"))
_HAIKU_PRICE = Price(
    Decimal("0.10"), Decimal("0.50"), Decimal("0.01"), long_prompt=100_000, long=_price("0.50", "2.50", "0.05")
)
_SONNET_4_PRICE = _price("3", "15", "0.30")

MODELS = {
    "claude-fable-5-1": _FABLE,
    "claude-mythos-5-1": _FABLE,
    "claude-opus-5-5": Model(1_000_000, 128_000, _price("4", "20", "0.20")),
    "claude-sonnet-5-5": Model(1_000_000, 128_000, _price("2", "10", "0.10")),
    "claude-haiku-5-5": Model(1_000_000, 128_000, _HAIKU_PRICE),
    "claude-fable-5": _FABLE_5,
    "claude-mythos-5": _FABLE_5,
    "claude-opus-5": _OPUS,
    "claude-sonnet-5": Model(1_000_000, 128_000, _price("2", "10", "0.20")),
    "claude-opus-4-8": _OPUS,
    "claude-opus-4-7": _OPUS,
    "claude-opus-4-6": _OPUS,
    "claude-sonnet-4-6": Model(1_000_000, 64_000, _SONNET_4_PRICE),
    "claude-opus-4-5": Model(200_000, 64_000, _price("5", "25", "0.50"), is_adaptive=False),
    "claude-sonnet-4-5": Model(200_000, 64_000, _SONNET_4_PRICE, is_adaptive=False),
    "claude-haiku-4-5": Model(200_000, 64_000, _price("1", "5", "0.10"), is_adaptive=False),
}


def find_model(model_id: str) -> Model | None:
    """Return what is known of a model; a date at the end of its id does not matter."""
    return MODELS.get(_DATED.sub("", model_id))


def compute_cost(model_id: str, usage: ServiceUsage) -> Decimal | None:
    """Return the dollars of an answer; None if the price of its model, or of its speed, is unknown."""
    model = find_model(model_id)
    if model is None or model.price is None or usage.speed == "fast":
        return None
    written, read = usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0
    price = model.price
    if price.long is not None and usage.input_tokens + written + read > (price.long_prompt or 0):
        price = price.long
    hour = usage.cache_creation.ephemeral_1h_input_tokens if usage.cache_creation else 0
    dollars = (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + read * price.cache_read
        + (written - hour) * price.cache_write_5m
        + hour * price.cache_write_1h
    ) / MILLION
    return dollars * Decimal("1.1") if usage.inference_geo == "us" else dollars


def list_known() -> list[ModelInfo]:
    """Return the models of the table."""
    return [_describe(name, name, model.context, model.output, CAPABILITIES) for name, model in MODELS.items()]


def describe_model(model: ServiceModel) -> ModelInfo:
    """Return a model as the service describes it; the table fills what it leaves open."""
    known = find_model(model.id)
    flags = model.capabilities
    offered = {
        "thinking": flags is None or flags.thinking.supported,
        "vision": flags is None or flags.image_input.supported,
        "json_mode": flags is None or flags.structured_outputs.supported,
    }
    return _describe(
        model.id,
        model.display_name,
        model.max_input_tokens or (known.context if known else DEFAULT_CONTEXT),
        model.max_tokens or (known.output if known else DEFAULT_OUTPUT),
        [name for name in CAPABILITIES if offered.get(name, True)],
    )


def _describe(model_id: str, name: str, context: int, output: int, features: list[str] | tuple[str, ...]) -> ModelInfo:
    known = find_model(model_id)
    info = {
        "id": model_id,
        "display_name": name,
        "context_window": context,
        "max_output_tokens": output,
        "capabilities": [*features, *(["fast"] if "haiku" in model_id else [])],
    }
    if known is not None and known.price is not None:
        info["pricing"] = {
            "input_per_million": float(known.price.input),
            "output_per_million": float(known.price.output),
            "cache_read_per_million": float(known.price.cache_read),
            "cache_write_per_million": float(known.price.cache_write_5m),
        }
    return ModelInfo.model_validate(info)
