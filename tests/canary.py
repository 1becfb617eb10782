"""A secret planted in the environment of every test: no file that a test writes may hold it."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from secrets import token_urlsafe
from urllib.parse import quote

NAME = "CANARY_API_KEY"
SKIPPED = {"site-packages", "__pycache__", ".git"}
"""Folders with installed code: nothing there comes from a session."""
LONGEST = 64 * 1024 * 1024
"""Bytes of the largest searched file."""


def plant() -> str:
    """Put the secret into the environment, unless the process that started this one has; return it."""
    return os.environ.setdefault(NAME, f"canary/{token_urlsafe(18)}+x")


def forms(value: str) -> list[bytes]:
    """Return the forms that are searched for: raw, URL-quoted, and base64 at each alignment."""
    inner = (base64.b64encode(b"\0" * shift + value.encode())[4:-4] for shift in range(3))
    return [value.encode(), quote(value, safe="").encode(), *inner]


def find(folder: Path, value: str) -> Iterator[Path]:
    """Yield the files below `folder` with the secret."""
    searched = forms(value)
    for root, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in SKIPPED]
        for name in files:
            path = os.path.join(root, name)  # noqa: PTH118 - there are thousands of files
            if _holds(path, searched):
                yield Path(path)


def _holds(path: str, searched: list[bytes]) -> bool:
    try:
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size <= LONGEST:
            return False
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - there are thousands of files
            content = file.read()
    except OSError:  # a file that a test has made unreadable, or that goes meanwhile
        return False
    return any(form in content for form in searched)
