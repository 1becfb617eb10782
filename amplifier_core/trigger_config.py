"""Check a trigger's configuration against its pydantic model, with errors for a bundle's author."""

from __future__ import annotations

from difflib import get_close_matches
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from .errors import TriggerConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Model = TypeVar("Model", bound=BaseModel)

_MESSAGES = {
    "missing": "this key is required",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_pattern_mismatch": "must match {pattern}",
    "literal_error": "must be {expected}",
}


def read_trigger_config(trigger: str, model: type[Model], config: Mapping[str, Any]) -> Model:
    """Return `config` as a `model`; `trigger` is the registered name.

    Raises `TriggerConfigError` for the first wrong key, unknown keys before others; its `others` are the rest. The
    error of an unknown key suggests the nearest one.
    """
    try:
        return model.model_validate(config)
    except ValidationError as error:
        messages: dict[str, str] = {}
        for fault in sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden"):
            key = str(fault["loc"][0]) if fault["loc"] else ""
            message = _message(fault, key, model)
            if key in messages and _has_several_types(model, key):
                messages[key] += f" or {message.removeprefix('must be ')}"
            messages.setdefault(key, message)
        (key, message), *rest = messages.items()
        others = [TriggerConfigError(trigger, *each) for each in rest]
        raise TriggerConfigError(trigger, key, message, others) from None


def _message(fault: Mapping[str, Any], key: str, model: type[BaseModel]) -> str:
    if fault["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in model.model_fields.items()]
        close = get_close_matches(key, known, n=1)
        return "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known) or 'none'}")
    if fault["type"] in _MESSAGES and (len(fault["loc"]) == 1 or _has_several_types(model, key)):
        return _MESSAGES[fault["type"]].format(**fault.get("ctx", {}))
    return str(fault["msg"]).removeprefix("Value error, ")


def _has_several_types(model: type[BaseModel], key: str) -> bool:
    """Return whether a value may be of one type or of another: pydantic then has a fault for each."""
    field = model.model_fields.get(key)
    if field is None or get_origin(field.annotation) not in (Union, UnionType):
        return False
    return len(set(get_args(field.annotation)) - {NoneType}) > 1
