"""Find the module under test by its project's entry points, or by its folder."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING

from ..frozen import frozen
from ..permissions import read_regular
from .base import module_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFIXES = {
    "provider-": "provider",
    "tool-": "tool",
    "hooks-": "hook",
    "hook-": "hook",
    "loop-": "orchestrator",
    "orchestrator-": "orchestrator",
    "context-": "context",
}
GROUP = "amplifier.modules"
_LARGEST = 1 << 24
_DECLARED = re.compile(r"""^__amplifier_module_type__\s*(?::[^=\n]+)?=\s*["'](\w+)["']""", re.MULTILINE)


@frozen
class ModuleUnderTest:
    """A found and not imported module: its package folder or file, and its type if it is known."""

    path: Path
    type: str | None


def module_near(start: Path, wanted: str | None = None) -> ModuleUnderTest | None:
    """Return the module of the project around `start`; of several, one of the `wanted` type before others.

    The search goes upwards, and ends with the project's own folder.
    """
    for folder in (start, *start.parents):
        found = modules_in(folder)
        if found:
            own = module_id_of(folder.name)
            return min(found, key=lambda module: (module.type != wanted, module_id_of(module.path.stem) != own))
        if any((folder / mark).exists() for mark in ("pyproject.toml", "setup.py", ".git")):
            return None
    return None


def modules_in(folder: Path) -> list[ModuleUnderTest]:
    """Return the modules of a project folder, or the one module of a package folder."""
    if _is_package(folder) and type_of_name(folder.name):
        return [module_at(folder)]
    return list(_of_entry_points(folder)) or list(_of_folder_names(folder))


def module_at(path: Path) -> ModuleUnderTest:
    """Return the module of a package folder or file, with its declared type, else the type in its name."""
    return ModuleUnderTest(path, declared_type(path) or type_of_name(path.stem))


def type_of_name(name: str) -> str | None:
    """Return the type in the prefix of a name: `amplifier-module-loop-x`, `amplifier_loop_x` or `loop-x`."""
    module_id = module_id_of(name)
    return next((kind for prefix, kind in PREFIXES.items() if module_id.startswith(prefix)), None)


def declared_type(path: Path) -> str | None:
    """Return the `__amplifier_module_type__` in the source of a package or file."""
    file = path / "__init__.py" if path.is_dir() else path
    try:
        found = _DECLARED.search(read_regular(file, _LARGEST).decode())
    except (OSError, UnicodeDecodeError):
        return None
    return found[1] if found else None


def _of_entry_points(folder: Path) -> Iterator[ModuleUnderTest]:
    try:
        project = tomllib.loads(read_regular(folder / "pyproject.toml", _LARGEST).decode())["project"]
        entries: dict[str, str] = dict(project["entry-points"][GROUP])
    except (OSError, ValueError, KeyError, TypeError):  # no project, or none of ours
        return
    for name, target in entries.items():
        path = _source_of(folder, str(target).partition(":")[0])
        if path is not None:
            module = module_at(path)
            yield module if module.type else replace(module, type=type_of_name(name))


def _source_of(folder: Path, dotted: str) -> Path | None:
    for root in (folder, folder / "src"):
        path = root.joinpath(*dotted.split("."))
        if _is_package(path):
            return path
        if path.with_suffix(".py").is_file():
            return path.with_suffix(".py")
    return None


def _of_folder_names(folder: Path) -> Iterator[ModuleUnderTest]:
    for root in (folder, folder / "src"):
        for path in sorted(root.glob("amplifier_*")):
            if _is_package(path) and (path.name.startswith("amplifier_module_") or type_of_name(path.name)):
                module = module_at(path)
                yield module if module.type else replace(module, type=type_of_name(folder.name))


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()
