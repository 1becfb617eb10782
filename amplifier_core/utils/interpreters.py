"""Name the Python of child processes."""

from __future__ import annotations

import sys

PYTHON = (sys.executable, *(("-X", "utf8") if sys.getfilesystemencoding() == "utf-8" else ()))
"""The beginning of the command: it reads names of files as this Python does, in every locale."""
