"""Read the configuration of the store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from amplifier_core.utils.secrets import hide_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS: dict[str, Any] = {
    "dsn": "env:AMPLIFIER_DSN",
    "password": None,
    "listen_dsn": None,
    "schema": "amplifier",
    "pool": 8,
    "connect_timeout": 5.0,
    "timeout": 30.0,
    "lock_timeout": 10.0,
    "resolve_timeout": 20.0,
    "projects": {},
}
"""The keys of the configuration, with their defaults."""

_OF_CALLER = ("folder", "path")
"""Keys that a caller adds for stores with files."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_PROJECT = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)

_HOST = r"(?:\[[^]/@?]*\]|[^][/@?:,]*)(?::\d*)?"
_UNESCAPED = re.compile(
    r"postgres(?:ql)?://(?:[^/@]*@[^/?]*@"  # an '@' in the host
    r"|(?![^/@]*%(?:40|2[Ff]))[^/@]*@[^?]*@"  # in the database, by someone who does not escape
    rf"|(?!{_HOST}(?:,{_HOST})*(?:/[^@?]*)?\?\w+=)[^/@]*/[^@]*@)"  # a '/' before the '@', and no host and database
)

_NETWORK = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}


class Settings(NamedTuple):
    """Hold a checked configuration; times are in seconds. `place` names the store in messages, without secrets."""

    dsn: str
    listen_dsn: str
    schema: str
    pool: int
    timeout: float
    lock_timeout: float
    resolve_timeout: float
    projects: Mapping[str, str]
    place: str
    folder: Path | None = None
    """The data folder, where known stores are remembered."""

    def __repr__(self) -> str:
        return f"Settings({self.place})"


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Return the settings of a configuration. Raises `ValueError`, without a secret."""
    for key in config:
        if key not in KEYS and key not in _OF_CALLER:
            raise ValueError(f"storage-postgres: unknown key '{key}'. Known: {', '.join(KEYS)}")
    given = {**KEYS, **{key: value for key, value in config.items() if key in KEYS}}
    if not isinstance(given["schema"], str) or not _SCHEMA.fullmatch(given["schema"]):
        raise ValueError(f"storage-postgres: schema: {given['schema']!r} is no name of small letters, digits and '_'")
    if type(given["pool"]) is not int or not 1 <= given["pool"] <= 100:
        raise ValueError(f"storage-postgres: pool: {given['pool']!r} is not a number of connections from 1 to 100")
    seconds = {key: _seconds(key, given[key]) for key in KEYS if key.endswith("timeout")}
    connecting = seconds.pop("connect_timeout")
    password = _password(given["password"])
    dsn = _complete({**_parse("dsn", given["dsn"]), **password}, connecting, seconds["timeout"])
    listening = given["listen_dsn"]
    if listening:
        listening = _complete({**_parse("listen_dsn", listening), **password}, connecting, 30.0)
    return Settings(
        dsn=make_conninfo(**dsn),
        listen_dsn=make_conninfo(**(listening or dsn)),
        schema=given["schema"],
        pool=given["pool"],
        projects=_projects(given["projects"]),
        place=_describe(dsn, given["schema"]),
        folder=Path(config["folder"]) if config.get("folder") else None,
        **seconds,
    )


def _password(given: Any) -> dict[str, str]:
    """Return the part of a connection string with a password, {} without one."""
    if given is None:
        return {}
    if not isinstance(given, str) or not given:
        raise ValueError("storage-postgres: password: name the kept key, for example: secret://AMPLIFIER_DB")
    hide_secret(given)
    return {"password": given}


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.05 <= value <= 3600:
        raise ValueError(f"storage-postgres: {key}: {value!r} is not within 0.05 and 3600 seconds")
    return float(value)


def _parse(key: str, value: Any) -> dict[str, Any]:
    """Return the parts of a connection string, or of the environment variable that it names."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"storage-postgres: {key}: name the variable that holds it, for example: env:AMPLIFIER_DSN")
    variable = value.removeprefix("env:") if value.startswith("env:") else None
    text = os.environ.get(variable, "").strip() if variable is not None else value
    if not text:
        state = "empty" if variable in os.environ else "not set"
        raise ValueError(
            f"storage-postgres: {key}: the environment variable {variable} is {state}. Set it to a connection string, "
            f"for example: postgresql://amplifier@db.example.com/amplifier"
        )
    if _UNESCAPED.match(text):  # libpq takes a part of the password for the host, the port or the database
        raise ValueError(
            f"storage-postgres: {key}: {f'the value of {variable}' if variable else 'it'} has an '@' or a '/' in its "
            f"user or password, or an '@' in its database. Write '@' as %40 and '/' as %2F there"
        )
    try:
        parts: dict[str, Any] = conninfo_to_dict(text)
    except ProgrammingError:  # its message may quote a part of a password
        raise ValueError(
            f"storage-postgres: {key}: {f'the value of {variable}' if variable else 'it'} is no connection string of "
            f"PostgreSQL. Write it as postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full"
        ) from None
    if variable is None and (parts.get("password") or parts.get("sslpassword")):
        raise ValueError(
            f"storage-postgres: {key}: a password does not belong into a configuration. Set an environment variable to "
            f"the connection string and name that, for example: {key}: env:AMPLIFIER_DSN; or keep it in ~/.pgpass"
        )
    for secret in ("password", "sslpassword"):
        if parts.get(secret):
            hide_secret(str(parts[secret]))
    return parts


def _complete(parts: dict[str, Any], connecting: float, timeout: float) -> dict[str, Any]:
    """Return the parts with limits on every wait of the network; what the connection string says comes first."""
    several = {"target_session_attrs": "read-write"} if "," in str(parts.get("host", "")) else {}
    limits = {
        "connect_timeout": max(2, round(connecting)),  # whole seconds; libpq takes no less than 2
        "tcp_user_timeout": round(timeout * 1000),
        "application_name": "amplifier",
    }
    return {**_NETWORK, **limits, **several, **parts}


def _describe(parts: Mapping[str, Any], schema: str) -> str:
    """Return the place of a store without user and password."""
    own, env = parts.get("host") or parts.get("hostaddr"), os.environ.get
    if service := parts.get("service") or env("PGSERVICE"):  # its file has the rest, before the environment
        host, port, name = f"service {service}{f' {own}' if own else ''}", parts.get("port"), parts.get("dbname")
    else:
        host = own or env("PGHOST") or env("PGHOSTADDR") or "localhost"
        port = parts.get("port") or env("PGPORT")
        name = parts.get("dbname") or env("PGDATABASE") or parts.get("user") or env("PGUSER") or "postgres"
    return f"PostgreSQL {host}{f':{port}' if port else ''}{f'/{name}' if name else ''}, schema {schema}"


def _projects(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ValueError("storage-postgres: projects: give a mapping of names to folders, for example: shop: /srv/shop")
    for name, folder in given.items():
        if not isinstance(name, str) or not _PROJECT.fullmatch(name):
            raise ValueError(f"storage-postgres: projects: {name!r} is not a name of letters, digits, '_', '.' and '-'")
        if not isinstance(folder, str) or not os.path.isabs(os.path.expanduser(folder)):  # noqa: PTH111, PTH117 - text
            raise ValueError(f"storage-postgres: projects: {name}: {folder!r} is not the absolute path of a folder")
    folders = {name: os.path.normpath(os.path.expanduser(folder)) for name, folder in given.items()}  # noqa: PTH111
    if len(set(folders.values())) < len(folders):
        raise ValueError("storage-postgres: projects: two names stand for one folder. Keep one of them")
    return folders
