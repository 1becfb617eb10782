"""Hide secrets in texts: by the kernel's redactor, or on a kernel without one by the commonest forms of secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

try:
    from amplifier_core.utils.secrets import redact_text
except ModuleNotFoundError:  # the published kernel has no redactor of texts
    _NAME = r"(?:api[_-]?key|access[_-]?key|private[_-]?key|passw(?:or)?d|secret|token|credentials?|authorization)"
    _SECRET = re.compile(
        r"(?P<scheme>://)[^\s:/@\"'\\]*:[^\s/@\"'\\]+(?=@)"
        rf"|(?P<named>(?i:{_NAME})\\{{0,9}}[\"']?\s{{0,9}}[=:]\s{{0,9}}\\{{0,9}}[\"']?(?:bearer\s|basic\s)?)(?=\S*\d)[^\s\"'\\]{{6,}}"
        r"|(?P<bearer>(?i:\b(?:bearer|basic)\s{1,9}))(?=[\w.~+/-]{0,200}[\d=])[\w.~+/=-]{8,}"
        r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]{0,30}-----|\Z)"
        r"|(?:(?<![\w-])|(?<=\\[bfnrt]))(?:sk-|[spr]k_|gh[pousr]_|github_pat_|glpat-|hf_|xox[abeoprs]-|AKIA|ASIA|AIza|eyJ)[\w.-]{16,}"
    )

    def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
        """Return `text` without secrets of a known form; others are not recognised."""
        return _SECRET.sub(lambda found: f"{found[found.lastgroup] if found.lastgroup else ''}[REDACTED]", text)


__all__ = ["redact_text"]
