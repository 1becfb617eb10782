"""Describe a shell command by what it reaches: each simple command with decoded words, the paths, and the hosts.

A command that only reads, by a positive list, is harmless inside a sandbox. A wrapper such as `timeout` is peeled when
its arguments are known. For what cannot be decoded, the fragments that look like commands count for refusals alone.
"""

from __future__ import annotations

import os
import re
import shlex
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.permissions import Access
from amplifier_core.permissions.hidden import BRAILLE, JOINERS, UNSEEN, VARIATIONS
from amplifier_sandbox.contracts import find_home
from amplifier_sandbox.repositories import runs_programs_to_read

from .files import Closed, TooManyFiles, expand
from .fragments import guess_words, split_fragments
from .parsing import DOCUMENTS, Redirection, TooManyCommands, parse
from .reading import find_read_paths, shows_files, walks
from .words import Opaque, Unfinished, Word
from .wrappers import find_feeds, find_inner_commands, runs_another, runs_arguments, runs_input, unwrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.permissions.calls import Form

    from .parsing import SimpleCommand
    from .wrappers import Wrapped

LONGEST_COMMAND = 65_536
"""Characters of a command."""
LONGEST_DECODED = 16_384
"""Characters of a command that may need no question."""
_DEEPEST = 5
"""Shells within shells."""
_MOST_WRAPPERS = 20
"""Programs that run one another."""
_MOST_READINGS = 200
"""Readings of all commands, also those that only a refusal looks at."""

_UNPRINTED = f"\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{UNSEEN}{JOINERS}"
_BASE = f"[^\x00-\x7f\\s{_UNPRINTED}{VARIATIONS}]"
"""A letter or a sign outside of ASCII."""
_FORBIDDEN = re.compile(
    f"[{_UNPRINTED}{VARIATIONS}](?<!{_BASE}[{VARIATIONS}])(?<![\ufe0e\ufe0f](?=\u20e3))"
    f"(?<![^\x00-\x7f\\s{_UNPRINTED}][{JOINERS}](?={_BASE})){BRAILLE}"
)
"""Control and invisible characters, but for those that languages need.

They choose the form of a letter or a sign, make an emoji of the digit of a keycap, join letters or signs, or part the
words of Braille.
"""
_HARMLESS_VARIABLES = re.compile(
    r"NO_COLOR|CLICOLOR|FORCE_COLOR|COLUMNS|LINES|CI|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
)
_HARMLESS_VALUE = re.compile(r"[\w.@-]*", re.ASCII)
_HARMLESS_LOCALE = re.compile(r"(?:LANG|LC_[A-Z]+)=(?:C|POSIX|\w+\.[Uu][Tt][Ff]-?8)?", re.ASCII)
"""In other encodings a part of a character may be a sign that shells obey."""
_REFUSED_VARIABLES = re.compile(
    r"(?:LD|DYLD)_\w+|BASH_ENV|ENV|BASH_FUNC_.*|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|GCONV_PATH"
)
_CHANGE_SHELL = """
. source eval exec trap alias unalias hash declare typeset local export readonly read mapfile readarray unset set shopt
enable bind complete compgen compopt builtin let wait pushd popd dirs history fc logout cd umask ulimit
"""
_CHANGES_SHELL = frozenset(_CHANGE_SHELL.split())
_NO_FILE = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"))
_SHELL_HOST = re.compile(r"/dev/(?:tcp|udp)/([^/]*)")
_GIT_VALUES = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"))


def describe_command(
    text: str, folder: str, where: str = ".", *, is_confined: bool, closed: Sequence[str] = ()
) -> list[Access]:
    """Return what a command reaches; `where` is its folder, relative to the session's working folder or absolute.

    Without a sandbox (`is_confined`), no command is harmless. `closed` are the patterns of paths that rules refuse or
    ask for: a command is asked for that may read them below a folder, or in the history of a repository.
    """
    if problem := _why_refused(text):
        return [Access("command", _shorten(text), problem, "opaque")]
    if len(text) > LONGEST_DECODED:
        return [Access("command", text, "", "opaque"), *_guess_accesses(text, folder)]
    decoder = _Decoder(folder, where, is_confined=is_confined, closed=closed)
    try:
        decoder.add_all(parse(text))
    except (Unfinished, TooManyCommands) as error:
        return [Access("command", _shorten(text), f"no shell can read it: {error}", "opaque")]
    except (Opaque, _TooMuch):
        return [Access("command", text, "", "opaque"), *_guess_accesses(text, folder)]
    if decoder.acts:
        decoder.accesses += decoder.doubted
    if decoder.is_opaque:
        decoder.accesses.insert(0, Access("command", text, "", "opaque"))
    return list(dict.fromkeys(decoder.accesses))


class _TooMuch(Exception):
    """A command has more wrappers than are looked at."""


def _why_refused(text: str) -> str:
    if len(text) > LONGEST_COMMAND:
        return f"it has more than {LONGEST_COMMAND} characters; write a file, and run that"
    found = _FORBIDDEN.search(text)
    return f"it has the invisible or control character U+{ord(found[0]):04X}" if found else ""


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:197]}..."


def _guess_accesses(text: str, folder: str) -> Iterable[Access]:
    """Return what the fragments of an undecoded text may reach; only a refusal looks at them."""
    decoder = _Decoder(folder, ".", is_confined=True, only_refuses=True)
    for fragment in split_fragments(text):
        try:
            decoder.add_all(parse(fragment))
        except (Unfinished, TooManyCommands, Opaque, _TooMuch):
            decoder.add_guess(guess_words(fragment))
    return dict.fromkeys(decoder.accesses)


def _describe_words(words: Sequence[Word], form: Form) -> Access:
    text = shlex.join(word.text for word in words)
    hides = form == "decoded" and _FORBIDDEN.search(text) is not None
    return Access("command", text, "", "opaque" if hides else form)


def _changes_folder(command: SimpleCommand, following: SimpleCommand | None) -> bool:
    """Return whether a command is a plain `cd folder`, no part of a pipe, and what follows runs only if it works."""
    words = command.words
    if len(words) != 2 or words[0].text != "cd" or command.assignments or command.redirections:
        return False
    is_known = bool(words[1].text) and not words[1].text.startswith("-") and words[1].glob is None
    return is_known and command.joined_by not in ("|", "||") and (following is None or following.joined_by != "|")


class _Decoder:
    """Collects the accesses of simple commands, in their order.

    `is_opaque` afterwards means that the call must be asked for as a whole, whatever the rules allow.
    """

    def __init__(
        self, folder: str, where: str, *, is_confined: bool, only_refuses: bool = False, closed: Sequence[str] = ()
    ) -> None:
        self.accesses: list[Access] = []
        self.doubted: list[Access] = []
        """Commands that need a question if the call acts: an earlier one may change what they read, or run."""
        self.is_opaque = False
        self._folder = folder
        self._where: str | None = where
        self._changed_folder = False
        self._is_confined = is_confined
        self._only_refuses = only_refuses
        self._closed = Closed(closed)
        self._gets_input = False
        """Whether the commands of a shell's script get its input."""
        self._depth = 0
        self._wrappers = 0
        self._readings = 0

    @property
    def acts(self) -> bool:
        """Whether the call may do more than read."""
        return any(each.kind == "write" or each.form in ("decoded", "opaque") for each in self.accesses)

    def add_all(self, commands: Iterable[SimpleCommand]) -> None:
        """Add simple commands. Raises `Opaque` for a text within them that is not decoded."""
        every = list(commands)
        for command, following in zip_longest(every, every[1:]):
            if self._changed_folder and command.joined_by not in ("&&", "|"):
                self._where = None  # the change of the folder may have failed
            if _changes_folder(command, following):
                self._change_folder(command.words[1])
            else:
                self._add(command)

    def _add(self, command: SimpleCommand) -> None:
        for redirection in command.redirections:
            self._add_redirection(redirection)
        knows_all = self._allows_variables(command.assignments)
        if command.words:
            fed = [*command.redirections, *([Redirection("|", "")] if command.joined_by == "|" else [])]
            self.add_words(command.words, fed, is_vague=not knows_all)
        elif not knows_all:
            self.is_opaque = True

    def add_guess(self, words: Sequence[Word]) -> None:
        """Add what an undecoded command may run: itself, and the rest of the words of a wrapper."""
        starts = range(min(len(words), 16)) if words and runs_another(words[0]) else range(min(len(words), 1))
        for start in starts:
            if not words[start].text.startswith("-"):
                self._append_command(words[start:], "harmless")

    def _allows_variables(self, assignments: Iterable[tuple[str, str]]) -> bool:
        """Return whether all are known to be harmless; those that change every program are refused."""
        found = [self._allows_variable(name, value) for name, value in assignments]
        return all(found)

    def _allows_variable(self, name: str, value: str) -> bool:
        if _REFUSED_VARIABLES.fullmatch(name):
            self.accesses.append(Access("command", f"{name}=...", "it changes what every program does", "opaque"))
        if _HARMLESS_LOCALE.fullmatch(f"{name}={value}"):
            return True
        return bool(_HARMLESS_VARIABLES.fullmatch(name) and _HARMLESS_VALUE.fullmatch(value))

    def add_words(
        self, words: Sequence[Word], redirections: Sequence[Redirection] = (), *, is_vague: bool = False
    ) -> None:
        """Add a command by its words; a vague one gets more words, or an environment, that nobody knows."""
        self._readings += 1
        if self._wrappers == _MOST_WRAPPERS or self._readings > _MOST_READINGS:
            raise _TooMuch("programs that run one another")
        self._wrappers += 1
        try:
            self._add_words(words, redirections, is_vague=is_vague)
        finally:
            self._wrappers -= 1

    def _add_words(self, words: Sequence[Word], redirections: Sequence[Redirection], *, is_vague: bool) -> None:
        name = words[0].text.rpartition("/")[2]
        if words[0].text in (f"/bin/{name}", f"/usr/bin/{name}"):
            words = [Word(name), *words[1:]]
        elif name and name != words[0].text:
            self._add_for_refusals([Word(name), *words[1:]])
        wrapped = unwrap(words, redirections)
        if wrapped is not None:
            self._add_wrapped(words, wrapped, redirections, is_vague=is_vague)
            return
        is_fed = runs_input(words, redirections, gets_input=self._gets_input)
        is_vague = is_vague or (is_fed and find_read_paths(words) is None)
        for inner in find_inner_commands(words):
            self._add_for_refusals(inner)
        self._add_command(words, is_vague=is_vague or words[0].text in _CHANGES_SHELL or runs_arguments(words))
        self._add_git(words)
        self._add_removal(words)

    def _add_wrapped(
        self, words: Sequence[Word], wrapped: Wrapped, redirections: Sequence[Redirection], *, is_vague: bool
    ) -> None:
        self._append_command(words, "harmless")
        is_vague = not self._allows_variables(wrapped.assignments) or is_vague or wrapped.is_vague
        if wrapped.script is not None:
            is_fed = bool(find_feeds(redirections))
            self._add_script(wrapped.script, is_bash=wrapped.is_bash, is_vague=is_vague, is_fed=is_fed)
        elif wrapped.words:
            self.add_words(wrapped.words, redirections, is_vague=is_vague)

    def _add_script(self, script: str, *, is_bash: bool, is_vague: bool, is_fed: bool) -> None:
        if self._depth == _DEEPEST:
            raise Opaque("shells within shells")
        outside = self._where, self._changed_folder, self._gets_input
        self._depth += 1
        self._changed_folder, self._gets_input = False, is_fed or self._gets_input
        self.add_all(parse(script, is_bash=is_bash))
        self._depth -= 1
        self.is_opaque = self.is_opaque or is_vague
        self._where, self._changed_folder, self._gets_input = outside

    def _add_command(self, words: Sequence[Word], *, is_vague: bool) -> None:
        paths = find_read_paths(words)
        for path in paths or ():
            self._add_path("read", path)
        if self._only_refuses or (paths is not None and not is_vague and self._is_harmless(words, paths)):
            self._append_command(words, "harmless")
            return
        is_vague = is_vague or any(word.glob is not None for word in words)
        self._append_command(words, "opaque" if is_vague else "decoded")
        if is_vague:
            self._append_command(words, "harmless")

    def _is_harmless(self, words: Sequence[Word], paths: Sequence[str]) -> bool:
        """Return whether a command that only reads needs no question."""
        if not self._is_confined:
            return False
        is_git, has_pattern = words[0].text == "git", any(word.glob is not None for word in words)
        if (is_git or has_pattern) and self._where is None:
            return False
        where = str(Path(self._folder, self._where or "."))
        if has_pattern and not self._add_matches(words, where):
            return False
        if is_git or has_pattern:
            self.doubted.append(_describe_words(words, "opaque" if has_pattern else "decoded"))
        if self._closed and self._may_read_closed(words, paths, where):
            self.is_opaque = True
        return not is_git or not runs_programs_to_read(self._folder, where)

    def _add_matches(self, words: Sequence[Word], where: str) -> bool:
        """Add the files that fit patterns; return whether all are known, and none may be taken for an option."""
        try:
            found = [(word, expand(word.pattern, where)) for word in words if word.glob is not None]
        except TooManyFiles:
            return False
        for path in (path for _, paths in found for path in paths):
            self._add_path("read", path)
        return not any(word.glob == 0 and path.startswith("-") for word, paths in found for path in paths)

    def _may_read_closed(self, words: Sequence[Word], paths: Sequence[str], where: str) -> bool:
        if words[0].text == "git":
            return shows_files(words) and any(not each.startswith(("/", "~")) for each in self._closed.patterns)
        roots = [str(Path(where, path)) for path in paths or ["."]]
        return walks(words) and any(self._closed.fits_below(root, self._folder) for root in roots)

    def _append_command(self, words: Sequence[Word], form: Form) -> None:
        self.accesses.append(_describe_words(words, form))

    def _add_for_refusals(self, words: Sequence[Word]) -> None:
        """Add a second reading of a command: a rule that refuses it counts, and no question comes from it."""
        previous, self._only_refuses = self._only_refuses, True
        try:
            self.add_words(words)
        except (Opaque, Unfinished, TooManyCommands):
            self.add_guess(words)
        finally:
            self._only_refuses = previous

    def _change_folder(self, folder: Word) -> None:
        self._add_path("read", folder.text)
        self._append_command((Word("cd"), folder), "harmless" if self._is_confined or self._only_refuses else "decoded")
        self._changed_folder = True
        if self._where is not None:
            self._where = str(Path(self._where, folder.text))

    def _add_path(self, kind: str, path: str) -> None:
        if path.startswith("/"):
            given: str | None = path
        else:
            given = None if self._where is None else str(Path(self._where, path))
        if given is None:
            self.is_opaque = True
            given = path
        given = f"./{given}" if given.startswith("~") else given
        self.accesses.append(Access("read" if kind == "read" else "write", given))

    def _add_redirection(self, redirection: Redirection) -> None:
        operator, target, _ = redirection
        if operator in DOCUMENTS or target in _NO_FILE:
            return
        if operator in (">&", "<&") and re.fullmatch(r"[0-9]-?|-", target):
            return
        if (host := _SHELL_HOST.match(target)) is not None:
            self.accesses.append(Access("host", host[1]))
            return
        if operator in ("<", "<&", "<>"):
            self._add_path("read", target)
        if operator not in ("<", "<&"):
            self._add_path("write", target)

    def _add_git(self, words: Sequence[Word]) -> None:
        """Add `git commit` for `git -C folder commit`, and refuse addresses that run a program."""
        if words[0].text != "git":
            return
        if any(word.text.startswith("ext::") for word in words):
            self.accesses.append(Access("command", "git … ext::", "the address runs a program", "opaque"))
        rest = list(words[1:])
        while rest and rest[0].text.startswith("-"):
            del rest[: 2 if rest[0].text in _GIT_VALUES else 1]
        if rest and len(rest) < len(words) - 1:
            self._append_command([words[0], *rest], "harmless")

    def _add_removal(self, words: Sequence[Word]) -> None:
        """Look at the paths of `rm`: neither the working folder nor one above it may go."""
        if words[0].text != "rm":
            return
        recursive = any(re.match(r"--recursive|-[^-]*[rR]", word.text) for word in words[1:])
        for word in words[1:]:
            if word.text.startswith("-"):
                continue
            if word.glob is None:
                self._add_path("write", word.text)
            kept = word.text[: word.glob].rstrip("/") if word.glob is not None else word.text
            kept = kept or ("/" if word.text.startswith("/") else ".")
            whole = os.path.normpath(Path(self._folder, self._where or ".", kept))
            above = [find_home() or "/", self._folder]
            if recursive and any(f"{each}/".startswith(f"{whole.rstrip('/')}/") for each in above):
                problem = "it deletes the working folder, the home folder, or one above them"
                self.accesses.append(Access("command", f"rm {word.text}", problem, "opaque"))
