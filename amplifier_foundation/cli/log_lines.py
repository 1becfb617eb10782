"""Write log lines without secrets."""

from __future__ import annotations

import logging

FORMAT = "amplifier: %(levelname)s: %(message)s"


class RedactingFormatter(logging.Formatter):
    """Hides the secrets of a record in its message and its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        from amplifier_core.utils.secrets import redact_text

        return redact_text(super().format(record))
