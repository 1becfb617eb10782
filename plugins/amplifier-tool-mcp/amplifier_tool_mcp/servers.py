"""Collect the servers of a session: of the configuration, of the editor, and of a trusted project's `.mcp.json`.

Of two servers with one name the first counts, in this order: a project never replaces what the person or the bundle
has named.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .config import NAME, ServerConfig, read_server
from .errors import ServerError
from .names import make_slug

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from .config import McpConfig

FILE = ".mcp.json"
CONFIG, EDITOR = "configuration", "editor"
INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The variables that a server's process has without being named in `env`."""
_MARK = "AMPLIFIER_SESSION"
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that a session may start."""

    name: str
    config: ServerConfig = field(repr=False)
    source: str
    """`configuration`, `editor`, or the path of a file."""
    folder: Path
    trusted: bool = False
    """Whether its results are no text of strangers, and its hints count."""
    slug: str = ""
    """The name in names of tools."""

    @property
    def target(self) -> str:
        """What it runs or asks, without secrets, for people."""
        from amplifier_core.utils.secrets import redact_text

        parts = [self.config.url] if self.config.url else [self.config.command, *self.config.args]
        return redact_text(" ".join(map(str, parts)))


def find_servers(config: McpConfig, folder: Path, editor: Mapping[str, Any]) -> tuple[list[Server], list[str]]:
    """Return the servers to start, and the problems with others."""
    problems: list[str] = []
    found = {name: Server(name, each, CONFIG, folder) for name, each in config.servers.items()}
    for name, given in editor.items():
        try:
            found.setdefault(name, Server(name, read_server(name, given), EDITOR, folder))
        except ValueError as error:
            problems.append(f"the editor's MCP server {error}")
    if config.project_servers:
        for each in read_project(folder, problems):
            found.setdefault(each.name, each)
    own = read_own_servers(folder) if any(each.config.trusted for each in found.values()) else {}
    slugs: dict[str, str] = {}
    servers = []
    for each in found.values():
        if each.config.enabled and each.config.problem:
            problems.append(f"the MCP server {each.name}: {each.config.problem}")
        elif each.config.enabled:
            trusted = each.config.trusted and _is_same(own.get(each.name), each.config)
            servers.append(replace(each, trusted=trusted, slug=make_slug(each.name, slugs)))
    return servers, problems


def read_own_servers(folder: Path) -> dict[str, ServerConfig]:
    """Return the servers in the person's own settings: only those can be `trusted`."""
    try:
        from amplifier_foundation.security import OWN_SOURCES
        from amplifier_foundation.settings import read_settings
    except ImportError:  # another program's foundation, or none
        return {}
    found: dict[str, ServerConfig] = {}
    for layer in read_settings(folder).layers:
        override = (layer.values.get("overrides") or {}).get(NAME) or {}
        if layer.source in OWN_SOURCES:
            for name, given in ((override.get("config") or {}).get("servers") or {}).items():
                with suppress(ValueError):  # a part of a server, such as `enabled: false` for a bundle's
                    found[name] = ServerConfig.model_validate(given)
    return found


def read_project(folder: Path, problems: list[str]) -> Iterator[Server]:
    """Yield the servers of the project's `.mcp.json`; add to `problems` why others are none, such as missing trust."""
    try:
        from amplifier_foundation.security.trust import NotTrusted
        from amplifier_foundation.security.trust_servers import find_file, read_trusted
    except ImportError:  # another program's foundation, or none: nobody can have trusted the file
        return
    file = find_file(folder)
    if file is None:
        return
    try:
        data = json.loads(read_trusted(file))
        servers = data["mcpServers"].items()
    except NotTrusted as error:
        problems.append(f"the MCP servers of this project are left out: {error}")
        return
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        problems.append(
            f'the MCP servers of this project are left out: {file} is not JSON like {{"mcpServers": {{NAME: {{…}}}}}}'
        )
        return
    for name, given in servers:
        try:
            if not isinstance(given, dict):
                raise ValueError(f"{name}: is no mapping")
            yield Server(name, read_server(name, given), str(file), file.parent)
        except ValueError as error:
            problems.append(f"{file}: the MCP server {error}")


def read_scripts(argv: Sequence[str], folder: Path) -> dict[Path, str]:
    """Return the digests of the scripts below a folder that a command names."""
    from hashlib import sha256

    try:
        from amplifier_core.utils.scripts import find_scripts
    except ModuleNotFoundError:  # another kernel has none
        return {}
    found = {}
    for path in find_scripts(shlex.join(argv), str(folder), {}):
        with suppress(OSError):
            found[path] = sha256(path.read_bytes()).hexdigest()
    return found


async def expand(value: Any) -> Any:
    """Return texts with the value in place of each `${NAME}` or `${NAME:-default}`: of the environment, or a kept key.

    Raises `ServerError`, with the name, where there is neither.
    """
    import asyncio

    names = {found[1]: found[2] for text in find_texts(value) for found in _VARIABLE.finditer(text)}
    values = {name: await asyncio.to_thread(_find_value, name, default) for name, default in names.items()}

    def fill(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: fill(each) for key, each in part.items()}
        if isinstance(part, list):
            return [fill(each) for each in part]
        return _VARIABLE.sub(lambda found: values[found[1]], part) if isinstance(part, str) else part

    return fill(value)


def make_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server's process: harmless names, the mark of sessions, and those of its `env`."""
    passed = {name: os.environ[name] for name in (*INHERITED, _MARK) if name in os.environ}
    return {**passed, **given}


def _is_same(own: ServerConfig | None, given: ServerConfig) -> bool:
    """Return whether a server is the one of the person's own settings; in there, keys are still `secret://NAME`."""
    from amplifier_core.utils import REFERENCE

    if own is None:
        return False
    kept = {name for pairs in (own.env, own.headers) for name, text in pairs.items() if REFERENCE.fullmatch(text)}

    def leave_out(config: ServerConfig) -> ServerConfig:
        pairs = {"env": config.env, "headers": config.headers}
        plain = {key: {name: text for name, text in each.items() if name not in kept} for key, each in pairs.items()}
        return config.model_copy(update=plain)

    return leave_out(own) == leave_out(given)


def find_texts(value: Any) -> Iterator[str]:
    """Yield all texts of a value, without the keys of mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from find_texts(each)


def _find_value(name: str, default: str | None) -> str:
    """Return the value of a variable. It may wait for a person who opens the keyring."""
    from amplifier_core.utils import is_sensitive
    from amplifier_core.utils.secrets import hide_secret

    value = os.environ.get(name, "")
    if value:
        if is_sensitive(name):
            hide_secret(value)
        return value
    try:
        from amplifier_foundation.settings.keys import KeyNotFound, find_key

        return find_key(name)
    except ImportError:
        problem = f"{name} is not in the environment"
    except KeyNotFound as error:
        problem = str(error)
    if default is None:
        raise ServerError(problem)
    return default
