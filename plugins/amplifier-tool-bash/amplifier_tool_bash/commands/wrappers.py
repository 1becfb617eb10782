"""Peel the programs that only run another one, such as `timeout 5 make`, when their own arguments are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .parsing import DOCUMENTS
from .words import Opaque

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .parsing import Redirection
    from .words import Word

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
_DECODED_SHELLS = frozenset(("sh", "bash", "dash"))
_OPTIONS = {
    "timeout": (r"--foreground|--preserve-status|-v", r"-k|-s|--kill-after|--signal", 1),
    "nice": (r"-[0-9]+|-n-?[0-9]+|--adjustment=-?[0-9]+", r"-n|--adjustment", 0),
    "ionice": (r"-c[0-9]|-n[0-9]|-t", r"-c|-n", 0),
    "nohup": (r"", r"", 0),
    "setsid": (r"-[fw]+|--wait|--fork", r"", 0),
    "stdbuf": (r"-[ioe][0-9LKMG]+|--(?:input|output|error)=[0-9LKMG]+", r"-[ioe]", 0),
    "command": (r"-p", r"", 0),
    "exec": (r"", r"", 0),
    "xargs": (
        r"-[0rtx]+|-[nPLs][0-9]+|-I\S+|-d\S+|--null|--no-run-if-empty|--verbose|--max-args=[0-9]+|--max-procs=[0-9]+",
        r"-n|-P|-L|-I|-d|-s|--max-args|--max-procs",
        0,
    ),
}
"""Options without a value, options with one, and the arguments before the command."""
_OTHER_WRAPPERS = """
sudo doas su runuser setpriv pkexec sg strace ltrace busybox flock chroot unshare nsenter watch time script parallel sem
run-parts chrt taskset prlimit setarch arch linux32 linux64 i386 x86_64 uname26 numactl systemd-run systemd-inhibit
systemd-cat bwrap firejail proot fakeroot fakechroot faketime eatmydata unbuffer rlwrap entr caffeinate chronic
ssh-agent dbus-run-session dbus-launch xvfb-run
"""
_RUN_OTHERS = frozenset(_OTHER_WRAPPERS.split())
"""Their arguments are not decoded: such a command is asked for each time."""
_ACTIONS = {
    "find": r"-exec|-execdir|-ok|-okdir",
    **dict.fromkeys(("fd", "fdfind"), r"-[^-teEdScjoC]*[xX].*|--exec.*"),
}
"""The arguments that a command to run comes behind, or stands in; the rest of `fd -tx` is the value of `-t`."""
_RUNNERS = frozenset(("env", *_OPTIONS, *_RUN_OTHERS, *_ACTIONS))
_INTERPRETERS = (
    r"(?:ba|da|z|k)?sh|python[0-9.]*|pypy[0-9.]*|node|nodejs|deno|bun|perl|ruby|php|lua|Rscript|tclsh|psql|mysql|sqlite3|ssh"
    r"|at|batch|parallel|gdb|ed|ex|vim?|awk|gawk|make|docker|kubectl"
)
_ALWAYS_READ = r"psql|mysql|sqlite3|ssh|at|batch|parallel|gdb|ed|ex|vim?"
_TOOLS = r"make|docker|kubectl"
_INPUT = r"(?:-\w*f|--\w+=)?(?:-|/(?:dev|proc)/.*)|-[A-Za-z]*i[A-Za-z]*|-T|--(?:stdin|interactive).*|repl"
"""An argument that makes a program read its input."""
_HAS_PROGRAM = re.compile(
    r"(?:python|pypy)[0-9.]* -(?:c|m (?!code|pdb|asyncio|IPython)) *.+|(?!php)\S+ -e .+|\S+ [^ -].*", re.DOTALL
)
"""An interpreter and its first arguments, when these are a program or name one."""
_MOST_ACTIONS = 20
"""`-exec` and its like in one command."""
_VARIABLE = re.compile(r"([A-Za-z_][^=]*)=(.*)", re.DOTALL)


class Wrapped(NamedTuple):
    """What a wrapper runs: words, or the script of a shell."""

    words: Sequence[Word] = ()
    script: str | None = None
    is_bash: bool = False
    is_vague: bool = False
    """Whether the command gets more words than these."""
    assignments: tuple[tuple[str, str], ...] = ()


def unwrap(words: Sequence[Word], redirections: Sequence[Redirection] = ()) -> Wrapped | None:
    """Return what a wrapper runs; None for any other command. Raises `Opaque` when its arguments are unknown."""
    name, arguments = words[0].text, words[1:]
    if name in _SHELLS:
        return _unwrap_shell(name, arguments, redirections)
    if name == "env":
        return _unwrap_env(arguments)
    if name == "command" and arguments and arguments[0].text in ("-v", "-V"):
        return Wrapped()
    if name not in _OPTIONS:
        return None
    flags, with_value, before = _OPTIONS[name]
    place = 0
    while place < len(arguments) and arguments[place].text.startswith("-"):
        text = arguments[place].text
        place += 1
        if with_value and re.fullmatch(with_value, text):
            place += 1
        elif text == "--":
            break
        elif not re.fullmatch(flags, text):
            raise Opaque(f"an option of {name}")
    inner = arguments[place + before :]
    if not inner or any(word.glob is not None for word in arguments[: place + before]):
        raise Opaque(f"the arguments of {name}")
    return Wrapped(inner, is_vague=name == "xargs")


def _unwrap_env(arguments: Sequence[Word]) -> Wrapped | None:
    assignments = []
    place = 0
    while place < len(arguments) and (found := _VARIABLE.fullmatch(arguments[place].text)) is not None:
        assignments.append((found[1], found[2]))
        place += 1
    if place < len(arguments) and arguments[place].text.startswith("-"):
        raise Opaque("an option of env")
    if not arguments:
        return None
    return Wrapped(arguments[place:], assignments=tuple(assignments))


def _unwrap_shell(name: str, arguments: Sequence[Word], redirections: Sequence[Redirection]) -> Wrapped:
    is_bash = name == "bash"
    documents = [each for each in redirections if each.operator in DOCUMENTS]
    if not arguments and documents:
        inputs = [each for each in redirections if each.is_input]
        is_known = name in _DECODED_SHELLS and len(documents) == 1 and inputs == documents
        return Wrapped(script="\n".join(each.target for each in documents), is_bash=is_bash, is_vague=not is_known)
    if name not in _DECODED_SHELLS:
        raise Opaque("a shell with another grammar")
    if not arguments:
        raise Opaque("a shell without a script")
    if not re.fullmatch(r"-[eux]*c", arguments[0].text) or len(arguments) < 2 or arguments[1].glob is not None:
        raise Opaque("a shell with other arguments than -c and a script")
    if arguments[1].text.startswith(("-", "+")):
        raise Opaque("more options of a shell")
    return Wrapped(script=arguments[1].text, is_bash=is_bash)


def _find_name(program: Word) -> str:
    """Return the name of a program in any folder; `find` for `gfind`, as GNU's programs are called beside others."""
    name = program.text.rpartition("/")[2]
    plain = name.removeprefix("g")
    return plain if plain in _RUNNERS else name


def runs_another(program: Word) -> bool:
    """Return whether a program runs another one, by its name."""
    name = _find_name(program)
    return name == "env" or name in _SHELLS or name in _OPTIONS or name in _RUN_OTHERS


def find_feeds(redirections: Sequence[Redirection]) -> set[str]:
    """Return the operators of those that give a command a text."""
    return {
        operator
        for operator, target, _ in redirections
        if operator in DOCUMENTS or operator == "|" or (operator in ("<", "<>") and target != "/dev/null")
    }


def runs_input(words: Sequence[Word], redirections: Sequence[Redirection], *, gets_input: bool) -> bool:
    """Return whether a command gets a text that no rule sees, and may run it.

    With `gets_input`, the shell around it has such a text as its own input.
    """
    feeds = find_feeds(redirections)
    if feeds & DOCUMENTS:
        return True
    name = words[0].text.rpartition("/")[2]
    if re.fullmatch(_INTERPRETERS, name) is None:
        return False
    return bool(feeds) or (gets_input and _lacks_program(name, [word.text for word in words[1:]]))


def _lacks_program(name: str, arguments: Sequence[str]) -> bool:
    """Return whether an interpreter has no program among its arguments, and so reads one from its input."""
    if re.fullmatch(_ALWAYS_READ, name) or any(re.fullmatch(_INPUT, each) for each in arguments):
        return True
    return re.fullmatch(_TOOLS, name) is None and _HAS_PROGRAM.fullmatch(" ".join((name, *arguments[:2]))) is None


def runs_arguments(words: Sequence[Word]) -> bool:
    """Return whether a command runs another one, among its arguments, that is not decoded."""
    if runs_another(words[0]):
        return len(words) > 1
    return bool(_find_actions(words))


def find_inner_commands(words: Sequence[Word]) -> list[Sequence[Word]]:
    """Return what may be the commands among the arguments of a program that runs others; only a refusal looks at them.

    Raises `Opaque` for too many.
    """
    starts = [place + 1 for place in _find_actions(words)]
    if len(starts) > _MOST_ACTIONS:
        raise Opaque(f"more actions of {words[0].text} than are looked at")
    if runs_another(words[0]):
        starts = [place for place, word in enumerate(words[:16]) if place and not word.text.startswith("-")]
    return [words[start:] for start in starts if start < len(words)]


def _find_actions(words: Sequence[Word]) -> list[int]:
    action = _ACTIONS.get(_find_name(words[0]))
    if action is None:
        return []
    return [place for place, word in enumerate(words) if place and re.fullmatch(action, word.text, re.DOTALL)]
