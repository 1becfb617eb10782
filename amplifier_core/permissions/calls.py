"""Describe a tool call by what it reaches: paths, commands, hosts, events, bundles and servers.

A tool may say so itself: its attribute `accesses` maps the name of an argument to `read`, `write`, `command`, `host`,
`event` or `bundle`, or it is a function from the arguments of a call to its accesses. `read inside` and `write inside`
are for a tool that refuses paths outside of the working folder by itself: no person is asked about them. Without the
attribute the usual names of arguments count, and a path is read by tools whose names say so.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..frozen import frozen
from .hidden import BRAILLE, UNSEEN
from .own_python import OWN_PYTHON, is_own_python
from .repositories import is_obeyed_by_git

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    Declared = Mapping[str, Any] | Callable[[Mapping[str, Any]], Iterable["Access"]]
    """The attribute `accesses` of a tool."""

Kind = Literal["read", "write", "command", "host", "event", "bundle", "server", "other"]

Form = Literal["text", "decoded", "harmless", "opaque"]
"""The form of a command: an undecoded text, or one command with decoded words, quoted as a shell quotes them.

A harmless one is decoded, too, and needs no question of its own: its tool confines it. So does the folder of a command.
An opaque one is not to be decoded: no rule allows it.
"""

_USUAL: dict[Kind, str] = {
    "write": "path paths file files file_path file_paths filepath filename directory dir folder root cwd working_dir "
    "old_path new_path source_path destination destination_path target_path output_path input_path",
    "command": "command commands cmd shell script",
    "host": "url urls uri host hosts hostname endpoint base_url",
    "event": "event event_name events",
    "bundle": "agent bundle",
}
USUAL_KINDS: dict[str, Kind] = {
    spelled: kind
    for kind, names in _USUAL.items()
    for name in names.split()
    for whole in (name.title().replace("_", ""),)
    for spelled in (name, name.upper(), name.replace("_", "-"), whole, whole[0].lower() + whole[1:])
}
"""What an argument reaches by its name, unless its tool says otherwise: `file_path`, `filePath`, `file-path`."""
INSIDE = " inside"
"""The end of a declared kind of path, for a tool that stays in the working folder."""
_READING = frozenset(("read", "list", "ls", "glob", "grep", "search", "find", "get", "view", "show", "stat", "tree"))
# Patterns are texts: most sessions use none of them, and to compile one takes as long as to import a module.
_CONTROL = f"[\x00-\x1f\x7f-\x9f{UNSEEN}\ud800-\udc7f\udd00-\udfff]{BRAILLE}"
_HOST = r"[\w.*-]*|[\da-f:.]+(?:%\w+)?"
_LINKED = (
    "it has another name (a hard link), and a change may reach that, too. Put a copy of it in its place; a tool that "
    "only reads it says so by its attribute `accesses`"
)
_ESCAPING = r"/proc/(?:self|thread-self|\d+)(?:/task/\d+)?/(?:cwd|root|fd)(?:/|$)"


class Access(NamedTuple):
    """One thing that a call reaches; a path is relative to the working folder with `/`, or absolute outside of it."""

    kind: Kind
    value: str
    problem: str = ""
    """Why no rule can allow it."""
    form: Form = "text"
    reader: str = ""
    """The program that obeys the file at a path, where its name does not say so."""


@frozen
class Call:
    """A tool call with its accesses."""

    tool: str
    accesses: tuple[Access, ...]
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, tool: str, arguments: Mapping[str, Any], folder: Path | str, declared: Declared | None = None) -> Call:
        """Return the call of a tool in a working folder; `declared` is the tool's attribute `accesses`."""
        if callable(declared):
            return cls(tool, tuple(_ask_tool(declared, arguments, str(folder))), arguments)
        declared = declared or {}
        reads = _says_reading(tool)
        accesses: list[Access] = []
        for name, value in arguments.items():
            kind = declared.get(name) or USUAL_KINDS.get(name)
            if kind is None:
                continue
            if kind == "write" and reads and name not in declared:
                kind = "read"
            accesses += [_access(kind, each, str(folder)) for each in _texts(value)]
        return cls(tool, tuple(accesses), arguments)

    def find_commands(self, folder: Path | str) -> list[str]:
        """Return the commands of the call, as its tool says them and as the names of its arguments do."""
        described = (Call.of(self.tool, self.arguments, folder), self)
        commands = (access.value for call in described for access in call.accesses if access.kind == "command")
        return list(dict.fromkeys(commands))

    @property
    def is_reading(self) -> bool:
        """Whether the name of the tool says that it only reads."""
        return _says_reading(self.tool)


def _says_reading(tool: str) -> bool:
    return not _READING.isdisjoint(tool.lower().split("_"))


def _ask_tool(
    describe: Callable[[Mapping[str, Any]], Iterable[Access]], arguments: Mapping[str, Any], folder: str
) -> list[Access]:
    """Return the accesses of a call in the words of its tool; no rule can allow the call when the tool fails."""
    try:
        return [
            _access(each.kind, each.value, folder) if each.form == "text" and not each.problem else each
            for each in describe(arguments)
        ]
    except Exception as error:
        return [Access("other", "", f"its tool cannot say what the call reaches: {type(error).__name__}: {error}")]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _access(kind: Any, value: str, folder: str) -> Access:
    if kind.removesuffix(INSIDE) in ("read", "write"):
        return _path_access(kind.removesuffix(INSIDE), value, folder, stays=kind.endswith(INSIDE))
    if kind == "host":
        return _host_access(value)
    return Access(kind, value, _why_unprintable(value.replace("\n", " ") if kind == "command" else value))


def _why_unprintable(value: str) -> str:
    is_plain = value.isascii() and value.isprintable()
    return "it has control or invisible characters" if not is_plain and re.search(_CONTROL, value) else ""


def _path_access(kind: Kind, value: str, folder: str, *, stays: bool) -> Access:
    """Return the access to a path, with its links followed as far as it exists."""
    if problem := _why_unprintable(value):
        return Access(kind, value, problem)
    given = os.path.expanduser(value) if value.startswith("~") else value  # noqa: PTH111 - it knows no error
    joined = given if given.startswith("/") else f"{folder}/{given}"
    whole = os.path.normpath(joined)
    if "/proc/" in joined and (re.match(_ESCAPING, whole) or re.search(_ESCAPING, joined)):
        return Access(kind, whole, "it leads through a process to other folders")
    if ".." in given and os.path.realpath(joined) != os.path.realpath(whole):
        return Access(kind, whole, "it goes through a link and back, and programs differ about where that is")
    relative = _below(folder, whole)
    names = 1 if relative is None else _count_names(folder, relative)
    if relative is None or not names:
        whole = os.path.realpath(whole)
        relative = _below(os.path.realpath(folder), whole)
    problem = _LINKED if names > 1 and kind == "write" else ""
    if relative is None and stays:
        problem = "it is outside of the working folder, and the tool stays inside"
    reader = find_reader(whole, folder) if kind == "write" else ""
    return Access(kind, whole if relative is None else relative, problem, reader=reader)


def find_reader(path: str, folder: str) -> str:
    """Return what obeys the file at a whole path by settings of git, or as the running Python; "" for nothing."""
    return "git" if is_obeyed_by_git(path) else OWN_PYTHON if is_own_python(path, folder) else ""


def _below(folder: str, path: str) -> str | None:
    """Return a normal path relative to a folder; None outside of it."""
    if path == folder:
        return "."
    return path[len(folder) + 1 :] if path.startswith(f"{folder}/") else None


def _count_names(folder: str, relative: str) -> int:
    """Return the number of names of a file below a folder, 1 for a missing one; 0 when a link is on the way."""
    path = folder
    for part in relative.split("/"):
        path = f"{path}/{part}"
        try:
            status = os.lstat(path)
        except OSError:  # nothing below exists, either
            return 1
        if stat.S_ISLNK(status.st_mode):
            return 0
    return status.st_nlink if stat.S_ISREG(status.st_mode) else 1


def _host_access(value: str) -> Access:
    if problem := _why_unprintable(value) or ("it has a backslash" if "\\" in value else ""):
        return Access("host", value, problem)
    from urllib.parse import urlsplit  # most sessions reach no host

    try:
        parts = urlsplit(value if "://" in value else f"//{value}")
        host, user = parts.hostname or "", parts.username
    except ValueError:
        return Access("host", value, "it is no address")
    if user is not None:
        return Access("host", host, "it names a user before the host")
    host = host.lower().rstrip(".")
    if not re.fullmatch(_HOST, host, re.ASCII):
        return Access("host", host, "programs differ about which host that is; write its name in ASCII (xn--…)")
    return Access("host", host, _why_internal(host))


def _why_internal(host: str) -> str:
    """Return why a host is not to be reached: this machine and the network around it; "" for any other."""
    from .hosts import is_internal_host

    if not host:
        return "it is no address"
    return "it is this machine, or its own network" if is_internal_host(host) else ""
