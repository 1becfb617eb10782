"""Describe the models of a server, and what their answers cost."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from amplifier_core.models import ModelInfo

from .config import read_host

if TYPE_CHECKING:
    from ollama import ShowResponse

CAPABILITIES = ("tools", "streaming", "thinking", "vision", "json_mode", "local")
_OF_THE_MODEL = ("tools", "thinking", "vision")
"""What depends on the model; Ollama itself does the rest."""
_SERVICE = "ollama.com"


def is_local(model: str, address: str) -> bool:
    """Whether the server itself runs the model: not Ollama's cloud, by its address or by a tag such as `20b-cloud`."""
    host = read_host(address)
    return host != _SERVICE and not host.endswith(f".{_SERVICE}") and not model.endswith(("-cloud", ":cloud"))


def compute_cost(model: str, address: str) -> Decimal | None:
    """Return the dollars of an answer: none for a local model, an unknown amount for one of Ollama's cloud."""
    return Decimal(0) if is_local(model, address) else None


def describe_model(name: str, shown: ShowResponse | None, window: int, output: int | None, address: str) -> ModelInfo:
    """Return a model as the server shows it; `window` and `output` are the configured tokens."""
    facts = (shown.modelinfo or {}) if shown else {}
    own = next((value for key, value in facts.items() if key.endswith(".context_length")), None)
    told = shown.capabilities if shown else None
    offered = [each for each in CAPABILITIES if told is None or each not in _OF_THE_MODEL or each in told]
    reads = min(window, own) if isinstance(own, int) and own > 0 else window
    local = is_local(name, address)
    info = {
        "id": name,
        "display_name": name,
        "context_window": reads,
        "max_output_tokens": min(output or reads, reads),
        "capabilities": [each for each in offered if local or each != "local"],
        "pricing": {"input_per_million": 0, "output_per_million": 0} if local else None,
    }
    return ModelInfo.model_validate(info)
