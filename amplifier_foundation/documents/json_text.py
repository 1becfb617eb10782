"""Write JSON that people may read: letters as they are; characters that steer a terminal or hide text as escapes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from amplifier_core.permissions.hidden import JOINERS, UNSEEN
from amplifier_core.utils.secrets import redact_all, redact_text

if TYPE_CHECKING:
    from collections.abc import Callable

_HIDDEN = re.compile(f"[\x7f-\x9f{UNSEEN}{JOINERS}]")
"""Controls, changes of the text direction, and characters without a shape; JSON itself escapes those below a space."""


def dump_json(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] = str) -> str:
    """Return a value as JSON; `default` makes plain data of anything else."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=default)
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def redact_json(text: str, hide: Callable[[str], str] = redact_text) -> str:
    """Return JSON without secrets, which is JSON as well; `hide` removes them."""
    shown = hide(text)
    if shown == text:
        return text
    try:
        json.loads(shown)
    except ValueError:  # a known secret may begin with the letter of an escape
        hidden = _hide_each(json.loads(text), hide)
        indent = 2 if text.startswith("{\n") else None
        return dump_json(redact_all(hidden) if hide is redact_text else hidden, indent=indent)
    return shown


def _hide_each(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {hide(key): _hide_each(each, hide) for key, each in value.items()}
    if isinstance(value, list):
        return [_hide_each(each, hide) for each in value]
    return hide(value) if isinstance(value, str) else value
