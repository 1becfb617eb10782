"""Keep the filters and merge drivers of git away from what a session writes: they run outside of every sandbox.

Each must be one program outside of the repository with plain words, and no word may lead into it. It runs in `/`, so a
program such as `make` finds no file of the session to obey. The repository's own configuration may have come with the
repository: of it, the known filters run alone, and what the person has set for themselves, too.

A filter that breaks a rule is replaced by one that fails with the reason, as soon as a file needs it. An
optional one without its program is none, as for git.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.utils.command_words import BEFORE_COMMAND, PROGRAM
from amplifier_core.utils.secrets import redact_text

from ..documents.safe_text import one_line, shell_word
from ..paths import data_home

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_COMMANDS = r"filter\..*\.(clean|smudge|process)|merge\..*\.driver"
"""The settings with commands."""
_PYTHON_FILTER = "nbstripout"
_KNOWN = ("git-lfs", "git-crypt", _PYTHON_FILTER, "cat", "true")
"""Programs without options that run others, so that the configuration of a repository may name them."""
_LFS_PROGRAMS = r"(?i)lfs\.extension\.|customtransfer|standalonetransferagent"
"""Settings of programs for git-lfs, which looks for some of them in every name, and takes a line of a value for one."""
_PYTHON = r"python[\d.]*"
_RUNNER = rf"{PROGRAM}|g?make|p?npm|npx|yarn|just|rake"
"""Programs that run scripts, or what files of their folder say."""

_WORDS_OF_SHELL = {*BEFORE_COMMAND, "cd", "source"}
"""Words that the shell takes for no program: what follows may be one."""

_OWN_PROGRAM = "Put it in a program of your own in a folder of PATH, and set that: git config --global KEY PROGRAM"
_OWN_SETTING = "If you trust it, set it for yourself: git config --global KEY COMMAND"
_OWN_LFS = "Remove that, or if you trust it, set it for yourself: git config --global "


class Setting(NamedTuple):
    """A setting of git; `is_own` is False for one of the repository's own configuration."""

    key: str
    value: str
    is_own: bool


class _Refused(Exception):
    """A filter does not run, for this reason, with what to do about it."""

    def __init__(self, reason: str, remedy: str = _OWN_PROGRAM, *, is_missing: bool = False) -> None:
        super().__init__(reason)
        self.remedy, self.is_missing = remedy, is_missing


class Guard(NamedTuple):
    """Settings for git, with which no refused filter runs."""

    settings: dict[str, str]
    reasons: dict[str, str]
    """By the line that a refused filter says when a file needs it, why it does not run, with the remedy."""


def guard_filters(settings: Sequence[Setting], folders: Collection[str], search: str) -> Guard:
    """Return settings with which only filters run that can obey nothing in these folders.

    `search` is the PATH for programs.
    """
    found = {each.key: each.value for each in settings}
    own = {each.key: each.value for each in settings if each.is_own}
    roots = [os.path.realpath(each) for each in (*folders, str(data_home() / "worktrees"))]
    changed: dict[str, str] = {}
    refused: dict[str, str] = {}
    foreign = [each for each in settings if own.get(each.key) != each.value]
    for key, command in found.items():
        if not command or not re.fullmatch(_COMMANDS, key, re.DOTALL):
            continue
        name = key.rpartition(".")[0]
        try:
            program, words = _read_command(command, roots, search)
            if own.get(key) != command:
                _check_known(program, words, search)
            _check_lfs(program, words, foreign)
        except _Refused as error:
            is_optional = found.get(f"{name}.required", "false").lower() in ("false", "no", "off", "0")
            if error.is_missing and key.startswith("filter.") and is_optional:
                changed[key] = ""  # git takes the file as it is
                continue
            shown = one_line(command, 200)
            remedy = error.remedy.replace("KEY", shell_word(key)).replace("COMMAND", shell_word(shown))
            text = f"git's setting {key} is '{shown}': {error}, so it does not run on files of sessions. {remedy}"
            refused.setdefault(name, text)
        else:
            changed[key] = f"cd / && export GIT_WORK_TREE=/ && exec {shlex.join([program, *words])}"
    reasons: dict[str, str] = {}
    for name, text in refused.items():
        line = f"amplifier refuses filter {len(reasons)}"
        reasons[line] = text
        failing = f"echo '{line}' >&2; exit 1"
        if name.startswith("merge."):
            changed[f"{name}.driver"] = failing
            continue
        changed[f"{name}.required"] = "true"
        keys = ("clean", "smudge", *(("process",) if f"{name}.process" in found else ()))  # an empty one would win
        changed |= {f"{name}.{key}": failing for key in keys}
    return Guard(changed, reasons)


def _read_command(command: str, roots: Collection[str], search: str) -> tuple[str, list[str]]:
    """Return the path of a command's program, and its words. Raises `_Refused`."""
    bare = re.sub(r"""'[^']*'|"[^"$`\\!]*\"""", "", command)
    words = shlex.split(command) if re.fullmatch(r"[\w@%+=:,./^ \t-]*", bare) else []
    if not words or any("%" in word and shlex.quote(word) != word for word in words):
        raise _Refused("it is more than one program with plain words")
    first = words[0]
    program = shutil.which(first, path=search) if "/" not in first or first.startswith("/") else None
    if program is None or "%" in program:
        is_name = bool(re.fullmatch(r"/.*|[\w.+-]*\w[\w.+-]*", first)) and first not in _WORDS_OF_SHELL
        is_missing = program is None and is_name
        raise _Refused(f"there is no program '{first}' in a folder of PATH", is_missing=is_missing)
    if any(_is_inside(each, roots) for each in (program, os.path.realpath(program))):
        raise _Refused(f"the program {program} is in the repository")
    has_module = re.fullmatch(_PYTHON, Path(program).name) and words[1:2] == ["-m"] and len(words) > 2
    names = [Path(each).name for each in (words[1:] if has_module else [*words, os.path.realpath(program)])]
    runner = next((name for name in names if re.fullmatch(_RUNNER, name)), None)
    if runner is not None:
        raise _Refused(f"'{runner}' runs scripts")
    for word in words[1:]:
        for part in (word, word.partition("=")[2]):
            is_near = "/" in part and any(os.path.isfile(f"{root}/{part}") for root in roots)  # noqa: PTH113
            if is_near or _is_inside(os.path.realpath(f"/{part}"), roots) or any(f"{root}/" in word for root in roots):
                raise _Refused(f"'{word}' is in the repository")
    return program, words[1:]


def _is_inside(path: str, roots: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in roots)


def _check_known(program: str, words: list[str], search: str) -> None:
    """Raise `_Refused` for a filter of the repository's configuration, unless it is known and installed."""
    name = Path(program).name
    is_installed = shutil.which(name, path=search) == program
    if words[:2] == ["-m", _PYTHON_FILTER] and re.fullmatch(_PYTHON, name):
        # `nbstripout --install` sets the Python beside it; a folder with both, found nowhere else, may be anybody's
        name = _PYTHON_FILTER
        places, folder = (search, str(Path(sys.executable).parent)), Path(program).parent
        found = [Path(each) for place in places if (each := shutil.which(name, path=place))]
        beside = [each for path in found for each in (path.parent, path.resolve().parent)]
        # in PATH, pyenv, asdf and mise have scripts alone, in a folder beside those of the versions
        versions = [path.parent.resolve().parent for path in found if path.parent.name == "shims"]
        is_version = any(folder.resolve().is_relative_to(each) for each in versions)
        is_beside = folder in beside or (is_version and shutil.which(name, path=str(folder)) is not None)
        is_installed = is_installed or is_beside
    if (name not in _KNOWN and [name, *words[:1]] != ["git", "lfs"]) or not is_installed:
        raise _Refused("only the repository's own configuration has it", _OWN_SETTING)


def _check_lfs(program: str, words: list[str], foreign: Iterable[Setting]) -> None:
    """Raise `_Refused` for git-lfs when a setting of the repository's own configuration may name a program."""
    if Path(program).name == "git-lfs" or words[:1] == ["lfs"]:
        for each in foreign:
            if re.search(_LFS_PROGRAMS, f"{each.key}={each.value}"):
                key, value = one_line(each.key, 200), one_line(redact_text(each.value), 200)
                remedy = f"{_OWN_LFS}{shell_word(key)} {shell_word(value)}"
                raise _Refused(f"the repository's own configuration sets {key}", remedy)
