"""Check a trigger's configuration against its pydantic model, with errors that a bundle's author understands."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from .errors import TriggerConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Model = TypeVar("Model", bound=BaseModel)


def read_trigger_config(trigger: str, model: type[Model], config: Mapping[str, Any]) -> Model:
    """Return `config` as a `model`; `trigger` is the registered name.

    Raises `TriggerConfigError` for the first thing that is wrong; a key that is not known is told the nearest one.
    """
    try:
        return model.model_validate(config)
    except ValidationError as error:
        fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        key = str(fault["loc"][0]) if fault["loc"] else ""
        unknown = fault["type"] == "extra_forbidden"
        message = _unknown_key(key, model) if unknown else fault["msg"].removeprefix("Value error, ")
        raise TriggerConfigError(trigger, key, message) from None


def _unknown_key(key: str, model: type[BaseModel]) -> str:
    known = [field.alias or name for name, field in model.model_fields.items()]
    close = get_close_matches(key, known, n=1)
    return "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known) or 'none'}")
