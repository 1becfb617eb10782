"""Limit the time and size of a fetch."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleLoadError

if TYPE_CHECKING:
    from threading import Event

MAX_FILE = 4 * 1024**2
"""Bytes of a single file."""
MAX_ARCHIVE = 256 * 1024**2
"""Bytes of an archive, packed and unpacked."""
MAX_ENTRIES = 20_000
"""Files and folders in an archive."""

_STEP = 0.1


class Deadline:
    """The end of a fetch: `seconds` from now, or as soon as `stop` is set."""

    def __init__(self, seconds: float, stop: Event | None = None) -> None:
        self.seconds = seconds
        self._ends = monotonic() + seconds
        self._stop = stop

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` is set."""
        return self._stop is not None and self._stop.is_set()

    def seconds_left(self) -> float:
        """Return the seconds left; 0 at the end."""
        return 0.0 if self.is_stopped else max(0.0, self._ends - monotonic())

    def step(self) -> float:
        """Return the seconds to wait before the next check; 0 at the end."""
        return min(_STEP, self.seconds_left())


def fetch_seconds() -> float:
    """Return the time limit of a fetch: `fetch.timeout` in the settings of the current folder.

    Raises `BundleLoadError` for invalid settings.
    """
    from ..settings import SettingsError, read_settings  # settings read files as bundles do, which are fetched

    try:
        return float(read_settings().get("fetch.timeout"))
    except SettingsError as error:
        raise BundleLoadError(str(error)) from error
