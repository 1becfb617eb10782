"""The records of all sessions; of ten thousand in a fraction of a second."""

# Names are text here, below a folder that is open: the system looks up less, and no path is made.
# ruff: noqa: PTH116, PTH208

from __future__ import annotations

import gc
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
