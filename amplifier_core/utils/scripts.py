"""Find the scripts that a shell command names: what it runs is more than its own text."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SUFFIXES = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua")
_INTERPRETER = r"(?:ba|da|z|k|fi)?sh|python[\d.]*|node|deno|bun|ruby|perl|php|lua|source|\."
_BETWEEN = r"""[\s;&|<>()"'`=]+"""
_VARIABLE = r"\$(?:\{(\w+)\}|(\w+))"


def find_scripts(command: str, folder: str, variables: Mapping[str, str]) -> Iterator[Path]:
    """Yield the existing scripts that a command names below `folder`, or below a folder in `variables`, each once.

    A script has the mode or the ending of one, begins with `#!`, or follows an interpreter. Modules of `python -m`, and
    what programs such as `make` obey, are not found.
    """
    roots = [Path(each).resolve() for each in (folder, *variables.values())]
    seen: set[Path] = set()
    for word, is_run in _find_words(command):
        named = re.sub(_VARIABLE, lambda found: variables.get(found[1] or found[2], found[0]), word)
        try:
            path = Path(folder, Path(named).expanduser()).resolve()
            is_new = path not in seen and any(path.is_relative_to(root) for root in roots)
            if is_new and path.is_file() and (is_run or _is_script(path)):
                seen.add(path)
                yield path
        except (OSError, ValueError, RuntimeError):  # no path, or one that leads nowhere
            continue


def _find_words(command: str) -> Iterator[tuple[str, bool]]:
    """Yield what may name a file, and whether it is the first word after an interpreter and its options."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote has no end
        words = command.split()
    is_run = False
    for word in words:
        for each in (word, *re.split(_BETWEEN, word)):
            yield each, is_run
            if re.fullmatch(_INTERPRETER, each.rpartition("/")[2]):
                is_run = True
            elif each and not each.startswith("-"):
                is_run = False


def _is_script(path: Path) -> bool:
    if path.suffix in _SUFFIXES or path.stat().st_mode & 0o111:
        return True
    with path.open("rb") as file:
        return file.read(2) == b"#!"
