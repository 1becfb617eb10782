"""Import the code of a module from its file or its folder."""

from __future__ import annotations

import importlib.util
import sys
import threading
from hashlib import sha256
from typing import TYPE_CHECKING

from .loader import ModuleValidationError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def import_from_path(module_id: str, path: Path) -> ModuleType:
    """Import the module at `path`: a `.py` file, a package folder, or a folder with `amplifier_module_<id>` in it.

    A file is known by its content: a changed file is imported anew. A package keeps its name unless another module has
    it already: two of one name must not get each other's parts.
    """
    if path.is_file():
        return _import(_own_name(path.read_bytes() + str(path).encode()), path, None)
    package = find_package(module_id, path)
    file = package / "__init__.py"
    known = sys.modules.get(package.name)
    is_free = known is None or getattr(known, "__file__", None) == str(file)
    return _import(package.name if is_free else _own_name(str(file).encode()), file, [str(package)])


def _own_name(identity: bytes) -> str:
    return f"_amplifier_source_{sha256(identity).hexdigest()[:16]}"


def find_package(module_id: str, path: Path) -> Path:
    """Return the folder of a module's package in `path`, or `path` itself. Raises `ModuleValidationError`."""
    stem = module_id.replace("-", "_")
    for candidate in (path / f"amplifier_module_{stem}", path / f"amplifier_{stem}", path / stem, path):
        if (candidate / "__init__.py").is_file():
            return candidate
    raise ModuleValidationError(
        f"module '{module_id}': {path} holds no package amplifier_module_{stem} with an __init__.py",
        reason_code="invalid_package_layout",
    )


_importing: dict[str, threading.RLock] = {}
"""A lock for each name, as in the standard import: another thread never gets half a module."""


def _import(name: str, file: Path, search: list[str] | None) -> ModuleType:
    with _importing.setdefault(name, threading.RLock()):
        return _import_locked(name, file, search)


def _import_locked(name: str, file: Path, search: list[str] | None) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ModuleValidationError(f"{file} cannot be imported", reason_code="invalid_package_layout")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
