"""Find the possible names of files in a shell command, and tell those that it runs or obeys from the others."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = r"(?:ba|da|z|k|fi)?sh|python[\d.]*|node|deno|bun|ruby|perl|php|lua"
"""The interpreters, as a regular expression."""
_SOURCE = ("source", ".")
"""The shell itself as an interpreter: as the first word of a command alone."""
_OBEYED = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("package.json",)),
    "just": ("justfile", "Justfile", ".justfile"),
    "rake": ("Rakefile", "rakefile"),
    "tox": ("tox.ini", "pyproject.toml"),
}
"""What programs obey in their folder."""
_OF_FOLDER = {
    "python": ("__main__.py",),
    **dict.fromkeys(("node", "deno", "bun"), ("package.json", "index.js")),
}
"""What an interpreter runs or obeys of a folder that it is given; Node.js also what `package.json` names."""
_OTHER_FILE = r"-[fc]|--\w*file"
"""The options with the name of another file for them."""
_VALUE_FOLLOWS = (
    r"-[fcr]|--[\w-]*(?:file|config|require|import|rc)|run|tsx|ts-node|Rscript|julia|tclsh|ansible-playbook"
)
"""The options and programs with a word to obey behind them."""
_BETWEEN = r"""([\s;&|<>()"'`=]+)"""
BEFORE_COMMAND = frozenset(
    (
        "do",
        "then",
        "else",
        "elif",
        "if",
        "while",
        "until",
        "!",
        "{",
        "time",
        "exec",
        "command",
        "builtin",
        "env",
        "eval",
    )
)
"""The words before the first word of a command."""


class Word(NamedTuple):
    """A possible name of a file."""

    text: str
    is_run: bool
    """Whether the command runs or obeys it."""
    is_value: bool = False
    """Whether its program may obey it: the value of an assignment or an option, or what follows `run`."""


def find_words(command: str) -> Iterator[Word]:
    """Yield all possible names of files: each word, and the values of its options and assignments.

    The first word after an interpreter and its options is run.
    """
    try:
        words = shlex.split(command.replace("\\\n", "").replace("\n", "\n;\n"))  # for it, a line ends in a blank
    except ValueError:  # a quote has no end
        words = command.split()
    is_run = obeys = False
    is_first, before = True, ""
    inside: tuple[str, ...] = ()
    for word in words:
        pieces = re.split(_BETWEEN, word.replace("\\", ""))
        if any(pieces[::2]) and len(pieces) > 1:
            yield from _spell(word, is_run, is_value=False)
        is_assigned = is_first and re.match(r"\w+=", word) is not None
        is_first = is_first or re.search(r"\s", word) is not None  # a text, such as that of `sh -c`
        is_value = False
        for part, separator in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
            if part:
                name = part.rpartition("/")[2]
                is_run = is_run or (obeys and re.match(_OTHER_FILE, part) is not None)
                yield from _spell(part, is_run, is_value=is_value or re.fullmatch(_VALUE_FOLLOWS, before) is not None)
                yield from (Word(each, True) for each in _OBEYED.get(name, ()))
                if part.startswith("-m") or before == "-m":
                    yield from (Word(each, True) for each in _find_modules(part if before == "-m" else part[2:]))
                if re.fullmatch(PROGRAM, name) or (is_first and part in _SOURCE):
                    is_run, inside = True, _OF_FOLDER.get(name.rstrip(".0123456789"), ())
                elif not part.startswith("-"):
                    yield from (Word(f"{part}/{each}", True) for each in inside if is_run)
                    is_run = False
                obeys = obeys or name in _OBEYED
                before, is_first = part, part in BEFORE_COMMAND
            is_first = is_first or re.search(r"[;&|(`]", separator) is not None
            is_value = is_value or "=" in separator
        is_first = is_first or is_assigned


def _spell(word: str, is_run: bool, *, is_value: bool) -> Iterator[Word]:
    """Yield the names that a word may be for the program: whole, a value, or what follows `-f` or `@`."""
    follows = word[2:] if word[:1] == "-" else ""
    spelled = {
        word: is_value,
        word.partition("=")[2]: True,
        follows: is_value or re.match(_VALUE_FOLLOWS, word) is not None,
        word.removeprefix("@"): is_value or word.startswith("@"),
    }
    yield from (Word(text, is_run, is_obeyed) for text, is_obeyed in spelled.items() if text)


def _find_modules(name: str) -> Iterator[str]:
    """Yield the files of a Python module, and of the packages around it."""
    path = name.replace(".", "/").strip("/")
    if path:
        yield from (f"{path}.py", f"{path}/__main__.py")
    while path:
        yield f"{path}/__init__.py"
        path = path.rpartition("/")[0]
