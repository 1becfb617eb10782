"""Where a user's data lives."""

from __future__ import annotations

import os
from pathlib import Path

from amplifier_core.errors import StoreUnavailable


def data_home() -> Path:
    """Return the data folder: `AMPLIFIER_HOME`, or the system's own place for user data."""
    chosen = os.environ.get("AMPLIFIER_HOME")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_data_path

    return user_data_path("amplifier")


def make_private(folder: Path) -> Path:
    """Create `folder` for its user alone (0700) and return it. Raises `StoreUnavailable`."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        raise StoreUnavailable(
            folder, f"cannot be used ({error.strerror}). Make it writable, or set AMPLIFIER_HOME to a folder that is"
        ) from error
    return folder


def project_of(folder: Path | str | None = None) -> str:
    """Return the project that `folder` (default: the current one) stands for: its real absolute path."""
    return str(Path(folder or Path.cwd()).expanduser().resolve())
