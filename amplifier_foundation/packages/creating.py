"""Create the package of a plugin from a template: a package named `example`, with tests, of each kind."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.entry_points import find_entry_points
from amplifier_core.errors import AmplifierError

if TYPE_CHECKING:
    from collections.abc import Collection
    from importlib.resources.abc import Traversable

KINDS = {
    "trigger": "amplifier",
    "provider": "amplifier.modules",
    "tool": "amplifier.modules",
    "storage": "amplifier",
    "runner": "amplifier",
    "hooks": "amplifier.modules",
    "bundle": "amplifier",
    "command": "amplifier.commands",
}
"""The group of the entry point, by kind."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 30


class PackageNameError(AmplifierError, ValueError):
    """A name cannot be that of a new package, or is taken."""


class FolderExists(AmplifierError, FileExistsError):
    """The folder of a new package exists."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} exists and stays as it is. Choose another name, or another folder with --to")


def create_package(kind: str, name: str, folder: Path | None, commands: Collection[str] = ()) -> Path:
    """Write the package of a new plugin, and return its folder; by default `amplifier-KIND-NAME` in the current one.

    `commands` are the names of commands that no package may take. Raises `PackageNameError`, `FolderExists`,
    `KeyError` for an unknown kind, and `OSError`.
    """
    name = check_name(kind, name, commands)
    folder = Path(f"amplifier-{kind}-{name}") if folder is None else folder
    if folder.exists() or folder.is_symlink():
        raise FolderExists(folder)
    templates = files("amplifier_foundation.packages").joinpath("templates")
    for template in ("common", kind):
        _copy(templates.joinpath(template), folder, kind, name)
    return folder


def check_name(kind: str, name: str, commands: Collection[str] = ()) -> str:
    """Return a name without the prefixes of its kind. Raises `PackageNameError` for a bad name, or a taken one."""
    short = name.removeprefix("amplifier-").removeprefix(f"{kind}-")
    if not _NAME.fullmatch(short) or len(short) > _LONGEST:
        words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", short).lower())
        better = "-".join(words)[:_LONGEST].strip("-").lstrip("-0123456789")
        remedy = f"Try: {better}" if _NAME.fullmatch(better) else "Try: git-commit"
        rule = f"a name is 1 to {_LONGEST} small letters, digits and single '-', and begins with a letter"
        raise PackageNameError(f"'{short}' is no name of a package: {rule}. {remedy}")
    group, entry = KINDS[kind], short if kind == "command" else f"{kind}-{short}"
    owner = next((str(each.dist) for each in find_entry_points(group, entry)), "")
    if kind == "command" and short in commands:
        owner = "amplifier itself"
    if owner:
        raise PackageNameError(f"{kind} '{entry}' is offered by {owner}. Choose another name, such as my-{short}")
    return short


def _copy(source: Traversable, target: Path, kind: str, name: str) -> None:
    """Copy a file or a folder of a template, with its name in place of `example`."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for each in source.iterdir():
            if not each.name.endswith(("_cache", "__pycache__")):
                _copy(each, target / fill(each.name, kind, name), kind, name)
    else:
        target.write_text(fill(source.read_text(encoding="utf-8"), kind, name), encoding="utf-8")


def fill(text: str, kind: str, name: str) -> str:
    """Return the text of a template for a package: `example`, `_example` and `Example…` become its name."""
    camel = "".join(part.capitalize() for part in name.split("-"))
    text = text.replace("amplifier-kind-", f"amplifier-{kind}-").replace("_example", f"_{name.replace('-', '_')}")
    return re.sub(r"\bexample\b", name, re.sub(r"\bExample(?=[A-Z])", camel, text))
