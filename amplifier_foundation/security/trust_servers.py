"""Trust the file `.mcp.json` of a project: the programs that it names run, and its addresses are asked, only then.

The file is a trusted place of its own, with its owner and its bytes. Any change is asked about again.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from ..paths import find_upward
from .trust import NotTrusted, find_problem, is_checked
from .trust_content import Content
from .trust_files import owner_of, path_of, read_seen
from .trust_ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = ".mcp.json"


def find_file(folder: Path | str | None = None) -> Path | None:
    """Return the `.mcp.json` of the project around a folder, None without one."""
    found = find_upward([FILE], folder)
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
    return None if problem is None else NotTrusted(place, problem, _describe(place, file))


def read_trusted(file: Path) -> bytes:
    """Return the bytes of the file as they were trusted. Raises `NotTrusted`, `TrustUnreadable` and `OSError`."""
    raw = file.read_bytes()
    if is_checked():
        place = path_of(file)
        entry = Ledger().find(place)
        seen = entry.files.get(place) if entry is not None else None
        if entry is None or seen is None or seen.digest != sha256(raw).hexdigest() or entry.uid != owner_of(place):
            raise NotTrusted(place, [place] if seen is not None else [], _describe(place, file))
    return raw


def _describe(place: str, file: Path) -> Content:
    return Content(place, owner_of(place), {place: read_seen(place)}, lines=list(_list_servers(file)))


def _list_servers(file: Path) -> Iterator[tuple[str, str]]:
    from amplifier_core.utils.secrets import redact_text

    try:
        servers = json.loads(file.read_bytes())["mcpServers"].items()
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        yield "servers", 'none: it is not JSON like {"mcpServers": {NAME: {…}}}'
        return
    for name, server in servers:
        given = server if isinstance(server, dict) else {}
        if "command" in given:
            words = [given["command"], *(args if isinstance(args := given.get("args"), list) else [])]
            env = given.get("env")
            variables = f" (with {', '.join(map(str, env))})" if isinstance(env, dict) and env else ""
            yield "MCP server", redact_text(f"{name} runs: {' '.join(map(str, words))}{variables}")
        else:
            yield "MCP server", redact_text(f"{name} asks: {given.get('url')}")
