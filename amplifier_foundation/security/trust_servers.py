"""Trust the file `.mcp.json` of a project: the programs that it names run, and its addresses are asked, only then.

The file is a trusted place of its own, with its owner, its bytes, and the scripts that its commands name below its
folder. Any change is asked about again.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.permissions import read_regular

from ..paths import find_upward
from .trust import NotTrusted, is_checked
from .trust_content import Content, list_options
from .trust_files import owner_of, path_of, read_seen
from .trust_ledger import Ledger, changed_files, find_problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .trust_ledger import Entry

FILE = ".mcp.json"
MAX_BYTES = 1 << 24
"""Bytes of the file that are read."""


def find_file(folder: Path | str | None = None) -> Path | None:
    """Return the `.mcp.json` of the project around a folder, None without one."""
    found = find_upward(lambda each: (each / FILE).is_file(), folder)
    return None if found is None else found / FILE


def check_servers(folder: Path | str | None = None, *, checks: bool | None = None) -> NotTrusted | None:
    """Return the error if the project around a folder has servers that are not trusted, else None.

    Raises `TrustUnreadable`.
    """
    file = find_file(folder)
    if file is None or not (is_checked() if checks is None else checks):
        return None
    place, ledger = path_of(file), Ledger()
    problem = find_problem(ledger, place)
    if problem is None:
        problem = _find_new_scripts(ledger.find(place), file)
    return None if problem is None else NotTrusted(place, problem, _describe(place, file))


def read_trusted(file: Path) -> bytes:
    """Return the bytes of the file as they were trusted, with the scripts that it names.

    Raises `NotTrusted`, `TrustUnreadable` and `OSError`.
    """
    raw = read_regular(file, MAX_BYTES)
    if is_checked():
        place = path_of(file)
        entry = Ledger().find(place)
        seen = entry.files.get(place) if entry is not None else None
        if entry is None or seen is None or seen.digest != sha256(raw).hexdigest() or entry.uid != owner_of(place):
            raise NotTrusted(place, [place] if seen is not None else [], _describe(place, file))
        if changed := [*changed_files(entry)[0], *(_find_new_scripts(entry, file) or ())]:
            raise NotTrusted(place, changed, _describe(place, file))
    return raw


def _describe(place: str, file: Path) -> Content:
    scripts = list(_find_scripts(file))
    files = {path: read_seen(path) for path in (place, *scripts)}
    lines = [*_list_servers(file), *(("script", each) for each in scripts)]
    return Content(place, owner_of(place), files, lines=lines)


def _find_new_scripts(entry: Entry | None, file: Path) -> list[str] | None:
    """Return the scripts that were not there when the file was trusted, None without one."""
    return [path for path in _find_scripts(file) if entry is None or path not in entry.files] or None


def _find_scripts(file: Path) -> Iterator[str]:
    """Yield the scripts that the servers of a file name below its folder."""
    from amplifier_core.utils.scripts import find_scripts

    from ..bundle.sources import join_server_command

    for _, server in _read_servers(file) or ():
        if isinstance(server, dict) and "command" in server:
            yield from map(path_of, find_scripts(join_server_command(server), str(file.parent), {}))


def _read_servers(file: Path) -> list[tuple[str, Any]] | None:
    """Return the servers of a file by name, None if it has no such form."""
    try:
        return list(json.loads(read_regular(file, MAX_BYTES))["mcpServers"].items())
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _list_servers(file: Path) -> Iterator[tuple[str, str]]:
    from amplifier_core.utils.secrets import redact_text

    from .trust_secrets import redact_arguments

    servers = _read_servers(file)
    if servers is None:
        yield "servers", 'none: it is not JSON like {"mcpServers": {NAME: {…}}}'
        return
    for name, server in servers:
        given = server if isinstance(server, dict) else {}
        if "command" in given:
            words = [given["command"], *(args if isinstance(args := given.get("args"), list) else [])]
            yield "MCP server", f"{name} runs: {redact_arguments([str(each) for each in words])}"
        else:
            yield "MCP server", redact_text(f"{name} asks: {given.get('url')}")
        yield from (("with", each) for each in list_options(given, name))
