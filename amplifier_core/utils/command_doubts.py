"""Tell whether a shell command may name files by other means than its words: a variable, a pipe to a shell, code."""

from __future__ import annotations

import re

from .command_words import BEFORE_COMMAND, LANGUAGE, PROGRAM, PYTHON_FLAGS, SHELL

LONGEST_COMMAND = 16 * 1024
"""Characters of a command to look at."""
_FED = rf"\s*(?:[^\s/]*/)*(?:{PROGRAM})\b"
"""An interpreter at the end of a pipe."""
_TAKES_COMMAND = rf"{SHELL}|ssh|su|watch|script|entr|tmux|screen|hyperfine|npx|npm|env"
"""Programs with a quoted text for a command."""
_READERS = frozenset(
    ("[", "cat", "cut", "date", "diff", "du", "echo", "grep", "head", "ls", "mkdir", "printf", "pwd", "sleep", "sort",
     "stat", "tail", "test", "tr", "true", "uniq", "wc")
)  # fmt: skip
"""Programs without a file to run, for all their names."""
_NO_FILE = r"[&\d]?>>?\s*/dev/null\b|[<>]&\d?"
_VARIES = r"\$|\{[^{}\s]*(?:,|\.\.)|\S\[|\[\S"
_QUOTED = r"""\$['"]|'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)"""
_BLANK = "\x01"
"""What stands for a quoted blank."""
_PYTHON_TEXT = rf"{PYTHON_FLAGS}c.*"
_TEXT = r"-[^\W_]*[eEpr].*|--(?:eval|print|require|import)\b.*"
"""The options with code for a value, or a name of some."""
_WITH_VALUE = ("-W", "-X", "-I")


def may_name_others(command: str) -> bool:
    """Return whether a command may name other files the next time than its words do now, or is too long to tell."""
    if len(command) > LONGEST_COMMAND:
        return True
    bare = re.sub(r"""['"\\]""", "", command)
    if any(re.match(_FED, each) for each in re.split(r"\|&?", bare)[1:]):
        return True
    if "<<" in command or re.search(r"(?:^|\s)#", command):  # there, a quote may be an apostrophe
        return _is_doubtful(bare)
    plain = re.sub(_QUOTED, _unquote, command, flags=re.DOTALL)
    if re.search(r"""['"]""", plain):  # a quote has no end
        return _is_doubtful(bare)
    takes_command = any(re.fullmatch(_TAKES_COMMAND, _name(word)) for word in re.split(r"[\s;&|()<>]+", plain))
    return _is_doubtful(plain) or (takes_command and _is_doubtful(bare))


def _unquote(found: re.Match[str]) -> str:
    """Return a quoted text with `_` for all but the signs of the shell there; `$'` and `$"` stay a doubt."""
    single, double, escaped = found.groups()
    if double is not None:
        kept = re.sub(r"\\.", "_", double, flags=re.DOTALL).replace("$(", "`")
        return re.sub(r"[{}\[\]<>()|;&*?#]", "_", re.sub(r"\s", _BLANK, kept))
    text = single if single is not None else escaped
    return "`" if text is None else re.sub(r"[$`{}\[\]<>()|;&*?#'\"]", "_", re.sub(r"\s", _BLANK, text))


def _is_doubtful(text: str) -> bool:
    """Return whether one of the commands in a text without quotes names files by other means than its words."""
    if re.search(r"\$\(|`|[<>]\(", text):
        return True
    text = re.sub(_NO_FILE, " ", text)
    reads_only = ">" not in text
    commands = [words for each in re.split(r"[;&|\n()]+", text) if (words := each.split())]
    return any(_command_is_doubtful(words, len(commands) == 1, reads_only) for words in commands)


def _command_is_doubtful(words: list[str], is_alone: bool, reads_only: bool) -> bool:
    names = [_name(word) for word in words]
    first = next((n for n, word in enumerate(words) if word not in BEFORE_COMMAND and not re.match(r"\w+=", word)), 0)
    if not {"xargs", "parallel", "eval"}.isdisjoint(names):
        return True
    if not {"find", "fd", "fdfind"}.isdisjoint(names):
        return any(re.fullmatch(r"-(?:-?exec\S*|ok\w*|\w*[xX])", word) for word in words)
    if not is_alone and not {"curl", "wget"}.isdisjoint(names):
        return True
    if any(_BLANK in word and re.search(r"[*?]", word) for word in words):
        return True
    if re.search(_VARIES, " ".join(words)) and not (reads_only and words[first] in _READERS):
        return True
    return _evaluates(words)


def _evaluates(words: list[str]) -> bool:
    """Return whether the options of an interpreter have code."""
    texts: set[str] = set()  # of the interpreters whose options go on
    before = ""
    for word in words:
        if not word.startswith("-"):
            if before not in _WITH_VALUE:
                texts.clear()
            if re.fullmatch(LANGUAGE, _name(word)):
                texts.add(_PYTHON_TEXT if _name(word).startswith(("python", "pypy")) else _TEXT)
        elif any(re.fullmatch(text, word) for text in texts):
            return True
        elif re.fullmatch(r"-[a-zA-Z]*m.*", word) and not word.startswith(_WITH_VALUE):
            texts.discard(_PYTHON_TEXT)
        before = word
    return False


def _name(word: str) -> str:
    return word.rpartition("/")[2]
