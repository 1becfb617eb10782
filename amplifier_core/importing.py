"""Import the code of a module from its file or its folder."""

from __future__ import annotations

import importlib.util
import sys
import threading
from hashlib import sha256
from typing import TYPE_CHECKING

from .imported_folders import Files, find_files, forget, may_keep_name
from .loader import ModuleValidationError
from .source_files import SourceLoader, import_from_source

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def import_from_path(module_id: str, path: Path) -> ModuleType:
    """Import the module at `path`: a `.py` file, a package folder, or a folder with `amplifier_module_<id>` in it.

    Changed code is imported anew: a file is known by its content, a folder by the sizes and times of its Python files.
    What was imported before stays with who has it. A package keeps its name unless another module or a library has
    it: two of one name must not get each other's parts. Bytecode beside it is not looked at.
    """
    if path.is_file():
        return _import(_own_name(path.read_bytes() + str(path).encode()), path, None)
    package = find_package(module_id, path)
    import_from_source(str(path))
    file = package / "__init__.py"
    with _importing.setdefault(str(path), threading.RLock()):
        files, before = find_files(path), _imported.get(path)
        replaced = {} if before is None or before == files else forget(before, files)
        _imported[path] = files
        name = package.name if may_keep_name(package.name, file) else _own_name(str(file).encode())
        try:
            return _import(name, file, [str(package)])
        except BaseException:
            if before is not None and replaced:  # running sessions may import more of it; the next one tries again
                sys.modules.update(replaced)
                _imported[path] = before
            raise


def _own_name(identity: bytes) -> str:
    return f"_amplifier_source_{sha256(identity).hexdigest()[:16]}"


_imported: dict[Path, Files] = {}
"""By folder, its Python files as they were when it was imported."""


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
"""A lock for each name, as in the standard import, and each folder: another thread never gets half a module."""


def _import(name: str, file: Path, search: list[str] | None) -> ModuleType:
    with _importing.setdefault(name, threading.RLock()):
        return _import_locked(name, file, search)


def _import_locked(name: str, file: Path, search: list[str] | None) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    loader = SourceLoader(name, str(file)) if file.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=search)
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
