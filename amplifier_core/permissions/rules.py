"""Read one rule: `write_file`, `write_file(src/**)`, `bash(git status*)`, `fetch(*.example.com)`, `emit(review:*)`.

The name is that of a tool, with `*` for any characters. A rule `deny` or `ask` about paths of `read_file` holds for
what any tool reads, and one of `write_file` for what any tool writes. The pattern is compared with each thing that the
call reaches:

- a path, relative to the working folder or absolute: `*` and `?` within a name, `**` for any folders; `~` is the home;
- a command: its words, `*` for any characters. An `allow` fits plain commands only: no shell syntax, no assignments. A
  tool that decodes commands gives each one by itself;
- a host: whole, or with `*.` before it for the host and all below it;
- events, agents and bundles: `*` for any characters.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal

from amplifier_core.errors import AmplifierError

from ..frozen import frozen
from .protected import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .calls import Access, Call, Kind

Effect = Literal["allow", "ask", "deny"]

_STANDS_FOR_ALL = {"read": "read_file", "write": "write_file"}
"""By the kind of an access, the tool whose refused paths are closed for all others, too."""
_AT_ONCE = 50
"""Patterns in one regular expression: one of 500 takes thirty times as long as one of 50."""
_RULE = r"\s*([\w.*-]+)\s*(?:\((.*)\))?\s*"
_PLAIN_COMMAND = r"(?! *\w+=)[\w@%+=:,./ -]+"


class PermissionRuleError(AmplifierError, ValueError):
    """A rule cannot be read."""

    def __init__(self, text: object, problem: str) -> None:
        super().__init__(f"not a rule: {text!r}: {problem}. Write a tool, or tool(pattern), such as write_file(src/**)")


@frozen
class Rule:
    """What to do with the calls of a tool, or with those that reach what the pattern describes."""

    effect: Effect
    tool: str
    pattern: str | None = None
    """None: every call of the tool."""
    place: str = ""
    """The file and line of the rule."""

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"

    @property
    def is_specific(self) -> bool:
        """Whether it names more than a whole tool: only such a rule allows a protected file."""
        return self.pattern is not None and bool(self.pattern.strip("*/. "))

    def names(self, tool: str) -> bool:
        """Return whether it is about a tool."""
        return self.tool == tool or ("*" in self.tool and re.fullmatch(_text_regex(self.tool), tool) is not None)

    def fits(self, access: Access) -> bool:
        """Return whether it is about an access of a call of its tool."""
        return RuleGroup(self.effect, (self,), access.kind).find(access) is not None


def holds_for(rule: Rule, tool: str, kind: Kind) -> bool:
    """Return whether a rule is about a tool's accesses of a kind: by its name, or as a refusal for all tools."""
    for_all = _STANDS_FOR_ALL.get(kind) if rule.effect != "allow" and rule.pattern is not None else None
    return rule.names(tool) or (for_all is not None and rule.names(for_all))


class RuleGroup:
    """The rules with one effect about one tool, for accesses of one kind.

    Rules that refuse compare paths as a case-blind disk does: a second spelling of a name is no way around them.

    A rule is looked up by the text that each of its values begins with (a host's ends with): a decision takes the same
    time for ten rules and for thousands, but for rules with the same such text, and those without one (`**/x`). Those
    are compared all at once, one after the other. The first rule in the order of the layer decides, as if there were no
    index.
    """

    __slots__ = ("_folds", "_is_backward", "_lengths", "_needs_plain", "_sets")

    def __init__(self, effect: Effect, rules: Sequence[Rule], kind: Kind) -> None:
        self._folds = kind == "host" or (effect != "allow" and kind in ("read", "write"))
        self._needs_plain = effect == "allow" and kind == "command"
        self._is_backward = kind == "host"
        self._sets: dict[str, list[_RuleSet]] = {}
        for number, rule in enumerate(rules):
            regex = describe_pattern(rule.pattern, kind, folds=self._folds)
            if "[" in regex.replace("[^/]", ""):
                re.compile(regex)  # a wrong class is an error for each call of the tool, not only where it might fit
            fixed = _fixed_end(regex)[::-1] if self._is_backward else _fixed_start(regex)
            sets = self._sets.setdefault(fixed, [])
            if not sets or len(sets[-1].rules) == _AT_ONCE:
                sets.append(_RuleSet())
            sets[-1].add(number, rule, regex)
        self._lengths = sorted({len(fixed) for fixed in self._sets})

    def find(self, access: Access) -> Rule | None:
        """Return the first rule that fits an access."""
        value = fold(access.value) if self._folds else access.value
        key = value[::-1] if self._is_backward else value
        first: tuple[int, Rule] | None = None
        for length in self._lengths:
            for rules in self._sets.get(key[:length], ()):
                fit = rules.fit(value)
                if fit is not None and fit.lastindex is not None:
                    found = rules.rules[fit.lastindex - 1]
                    first = found if first is None or found[0] < first[0] else first
                    break
        if first is None or (self._needs_plain and not _is_one_command(access)):
            return None
        return first[1]


class _RuleSet:
    """Rules that are compared all at once, with their places in the order of the layer."""

    __slots__ = ("_patterns", "fit", "rules")

    def __init__(self) -> None:
        self.rules: list[tuple[int, Rule]] = []
        self.fit: Callable[[str], re.Match[str] | None] = self._compile
        """Return a match; the number of its last group is that of the rule, from 1."""
        self._patterns: list[str] = []

    def add(self, number: int, rule: Rule, regex: str) -> None:
        self.rules.append((number, rule))
        self._patterns.append(f"({regex})")

    def _compile(self, value: str) -> re.Match[str] | None:
        """Stand for `fit` until its first call: most sets are never asked."""
        self.fit = re.compile("|".join(self._patterns), re.DOTALL).fullmatch
        return self.fit(value)


def parse_rule(effect: Effect, text: object, place: str = "") -> Rule:
    """Return the rule of a text. Raises `PermissionRuleError`."""
    if not isinstance(text, str):
        raise PermissionRuleError(text, "it is no text")
    found = re.fullmatch(_RULE, text, re.DOTALL)
    if found is None:
        raise PermissionRuleError(text, "it is neither a name nor name(pattern)")
    tool, pattern = found[1], found[2]
    if pattern is not None and not pattern.strip():
        raise PermissionRuleError(text, "there is nothing between the brackets")
    return Rule(effect, tool, pattern, place)


def narrowest_rule(call: Call) -> str | None:
    """Return the narrowest rule that covers a call, for a person who says "always"; None where there is none.

    There is none for a command with shell syntax: a rule for it would cover other commands, too.
    """
    values = {
        (access.kind, access.value) for access in call.accesses if access.kind == "command" or access.form != "harmless"
    }
    if len(values) > 1 or any(access.problem for access in call.accesses):
        return None
    for kind, value in values:
        if kind == "command" and not all(_is_one_command(access) for access in call.accesses):
            return None
        escaped = re.sub(r"([*?\[\]\\])", r"\\\1", value)
        return f"{call.tool}({escaped})"
    return None if call.arguments else call.tool


def _is_one_command(access: Access) -> bool:
    """Return whether an access is one program with literal words."""
    if access.form == "text":
        return re.fullmatch(_PLAIN_COMMAND, access.value, re.ASCII) is not None
    return access.form != "opaque"


def describe_pattern(pattern: str | None, kind: Kind, *, folds: bool) -> str:
    """Return the regular expression of a rule's pattern; one that `folds` is for values as `fold` makes them."""
    if pattern is None:
        return ".*"
    if pattern.startswith("~") and kind in ("read", "write"):
        pattern = os.path.expanduser(pattern)  # noqa: PTH111 - it knows no error
    text = fold(pattern) if folds else pattern
    if kind in ("read", "write"):
        return _path_regex(text, widens=folds)
    if kind == "host":
        host = _write_host(text).rstrip(".")
        return rf"(?:.*\.)?{re.escape(host[2:])}" if host.startswith("*.") else _text_regex(host)
    if kind == "command" and text.endswith(" *"):  # `git status *` is `git status`, too
        return f"{_text_regex(text[:-2])}(?: .*)?"
    return _text_regex(text)


def _fixed_start(regex: str) -> str:
    """Return the text that all values of a pattern begin with; `regex` is from `describe_pattern`.

    Nothing in one repeats a character: what may be missing or repeated is a dot, a class or a group.
    """
    fixed = re.match(r"(?:\\.|[^\\.\[(])*", regex, re.DOTALL)
    return re.sub(r"\\(.)", r"\1", fixed[0], flags=re.DOTALL) if fixed else ""


def _fixed_end(regex: str) -> str:
    """Return the text that all values of a host's pattern end with."""
    pieces = re.findall(r"\(\?:\.\*\\\.\)\?|\.\*|\\.|.", regex, re.DOTALL)
    fixed: list[str] = []
    for piece in reversed(pieces):
        if len(piece) > 1 and piece[0] != "\\":
            break
        fixed.append(piece[-1])
    return "".join(reversed(fixed))


def _write_host(pattern: str) -> str:
    """Return the pattern of a host in ASCII, as calls name it."""
    try:
        return ".".join(each if each.isascii() else each.encode("idna").decode() for each in pattern.split("."))
    except UnicodeError:
        return pattern


def _text_regex(pattern: str) -> str:
    """Return the regular expression of a text: `*` stands for any characters, `\\*` for a star."""
    texts = [""]
    for each in re.findall(r"\\.|.", pattern, re.DOTALL):
        if each == "*":
            texts.append("")
        else:
            texts[-1] += re.escape(each[1:] if len(each) == 2 else each)
    return _join_at_stars(texts, ".", is_last=True)


def _join_at_stars(texts: Sequence[str], sign: str, *, is_last: bool) -> str:
    """Return the regular expression of texts with a star between them, which stands for any number of a sign.

    A text is looked for no further than where it stands first, since the star behind it stands for what is left out.
    So the time grows with the length of the value alone. Only the last text of a pattern has a fixed place, the end.
    """
    first, *others = texts
    last = f"{sign}*{others.pop()}" if is_last and others else ""
    return first + "".join(f"(?>{sign}*?{each})" for each in others) + last


def _path_regex(pattern: str, *, widens: bool) -> str:
    """Return the regular expression of a path pattern; a folder's pattern `x/**` fits the folder, too.

    What stands between two `**` is looked for no further than where it stands first, as in `_join_at_stars`. For `**/`
    that is right at the beginning of a name; within one, it is `**` in a pattern that `widens`, else `**` and a slash.
    """
    gaps, blocks, end = [""], [[""]], ""
    pattern = pattern.removeprefix("./")
    for piece in re.findall(r"/\*\*$|\*\*/|\*\*|\*|\?|\[[^\]/]+\]|\\.|.", pattern, re.DOTALL):
        block = blocks[-1]
        if piece == "/**":
            end = "(?:/.*)?"
        elif piece in ("**/", "**"):
            if len(block) > 1 and not block[-1]:
                block.pop()  # a star before `**` adds nothing
            is_beginning = block == [""] or block[-1].endswith("/") or (len(blocks) == 1 and len(block) == 1)
            gap = piece if is_beginning else "**"
            if block == [""] and gaps[-1]:
                gaps[-1] = gap if gap == gaps[-1] else "**"
            else:
                gaps.append(gap)
                blocks.append(["" if gap == piece or widens else "/"])
        elif piece != "*":
            block[-1] += _sign_regex(piece)
        elif gaps[-1] != "**" or block != [""]:  # a star behind `**` adds nothing
            block.append("")
    before = {"": "", "**": ".*", "**/": "(?:.*/)?"}
    first = {"": "", "**": ".*?", "**/": "(?:.*?/)??"}
    regex = "".join(
        f"(?>{first[gap]}{_join_at_stars(block, '[^/]', is_last=False)})"
        for gap, block in zip(gaps[:-1], blocks[:-1], strict=True)
    )
    return f"{regex}{before[gaps[-1]]}{_join_at_stars(blocks[-1], '[^/]', is_last=True)}{end}"


def _sign_regex(piece: str) -> str:
    """Return the regular expression of what stands for one sign in a path pattern; none but a slash is a slash."""
    if piece == "?":
        return "[^/]"
    if piece[0] == "[" and len(piece) > 2:
        return "(?!/)[" + ("^" + piece[2:-1] if piece[1] == "!" else piece[1:-1]).replace("\\", r"\\") + "]"
    return re.escape(piece[1:] if len(piece) == 2 else piece)
