"""Find the possible names of files in a shell command, and tell those that it runs or obeys from the others."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELL = r"(?:a|ba|da|z|k|mk|fi|c|tc)?sh"
LANGUAGE = (
    r"(?:python|pypy|ruby|perl|php|lua|luajit|node|nodejs)[\d.]*|deno|bun|java|tsx|ts-node|Rscript|julia|tclsh|expect"
)
PROGRAM = rf"{SHELL}|{LANGUAGE}"
"""The interpreters, as a regular expression."""
_PYTHON = r"(?:python|pypy)[\d.]*"
PYTHON_FLAGS = "-[bBdEhiIOPqRsSuvVx]*"
"""The options of Python without a value, as a regular expression."""
_MODULE = rf"{PYTHON_FLAGS}m"
"""The option of Python for a module, with others before it."""
_RUNS_FILE = "IPython|bdb|cProfile|coverage|debugpy|doctest|ipdb|pdb|profile|pyinstrument|runpy|scalene|trace|viztracer"
"""The Python modules with a file to run for an argument."""
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
    **dict.fromkeys(("python", "pypy"), ("__main__.py",)),
    **dict.fromkeys(("node", "nodejs", "deno", "bun"), ("package.json", "index.js")),
}
"""What an interpreter runs or obeys of a folder that it is given; Node.js also what `package.json` names."""
_OTHER_FILE = r"-[fc]|--\w*file"
"""The options with the name of another file for them."""
_VALUE_FOLLOWS = (
    r"-[fcr]|--[\w-]*(?:file|config|require|import|rc)|run|tsx|ts-node|Rscript|julia|tclsh|ansible-playbook"
)
"""The options and programs with a word to obey behind them."""
_END = r"""('[^']*'|"(?:[^"\\]|\\.)*"|\\.)|;|\n|(?<!>)\||(?<![<>])&(?!>)"""
"""A quoted text, or the end of a command."""
_ENDED = "\x01"
"""The word for the end of a command."""
_MOST_PARTS = 20
"""Of the name of a module."""
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
        "coproc",
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


class _Run:
    """The interpreter of a command, and whether it may run the next word.

    It runs the first word behind it. An option before may take that for its value, so all words behind options count;
    not so after `-m` with a module, or after the text of `sh -c`. A command ends at an unquoted `;`, `&`, `|` or line.
    """

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        """Forget the interpreter."""
        self.is_open = self.has_options = self._is_shell = self._has_modules = False
        self.inside: tuple[str, ...] = ()
        self.before = ""

    def add(self, part: str, module: str, *, is_source: bool) -> None:
        """Go on behind a word with its module; `is_source` for `source` as the first."""
        name = part.rpartition("/")[2]
        if re.fullmatch(PROGRAM, name) or is_source or part == "run":
            has_modules = part == "run" or re.fullmatch(_PYTHON, name) is not None
            if part != "run":
                self.inside = _OF_FOLDER.get(name.rstrip(".0123456789"), ())
            self.is_open, self.has_options, self._has_modules = True, False, has_modules
            self._is_shell = re.fullmatch(SHELL, name) is not None
        elif self._has_modules and module and not (part.startswith("-") and self.before.startswith("-")):
            self.is_open = self.has_options = re.fullmatch(_RUNS_FILE, module) is not None
            self._has_modules = False
        elif self._is_shell and re.fullmatch(r"-\w*c", part):
            self.has_options = self._is_shell = False
        elif part[:1] in ("-", "+"):
            self.has_options = self.has_options or self.is_open
        elif not self.has_options:
            self.is_open = False
        self.before = part


def find_words(command: str) -> Iterator[Word]:
    """Yield all possible names of files: each word, and the values of its options and assignments.

    The first word after an interpreter is run; after options of it, which may have values, all words are.
    """
    command = command.replace(_ENDED, " ").replace("\\\n", "")
    ended = re.sub(_END, lambda found: found[0] if found[1] else f"{found[0]} {_ENDED} ", command, flags=re.DOTALL)
    try:
        words = shlex.split(ended.replace("\n", "\n;\n"))  # for it, a line ends in a blank
    except ValueError:  # a quote has no end
        words = ended.split()
    run = _Run()
    obeys, is_first, redirects = False, True, ""
    for word in words:
        if word == _ENDED:
            run.end()
            continue
        pieces = re.split(_BETWEEN, word.replace("\\", ""))
        if any(pieces[::2]) and len(pieces) > 1:
            yield from _spell(word, run.is_open, is_value=False)
        is_assigned = is_first and re.match(r"\w+=", word) is not None
        is_first = is_first or re.search(r"\s", word) is not None  # a text, such as that of `sh -c`
        is_value = False
        for part, separator in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
            is_descriptor = separator[:1] in ("<", ">") and re.fullmatch(r"\d+|\{\w+\}", part)
            if part and not is_descriptor:
                name = part.rpartition("/")[2]
                has_other = obeys and re.match(_OTHER_FILE, part) is not None
                is_run = has_other or (run.is_open and redirects[:1] != ">")
                follows = re.fullmatch(_VALUE_FOLLOWS, run.before) is not None
                yield from _spell(part, is_run, is_value=is_value or follows)
                yield from (Word(each, True) for each in _OBEYED.get(name, ()))
                joined = re.match(rf"{_MODULE}(.*)", part, re.DOTALL)
                module = part if re.fullmatch(_MODULE, run.before) else joined[1] if joined else ""
                yield from (Word(each, True) for each in _find_modules(module))
                if not part.startswith("-"):
                    yield from (Word(f"{part}/{each}", True) for each in run.inside if is_run)
                if not redirects:
                    run.add(part, module, is_source=is_first and part in _SOURCE)
                    run.is_open = run.is_open or has_other
                    is_first = part in BEFORE_COMMAND or (is_first and part.startswith("-"))
                obeys = obeys or name in _OBEYED
                redirects = ""
            is_first = is_first or re.search(r"[;&|()`]", separator) is not None
            is_value = is_value or "=" in separator
            redirects = re.sub("[^<>]", "", separator) or redirects
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
    """Yield the files of a Python module, and of the packages around it; of one too deep, a pattern for all."""
    path = name.replace(".", "/").strip("/")
    if path.count("/") >= _MOST_PARTS:
        yield f"{path.partition('/')[0]}/**"
        return
    if path:
        yield from (f"{path}.py", f"{path}/__main__.py")
    while path:
        yield f"{path}/__init__.py"
        path = path.rpartition("/")[0]
