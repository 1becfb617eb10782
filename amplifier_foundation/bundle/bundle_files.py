"""Find the files of a bundle by their short names."""

from __future__ import annotations

from pathlib import Path

from ..documents.local_paths import leaves
from ..paths import find_bundle_file


def construct_agent_path(base: Path, name: str) -> Path:
    """Return the file of the agent `name` in the bundle at `base`: `agents/<name>.md`. Raises `ValueError`."""
    return _within(base / "agents", name)


def construct_context_path(base: Path, name: str) -> Path:
    """Return a context file: `context/<name>`, with `.md` for a name without suffix. Raises `ValueError`."""
    return _within(base / "context", name, any_suffix=True)


def _within(folder: Path, name: str, *, any_suffix: bool = False) -> Path:
    """Return `folder/name`; refuse a path out of the folder, by `..` or a symlink."""
    if not name or "\0" in name:
        raise ValueError(f"{name!r} names no file")
    suffix = "" if name.endswith(".md") or (any_suffix and Path(name).suffix) else ".md"
    path = folder / f"{name}{suffix}"
    if leaves(folder, path):
        raise ValueError(f"'{name}' leads out of {folder}")
    return path


def find_files(base: Path, pattern: str = "**/*.md") -> list[Path]:
    """Return the files in `base` matching `pattern`, sorted, without symlinks out of `base`.

    Raises `ValueError` for an absolute or empty pattern.
    """
    try:
        found = sorted(base.glob(pattern))
    except NotImplementedError:
        raise ValueError(f"'{pattern}' must be relative to the folder") from None
    return [path for path in found if path.is_file() and not leaves(base, path)]


def find_bundle_root(start: Path) -> Path | None:
    """Return the nearest folder with a bundle's file, from `start` upward, or None."""
    start = start.absolute()
    folders = (start, *start.parents)
    return next((folder for folder in folders if find_bundle_file(folder) is not None), None)
