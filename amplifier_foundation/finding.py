"""Where the files of a bundle are, by the names that people use."""

from __future__ import annotations

from pathlib import Path

from .bundles.paths import leaves
from .bundles.references import FILE_NAMES


def construct_agent_path(base: Path, name: str) -> Path:
    """Return where the agent `name` of the bundle in `base` is: `agents/<name>.md`. Raises `ValueError`."""
    return _within(base / "agents", name)


def construct_context_path(base: Path, name: str) -> Path:
    """Return where a context file is: `context/<name>`, with `.md` where `name` has no suffix. Raises `ValueError`."""
    return _within(base / "context", name, any_suffix=True)


def _within(folder: Path, name: str, *, any_suffix: bool = False) -> Path:
    """Return `folder/name`; what leads out of the folder, by `..` or a symlink, is refused."""
    if not name or "\0" in name:
        raise ValueError(f"{name!r} names no file")
    suffix = "" if name.endswith(".md") or (any_suffix and Path(name).suffix) else ".md"
    path = folder / f"{name}{suffix}"
    if leaves(folder, path):
        raise ValueError(f"'{name}' leads out of {folder}")
    return path


def find_files(base: Path, pattern: str = "**/*.md") -> list[Path]:
    """Return the files in `base` that match `pattern`, sorted; a symlink that leads out of `base` is left out.

    Raises `ValueError` for a pattern that is absolute or empty.
    """
    try:
        found = sorted(base.glob(pattern))
    except NotImplementedError:
        raise ValueError(f"'{pattern}' must be relative to the folder") from None
    return [path for path in found if path.is_file() and not leaves(base, path)]


def find_bundle_root(start: Path) -> Path | None:
    """Return the nearest folder, from `start` upward, that holds a bundle's file; None: there is none."""
    start = start.absolute()
    folders = (start, *start.parents)
    return next((folder for folder in folders if any((folder / name).is_file() for name in FILE_NAMES)), None)
