"""Test the package: its configuration, the cost of its import, and its README."""

from __future__ import annotations

import ast
import re
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import StoreConflict, StoreUnavailable
from amplifier_core.utils.secrets import redact_text
from amplifier_storage_postgres import administer_postgres, open_postgres
from amplifier_storage_postgres.settings import KEYS, read_settings

if TYPE_CHECKING:
    from amplifier_storage_postgres.store import PostgresStore

    from .conftest import Start

README = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")


async def test_the_example_of_the_readme_runs(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_DSN", dsn)
    [block] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    running = eval(compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {})
    assert isawaitable(running)
    await running
    store = open_postgres({})
    assert await store.read("first") == [{"role": "user", "content": "Hello"}]
    await store.close()


def test_the_keys_of_the_readme_are_those_that_are_known() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`([^`]+)`)?", README, re.MULTILINE)
    assert [key for key, _ in rows] == list(KEYS)
    for key, default in rows:
        assert default == (f"{KEYS[key]:g}" if isinstance(KEYS[key], float | int) else KEYS[key] or "") or key in (
            "listen_dsn",
            "projects",
        )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"dns": "x"}, "unknown key 'dns'. Known: dsn, "),
        ({"dsn": "env:NOWHERE_SET"}, "the environment variable NOWHERE_SET is not set"),
        ({"dsn": "env:SET_AND_EMPTY"}, "the environment variable SET_AND_EMPTY is empty"),
        ({"dsn": ""}, "name the variable that holds it"),
        ({"dsn": 5}, "name the variable that holds it"),
        ({"dsn": "postgresql://me:hunter2@host/db"}, "a password does not belong into a configuration"),
        ({"dsn": "postgresql://me:hunter2/x@host/db"}, "it has an '@' or a '/' in its user or password"),
        ({"dsn": "postgresql://me:hunter2@x@host/db"}, "Write '@' as %40 and '/' as %2F there"),
        ({"dsn": "postgres://me:hunter2?/x@host"}, "it has an '@' or a '/' in its user or password"),
        ({"dsn": "postgres://me:hunter2@x/y@host"}, "it has an '@' or a '/' in its user or password"),
        ({"dsn": "postgres://me:1/hunter2?x@host"}, "it has an '@' or a '/' in its user or password"),
        ({"dsn": "postgres://me:1?a@hunter2@host/db"}, "it has an '@' or a '/' in its user or password"),
        ({"dsn": "postgres://me@corp:hunter2/x@host"}, "it has an '@' or a '/' in its user or password"),
        ({"dsn": "postgres://me:hunter2%40/x@host/db?user=a@b"}, "it has an '@' or a '/' in its user or password"),
        ({"dsn": "host=host password=hunter2"}, "a password does not belong into a configuration"),
        ({"dsn": "host=host pass hunter2"}, "it is no connection string of PostgreSQL"),
        ({"dsn": "host=host", "schema": 'a"; DROP'}, "is no name of small letters"),
        ({"dsn": "host=host", "pool": True}, "is not a number of connections"),
        ({"dsn": "host=host", "connect_timeout": 0}, "connect_timeout: 0 is not within 0.05 and 3600 seconds"),
        ({"dsn": "host=host", "timeout": "1s"}, "is not within 0.05 and 3600 seconds"),
        ({"dsn": "host=host", "projects": ["/srv"]}, "give a mapping of names to folders"),
        ({"dsn": "host=host", "projects": {"a b": "/srv"}}, "is not a name of letters"),
        ({"dsn": "host=host", "projects": {"a": "srv"}}, "is not the absolute path of a folder"),
        ({"dsn": "host=host", "projects": {"a": "/srv", "b": "/srv/"}}, "two names stand for one folder"),
    ],
)
def test_a_bad_configuration_is_refused_with_its_key(
    config: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SET_AND_EMPTY", "")
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        open_postgres(config)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(("given", "taken"), [(0.3, 2), (1, 2), (2, 2), (2.6, 3)])
def test_a_connection_is_waited_for_at_least_two_seconds_as_libpq_does(given: float, taken: int) -> None:
    settings = read_settings({"dsn": "host=host", "listen_dsn": "host=near", "connect_timeout": given})
    assert f"connect_timeout={taken}" in settings.dsn.split()
    assert f"connect_timeout={taken}" in settings.listen_dsn.split()


def test_a_password_comes_from_the_environment_and_shows_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSN_OF_TEST", "postgresql://me:hunter2@host:7/db?sslmode=verify-full&sslrootcert=/ca.pem")
    settings = read_settings({"dsn": "env:DSN_OF_TEST", "folder": "/ignored"})
    assert settings.place == "PostgreSQL host:7/db, schema amplifier"
    assert "hunter2" not in repr(settings)
    assert {"sslmode=verify-full", "sslrootcert=/ca.pem", "password=hunter2"} <= set(settings.dsn.split())


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://me:hunter2%2Fx%40y@host/db", "host/db"),
        ("postgresql://me:hunter2?x@host/db?sslrootcert=/a@b", "host/db"),
        ("postgresql://host:7?sslrootcert=/a@b&dbname=db", "host:7/db"),
        ("postgresql:///db?host=host&user=me@b", "host/db"),
        ("host=host dbname=db password=a/b@c", "host/db"),
        ("postgresql://db.example:5432/a?user=me@corp", "db.example:5432/a"),
        ("postgresql://host:7,two:8/db?user=me@r", "host,two:7,8/db"),
        ("postgresql://[::1]:7/db?application_name=a@b", "::1:7/db"),
        ("postgresql://[::1]:7?sslrootcert=/a@b&dbname=db", "::1:7/db"),
        ("postgresql://me:hunter2%40@host/db@x", "host/db@x"),
    ],
)
def test_a_connection_string_is_taken_as_it_is(dsn: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSN_OF_TEST", dsn)
    assert read_settings({"dsn": "env:DSN_OF_TEST"}).place == f"PostgreSQL {place}, schema amplifier"


@pytest.mark.parametrize(
    ("dsn", "variables", "place"),
    [
        ("dbname=db", {"PGHOST": "host", "PGPORT": "7"}, "host:7/db"),
        ("host=two port=8", {"PGHOST": "host", "PGPORT": "7", "PGDATABASE": "db"}, "two:8/db"),
        ("user=me", {"PGHOSTADDR": "10.0.0.1"}, "10.0.0.1/me"),
        ("connect_timeout=5", {"PGUSER": "me"}, "localhost/me"),
        ("service=prod user=me", {"PGHOST": "host", "PGPORT": "7"}, "service prod"),
        ("host=near dbname=db", {"PGSERVICE": "prod"}, "service prod near/db"),
    ],
)
def test_servers_chosen_by_the_environment_are_told_apart(
    dsn: str, variables: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGSERVICE", "PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert read_settings({"dsn": dsn}).place == f"PostgreSQL {place}, schema amplifier"


async def test_a_store_of_a_newer_version_is_refused(database: str) -> None:
    store = open_postgres({"dsn": database})
    await store._runner.rows("UPDATE @.version SET version = 99 RETURNING version")
    await store.close()
    with pytest.raises(StoreConflict, match=r"schema 99, .*pip install -U amplifier amplifier-storage-postgres"):
        open_postgres({"dsn": database})


def test_a_role_needs_no_more_than_its_schema(database: str, postgres: Any) -> None:
    name = database.rpartition("=")[2]
    postgres.execute("CREATE ROLE modest LOGIN")
    modest = database.replace("user=postgres", "user=modest")
    with pytest.raises(StoreUnavailable, match="the role may not do this. Grant it the right to create a schema"):
        open_postgres({"dsn": modest})
    postgres.execute("CREATE SCHEMA amplifier AUTHORIZATION modest", database=name)
    store = open_postgres({"dsn": modest})
    with pytest.raises(StopIteration):
        store.close().send(None)


@pytest.mark.parametrize(
    ("setting", "instead", "message"),
    [
        ("", ("user=postgres", "user=stranger"), "refuses this user. Check the user and the password"),
        ("", ("dbname=", "dbname=no"), "has no such database"),
        ("ALTER ROLE busy CONNECTION LIMIT 0", ("user=postgres", "user=busy"), "has no free connection. Allow more"),
        ('ALTER DATABASE "{}" SET default_transaction_read_only = on', ("", ""), "it is a standby, or read-only"),
    ],
)
def test_a_server_that_answers_is_not_said_to_be_out_of_reach(
    setting: str, instead: tuple[str, str], message: str, database: str, postgres: Any
) -> None:
    postgres.execute("DROP ROLE IF EXISTS busy; CREATE ROLE busy LOGIN")
    if setting:
        postgres.execute(setting.format(database.rpartition("=")[2]))
    with pytest.raises(StoreUnavailable, match=re.escape(message)) as refused:
        open_postgres({"dsn": database.replace(*instead)})
    assert "reach" not in str(refused.value)


async def test_two_schemas_are_two_stores(database: str) -> None:
    from amplifier_core.storage import SessionRecord

    one, two = open_postgres({"dsn": database, "schema": "one"}), open_postgres({"dsn": database, "schema": "two"})
    await one.create(SessionRecord("s"))
    assert await two.sessions() == []
    await one.close()
    await two.close()


async def test_the_administration_shows_the_room_and_names_the_tools(store: PostgresStore, dsn: str) -> None:
    from amplifier_core.storage import SessionRecord, StoreAdministration

    await store.create(SessionRecord("s"))
    await store.append("s", [{"content": "hello"}], at=0)
    administration = administer_postgres({"dsn": dsn})
    assert isinstance(administration, StoreAdministration)
    administration.probe()
    info = administration.info()
    assert {use.kind: use.rows for use in info.uses if use.rows} == {"sessions": 1, "messages": 1}
    assert info.largest[0].kind == "session s"
    sizes = [use.bytes for use in info.uses]
    assert sizes == sorted(sizes, reverse=True)
    assert (info.backups, "pg_dump" in info.other_backups) == ((), True)
    assert info.bytes >= administration.size()[1]
    assert administration.check() == []
    tools = {"backup": "pg_dump", "restore": "pg_restore", "salvage": "pg_amcheck", "compact": "VACUUM"}
    for what, tool in tools.items():
        with pytest.raises(StoreUnavailable, match=tool):
            getattr(administration, what)()


def test_the_administration_makes_no_tables(database: str) -> None:
    with pytest.raises(StoreUnavailable, match="has no tables yet"):
        administer_postgres({"dsn": database}).probe()


def test_importing_the_plugin_imports_neither_psycopg_nor_asyncio(start: Start) -> None:
    script = "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    names = "{'psycopg', 'asyncio', 'pydantic'}"
    check = f"import sys, amplifier_storage_postgres; print(sorted({names} & set(sys.modules)))"
    assert start(script, check).communicate()[0] == "[]\n"


def test_a_kept_password_is_that_of_every_connection() -> None:
    config = {"dsn": "host=db user=me", "listen_dsn": "host=direct user=me", "password": "let-me-in-7f2c"}
    settings = read_settings(config)
    assert all("password=let-me-in-7f2c" in dsn.split() for dsn in (settings.dsn, settings.listen_dsn))
    assert "let-me-in-7f2c" not in f"{settings!r} {settings.place} {redact_text('it said let-me-in-7f2c')}"
    with pytest.raises(ValueError, match="password: name the kept key"):
        read_settings({**config, "password": 5})
