"""Check the code of a bundle without running it: each module has its package, and Python can parse it."""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, Any

from amplifier_core.loader import ModuleValidationError, find_package

from ..documents.positions import show_file
from ..documents.problems import Problem, error_at
from .sections import SECTIONS
from .sources import find_sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .model import Bundle

MAX_FILES, MAX_BYTES = 200, 2**20
"""Files of one package, and bytes of one file; others are not parsed."""


def check_code(bundle: Bundle) -> Iterator[Problem]:
    """Yield an error for each module without its package, and for each file with a syntax error."""
    plan: dict[str, Any] = {each.name: getattr(bundle, each.name) for each in SECTIONS if each.is_mounted}
    done: set[Path] = set()
    for holder, key, _ in find_sources(plan, ()):
        written = holder.get(key)
        source = bundle.local_sources.get(written) if isinstance(written, str) else None
        spec = holder if key == "source" else holder.get(key.removesuffix("_source"))
        module = spec.get("module") if isinstance(spec, dict) else spec
        if source is None or source.problem() is not None or not isinstance(module, str):
            continue
        nested = source.path / f"amplifier-module-{module}"
        try:
            path = (
                source.path
                if source.path.is_file()
                else find_package(module, nested if nested.is_dir() else source.path)
            )
        except ModuleValidationError:
            stem = module.replace("-", "_")
            message = f"{show_file(source.path)} has no package amplifier_module_{stem} with an __init__.py"
            yield error_at(source.place, "AMP108", message)
            continue
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))[:MAX_FILES]
        for file in files:
            message = "" if file in done else _find_syntax_error(file)
            done.add(file)
            if message:
                yield error_at(source.place, "AMP117", message)


def _find_syntax_error(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_BYTES:
            return ""
        with warnings.catch_warnings(action="ignore"):  # of the code's own: an invalid escape, `is` with a number
            ast.parse(file.read_bytes())
    except SyntaxError as error:
        return f"{show_file(file)}:{error.lineno or 1}:{error.offset or 1}: {error.msg}"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return f"{show_file(file)}: cannot be read ({getattr(error, 'strerror', None) or error})"
    return ""
