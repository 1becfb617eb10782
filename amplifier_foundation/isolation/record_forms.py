"""Write the values of a store and of the plugins as mappings for a message, and read them."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = TypeVar("Kind")

TIMES = {"created", "updated", "timestamp"}
"""Fields with a time."""


def write_value(value: Any) -> dict[str, Any]:
    """Return a value (`SessionRecord`, `SessionEvent`, `SpawnRequest`, …) as a mapping for a message."""
    members = ((each.name, getattr(value, each.name)) for each in fields(value))
    return {name: member.isoformat() if isinstance(member, datetime) else member for name, member in members}


def read_value(kind: type[Kind], written: Mapping[str, Any]) -> Kind:
    """Return the value of a mapping. Raises `TypeError` and `ValueError` for one that is none."""
    data = {
        name: datetime.fromisoformat(value) if name in TIMES and value is not None else value
        for name, value in written.items()
    }
    return kind(**data)
