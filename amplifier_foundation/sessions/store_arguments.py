"""Call stores of an earlier version, which lack the newest arguments."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def known_arguments(method: Callable[..., Any], **given: Any) -> dict[str, Any]:
    """Return those of the `given` arguments that a store's `method` takes."""
    parameters = signature(method).parameters
    takes_all = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
    return {name: value for name, value in given.items() if takes_all or name in parameters}
