"""The command line on a store that several hosts share: real processes, each with a data folder, on one PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from amplifier_foundation.cli import exits
from tests import forks
from tests.postgres import database, postgres

pytestmark = pytest.mark.slow

__all__ = ["database", "postgres"]  # fixtures

PATIENCE = 30.0
BUNDLE = """---
bundle: {name: shop}
providers:
  - module: provider-playbook
    config: {otherwise: {say: "You said: {prompt}"}, delay_ms: 20}
background_sessions:
  - name: clerk
    instruction_template: serve {n}
    triggers: [{module: trigger-manual}]
  - name: clock
    instruction_template: tick
    triggers: [{module: trigger-timer, config: {interval: 1h}}]
---
"""
ASKING = """---
bundle: {name: shop}
providers:
  - module: provider-playbook
    config:
      rules: [{when: {user: pay}, call: {tool: write_file, input: {file_path: paid.txt, content: "7"}}}]
      otherwise: {say: "You said: {prompt}"}
tools: [{module: tool-filesystem}]
permissions: {ask: [write_file]}
background_sessions: [{name: clerk, instruction_template: "{text}", triggers: [{module: trigger-manual}]}]
---
"""


@dataclass
class Site:
    """A project on several hosts."""

    folder: Path
    dsn: str
    is_apart: bool = False
    """Whether the project has another path on each host."""
    names: dict[str, str] = field(default_factory=dict)
    """The names of projects otherwise."""
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    lease: int = 2

    def environment(self, host: str) -> dict[str, str]:
        home = self.folder / host
        home.mkdir(mode=0o700, exist_ok=True)
        names = {"shop": str(self.project(host))} if self.is_apart else self.names
        config = {"dsn": "env:DSN", "projects": names}
        storage = {"name": "storage-postgres", "config": config}
        settings = {"storage": storage, "hosts": {"lease": self.lease}}
        (home / "settings.yaml").write_text(json.dumps(settings))
        return {**os.environ, "AMPLIFIER_HOME": str(home), "DSN": self.dsn, "COLUMNS": "200"}

    def project(self, host: str, folder: str = "shop") -> Path:
        if not self.is_apart:
            return self.folder / folder
        place = self.folder / f"of {host}" / "shop"
        if not place.exists():
            place.mkdir(parents=True)
            (place / "bundle.md").write_text(BUNDLE)
        return place

    def start(self, host: str, *command: str, folder: str = "shop") -> subprocess.Popen[bytes]:
        process = forks.Popen(
            ["-q", *command],
            cwd=self.project(host, folder),
            env=self.environment(host),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.running.append(process)
        self.until(lambda: self.row(process.pid))
        return process

    def run(self, host: str, *command: str, folder: str = "shop") -> subprocess.CompletedProcess[str]:
        return forks.run(
            command,
            cwd=self.project(host, folder),
            env=self.environment(host),
            timeout=60,
        )

    def data(self, host: str, *command: str) -> Any:
        done = self.run(host, *command, "--json")
        assert done.returncode in (exits.OK, exits.FAILED), done.stderr
        return json.loads(done.stdout)["data"]

    def row(self, pid: int) -> dict[str, Any] | None:
        return next((row for row in self.data("office", "host", "list") if row["pid"] == pid), None)

    def states(self, host: str) -> dict[str, str]:
        return {row["queue"]: row["state"] for row in self.data(host, "ps")["background_sessions"]}

    def host_of(self, name: str) -> str:
        return (self.folder / name / "host").read_text()

    def until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end
            assert all(each.poll() is None for each in self.running)
            time.sleep(0.05)


@pytest.fixture
def site(tmp_path: Path, database: str) -> Iterator[Site]:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "bundle.md").write_text(BUNDLE)
    made = Site(tmp_path, database)
    yield made
    for process in made.running:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


@pytest.mark.long
def test_a_person_sees_and_steers_all_hosts_from_any_of_them(site: Site) -> None:
    web1 = site.start("web1", "up")
    site.until(lambda: (site.row(web1.pid) or {})["leads"])
    web2 = site.start("web2", "worker")
    rows = {row["host"]: row for row in site.data("office", "host", "list")}
    assert {row["role"]: row["leads"] != [] for row in rows.values()} == {"up": True, "worker": False}
    shown = site.run("office", "host", "list").stdout
    assert site.host_of("web1") in shown
    assert "shop in" in shown

    fired = site.run("office", "trigger", "fire", "clerk", "--data", '{"n": 1}')
    assert (fired.returncode, fired.stderr) == (exits.OK, "clerk: accepted\n")
    site.until(lambda: site.data("office", "ps")["background_sessions"][0]["done"] == 1)
    told = site.run("office", "why", "last").stdout
    assert any(f"on {site.host_of(name)}" in told for name in ("web1", "web2"))
    assert re.search(r"session clerk-\w+ on \S+", site.run("office", "logs").stdout)
    hosts = site.data("office", "ps")["background_sessions"][0]["hosts"]
    assert sorted(hosts) == sorted([site.host_of("web1"), site.host_of("web2")])

    done = site.run("office", "pause", "clerk")
    assert (done.returncode, done.stderr) == (exits.OK, "shop/clerk is paused\n")
    assert site.states("office")["shop/clerk"] == "paused"
    for verb in ("resume", "restart", "stop", "start"):
        assert site.run("office", verb, "clerk").returncode == exits.OK
    broken = site.folder / "broken"
    broken.mkdir()
    (broken / "bundle.md").write_text("---\nbundle:\n---\n")
    for verb in ("pause", "resume", "stop", "start"):  # whatever is wrong with the bundle of the folder
        assert site.run("office", verb, "clerk", folder="broken").returncode == exits.OK
    assert "bundle.md:2:" in site.run("office", "stop", "clork", folder="broken").stderr
    wrong = site.run("office", "pause", "clork")
    assert wrong.returncode == exits.NOT_FOUND

    done = site.run("office", "host", "drain", site.host_of("web2")[:-2])
    assert (done.returncode, done.stdout) == (exits.OK, "")
    assert web2.wait(PATIENCE) == exits.OK
    site.running.remove(web2)
    assert web1.poll() is None


def test_of_two_folders_on_other_hosts_that_of_the_person_is_paused(site: Site) -> None:
    for host, folder in (("web1", "shop"), ("web2", "west")):
        (site.folder / folder).mkdir(exist_ok=True)
        (site.folder / folder / "bundle.md").write_text(BUNDLE)
        site.start(host, "up", folder=folder)
    (site.folder / "away").mkdir()

    def states() -> dict[str, str]:
        rows = site.data("office", "ps")["background_sessions"]
        return {Path(row["project"]).name: row["state"] for row in rows if row["queue"] == "shop/clerk"}

    site.until(lambda: states() == {"shop": "running", "west": "running"})
    refused = site.run("office", "pause", "clerk", folder="away")
    listed = ", ".join(f"shop/clerk in {(site.folder / name).resolve()}" for name in ("shop", "west"))
    assert refused.returncode == exits.CONFLICT
    assert f"several background sessions have this name: {listed}. Go to the folder of one" in refused.stderr
    assert site.run("web1", "pause", "clerk", folder="west").stderr == "shop/clerk is paused\n"
    assert states() == {"shop": "running", "west": "paused"}


def test_a_project_with_another_path_on_each_host_is_one_project(site: Site) -> None:
    site.is_apart = True
    web1 = site.start("web1", "up")
    site.until(lambda: (site.row(web1.pid) or {})["leads"])
    changed = site.project("web2") / "bundle.md"
    changed.write_text(BUNDLE.replace("1h", "2h"))
    web2 = site.start("web2", "up")
    site.until(lambda: (site.row(web2.pid) or {})["leads"])
    rows = site.data("web1", "host", "list")
    assert [(row["pid"], row["projects"]) for row in rows if row["leads"]] == [(web2.pid, [str(site.project("web1"))])]

    def hosts() -> dict[str, int]:
        return {row["queue"]: len(row["hosts"]) for row in site.data("web1", "ps")["background_sessions"]}

    site.until(lambda: hosts() == {"shop/clerk": 2, "shop/clock": 2})  # a leader's sessions start after its sign
    assert site.run("office", "pause", "clerk").stderr == "shop/clerk is paused\n"


def test_what_was_stored_before_its_project_had_a_name_is_told(site: Site) -> None:
    assert site.run("web1", "trigger", "fire", "clerk", "--data", '{"n": 1}').returncode == exits.OK
    assert site.run("web1", "worker", "--once").stderr.count("before `projects` named it") == 0
    assert site.run("web1", "trigger", "fire", "clerk", "--data", '{"n": 2}').returncode == exits.OK
    site.names = {"shop": str(site.folder / "shop")}
    told = site.run("web1", "worker", "--once").stderr
    assert f"waiting events (1) of {site.folder / 'shop'} were stored before `projects` named it shop" in told


def test_a_worker_for_once_handles_what_waits_and_ends(site: Site) -> None:
    for number in range(3):
        assert site.run("office", "trigger", "fire", "clerk", "--data", f'{{"n": {number}}}').returncode == exits.OK
    done = site.run("job", "worker", "--once")
    assert (done.returncode, done.stdout.count("You said: serve")) == (exits.OK, 3)
    assert site.data("office", "ps")["background_sessions"] == []
    assert site.data("office", "host", "list") == []
    with psycopg.connect(site.dsn, autocommit=True) as db:  # as after a copy of the store of one host
        db.execute("UPDATE amplifier.deliveries SET owners = '{12-ab}'")
    for told in (site.run("office", "logs").stdout, site.run("office", "why", "last").stdout):
        assert "clerk" in told
        assert not re.search(r" on( |,|$)", told, re.MULTILINE)


def test_the_work_of_a_host_that_is_gone_is_adopted(site: Site) -> None:
    site.lease = 30
    gone = site.start("web1", "up")
    site.until(lambda: bool(site.data("web2", "session", "list", "--all")))  # its open session is stored
    gone.kill()
    gone.wait()
    site.running.clear()
    host = site.host_of("web1")
    refused = site.run("web2", "host", "adopt", host, "--yes")
    assert refused.returncode == exits.CONFLICT
    assert "gives signs" in refused.stderr
    assert f"amplifier host drain {host}" in refused.stderr
    done = site.run("web2", "host", "adopt", host, "--yes", "--force")
    assert (done.returncode, done.stderr) == (
        exits.OK, f"Adopted 0 claims, 0 waiting events and 1 open sessions of {host}.\n",
    )  # fmt: skip
    assert site.data("web2", "host", "list") == []


def test_what_is_old_is_told_by_the_clock_of_the_database(site: Site) -> None:
    (site.folder / "shop" / "bundle.md").write_text(ASKING)
    assert site.data("office", "host", "list") == []  # it makes the tables
    with psycopg.connect(site.dsn, autocommit=True) as db:  # all hosts are 8 days ahead of it
        clock = "SELECT ((extract(epoch FROM clock_timestamp()) - 8 * 86400) * 1000000)::bigint"
        db.execute(f"CREATE OR REPLACE FUNCTION amplifier.clock() RETURNS bigint LANGUAGE sql VOLATILE AS '{clock}'")
    for text in ("pay", "greet"):
        fire = ["trigger", "fire", "clerk", "--data", json.dumps({"text": text})]
        assert site.run("office", *fire).returncode == exits.OK
    assert site.run("office", "up", "--once").returncode == exits.FAILED  # one waits for an answer
    assert len(site.data("office", "session", "list", "--all", "--since", "1h")) == 3
    assert "clerk" in site.run("office", "logs", "--since", "1h").stdout
    pruned = site.data("office", "session", "prune", "--older-than", "7d", "--all", "--yes")
    assert pruned == {"deleted": False, "sessions": [], "deliveries": 0, "events": 0}
    [asked] = site.data("office", "approvals", "list")
    site.start("web1", "up")
    site.until(lambda: site.states("office")["shop/clerk"] == "running")
    answered = site.run("office", "approvals", "approve", asked["id"])
    assert (answered.returncode, answered.stdout.rpartition("; ")[2]) == (exits.OK, "its session goes on now\n")
    told = [json.loads(line) for line in site.run("office", "logs", "--jsonl").stdout.splitlines()]
    assert {"accepted", "completed", "acted"} <= {each["kind"] for each in told}
    late = datetime.now(UTC) - timedelta(days=7)
    assert [each for each in told if datetime.fromisoformat(each["at"]) > late] == []


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["host", "drain", "nowhere"], exits.NOT_FOUND, "no host 'nowhere'. None is known. See: amplifier host list"),
        (["host", "adopt", "nowhere", "--yes"], exits.NOT_FOUND, "no host 'nowhere'"),
    ],
)
def test_a_host_that_nobody_knows_is_told(command: list[str], code: int, words: str, site: Site) -> None:
    done = site.run("office", *command)
    assert done.returncode == code
    assert words in done.stderr


@pytest.mark.parametrize("command", [["host", "list"], ["host", "drain", "x"], ["worker"]])
def test_a_store_of_one_host_has_no_hosts_and_no_workers(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home")}
    done = forks.run(command, cwd=tmp_path, env=environment, timeout=60)
    assert done.returncode in (exits.NOT_FOUND, exits.USAGE)
    assert "storage-postgres" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_password_of_the_database_is_a_kept_key(site: Site) -> None:
    server = site.dsn.partition("host=")[2].partition(" ")[0]
    done = forks.run(
        ["auth", "login", "AMPLIFIER_DB"],
        cwd=site.folder,
        env=site.environment("web1"),
        input="let-me-in\n",
        timeout=60,
    )
    assert done.returncode == exits.OK, done.stderr
    with psycopg.connect(site.dsn, autocommit=True) as db:
        db.execute("CREATE ROLE clerk LOGIN PASSWORD 'let-me-in'")
        db.execute(f'GRANT CREATE, CONNECT ON DATABASE "{db.info.dbname}" TO clerk')
        rules = Path(server, "data", "pg_hba.conf")
        before = rules.read_text()
        rules.write_text("local all clerk scram-sha-256\n" + before)
        db.execute("SELECT pg_reload_conf()")
    try:
        config = {"dsn": site.dsn.replace("user=postgres", "user=clerk"), "password": "secret://AMPLIFIER_DB"}
        settings = {"storage": {"name": "storage-postgres", "config": config}}
        environment = site.environment("web1")
        (site.folder / "web1" / "settings.yaml").write_text(json.dumps(settings))
        listing = ["host", "list"]
        run = forks.run(listing, env=environment, timeout=60)
        assert (run.returncode, run.stdout) == (exits.OK, "")
        (site.folder / "web1" / "keys.json").unlink(missing_ok=True)
        forget = ["auth", "logout", "AMPLIFIER_DB"]
        forks.run(forget, env=environment, timeout=60)
        run = forks.run(listing, env=environment, timeout=60)
        assert run.returncode != exits.OK
        assert "amplifier auth login AMPLIFIER_DB" in run.stderr
    finally:
        rules.write_text(before)
        with psycopg.connect(site.dsn, autocommit=True) as db:
            db.execute("SELECT pg_reload_conf()")


def test_no_command_makes_an_empty_store_where_one_has_lost_its_tables(site: Site) -> None:
    assert site.run("office", "session", "list").returncode == exits.OK
    with psycopg.connect(site.dsn, autocommit=True) as db:
        db.execute("SET client_min_messages = error; DROP SCHEMA amplifier CASCADE")
        for command in (["session", "list"], ["up", "--once"]):
            done = site.run("office", *command)
            assert (done.returncode, "its tables are gone" in done.stderr) == (exits.TRY_AGAIN, True)
        assert db.execute("SELECT FROM pg_namespace WHERE nspname = 'amplifier'").fetchall() == []
