"""Hide secrets by the kernel's redactor; the published kernel has none for texts, and records no content for that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

try:
    from amplifier_core.utils.secrets import hide_secret, redact_all, redact_text
except ModuleNotFoundError:
    CAN_REDACT = False

    def hide_secret(secret: str) -> None:
        """Do nothing: no text with a secret is made."""

    def redact_all(value: Any, secrets: Iterable[str] = ()) -> Any:
        """Raise `RuntimeError`: content is not recorded here."""
        raise RuntimeError("this kernel has no redactor of texts")

    def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
        """Return a text without user names and passwords in its addresses."""
        return re.sub(r"(?<=://)[^/@\s]*@", "", text)
else:
    CAN_REDACT = True

__all__ = ["CAN_REDACT", "hide_secret", "redact_all", "redact_text"]
