"""How long and how large a fetch may get."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleLoadError

if TYPE_CHECKING:
    from threading import Event

MAX_FILE = 4 * 1024**2
"""Bytes of a single file."""
MAX_ARCHIVE = 256 * 1024**2
"""Bytes of an archive, and of all that it holds."""
MAX_ENTRIES = 20_000
"""Files and folders in an archive."""

_STEP = 0.1


class Deadline:
    """The moment at which a fetch ends: `seconds` from now, or when `stop` is set."""

    def __init__(self, seconds: float, stop: Event | None = None) -> None:
        self.seconds = seconds
        self._ends = monotonic() + seconds
        self._stop = stop

    @property
    def stopped(self) -> bool:
        """Whether somebody stopped it."""
        return self._stop is not None and self._stop.is_set()

    def left(self) -> float:
        """Return the seconds that are left; 0 when it is over."""
        return 0.0 if self.stopped else max(0.0, self._ends - monotonic())

    def step(self) -> float:
        """Return the seconds to wait before looking again; 0 when it is over."""
        return min(_STEP, self.left())


def fetch_seconds() -> float:
    """Return how long a fetch may take by the settings that count in the current folder: `fetch.timeout`.

    Raises `BundleLoadError` for settings that cannot be used.
    """
    from ..settings import SettingsError, read_settings  # settings read files as bundles do, which are fetched

    try:
        return float(read_settings().get("fetch.timeout"))
    except SettingsError as error:
        raise BundleLoadError(str(error)) from error
