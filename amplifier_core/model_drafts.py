"""Make pydantic models in less time: of values that are right already, and with fields that are empty lists."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict

M = TypeVar("M", bound=BaseModel)


class ModelDraft(BaseModel):
    """The slots of a model, set by plain assignments until its class is set.

    The methods of `BaseModel` for that are written in Python, and those of its slots take five times as long.
    """

    model_config = ConfigDict(defer_build=True)  # it is never validated

    __init__ = cast("Any", object.__init__)
    __setattr__ = cast("Any", object.__setattr__)
    __delattr__ = cast("Any", object.__delattr__)


def make_model(kind: type[M], values: dict[str, Any], given: set[str], extra: dict[str, Any] | None) -> M:
    """Return a model with `values` for all of its fields, in their order; it takes over all of the arguments.

    `given` names the fields that are no defaults. `extra` is for the unknown fields of a model that allows them.
    """
    draft: Any = ModelDraft()
    draft.__dict__ = values
    draft.__pydantic_fields_set__ = given
    draft.__pydantic_extra__ = extra
    draft.__pydantic_private__ = None
    draft.__class__ = kind
    model: M = draft
    return model


def new_list() -> list[Any]:
    """Return an empty list, as the `default_factory` of a field.

    pydantic asks for the signature of its factory. For `list` itself, Python 3.11 compiles its grammar first, in a
    quarter of the time that Python takes to start.
    """
    return []
