"""Tell whether the code of a folder has changed since its import, and forget what was imported of it."""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

Files = dict[str, tuple[int, int, int]]
"""The size, the time of the last write and that of the last change of each file, by its path."""


def may_hold_code(name: str) -> bool:
    """Return whether a folder in that of a module is looked into, by its name."""
    return name[:1] != "." and name not in ("__pycache__", "node_modules")


def find_files(folder: Path) -> Files:
    """Return the Python files below a folder."""
    found = {}
    for inner, folders, names in os.walk(folder):
        folders[:] = filter(may_hold_code, folders)
        for file in (Path(inner, name) for name in names if name.endswith(".py")):
            with suppress(OSError):  # a link to nothing
                stat = file.stat()
                found[str(file)] = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    return found


def forget(before: Files, now: Files) -> dict[str, ModuleType]:
    """Take what was imported of these files out of `sys.modules`, so that it is imported anew; return it by name."""
    importlib.invalidate_caches()
    files = before.keys() | now.keys()
    modules = [(name, each) for name, each in [*sys.modules.items()] if name != "__main__"]
    found = {name: each for name, each in modules if getattr(each, "__dict__", {}).get("__file__") in files}
    for name in found:
        sys.modules.pop(name, None)
    return found


def may_keep_name(name: str, file: Path) -> bool:
    """Return whether the package of a file may have its name: no other module has it, nor would a library need it."""
    known = sys.modules.get(name)
    if known is not None or name.startswith("amplifier_"):  # the copy in a bundle replaces an installed module
        return known is None or getattr(known, "__file__", None) == str(file)
    spec = importlib.util.find_spec(name) if "." not in name else None  # a name with a dot is no library's
    return spec is None or (spec.origin is not None and Path(spec.origin).resolve() == file.resolve())
