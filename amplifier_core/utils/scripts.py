"""Find the files of a shell command, run or read by it: it is more than its own text.

Each word of the command counts that names a file, in the working folder or in a folder that another word names; so do
the files that fit its patterns, the modules of `-m`, and the files that programs such as `make` obey.
"""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .command_doubts import may_name_others
from .command_words import PROGRAM, find_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LARGEST_SCRIPT = 16 * 1024 * 1024
"""Bytes of a file whose content counts; of a larger one, its size and time do."""
MOST_SCRIPTS = 200
MOST_PATTERNS = 20
"""Patterns of a call, each in each of its folders, to compare with the names of files."""
MOST_BYTES = 64 * 1024 * 1024
"""Bytes of all files of a call whose content counts."""
_MOST_WORDS = 2_000
_MOST_FOLDERS = 8
_LONGEST_NAME = 255
_SUFFIXES = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".mk")
_VARIABLE = r"\$(?:\{(\w+)\}|(\w+))"
_VALUE = r"""["']?[\w./-]*(?:\$[\w{]|\{\})"""
_RUNS_VALUES = (  # `sh $f`, `| sh`, `-exec sh {}`; `. sub/$f`, and a variable in the place of a command
    rf"""(?:^|[ ;&|(`'"/])(?:(?:{PROGRAM})(?: -[\w-]+)* {_VALUE}|(?:{PROGRAM})(?: -[\w-]*)* ?(?:$|[;&|)]))"""
    rf"""|(?:^|[;&|(`'"] ?|(?:\b(?:do|then|else|exec|eval|command|time|env)|-exec) )(?:(?:source|\.) )?{_VALUE}"""
)
"""A command in one line with an interpreter for the files of its other words, or patterns."""


class Scripts(NamedTuple):
    """The files of a command."""

    digests: dict[str, str]
    """By name, the SHA-256 in hex."""
    is_known: bool
    """Whether the command can name no others."""


def digest_scripts(
    commands: Iterable[str], folder: str, values: Iterable[str] = (), *, only_run: bool = False
) -> Scripts:
    """Return the files that commands name, in a folder or in one that a word or another of the `values` names.

    With `only_run`, those count that the commands run or obey, and programs; none for commands that can name others.
    """
    commands = list(commands)
    text, is_known = "\n".join(commands), not any(map(may_name_others, commands))
    if only_run and not is_known:
        return Scripts({}, False)
    counts_all = not only_run or _runs_values(text) or re.search(r"/dev/(?:fd|stdin)|/proc/", text) is not None
    words: dict[str, bool] = {}
    for word in find_words(text):
        words[word.text] = words.get(word.text, counts_all) or word.is_run or word.is_value
    above = _find_folders(folder, (*values, *islice(words, _MOST_WORDS))) if text else [""]
    reading = _Reading()
    for inside in above[:_MOST_FOLDERS]:
        for name, counts in islice(words.items(), _MOST_WORDS):
            reading.read(name, folder, inside, counts=counts)
    is_small = len(words) <= _MOST_WORDS and len(above) <= _MOST_FOLDERS and not reading.is_cut
    return Scripts(reading.found, is_known and is_small and all(map(_is_expandable, words)))


def find_changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the files with two digests, or with one on one side alone."""
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


class _Reading:
    """Takes the digests of files, up to a number of patterns, files and bytes."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.is_cut = False
        self._patterns, self._left = MOST_PATTERNS, MOST_BYTES

    def read(self, word: str, folder: str, inside: str, *, counts: bool) -> None:
        """Add the files of a word in the folder `inside` another; only programs unless it `counts`."""
        if _is_pattern(word):
            self._patterns -= 1
            if self._patterns < 0:
                self.is_cut = True
                return
        for name in _expand(word, _join(folder, inside)):
            if len(self.found) >= MOST_SCRIPTS:
                break
            if (digest := self.digest(_join(folder, inside), name, counts=counts)) is not None:
                self.found[f"{inside.rstrip('/')}/{name}" if inside else name] = digest
        self.is_cut = self.is_cut or len(self.found) >= MOST_SCRIPTS

    def digest(self, folder: Path, name: str, *, counts: bool) -> str | None:
        """Return the digest of a file; None for what is none, or does not count."""
        try:
            path = _join(folder, name)
            if not path.is_file() or not (counts or path.stat().st_mode & 0o111):
                return None
            size, changed = path.stat().st_size, path.stat().st_mtime_ns
            if size <= LARGEST_SCRIPT and size <= self._left:
                self._left -= size
                return sha256(path.read_bytes()).hexdigest()
            self.is_cut = self.is_cut or size <= LARGEST_SCRIPT
            return f"{size} {changed}"
        except (OSError, ValueError, RuntimeError):
            return None


def find_scripts(command: str, folder: str, variables: Mapping[str, str]) -> Iterator[Path]:
    """Yield the scripts that a command names below `folder`, or below a folder in `variables`, each once.

    A script has the mode or the ending of one, begins with `#!`, or is what the command runs or obeys. What fits a
    pattern counts where the command runs it: the files that a program such as a formatter looks at are no scripts.
    """
    command = re.sub(_VARIABLE, lambda found: variables.get(found[1] or found[2], found[0]), command)
    roots = [Path(each).resolve() for each in (folder, *variables.values())]
    words = dict.fromkeys((word.text, word.is_run) for word in islice(find_words(command), _MOST_WORDS))
    runs_values = _runs_values(command)
    seen: set[Path] = set()
    for inside in _find_folders(folder, (word for word, _ in words))[:_MOST_FOLDERS]:
        for word, is_run in words:
            is_obeyed = is_run or runs_values
            for path in _find_paths(word, _join(folder, inside), variables.values(), with_patterns=is_obeyed):
                try:
                    is_new = path not in seen and any(path.is_relative_to(root) for root in roots)
                    if is_new and path.is_file() and (is_obeyed or _is_script(path)):
                        seen.add(path)
                        yield path
                except OSError:
                    continue


def _runs_values(command: str) -> bool:
    """Return whether a command has an interpreter for the files of its other words, or patterns."""
    line = re.sub(r"\s+", lambda found: ";" if "\n" in found[0] else " ", command)
    return re.search(_RUNS_VALUES, line) is not None


def _find_paths(word: str, folder: Path, roots: Iterable[str], *, with_patterns: bool) -> list[Path]:
    """Return the paths that a word, or with patterns one that begins with a root, may name in a folder."""
    root = next((each for each in roots if word.startswith(f"{each}/")), None)
    if root is not None:
        word, folder = word[len(root) + 1 :], Path(root)
    if _is_pattern(word) and not with_patterns:
        return []
    try:
        return [_join(folder, name).resolve() for name in _expand(word, folder)]
    except (OSError, ValueError, RuntimeError):  # no path, or one that leads nowhere
        return []


def _join(folder: Path | str, name: str) -> Path:
    return Path(folder, Path(name).expanduser())


def _is_pattern(word: str) -> bool:
    """Return whether a word is a pattern; with a blank, it is a text, such as the message of a commit."""
    return re.search(r"[*?]", word) is not None and re.search(r"\s", word) is None


def _is_expandable(word: str) -> bool:
    """Return whether a word is no pattern, or one for a quick comparison with few possible names."""
    if not _is_pattern(word):
        return True
    is_quick = word[:1] not in ("/", "~") and ".." not in word and "**" not in word
    is_name = len(max(word.split("/"), key=len)) <= _LONGEST_NAME and "\0" not in word
    return is_quick and is_name and len(re.findall(r"[*?]", word)) < 4


def _expand(word: str, folder: Path) -> list[str]:
    if not _is_pattern(word):
        return [word]
    if not _is_expandable(word):
        return []
    try:
        return [str(path.relative_to(folder)) for path in islice(folder.glob(word), MOST_SCRIPTS)]
    except (OSError, ValueError, RuntimeError, NotImplementedError):  # what no folder can have
        return []


def _find_folders(folder: str, words: Iterable[str]) -> list[str]:
    """Return the folder itself, "", and those named by words."""
    found = [""]
    for word in dict.fromkeys(words):
        with suppress(OSError, ValueError, RuntimeError):  # no path, or one that leads nowhere
            if word and _join(folder, word).is_dir():
                found.append(word)
    return found


def _is_script(path: Path) -> bool:
    if path.suffix in _SUFFIXES or path.stat().st_mode & 0o111:
        return True
    with path.open("rb") as file:
        return file.read(2) == b"#!"
