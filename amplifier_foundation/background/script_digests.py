"""Take the digests of the files that a command runs or reads: a person approves what they hold now.

Each word of the command counts that names a file, in the working folder or in a folder that another word names; so do
the files that fit its patterns, the modules of `-m`, and the files that programs such as `make` obey.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LARGEST_SCRIPT = 16 * 1024 * 1024
"""Bytes of a file whose content counts; of a larger one, its size and time do."""
MOST_SCRIPTS = 200
_MOST_WORDS = 2_000
_MOST_FOLDERS = 8
_OBEYED = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("package.json",)),
    "just": ("justfile", "Justfile", ".justfile"),
    "rake": ("Rakefile", "rakefile"),
    "tox": ("tox.ini", "pyproject.toml"),
}
"""What programs obey in their folder."""
_UNKNOWN = re.compile(
    r"[$`{]|[<>]\(|\S\[|\[\S|\b(?:xargs|parallel|eval|find|fd|curl|wget)\b"
    r"|\|&?\s*(?:\S*/)?(?:(?:ba|da|z|k)?sh|python[0-9.]*|perl|ruby|node|php)\b"
    r"|\b(?:python[0-9.]*|perl|ruby|node|php)\s[^;&|]*-\w*[ceEpr]\b"
)
"""What names files by other means than the words of a command."""
_SEPARATORS = re.compile(r"[\s;&|<>()]+")


class Scripts(NamedTuple):
    """The files of a command."""

    digests: dict[str, str]
    """By name, the SHA-256 in hex."""
    is_known: bool
    """Whether the command can name no others."""


def digest_scripts(commands: Iterable[str], folder: str, values: Iterable[str] = ()) -> Scripts:
    """Return the files that commands name, in a folder or in one that a word or another of the `values` names."""
    text = "\n".join(commands)
    words = list(dict.fromkeys(_find_words(text)))
    above = ["", *dict.fromkeys(each for each in (*values, *words[:_MOST_WORDS]) if text and _is_folder(folder, each))]
    found: dict[str, str] = {}
    for inside in above[:_MOST_FOLDERS]:
        for word in words[:_MOST_WORDS]:
            for name in _expand(word, Path(folder, inside)):
                if len(found) < MOST_SCRIPTS and (digest := _digest(Path(folder, inside), name)) is not None:
                    found[f"{inside.rstrip('/')}/{name}" if inside else name] = digest
    is_small = len(words) <= _MOST_WORDS and len(above) <= _MOST_FOLDERS and len(found) < MOST_SCRIPTS
    return Scripts(found, is_small and not _UNKNOWN.search(text) and all(map(_is_expandable, words)))


def _find_words(text: str) -> Iterator[str]:
    """Yield what may name a file: each word, and the values of its options and assignments."""
    with suppress(ValueError):  # a quote has no end
        yield from shlex.split(text)
    words = _SEPARATORS.split(re.sub(r"['\"\\]", "", text))
    for word, following in zip(words, [*words[1:], ""], strict=True):
        yield word
        yield from (word.partition("=")[2], word[2:] if word[:1] == "-" else "", word.removeprefix("@"))
        yield from _OBEYED.get(word.rpartition("/")[2], ())
        if word.startswith("-m"):
            yield from _find_modules(word[2:] or following)


def _find_modules(name: str) -> Iterator[str]:
    """Yield the files of a Python module, and of the packages around it."""
    path = name.replace(".", "/")
    yield from (f"{path}.py", f"{path}/__main__.py")
    while path:
        yield f"{path}/__init__.py"
        path = path.rpartition("/")[0]


def _is_expandable(word: str) -> bool:
    """Return whether a word is no pattern, or one that is quickly compared with few names."""
    is_quick = word[:1] not in ("/", "~") and ".." not in word and "**" not in word
    return not re.search(r"[*?]", word) or (is_quick and len(re.findall(r"[*?]", word)) < 4)


def _expand(word: str, folder: Path) -> list[str]:
    if not re.search(r"[*?]", word):
        return [word] if word else []
    if not _is_expandable(word):
        return []
    return [str(path.relative_to(folder)) for path in islice(folder.glob(word), MOST_SCRIPTS)]


def _is_folder(folder: str, word: str) -> bool:
    try:
        return bool(word) and Path(folder, Path(word).expanduser()).is_dir()
    except (OSError, ValueError, RuntimeError):
        return False


def _digest(folder: Path, name: str) -> str | None:
    """Return the digest of a file; None for what is none."""
    try:
        path = folder / Path(name).expanduser()
        if not path.is_file():
            return None
        size, changed = path.stat().st_size, path.stat().st_mtime_ns
        return f"{size} {changed}" if size > LARGEST_SCRIPT else sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError, RuntimeError):
        return None
