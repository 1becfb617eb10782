"""Find the programs of system packages that some tests run."""

from __future__ import annotations

import os
import shutil

import pytest


def require(program: str) -> str:
    """Return the path of a program. Skips the test where it is missing, and fails it there where `CI` is set."""
    path = shutil.which(program)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{program} is not installed")
    return path
