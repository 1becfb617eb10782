"""Write JSON that people may read: letters as they are; characters that steer a terminal or hide text as escapes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from amplifier_core.permissions.hidden import JOINERS, UNSEEN

if TYPE_CHECKING:
    from collections.abc import Callable

_HIDDEN = re.compile(f"[\x7f-\x9f{UNSEEN}{JOINERS}]")
"""Controls, changes of the text direction, and characters without a shape; JSON itself escapes those below a space."""


def dump_json(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] = str) -> str:
    """Return a value as JSON; `default` makes plain data of anything else."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=default)
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)
