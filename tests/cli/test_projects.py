"""Several projects at once, each with its own process, and commands given in a folder below a project's."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle.sections import SECTIONS
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.paths import BUNDLE_FILES, OWN_SECTIONS, find_own_file, find_project
from amplifier_foundation.sessions.lock import running_owner, running_owners
from amplifier_foundation.settings import read_settings
from amplifier_foundation.spawning.opening import find_own_bundle

PROGRAM = [sys.executable, "-m", "amplifier_foundation"]
BUNDLE = """---
bundle: {{name: {name}}}
providers: [{{module: provider-playbook, config: {{otherwise: {{say: "You said: {{prompt}}"}}}}}}]
background_sessions: [{{name: asked, instruction_template: "say {{what}}"}}]
---
"""


def make_project(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "bundle.md").write_text(BUNDLE.format(name=folder.name), encoding="utf-8")
    return folder


@pytest.fixture
def folders(tmp_path: Path, home: Path, amplifier: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Two projects whose background sessions run."""
    made = [make_project(tmp_path / name) for name in ("one", "two")]
    for folder in made:
        monkeypatch.chdir(folder)
        assert amplifier("up", "--detach").returncode == exits.OK
    yield made
    if running_owners():
        assert invoke(["stop", "--everything"]) == exits.OK


def running(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the folder of each background session that `ps` shows as running, by its queue."""
    capsys.readouterr()
    invoke(["ps", "--json"])
    rows = json.loads(capsys.readouterr().out)["data"]["background_sessions"]
    return {row["queue"]: row["project"] for row in rows if row["state"] == "running"}


def test_each_project_has_a_process_and_ps_shows_all(
    folders: list[Path], amplifier: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = folders
    assert running(capsys) == {"one/asked": str(one), "two/asked": str(two)}
    assert len({owner["pid"] for owner in running_owners()}) == 2
    assert amplifier("up", "--detach").returncode == exits.CONFLICT  # a folder has one

    monkeypatch.chdir(one)
    assert invoke(["stop", "--all"]) == exits.OK
    assert running(capsys) == {"two/asked": str(two)}
    assert invoke(["stop", "--all"]) == exits.CONFLICT
    assert f"nothing runs in this folder, but in: {two}" in capsys.readouterr().err
    assert invoke(["stop", "--everything"]) == exits.OK
    assert running_owners() == []


def test_a_background_session_is_stopped_where_the_command_is_given(
    folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = folders
    assert invoke(["stop", "asked"]) == exits.OK
    assert capsys.readouterr().err.startswith("two/asked is stopped\n")
    assert running(capsys) == {"one/asked": str(one)}
    assert invoke(["stop", "one/asked"]) == exits.OK
    assert running(capsys) == {}
    assert running_owner(str(one)) is not None
    assert running_owner(str(two)) is not None


def test_one_of_this_folder_is_stopped_and_started_before_its_start_though_another_folder_runs_one_of_that_name(
    folders: list[Path], amplifier: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = folders
    assert invoke(["stop", "--all"]) == exits.OK  # in `two`
    capsys.readouterr()
    for command, code, said in (
        ("stop", exits.OK, "two/asked is stopped\nIt stays stopped until: amplifier start asked\n"),
        ("start", exits.OK, "two/asked starts with the next: amplifier up\n"),
        ("restart", exits.CONFLICT, "amplifier: nothing runs two/asked. Start it with: amplifier up\n"),
        ("stop", exits.OK, "two/asked is stopped\nIt stays stopped until: amplifier start asked\n"),
    ):
        assert (invoke([command, "asked"]), capsys.readouterr().err) == (code, said)
    assert running(capsys) == {"one/asked": str(one)}
    assert amplifier("up", "--detach").returncode == exits.OK
    assert running(capsys) == {"one/asked": str(one)}
    assert invoke(["start", "asked"]) == exits.OK
    assert capsys.readouterr().err == "two/asked runs\n"
    assert running(capsys) == {"one/asked": str(one), "two/asked": str(two)}


def test_one_of_this_folder_is_paused_and_resumed_before_its_start_though_another_folder_runs_one_of_that_name(
    folders: list[Path], amplifier: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = folders
    assert invoke(["stop", "--all"]) == exits.OK  # in `two`
    capsys.readouterr()
    assert invoke(["resume", "asked"]) == exits.CONFLICT
    assert "two/asked is not paused, and nothing runs it. Start it with: amplifier up\n" in capsys.readouterr().err
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "x"}']) == exits.OK
    assert invoke(["pause", "asked"]) == exits.OK
    assert capsys.readouterr().err.endswith("two/asked is paused\n")
    assert running(capsys) == {"one/asked": str(one)}
    assert invoke(["ps", "--json"]) == exits.OK
    rows = json.loads(capsys.readouterr().out)["data"]["background_sessions"]
    assert [(row["queue"], row["state"], row["reason"]) for row in rows][1] == ("two/asked", "not running", "paused")
    assert invoke(["resume", "two/asked"]) == exits.OK
    assert capsys.readouterr().err == "two/asked is resumed\n"
    assert invoke(["pause", "asked"]) == exits.OK
    assert amplifier("up", "--detach").returncode == exits.OK
    assert running(capsys) == {"one/asked": str(one)}
    assert invoke(["resume", "asked"]) == exits.OK
    assert running(capsys) == {"one/asked": str(one), "two/asked": str(two)}
    assert invoke(["pause", "one/asked"]) == exits.OK
    assert running(capsys) == {"two/asked": str(two)}


def test_a_name_of_several_projects_is_refused_outside_of_them(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = folders
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for command in ("pause", "stop", "restart"):
        assert invoke([command, "asked"]) == exits.CONFLICT
        several = f"several background sessions have this name: one/asked in {one}, two/asked in {two}"
        assert several in capsys.readouterr().err
    assert running(capsys) == {"one/asked": str(one), "two/asked": str(two)}
    assert invoke(["pause", "one/asked"]) == exits.OK
    assert running(capsys) == {"two/asked": str(two)}


def test_a_project_is_found_from_a_folder_below(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path / "one")
    (project / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(project / "src" / "deep")
    assert invoke(["run", "hello"]) == exits.OK
    assert capsys.readouterr().out == "You said: hello\n"
    for folder in (project / "src" / "deep", project):
        monkeypatch.chdir(folder)
        assert invoke(["session", "list", "--json"]) == exits.OK
        [record] = json.loads(capsys.readouterr().out)["data"]
        assert record["project"] == str(project)


@pytest.mark.parametrize("name", ["bundle.yaml", "bundle.yml"])
def test_a_bundle_in_yaml_is_that_of_its_project(
    name: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path / "one")
    (project / "below").mkdir()
    text = (project / "bundle.md").read_text(encoding="utf-8").strip("-\n")
    (project / "bundle.md").unlink()
    (project / name).write_text(text.replace("You said", "Yes"), encoding="utf-8")
    for folder in (project, project / "below"):
        monkeypatch.chdir(folder)
        assert invoke(["bundle", "validate"]) == exits.OK
        assert capsys.readouterr().out == f"{name if folder == project else project / name}: valid\n"
        assert invoke(["run", "hello"]) == exits.OK
        assert capsys.readouterr().out == "Yes: hello\n"
        assert find_own_bundle(str(folder), read_settings(folder)) == str(project / name)


JUJU = "bundle: kubernetes\napplications:\n  etcd: {charm: etcd}\nrelations: []\n"
DATABRICKS = "bundle:\n  name: jobs\ninclude: [more.yml]\nresources:\n  tools: {}\npermissions: []\ntargets: {}\n"
CARVEL = "apiVersion: imgpkg.carvel.dev/v1alpha1\nkind: Bundle\ntools: []\n"


@pytest.mark.parametrize(("name", "text"), [("bundle.yaml", JUJU), ("bundle.yml", DATABRICKS), ("bundle.yml", CARVEL)])
def test_a_yaml_of_another_program_is_no_bundle_of_a_project(
    name: str,
    text: str,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home.mkdir(mode=0o700)
    chosen = make_project(tmp_path / "chosen")
    theirs = tmp_path / "theirs" / "below"
    theirs.mkdir(parents=True)
    (theirs.parent / name).write_text(text, encoding="utf-8")
    (home / "settings.yaml").write_text(f"bundle: {chosen}\n", encoding="utf-8")
    for folder in (theirs, theirs.parent):
        monkeypatch.chdir(folder)
        assert find_project() == str(folder)
        assert find_own_bundle(str(folder), read_settings(folder)) == str(chosen)
        assert invoke(["run", "hello"]) == exits.OK
        assert capsys.readouterr().out == "You said: hello\n"
    assert invoke(["bundle", "validate", name]) == exits.USAGE  # it is named
    (home / "settings.yaml").unlink()
    assert invoke(["init"]) == exits.OK
    assert find_own_bundle(".", read_settings()) == str(theirs.parent / "bundle.md")


@pytest.mark.parametrize(
    "text",
    [
        '{"bundle": {"name": "one"}, "providers": []}',
        "{bundle: {name: one},\n tools: []}",
        "# mine\n---\n'bundle' :\r\n  name: one\r\nincludes:\r\n- other.md",
        "bundle: one\nproviders: [",  # what loads it says what is wrong
        b"\xff\xfe",
    ],
)
def test_a_yaml_of_ours_is_known_by_its_sections_also_when_it_is_broken(text: str | bytes, tmp_path: Path) -> None:
    (tmp_path / "bundle.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    assert find_own_file(tmp_path) == tmp_path / "bundle.yaml"
    (tmp_path / "bundle.yml").write_text("bundle: {name: two}\nhooks: []\n", encoding="utf-8")
    (tmp_path / "bundle.yaml").write_text(JUJU, encoding="utf-8")
    assert find_own_file(tmp_path) == tmp_path / "bundle.yml"


def test_the_sections_that_show_a_bundle_are_those_of_bundles() -> None:
    assert {each.name for each in SECTIONS} == OWN_SECTIONS | {"permissions"}


def test_the_search_for_a_project_ends_at_the_root_of_a_checkout_and_at_the_home_folder(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path / "one")
    (project / "checkout" / ".git").mkdir(parents=True)
    (project / "person" / "folder").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(project / "person"))
    for folder in (project / "checkout", project / "person" / "folder"):
        monkeypatch.chdir(folder)
        assert invoke(["bundle", "show"]) == exits.NOT_FOUND
        assert "no bundle.md in this project" in capsys.readouterr().err
        assert invoke(["run", "hello"]) == exits.OK
        assert "no bundle.md here" in capsys.readouterr().err


@pytest.mark.parametrize("name", BUNDLE_FILES)
def test_a_bundle_that_cannot_be_read_is_an_error_and_no_other_one_runs(
    name: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / name).symlink_to("share/bundle.md")
    for folder in (tmp_path, tmp_path / "below"):
        monkeypatch.chdir(folder)
        for command in (["run", "hello"], ["up", "--once"], ["run", "-b", str(tmp_path), "hello"]):
            assert invoke(command) == exits.NOT_FOUND
            assert f"{name}: a broken link to share/bundle.md\n" in capsys.readouterr().err
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert invoke(["run", "hello"]) == exits.USAGE
    assert f"{name}: not a file\n" in capsys.readouterr().err


def test_a_bundle_that_is_a_link_to_a_folder_is_the_one_there(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "bundle.md").symlink_to("x")
    monkeypatch.chdir(tmp_path)
    commands = [["run", "hello"], ["run", "-b", str(tmp_path), "hello"], ["trust", "--yes"]]
    for command in commands:
        assert invoke(command) == exits.NOT_FOUND
        assert "bundle.md: this folder has no bundle.md" in capsys.readouterr().err
    (tmp_path / "x" / "bundle.md").write_text("---\n")
    for command in commands:
        assert invoke(command) == exits.USAGE
        assert "bundle.md:1:1: error[AMP202]" in capsys.readouterr().err


def test_a_storage_that_may_not_load_is_not_said_to_be_missing(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["--safe-mode", "session", "list"]) == exits.NOT_FOUND
    err = capsys.readouterr().err
    assert "'storage-sqlite', and this plugin is not loaded. Leave out --safe-mode" in err
    assert "pip install" not in err
