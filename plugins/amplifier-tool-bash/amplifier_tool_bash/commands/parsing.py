"""Read the part of the shell's grammar that may pass without a question: simple commands, and what joins them.

A simple command has literal words, assignments and redirections. Pipes, `&&`, `||`, `;` and newlines join commands.
Everything else raises `Opaque`; a text that no shell could read to its end raises `Unfinished`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .words import Opaque, Unfinished, Word, WordReader

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_COMMANDS = 50
"""Simple commands of one call; later ones would never be looked at by a person."""

_RESERVED_WORDS = """
! [[ ]] { } case coproc do done elif else esac fi for function if in select then time until while
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())
_JOINS = ("&&", "||", ";", "|", "\n")
_REDIRECTION = re.compile(r"((?:[0-9](?=[<>]))?)(<<<|<<-|<<|<>|<&|<|>>|>\||>&|>|&>>|&>)")
DOCUMENTS = frozenset(("<<", "<<-", "<<<"))
"""Redirections with the text itself."""
_OF_BASH = ("<<<", "&>", "&>>")
"""Redirections that another shell takes for something else: `&>` for the end of the command."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_REJECTED_JOINS = {"&": "a command in the background (&)", "|&": "a pipe with |&", ";;": "a part of case"}


class TooManyCommands(Exception):
    """A call has more simple commands than a person can judge."""


class Redirection(NamedTuple):
    """What a command's input or output is bound to."""

    operator: str
    target: str
    """A path, a descriptor, or the text of a here-document."""
    descriptor: str = ""
    """The number before the operator."""

    @property
    def is_input(self) -> bool:
        """Whether it takes the place of the command's input."""
        return (self.descriptor or "01"[self.operator[0] != "<"]) == "0"


class SimpleCommand(NamedTuple):
    """One program with its arguments."""

    assignments: tuple[tuple[str, str], ...]
    words: tuple[Word, ...]
    redirections: Sequence[Redirection]
    joined_by: str
    """What stands before it: "", `&&`, `||`, `;`, `|` or a newline."""


class _Parser:
    def __init__(self, text: str, *, is_bash: bool) -> None:
        self._reader = WordReader(text, is_bash=is_bash)
        self._text = text
        self._is_bash = is_bash
        self._documents: list[tuple[list[Redirection], int, str, bool, bool]] = []
        """Here-documents whose text begins at the next line: where to put it, its end, its kind."""
        self._commands: list[SimpleCommand] = []

    def parse(self) -> list[SimpleCommand]:
        """Return the commands of the whole text."""
        join = ""
        while True:
            self._skip_blank(lines=join != "" or not self._commands)
            if self._is_at_end():
                break
            self._parse_command(join)
            if len(self._commands) > MOST_COMMANDS:
                raise TooManyCommands(f"it has more than {MOST_COMMANDS} commands; give them in several calls")
            join = self._read_join()
            if not join:
                break
        if join in ("&&", "||", "|"):
            raise Unfinished(f"nothing follows '{join}'")
        if self._documents:
            raise Opaque("a here-document without an end")
        return self._commands

    def _is_at_end(self) -> bool:
        return self._reader.place >= len(self._text)

    def _skip_blank(self, *, lines: bool) -> None:
        """Skip blanks, comments and lines that go on; with `lines`, empty lines, too."""
        while not self._is_at_end():
            place = self._reader.place
            if self._text[place] in " \t":
                self._reader.place += 1
            elif self._text.startswith("\\\n", place):
                self._reader.place += 2
            elif self._text[place] == "#":
                end = self._text.find("\n", place)
                self._reader.place = len(self._text) if end < 0 else end
            elif lines and self._text[place] == "\n":
                self._end_line()
            else:
                return

    def _end_line(self) -> None:
        self._reader.place += 1
        for redirections, index, end, strips_tabs, is_literal in self._documents:
            body = self._read_document(end, strips_tabs)
            if not is_literal and re.search(r"[$`\\]", body):
                raise Opaque("an expansion in a here-document")
            redirections[index] = Redirection("<<", body, redirections[index].descriptor)
        self._documents = []

    def _read_document(self, end: str, strips_tabs: bool) -> str:
        body = ""
        while not self._is_at_end():
            stop = self._text.find("\n", self._reader.place)
            stop = len(self._text) if stop < 0 else stop
            line = self._text[self._reader.place : stop]
            self._reader.place = min(stop + 1, len(self._text))
            line = line.lstrip("\t") if strips_tabs else line
            if line == end:
                return body
            body += f"{line}\n"
        raise Opaque("a here-document without an end")

    def _read_join(self) -> str:
        """Read what joins this command to the next; "" at the end."""
        if self._is_at_end():
            return ""
        rest = self._text[self._reader.place :][:2]
        for sign in ("|&", ";;", *_JOINS, "&"):
            if rest.startswith(sign):
                break
        else:
            raise Opaque(f"the sign {rest[:1]!r}")
        if sign in _REJECTED_JOINS:
            raise Opaque(_REJECTED_JOINS[sign])
        if sign == "\n":
            self._end_line()
        else:
            self._reader.place += len(sign)
        return sign

    def _parse_command(self, join: str) -> None:
        assignments: list[tuple[str, str]] = []
        words: list[Word] = []
        redirections: list[Redirection] = []
        while not self._is_at_end():
            if (found := _REDIRECTION.match(self._text, self._reader.place)) is not None:
                self._parse_redirection(found, redirections)
            elif self._text[self._reader.place] in "\n;&|":
                break
            else:
                word = self._read_word()
                assigned = None if words else _ASSIGNMENT.match(word.text[: word.bare])
                if assigned is not None:
                    if assigned[2]:
                        raise Opaque("an assignment with +=")
                    assignments.append((assigned[1], word.text[assigned.end() :]))
                else:
                    _check_program(word, is_first=not words)
                    words.append(word)
            self._skip_blank(lines=False)
        if not (assignments or words or redirections):
            raise Unfinished(f"there is no command before {self._text[self._reader.place :][:2]!r}")
        # the texts of here-documents come into the list of redirections later, at the end of the line
        self._commands.append(SimpleCommand(tuple(assignments), tuple(words), redirections, join))

    def _read_word(self) -> Word:
        """Read a word that cannot be the descriptor of a redirection."""
        word = self._reader.read_word()
        is_number = word.is_bare and re.fullmatch(r"[0-9]+", word.text) is not None
        if is_number and self._text[self._reader.place : self._reader.place + 1] in ("<", ">"):
            raise Opaque("a number before a redirection that may be a word or a descriptor")
        return word

    def _parse_redirection(self, found: re.Match[str], redirections: list[Redirection]) -> None:
        self._reader.place = found.end()
        self._skip_blank(lines=False)
        if not self._is_at_end() and self._text[self._reader.place] in "<>":
            raise Opaque("a process substitution")
        if self._is_at_end() or self._text[self._reader.place] in "\n;&|":
            raise Unfinished(f"nothing follows '{found[2]}'")
        start = self._reader.place
        word = self._read_word()
        if word.glob is not None:
            raise Opaque("a pattern in a redirection")
        if found[2] in (">&", "<&") and self._text[start] == "-" and self._reader.place > start + 1:
            raise Opaque("a descriptor with more behind it")
        if not self._is_bash and (found[2] in _OF_BASH or (found[2] in (">&", "<&") and len(word.text) > 1)):
            raise Opaque("a redirection of bash in a shell that may not know it")
        if found[2] in ("<<", "<<-"):
            self._documents.append((redirections, len(redirections), word.text, found[2] == "<<-", not word.is_bare))
        redirections.append(Redirection(found[2], word.text, found[1]))


def _check_program(word: Word, *, is_first: bool) -> None:
    if is_first and word.glob is not None and word.text not in ("[",):
        raise Opaque("a pattern for the program")
    if is_first and word.text in _RESERVED:
        raise Opaque(f"the shell's word '{word.text}'")
    if is_first and not word.text:
        raise Opaque("an empty program")


def parse(text: str, *, is_bash: bool = True) -> list[SimpleCommand]:
    """Return the simple commands of a text. Raises `Opaque`, `Unfinished` and `TooManyCommands`."""
    return _Parser(text, is_bash=is_bash).parse()
