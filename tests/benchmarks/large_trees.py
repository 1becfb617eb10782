"""Make trees of many files once, and keep them between runs."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from .environment import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TREES = ROOT / "build" / "bench-trees"
IN_A_FOLDER, IN_AN_AREA = 250, 100
"""Files in a folder, and folders in a folder above: the system watches only so many folders."""


def make_tree(files: int) -> Path:
    """Return a tree of so many files: the kept one, or a new one where that is damaged or was not finished."""
    tree, made = TREES / str(files), TREES / f"{files}.made"
    if made.is_file() and _count(tree) == files:
        return tree
    made.unlink(missing_ok=True)
    shutil.rmtree(tree, ignore_errors=True)
    for first in range(0, files, IN_A_FOLDER):
        number = first // IN_A_FOLDER
        folder = tree / f"area{number // IN_AN_AREA:02}" / f"part{number % IN_AN_AREA:02}"
        folder.mkdir(parents=True)
        for name in range(min(IN_A_FOLDER, files - first)):
            _write(f"{folder}/file{name:03}.py", f"print({first + name})\n".encode())
    made.touch()
    return tree


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, content)
    os.close(descriptor)


def _count(tree: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(tree))
