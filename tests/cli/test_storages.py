"""Sessions in another storage than the embedded one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.documents.positions import show_file

pytestmark = pytest.mark.usefixtures("home")

BUNDLE = """---
bundle: {name: echo}
providers:
  - module: provider-playbook
    config: {rules: [], otherwise: {say: "You said: {prompt}"}}
background_sessions:
  - name: tick
    triggers: [{module: trigger-timer, config: {interval_seconds: 60}}]
---
Answer.
"""

SMALL = """
import json
import sys
from pathlib import Path

from amplifier_core import hookimpl


class Shelf:
    def __init__(self, config):
        self.folder = Path(config["folder"])

    def save(self, session_id, transcript, metadata):
        (self.folder / f"{session_id}.json").write_text(json.dumps([transcript, metadata]))

    def load(self, session_id):
        return tuple(json.loads((self.folder / f"{session_id}.json").read_text()))

    def exists(self, session_id):
        return (self.folder / f"{session_id}.json").exists()


@hookimpl
def amplifier_register_storage(register):
    register("storage-shelf", Shelf)
"""
"""A storage with the three methods of `SessionStorage`, and no more."""

TORN = """
import inspect
from amplifier_core import hookimpl
from amplifier_core.testing import MemoryStore

class Torn(MemoryStore):
    pass

async def fail(self, *arguments, **more):
    raise EOFError("it is torn")

for name, method in inspect.getmembers(MemoryStore, inspect.iscoroutinefunction):
    if not name.startswith("_") and name != "close":
        setattr(Torn, name, fail)

def open_torn(config):
    return Torn()

@hookimpl
def amplifier_register_storage(register):
    register("storage-torn", open_torn)
"""
"""A storage with errors of its own."""

Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(project: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    (project / "bundle.md").write_text(BUNDLE)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = invoke(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_sessions_live_in_folders_when_the_environment_says_so(
    told: Told, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-jsonl")
    ran = json.loads(told("run", "hello", "--json")[1])["data"]
    assert ran["output"] == "You said: hello"
    [transcript] = home.glob(f"projects/*/sessions/{ran['session_id']}/transcript.jsonl")
    assert len(transcript.read_text().splitlines()) == 2
    fork = json.loads(told("run", "again", "--fork", f"{ran['session_id']}@1", "--json")[1])["data"]
    listed = json.loads(told("session", "list", "--json")[1])["data"]
    assert {each["session_id"] for each in listed} == {ran["session_id"], fork["session_id"]}
    tree = json.loads(told("session", "tree", "--json")[1])["data"]
    assert [(each["session_id"], len(each["children"])) for each in tree] == [(ran["session_id"], 1)]
    assert not (home / "amplifier.db").exists()


def test_background_sessions_are_refused_with_the_remedy_where_there_is_no_inbox(told: Told) -> None:
    assert told("config", "set", "storage", "storage-jsonl")[0] == exits.OK
    code, _, err = told("up", ".", "--once")
    assert code == exits.USAGE  # another attempt would change nothing
    assert "storage-jsonl keeps no inbox, which background sessions need" in err
    assert "amplifier config set storage storage-sqlite" in err


def test_a_storage_that_nobody_provides_is_told_when_it_is_set_and_with_its_line_when_it_is_used(
    told: Told, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = told("config", "set", "storage", "storage-nope")
    assert (code, err) == (exits.OK, "amplifier: no storage 'storage-nope' is installed here\n")
    code, _, err = told("ps")
    assert code == exits.NOT_FOUND
    assert err.startswith("amplifier: unknown storage 'storage-nope'. Installed: storage-jsonl, ")
    where = f"{show_file(home / 'settings.yaml')}:1:10"
    assert err.endswith(f". {where} chooses it; take that back with: amplifier config unset storage --scope user\n")
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-gone")
    assert told("ps")[2].endswith(". AMPLIFIER_STORAGE chooses it: change or unset it\n")


def install(name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with a storage, and choose that."""
    packages = tmp_path / "packages"
    about = packages / f"{name}-1.dist-info"
    about.mkdir(parents=True)
    (packages / f"{name}.py").write_text(text)
    (about / "METADATA").write_text(f"Name: amplifier-storage-{name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[amplifier]\nstorage-{name} = {name}\n")
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setenv("AMPLIFIER_STORAGE", f"storage-{name}")


@pytest.fixture
def small(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """A package with a small storage is installed, and chosen."""
    install("shelf", SMALL, tmp_path, monkeypatch)
    return told


@pytest.fixture
def torn(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """A package with a storage that always fails is installed, and chosen."""
    install("torn", TORN, tmp_path, monkeypatch)
    return told


TORN_ERROR = r"storage 'storage-torn' of amplifier-storage-torn 1: EOFError: it is torn \(.*/torn\.py:10\)"


@pytest.mark.parametrize("command", ["session list", "run hi", "ps", "up --once"])
def test_an_error_of_a_storages_own_code_names_the_storage_and_its_package(torn: Told, command: str) -> None:
    code, _, err = torn(*command.split())
    assert code == exits.FAILED
    assert re.search(f"amplifier: {TORN_ERROR} ", err)


def test_doctor_reads_a_store_whose_storage_offers_no_administration(torn: Told) -> None:
    rows = json.loads(torn("doctor", "--json")[1])["data"]
    found = {(each["part"], each["state"]): each["fact"] for each in rows if each["part"] in ("store", "events")}
    assert "offers no administration" in found["store", "off"]
    assert re.fullmatch("the disk of .* has room", found["store", "ok"])
    assert re.fullmatch(f"nobody knows whether events wait in vain: {TORN_ERROR}", found["events", "weak"])


@pytest.mark.parametrize(
    "command",
    [
        *("up --once", "worker --once", "ps", "logs", "host list", "why abcd", "pause tick", "start tick"),
        *("trigger list", "trigger dead", "trigger fire tick", "trigger retry abcd", "trigger drop abcd"),
        *("approvals list", "approvals show last", "issue list", "issue create Bread", "memory list"),
        *("store info", "store check", "store backup", "store copy settings elsewhere.db"),
    ],
)
def test_a_command_that_needs_more_than_a_small_storage_says_so_with_the_remedy(small: Told, command: str) -> None:
    code, out, err = small(*command.split())
    assert (code, out) == (exits.USAGE, "")
    assert re.search(
        r"storage-shelf (keeps no inbox|offers no administration|cannot be copied)|Shelf keeps no doc", err
    )
    assert re.search("Use storage-sqlite|look after its files", err)


def test_a_small_storage_is_enough_for_turns_and_forks(small: Told) -> None:
    ran = json.loads(small("run", "hello", "--json")[1])["data"]
    again = small("run", "--resume", ran["session_id"], "again")
    fork = small("run", "--fork", f"{ran['session_id']}@1", "other")
    assert (again[1], fork[1]) == ("You said: again\n", "You said: other\n")


def test_settings_configure_the_storage_of_every_command(told: Told, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    assert told("config", "set", "storage", f"{{name: storage-jsonl, config: {{folder: {folder}}}}}")[0] == exits.OK
    ran = json.loads(told("run", "hello", "--json")[1])["data"]
    assert [path.name for path in folder.glob("projects/*/sessions/*")] == [ran["session_id"]]
    assert told("session", "show", ran["session_id"])[0] == exits.OK
    assert told("config", "set", "storage", "{name: storage-jsonl, config: {foldr: x}}")[0] == exits.OK
    code, _, err = told("session", "list")
    assert (code, "storage-jsonl refuses its configuration: storage-jsonl: unknown key 'foldr'" in err) == (
        exits.USAGE,
        True,
    )


def test_a_storage_that_is_not_installed_is_named(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-jsnl")
    code, _, err = told("session", "list")
    assert code == exits.NOT_FOUND
    assert "did you mean 'storage-jsonl'?" in err
