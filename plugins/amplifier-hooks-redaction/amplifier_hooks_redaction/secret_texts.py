"""Hide secrets by the kernel's redactor."""

from __future__ import annotations

from typing import Any

HIDDEN = "[REDACTED]"


def hide_secrets(value: Any) -> Any:
    """Return a copy of a value without secrets; on a kernel without a redactor of texts, only those at named keys."""
    try:
        from amplifier_core.utils.secrets import redact_all
    except ModuleNotFoundError:
        from amplifier_core.utils import redact_secrets

        return redact_secrets(value)
    return redact_all(value)
