"""`amplifier trust`: nothing of a bundle or a project's settings runs before it is trusted, nor after it changed."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.security.trust_ledger import Ledger
from amplifier_foundation.settings import write_setting

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {{name: greeter}}
providers: [{{module: provider-playbook, config: {{otherwise: {{say: "{say}"}}}}}}]
hooks: [{{module: hooks-own, source: ./own.py}}]
---
You greet.
"""
OWN = """
from pathlib import Path
Path(__file__).with_name("ran").write_text("{text}")


async def mount(coordinator, config):
    return None
"""


@pytest.fixture(autouse=True)
def _asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")


@pytest.fixture
def stranger(project: Path) -> Path:
    """A folder with a bundle that runs a hook of its own."""
    (project / "bundle.md").write_text(BUNDLE.format(say="hi"), encoding="utf-8")
    (project / "own.py").write_text(OWN.format(text="first"), encoding="utf-8")
    return project


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = invoke(arguments)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def ran(folder: Path) -> str | None:
    file = folder / "ran"
    text = file.read_text() if file.exists() else None
    file.unlink(missing_ok=True)
    return text


def test_a_bundle_runs_once_it_is_trusted(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "run", "hello")
    assert (code, out, ran(stranger)) == (exits.WAITING, "", None)
    assert err == (
        "amplifier: bundle.md is not trusted, and nothing of it runs. "
        f"Look at it, and trust it, with: amplifier trust {stranger}\n"
    )
    code, out, err = said(capsys, "trust", "-y")
    assert (code, out) == (exits.OK, f"{stranger}/bundle.md is trusted\n")
    assert f"code         {stranger}/own.py\n" in err
    assert said(capsys, "run", "hello")[:2] == (exits.OK, "hi\n")
    assert ran(stranger) == "first"
    assert said(capsys, "trust", str(stranger))[2] == f"{stranger} is trusted already\n"


@pytest.mark.parametrize("changed", ["own.py", "bundle.md"])
def test_a_change_is_asked_for_again_with_a_diff(
    changed: str, stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    file = stranger / changed
    before = file.stat()
    file.write_text(file.read_text().replace("first", "other").replace("hi", "ho"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # the size is the same, too
    code, _, err = said(capsys, "run", "hello")
    assert (code, ran(stranger)) == (exits.WAITING, None)
    assert f"has changed since it was trusted ({changed})" in err
    assert said(capsys, "trust", "--list")[1].split()[-1] == "changed"
    _, _, err = said(capsys, "trust", "-y")
    assert ("-Path" in err and "+Path" in err) if changed == "own.py" else ("say: " in err)
    assert "\n-" in err
    assert said(capsys, "run", "hello")[0] == exits.OK


def test_a_new_file_in_a_folder_of_code_is_a_change(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = stranger / "code" / "amplifier_module_hooks_own"
    package.mkdir(parents=True)
    (stranger / "own.py").rename(package / "__init__.py")
    bundle = stranger / "bundle.md"
    bundle.write_text(bundle.read_text().replace("./own.py", "./code"))
    invoke(["trust", "-y"])
    assert said(capsys, "run", "hello")[0] == exits.OK
    (stranger / "code" / "helper.py").write_text("")
    assert "(code/helper.py)" in said(capsys, "run", "hello")[2]
    (stranger / "code" / "helper.py").unlink()
    assert said(capsys, "run", "hello")[0] == exits.OK


@pytest.mark.parametrize("own", ["own.py", "code/amplifier_module_hooks_own/__init__.py"])
@pytest.mark.parametrize("mode", [PycInvalidationMode.TIMESTAMP, PycInvalidationMode.UNCHECKED_HASH])
def test_bytecode_beside_what_is_trusted_is_never_run(
    own: str, mode: PycInvalidationMode, stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = stranger / own
    source.parent.mkdir(parents=True, exist_ok=True)
    (stranger / "own.py").rename(source)
    bundle = stranger / "bundle.md"
    bundle.write_text(bundle.read_text().replace("./own.py", "./own.py" if own == "own.py" else "./code"))
    invoke(["trust", "-y"])
    stat = source.stat()
    source.write_text(OWN.format(text="other"))
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    py_compile.compile(str(source), invalidation_mode=mode, doraise=True)
    source.write_text(OWN.format(text="first"))
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert said(capsys, "run", "hello")[0] == exits.OK
    assert ran(source.parent) == "first"


def test_what_is_included_and_what_background_sessions_run_belongs_to_it(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stranger / "base.yaml").write_text("bundle: {name: base}\nhooks: [{module: hooks-base, source: ./base.py}]\n")
    (stranger / "base.py").write_text(OWN.format(text="base"))
    (stranger / "worker.md").write_text(BUNDLE.format(say="worked").replace("./own.py", "./worker.py"))
    (stranger / "worker.py").write_text(OWN.format(text="worker"))
    (stranger / "agents").mkdir()
    (stranger / "agents" / "a.md").write_text("---\nmeta: {name: a, description: b}\n---\nHelp.\n")
    bundle = stranger / "bundle.md"
    text = bundle.read_text().replace(
        "hooks:",
        "includes: [./base.yaml]\nagents: {include: [a]}\n"
        "background_sessions: [{name: w, bundle: ./worker.md}]\nhooks:",
        1,
    )
    bundle.write_text(text)
    invoke(["trust", "-y"])
    assert said(capsys, "run", "hello")[0] == exits.OK
    for name in ("base.yaml", "base.py", "worker.md", "worker.py", "agents/a.md"):
        file = stranger / name
        before = file.read_text()
        file.write_text(before + "\n")
        assert f"({name})" in said(capsys, "run", "hello")[2]
        file.write_text(before)
    assert said(capsys, "run", "hello")[0] == exits.OK


def test_what_a_background_session_runs_is_trusted_with_its_bundle_for_every_command(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker, code = stranger / "worker.md", stranger / "worker.py"
    worker.write_text(BUNDLE.format(say="worked").replace("./own.py", "./worker.py"))
    code.write_text(OWN.format(text="worker"))
    bundle = stranger / "bundle.md"
    bundle.write_text(
        bundle.read_text().replace("hooks:", "background_sessions: [{name: w, bundle: ./worker.md}]\nhooks:", 1)
    )
    run = ("run", "-b", "worker.md", "hello")
    assert said(capsys, *run)[0] == exits.WAITING
    invoke(["trust", "-y"])
    assert said(capsys, *run)[:2] == (exits.OK, "worked\n")
    assert said(capsys, "run", "--resume", "last", "and?")[:2] == (exits.OK, "worked\n")
    for file in (worker, code):
        before = file.read_text()
        file.write_text(before + "\n")
        assert said(capsys, *run)[0] == exits.WAITING
        file.write_text(before)
    invoke(["trust", "-y", "worker.md"])
    worker.write_text(worker.read_text() + "More.\n")
    invoke(["trust", "-y"])
    assert said(capsys, *run)[0] == exits.OK, "the newer answer was for this content"
    invoke(["untrust", "worker.md"])
    assert said(capsys, *run)[0] == exits.WAITING
    assert said(capsys, "untrust", "worker.md")[1] == f"{worker} is not trusted, nor with another bundle\n"


@pytest.mark.parametrize("way", ["an included bundle", "a skill", "a skill that the settings name"])
def test_what_belongs_to_a_trusted_bundle_otherwise_is_not_run_as_one(
    way: str, stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, hidden = stranger / "bundle.md", stranger / "child.md"
    if way == "an included bundle":
        bundle.write_text(bundle.read_text().replace("hooks:", "includes: [{bundle: ./child.md}]\nhooks:", 1))
    else:
        hidden = stranger / (".amplifier" if "settings" in way else "") / "skills" / "x" / "SKILL.md"
        hidden.parent.mkdir(parents=True)
        bundle.write_text(bundle.read_text().replace("hooks:", "tools: [{module: tool-skills}]\nhooks:", 1))
    text = BUNDLE.format(say="hidden").replace("bundle:", "name: x\ndescription: Helps.\nbundle:", 1)
    hidden.write_text(text.replace("hooks: [{module: hooks-own, source: ./own.py}]\n", ""))
    if "settings" in way:
        bundle.unlink()
        (stranger / ".amplifier" / "settings.yaml").write_text("bundle: ./.amplifier/skills/x/SKILL.md\n")
    invoke(["trust", "-y"])
    run = ["run", "hello"] if "settings" in way else ["run", "-b", str(hidden), "hello"]
    assert said(capsys, *run)[0] == exits.WAITING


def test_a_trusted_folder_trusts_none_below_it_and_none_that_looks_like_it(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    below, copy = stranger / "below", tmp_path / "copy"
    for folder in (below, copy):
        folder.mkdir()
        for name in ("bundle.md", "own.py"):
            (folder / name).write_bytes((stranger / name).read_bytes())
        assert said(capsys, "run", "-b", str(folder), "hello")[0] == exits.WAITING
    link = tmp_path / "link"
    link.mkdir()
    (link / "bundle.md").symlink_to(stranger / "bundle.md")
    (link / "own.py").write_text(OWN.format(text="evil"))
    assert said(capsys, "run", "-b", str(link), "hello")[0] == exits.WAITING
    (tmp_path / "whole").symlink_to(stranger)
    assert said(capsys, "run", "-b", str(tmp_path / "whole"), "hello")[0] == exits.OK, "it is the same place"


def test_a_search_of_files_is_no_use_of_the_network(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = "[{module: tool-search}, {module: tool-web}, {module: tool-brave-search}]"
    (project / "bundle.md").write_text(f"---\nbundle: {{name: finder}}\ntools: {tools}\n---\n", encoding="utf-8")
    _, _, err = said(capsys, "trust", "--yes")
    network = "(uses the network)"
    assert f"tool-search, tool-web {network}, tool-brave-search {network}" in err


def test_untrust_takes_it_back(stranger: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "untrust", "nowhere")[0] == exits.NOT_FOUND
    invoke(["trust", "-y"])
    assert said(capsys, "untrust") == (exits.OK, f"{stranger}/bundle.md is not trusted any more\n", "")
    assert said(capsys, "run", "hello")[0] == exits.WAITING
    assert json.loads(said(capsys, "trust", "--list", "--json")[1])["data"] == []
    assert list((home / "trust").iterdir()) == []


def test_the_list_says_what_is_trusted(stranger: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "trust", "--list")[2] == "Nothing is trusted yet.\n"
    invoke(["trust", "-y", "--json"])
    [row] = json.loads(said(capsys, "trust", "--list", "--json")[1])["data"]
    assert (row["place"], row["files"], row["state"]) == (f"{stranger}/bundle.md", 2, "unchanged")
    assert (home / "trust.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"trusted": 3}', '{"trusted": {"PLACE": {"files": 3}}}'])
def test_with_a_damaged_file_nothing_is_trusted(
    text: str, stranger: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    (home / "trust.json").write_text(text.replace("PLACE", f"{stranger}/bundle.md"))
    code, _, err = said(capsys, "run", "hello")
    assert (code, ran(stranger)) == (exits.USAGE, None)
    assert err.startswith(f"amplifier: {home}/trust.json: ")
    assert "Repair it, or remove it and trust your bundles again with: amplifier trust" in err


def test_a_file_of_trust_open_to_others_is_not_believed(
    stranger: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    (home / "trust.json").chmod(0o666)
    code, _, err = said(capsys, "run", "hello")
    assert (code, ran(stranger)) == (exits.WAITING, None)
    assert err.count("trust.json: was open to others (mode 0666), so nothing in it counts. ") == 1
    findings = json.loads(said(capsys, "doctor", "--json")[1])["data"]
    assert "amplifier trust" in {each["remedy"] for each in findings if "trust.json is open to" in each["fact"]}


@pytest.mark.parametrize("command", [("trust", "-y"), ("run", "--trust", "hello")])
def test_a_file_of_trust_open_to_others_is_replaced_by_the_next_answer(
    command: tuple[str, ...], stranger: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = stranger.parent / "other"
    shutil.copytree(stranger, other)
    for each in (stranger, other):
        assert said(capsys, "trust", "-y", str(each))[0] == exits.OK
    (home / "trust.json").chmod(0o660)  # as kubelet does for `fsGroup`
    assert said(capsys, *command)[0] == exits.OK
    assert (home / "trust.json").stat().st_mode & 0o777 == 0o600
    code, _, err = said(capsys, "run", "hello")
    assert (code, err.count("open to others")) == (exits.OK, 0)
    assert [row["place"] for row in json.loads(said(capsys, "trust", "--list", "--json")[1])["data"]] == [
        f"{stranger}/bundle.md"
    ]


def test_an_opened_file_of_trust_lets_no_older_session_speak_for_a_bundle(
    stranger: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "run", "--trust", "hello")[0] == exits.OK
    assert said(capsys, "untrust")[0] == exits.OK
    (home / "trust.json").chmod(0o660)
    assert said(capsys, "run", "hello")[0] == exits.WAITING


def test_a_file_of_trust_that_others_could_only_read_is_made_private(
    stranger: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    (home / "trust.json").chmod(0o644)
    code, _, err = said(capsys, "run", "hello")
    assert (code, (home / "trust.json").stat().st_mode & 0o777) == (exits.OK, 0o600)
    assert "trust.json: was open to others (mode 0644), is now private (0600)" in err


def test_the_option_says_yes_and_remembers(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "run", "--trust", "hello")[0] == exits.OK
    assert said(capsys, "run", "hello")[0] == exits.OK
    (stranger / "own.py").write_text(OWN.format(text="second"))
    assert said(capsys, "run", "hello")[0] == exits.WAITING


def test_the_variable_says_yes_and_remembers_nothing(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("AMPLIFIER_TRUST", "1")
        assert said(capsys, "run", "hello")[0] == exits.OK
    for value in ("0", "", "yes"):
        monkeypatch.setenv("AMPLIFIER_TRUST", value)
        assert said(capsys, "run", "hello")[0] == exits.WAITING


@pytest.mark.parametrize("command", [["init"], ["bundle", "new"]])
def test_what_the_program_wrote_is_trusted(
    command: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(command) == exits.OK
    assert said(capsys, "run", "hello")[0] == exits.OK
    (project / "bundle.md").write_text((project / "bundle.md").read_text() + "More.\n")
    assert said(capsys, "run", "hello")[0] == exits.WAITING


@pytest.mark.parametrize("command", [["init"], ["bundle", "new"]])
def test_what_the_program_wrote_for_a_session_is_not_trusted(
    command: list[str], project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMPLIFIER_SESSION", "1")
    assert invoke(command) == exits.OK
    monkeypatch.delenv("AMPLIFIER_SESSION")
    assert said(capsys, "run", "hello")[0] == exits.WAITING


@pytest.fixture
def used(stranger: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of the bundle, from a version without trust."""
    with monkeypatch.context() as patch:
        patch.setenv("AMPLIFIER_TRUST", "1")
        assert invoke(["run", "hello"]) == exits.OK
    (home / "trust.json").unlink()


@pytest.mark.usefixtures("used")
def test_who_ran_a_bundle_with_an_older_version_is_not_asked_once(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "run", "hello")[0] == exits.OK
    invoke(["untrust"])
    assert said(capsys, "run", "hello")[0] == exits.WAITING, "once"


@pytest.mark.usefixtures("used")
def test_another_content_than_that_of_old_sessions_is_asked_for(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stranger / "bundle.md").write_text(BUNDLE.format(say="other"))
    assert said(capsys, "run", "hello")[0] == exits.WAITING
    (stranger / "bundle.md").write_text(BUNDLE.format(say="hi"))
    assert said(capsys, "run", "hello")[0] == exits.OK


def test_sessions_that_ran_unasked_say_nothing_about_trust(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    assert said(capsys, "run", "hello")[0] == exits.OK
    monkeypatch.delenv("AMPLIFIER_TRUST")
    assert said(capsys, "run", "hello")[0] == exits.WAITING


SETTINGS = {
    "overrides": {"provider-playbook": {"config": {"base_url": "http://127.0.0.1:9"}}},
    "bundle": "./other.md",
    "bundles": {"own": "./other.md"},
    "storage": {"name": "storage-jsonl", "config": {"folder": "PROJECT/taken"}},
    "retention": {"sessions": "1s"},
}


@pytest.mark.parametrize("key", SETTINGS)
@pytest.mark.parametrize("name", ["settings.yaml", "settings.local.yaml"])
def test_settings_of_a_project_are_left_out_until_they_are_trusted(
    key: str, name: str, stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    text = json.dumps({key: SETTINGS[key]}).replace("PROJECT", str(stranger))
    (stranger / ".amplifier").mkdir()
    (stranger / ".amplifier" / name).write_text(text)
    code, _, err = said(capsys, "run", "hello")
    assert (code, ran(stranger)) == (exits.WAITING, None)
    assert (
        f".amplifier is not trusted, and nothing of it runs. Look at it, and trust it, with: amplifier trust {stranger}"
        in err
    )
    code, _, err = said(capsys, "session", "list", "--json")
    assert code == exits.OK
    assert ".amplifier is not trusted" in err
    assert not (stranger / "taken").exists()
    assert f"settings: {key}" in said(capsys, "trust", "-y")[2]
    assert ".amplifier is not trusted" not in said(capsys, "config", "show")[2]
    (stranger / ".amplifier" / name).write_text(text + "\n")
    assert "has changed since it was trusted" in said(capsys, "run", "hello")[2]


def test_code_in_place_of_a_module_is_checked_where_it_is_imported(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    other = tmp_path / "mine.py"
    other.write_text(OWN.format(text="mine"))
    write_setting("user", ("overrides", "hooks-own", "source"), str(other))
    assert said(capsys, "run", "hello")[0] == exits.OK, "the person's own settings are theirs"
    assert ran(tmp_path) == "mine"
    (stranger / ".amplifier").mkdir()
    (stranger / "theirs.py").write_text(OWN.format(text="theirs"))
    (stranger / ".amplifier" / "settings.yaml").write_text("overrides: {hooks-own: {source: ./theirs.py}}\n")
    assert said(capsys, "run", "hello")[0] == exits.WAITING
    invoke(["trust", "-y"])
    assert said(capsys, "run", "hello")[0] == exits.OK
    assert ran(stranger) == "theirs"
    (stranger / "theirs.py").write_text(OWN.format(text="more"))
    assert "(theirs.py)" in said(capsys, "run", "hello")[2] or "theirs.py" in said(capsys, "run", "hello")[2]
    assert ran(stranger) is None


def test_settings_that_the_person_sets_by_a_command_stay_trusted(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    for value in ("30d", "60d"):
        assert said(capsys, "config", "set", "retention.sessions", value, "--scope", "project")[0] == exits.OK
        assert said(capsys, "run", "hello")[0] == exits.OK
    settings = stranger / ".amplifier" / "settings.yaml"
    settings.write_text(settings.read_text() + "\n")
    assert said(capsys, "config", "set", "retention.keep", "3", "--scope", "project")[0] == exits.OK
    assert said(capsys, "run", "hello")[0] == exits.WAITING, "a change of somebody else is not looked over"


def test_settings_that_lead_nowhere_need_no_trust(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invoke(["trust", "-y"])
    (stranger / ".amplifier").mkdir()
    (stranger / ".amplifier" / "settings.yaml").write_text("permissions: {mode: read-only}\n")
    assert said(capsys, "run", "hello")[0] == exits.OK


def test_a_fetched_bundle_is_trusted_by_its_address_and_content(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")

    def commit() -> None:
        for arguments in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-q", "-m", "one")):
            subprocess.run(["git", *arguments], cwd=stranger, check=True)

    commit()
    uri = f"git+file://{stranger}@main"
    code, _, err = said(capsys, "run", "-b", uri, "hello")
    assert (code, f"with: amplifier trust {uri}\n" in err) == (exits.WAITING, True)
    assert said(capsys, "trust", "-y", uri)[0] == exits.OK
    assert said(capsys, "run", "-b", uri, "hello")[0] == exits.OK
    assert uri in said(capsys, "trust", "--list")[1]
    (stranger / "own.py").write_text(OWN.format(text="second"))
    commit()
    assert said(capsys, "bundle", "update", "--all")[0] in (exits.OK, exits.USAGE)
    from amplifier_foundation.sources import default_cache

    default_cache().fetch(uri, refresh=True)
    assert "has changed since it was trusted (own.py)" in said(capsys, "run", "-b", uri, "hello")[2]


def test_nothing_is_fetched_for_a_bundle_before_it_is_trusted(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from amplifier_foundation.sources import default_cache

    other = tmp_path / "other"
    other.mkdir()
    (other / "bundle.md").write_text("---\nbundle: {name: other}\n---\n")
    uri = f"zip+file://{tmp_path}/other.zip"
    subprocess.run(["python3", "-m", "zipfile", "-c", str(tmp_path / "other.zip"), "bundle.md"], cwd=other, check=True)
    bundle = stranger / "bundle.md"
    bundle.write_text(bundle.read_text().replace("hooks:", f"includes: ['{uri}']\nhooks:", 1))
    assert said(capsys, "run", "hello")[0] == exits.WAITING
    assert default_cache().entries() == []
    assert said(capsys, "run", "--trust", "hello")[0] == exits.OK, "one yes is enough"
    assert len(default_cache().entries()) == 1
    assert said(capsys, "run", "hello")[0] == exits.OK


WRITING = """---
bundle: {name: writer}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: '^write (?P<path>.+)'}, call: {tool: write_file, input: {path: "{path}", content: "# more"}}}
        - {when: {tool: write_file}, say: "{result}"}
tools: [{module: tool-filesystem, config: {allow_write: true}}]
hooks: [{module: hooks-own, source: ./own.py}]
---
You write.
"""


def test_what_a_session_wrote_is_not_trusted_by_that(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stranger / "bundle.md").write_text(WRITING)
    invoke(["trust", "-y"])
    assert said(capsys, "run", "write own.py")[0] == exits.OK
    assert (stranger / "own.py").read_text() == "# more"
    code, _, err = said(capsys, "run", "write more.py")
    assert (code, "has changed since it was trusted (own.py)" in err) == (exits.WAITING, True)


DELEGATING = """---
bundle: {name: lead}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^ask (?P<who>.+)'}
          call: {tool: delegate, input: {agent: "{who}", instruction: "do it"}}
        - when: {tool: delegate}
          say: "It said: {result}"
tools: [{module: tool-delegate, config: {uris: true}}]
---
You lead.
"""


def test_a_session_delegates_to_trusted_bundles_only(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lead = tmp_path / "lead.md"
    lead.write_text(DELEGATING)
    write_setting("user", "permissions.allow", ["delegate(**)", "delegate(git+file:*)"])
    invoke(["trust", "-y", str(lead)])
    _, out, _ = said(capsys, "run", "-b", str(lead), f"ask {stranger}/bundle.md")
    assert f"amplifier trust {stranger}" in out
    assert ran(stranger) is None
    _, out, _ = said(capsys, "run", "-b", str(lead), f"ask git+file://{stranger}@main")
    assert f"amplifier trust git+file://{stranger}@main" in out
    invoke(["trust", "-y"])
    _, out, _ = said(capsys, "run", "-b", str(lead), f"ask {stranger}/bundle.md")
    assert "hi" in out
    assert ran(stranger) == "first"


def test_a_line_of_a_change_hides_nothing(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invoke(["trust", "-y"])
    with (stranger / "own.py").open("a") as own:
        own.write(f"x = 1{' ' * 300}; evil()\ny\u3164 = 2\n")
    capsys.readouterr()
    _, _, err = said(capsys, "trust", "-y")
    assert "+x = 1 [300 blanks] ; evil()" in err.splitlines()
    assert r"+y\u3164 = 2" in err.splitlines()


def test_a_person_at_a_terminal_is_asked(stranger: Path, terminals: Any) -> None:
    terminal = terminals("run", "hello")
    shown = terminal.until(r"Trust it\? \[y/N\]: ")
    assert "bundle.md is not trusted yet. It would run or use:" in shown
    assert f"code         {stranger}/own.py" in shown
    terminal.type("n\n")
    assert terminal.ended() == exits.WAITING
    assert ran(stranger) is None
    terminal = terminals("run", "hello")
    terminal.until(r"Trust it\? \[y/N\]: ")
    terminal.type("y\n")
    terminal.until("hi")
    assert terminal.ended() == exits.OK
    terminal = terminals("run", "hello")
    terminal.until("hi")
    assert terminal.ended() == exits.OK


def test_a_conversation_asks_too(stranger: Path, terminals: Any) -> None:
    terminal = terminals("run")
    terminal.until(r"Trust it\? \[y/N\]: ")
    terminal.type("y\n")
    terminal.prompted()
    terminal.type("/quit\n")
    assert terminal.ended() == exits.OK


BACKGROUND = """---
bundle: {{name: watch}}
providers: [{{module: provider-playbook, config: {{otherwise: {{say: "{say}"}}}}}}]
hooks: [{{module: hooks-own, source: ./own.py}}]
background_sessions: [{{name: asked}}]
---
You watch.
"""


@pytest.mark.parametrize("arguments", [["up"], ["up", "--once"], ["up", "--detach"]])
def test_up_runs_trusted_bundles_only(arguments: list[str], stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stranger / "bundle.md").write_text(BACKGROUND.format(say="hi"))
    code, _, err = said(capsys, *arguments)
    assert (code, f"amplifier trust {stranger}" in err, ran(stranger)) == (exits.WAITING, True, None)
    assert said(capsys, "service", "install")[0] == exits.WAITING
    assert said(capsys, "up", "--dry-run")[0] == exits.OK
    code, _, err = said(capsys, "up", "--dry-run", "--trust")
    assert (code, "--dry-run trusts nothing: leave out --trust, or use: amplifier trust" in err) == (exits.USAGE, True)
    assert ran(stranger) is None


def wait_until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.parametrize("changed", ["bundle.md", "own.py", "own/said.py"])
def test_a_running_up_waits_for_trust_in_a_changed_bundle(
    changed: str, stranger: Path, amplifier: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "./own" if "/" in changed else "./own.py"
    (stranger / "bundle.md").write_text(BACKGROUND.format(say="hi").replace("./own.py", source))
    (stranger / "own").mkdir()
    (stranger / "own" / "said.py").write_text('TEXT = "first"')
    package = OWN.replace('"{text}"', "TEXT").replace("(__file__)", "(__file__).parent")
    (stranger / "own" / "__init__.py").write_text("from .said import TEXT" + package)
    invoke(["trust", "-y"])
    assert amplifier("up", "--detach").returncode == exits.OK
    try:
        invoke(["trigger", "fire", "asked"])
        wait_until(lambda: ran(stranger) == "first")
        file = stranger / changed
        file.write_text(file.read_text().replace("first", "second").replace("hi", "ho"))
        if changed != "bundle.md":
            assert invoke(["trigger", "fire", "asked"]) == exits.OK
        wait_until(lambda: "has changed since it was trusted" in said(capsys, "ps", "--json")[1])
        assert '"degraded"' in said(capsys, "ps", "--json")[1]
        wait_until(lambda: "has changed since it was trusted" in said(capsys, "logs")[1])
        assert ran(stranger) is None
        invoke(["trust", "-y"])
        if changed != "bundle.md":
            wait_until(lambda: ran(stranger) == "second")
        wait_until(lambda: "has changed since it was trusted" not in said(capsys, "ps", "--json")[1])
        invoke(["trigger", "fire", "asked"])
        wait_until(lambda: ("ho" if changed == "bundle.md" else "hi") in said(capsys, "logs")[1].splitlines()[-1])
    finally:
        invoke(["stop", "--all"])


def test_the_demo_is_trusted(project: Path, home: Path) -> None:
    from amplifier_foundation.cli.demo import _make_project

    folder = _make_project(project / "demo")
    place = f"{folder}/bundle.md"
    entry = Ledger().find(place)
    assert entry is not None
    assert f"{folder}/tools" in str(sorted(entry.files))


@pytest.fixture
def fetching(stranger: Path) -> Path:
    """The stranger's bundle with an include that is not fetched yet, and a password in the address of another."""
    with zipfile.ZipFile(stranger / "more.zip", "w") as archive:
        archive.writestr("bundle.md", "---\nbundle: {name: more}\n---\n")
    text = (stranger / "bundle.md").read_text()
    includes = f"includes: ['zip+file://{stranger}/more.zip', 'http://ann:hunter2@127.0.0.1:9/b.md']\n"
    (stranger / "bundle.md").write_text(text.replace("providers:", f"{includes}providers:"))
    return stranger


@pytest.mark.parametrize("command", ["validate", "show", "tree", "install"])
def test_looking_at_a_bundle_that_is_not_trusted_fetches_nothing(
    command: str, fetching: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, err = said(capsys, "bundle", command)
    assert "more.zip is not fetched before you trust this bundle" in "".join(f"{out}{err}".split("\n"))
    assert not (home / "cache" / "sources").exists()
    assert "hunter2" not in out + err


def test_looking_at_a_trusted_bundle_fetches_what_it_includes(
    fetching: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (fetching / "bundle.md").read_text()
    (fetching / "bundle.md").write_text(text.replace(", 'http://ann:hunter2@127.0.0.1:9/b.md'", ""))
    invoke(["trust", "-y"])
    assert said(capsys, "bundle", "validate")[:2] == (exits.OK, "bundle.md: valid\n")
    assert len(list((home / "cache" / "sources").glob("*.json"))) == 1


def test_a_password_of_an_address_is_never_echoed(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = "http://ann:hunter2@127.0.0.1:9/b.md"
    for arguments in (["validate", address], ["validate", address, "bundle.md", "--json"], ["show", address]):
        _, out, err = said(capsys, "bundle", *arguments)
        assert "127.0.0.1:9" in out + err
        assert "hunter2" not in out + err


def test_no_name_steers_the_terminal_or_ends_its_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = project / "x\x1b[2J\x1b]0;t\x07\u202e\n  providers    harmless"
    odd.mkdir()
    (odd / "bundle.md").write_text(BUNDLE.format(say="hi"), encoding="utf-8")
    (odd / "own.py").write_text(OWN.format(text="first"), encoding="utf-8")
    monkeypatch.chdir(odd)
    assert not set("\x1b\x07\u202e") & set(said(capsys, "run", "hi")[2])
    calls = [["trust"], ["trust", "-y"], ["trust", "-y", str(odd)], ["trust", "--list"]]
    calls += [["bundle", "add", "odd", str(odd)], ["bundle", "list"], ["untrust"], ["untrust", str(odd)]]
    for arguments in calls:
        _, out, err = said(capsys, *arguments)
        assert not set("\x1b\x07\u202e") & set(out + err), (arguments, out, err)
        assert "\n  providers    harmless" not in out + err, (arguments, out, err)


def test_nothing_is_trusted_where_nobody_can_be_asked(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "trust")
    assert (code, "nobody can be asked here; look at it, and say yes with --yes" in err) == (exits.USAGE, True)
    assert said(capsys, "run", "hello")[0] == exits.WAITING


TOOL = """
import subprocess, sys


class Shell:
    name, description = "shell", "Runs a command."
    input_schema = {"type": "object", "properties": {"line": {"type": "string"}}}

    async def execute(self, input):
        done = subprocess.run(input["line"], shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.stdout + done.stderr


async def mount(coordinator, config):
    await coordinator.mount("tools", Shell(), name="shell")
"""
PROGRAM = f"{sys.executable} -m amplifier_foundation"


@pytest.mark.parametrize(
    "line",
    [
        f"{PROGRAM} trust -y other",
        f"{PROGRAM} run --trust -b other hello",
        f"AMPLIFIER_TRUST=1 {PROGRAM} run -b other hello",
        f"env -u AMPLIFIER_SESSION {PROGRAM} trust -y other",
    ],
)
def test_no_session_trusts_anything(line: str, stranger: Path, amplifier: Any, tmp_path: Path) -> None:
    other = stranger / "other"
    other.mkdir()
    (other / "bundle.md").write_text((stranger / "bundle.md").read_text())
    (stranger / "own.py").rename(other / "own.py")
    (stranger / "tool.py").write_text(TOOL)
    rules = [
        {"when": {"user": "hello"}, "call": {"tool": "shell", "input": {"line": line}}},
        {"when": {"tool": "shell"}, "say": "done"},
    ]
    (stranger / "bundle.md").write_text(
        "---\nbundle: {name: lead}\ntools: [{module: tool-shell, source: ./tool.py}]\n"
        f"providers: [{{module: provider-playbook, config: {{rules: {json.dumps(rules)}}}}}]\n---\n"
    )
    done = amplifier("run", "--trust", "hello", cwd=stranger)
    assert done.returncode == exits.OK, done.stderr
    assert (done.stdout, ran(other)) == ("done\n", None)
    listed = amplifier("trust", "--list", cwd=stranger)
    assert "other" not in listed.stdout


def test_who_trusts_a_bundle_sees_that_it_acts_on_text_of_strangers(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "---\nbundle: {name: answering}\ntools: [{module: tool-filesystem}]\n"
        "providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]\n"
        "background_sessions:\n  - name: answer\n    triggers: [{type: webhook, config: {path: /deploy}}]\n"
    )
    (project / "bundle.md").write_text(f"{text}---\n")
    code, out, err = said(capsys, "bundle", "validate")
    assert (code, out) == (exits.OK, "bundle.md: valid\n")
    assert "AMP119" in err and "Say 'untrusted: act' to let them act on what strangers write" in err
    invoke(["trust", "-y"])
    (project / "bundle.md").write_text(f"{text}    untrusted: act\n---\n")
    assert "AMP119" not in said(capsys, "bundle", "validate")[2]
    assert "+    untrusted: act" in said(capsys, "trust", "-y")[2]
    invoke(["untrust"])
    assert "answer: trigger-webhook, acts on text of strangers unasked" in said(capsys, "trust", "-y")[2]
    (project / "bundle.md").write_text(f"{text}    worktree: merge\n---\n")
    invoke(["untrust"])
    assert "answer: trigger-webhook, commits its changes in git (merge)" in said(capsys, "trust", "-y")[2]


def test_no_session_loosens_the_settings_of_a_person(
    stranger: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    assert invoke(["config", "set", "retention.max_size", "5MB", "--scope", "project"]) == exits.OK
    assert said(capsys, "trust", "-y")[2].endswith("is trusted already\n")
    monkeypatch.setenv("AMPLIFIER_SESSION", "1")
    code, _, err = said(capsys, "config", "set", "permissions.allow", "[bash]")
    assert (code, "is for a person, and this is a process of a session" in err) == (exits.WAITING, True)
    assert said(capsys, "config", "unset", "permissions.deny")[0] == exits.WAITING
    assert not (home / "settings.yaml").exists()
    assert invoke(["config", "set", "retention.max_size", "6MB", "--scope", "project"]) == exits.OK
    monkeypatch.delenv("AMPLIFIER_SESSION")
    assert ".amplifier has changed since it was trusted" in said(capsys, "trust", "-y")[2]


HOOKED = """---
bundle: {name: hooked}
providers: [{module: provider-playbook, config: {otherwise: {say: "hi"}}}]
hooks:
  - module: hooks-shell
    config: {hooks: {SessionStart: [{hooks: [{command: "sh $AMPLIFIER_BUNDLE_DIR/start.sh; sh ./more.sh"}]}]}}
---
You greet.
"""


def test_the_scripts_that_commands_of_hooks_name_are_part_of_what_is_trusted(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "bundle.md").write_text(HOOKED)
    (project / "start.sh").write_text("echo first > ran")
    code, _, err = said(capsys, "run", "hello")
    assert (code, ran(project)) == (exits.WAITING, None)
    code, _, err = said(capsys, "trust", "-y")
    assert code == exits.OK
    assert "runs         sh $AMPLIFIER_BUNDLE_DIR/start.sh; sh ./more.sh\n" in err
    assert f"script       {project}/start.sh\n" in err
    assert said(capsys, "run", "hello")[0] == exits.OK
    assert ran(project) == "first\n"
    (project / "start.sh").write_text("echo other > ran")
    code, _, err = said(capsys, "run", "hello")
    assert (code, ran(project)) == (exits.WAITING, None)
    assert "has changed since it was trusted (start.sh)" in err
    said(capsys, "trust", "-y")
    (project / "more.sh").write_text("echo new > ran")
    code, _, err = said(capsys, "run", "hello")
    assert (code, ran(project)) == (exits.WAITING, None)
    assert "bundle.md uses files that were not trusted with it (more.sh)" in err
    assert "bundle.md uses files that were not trusted with it:\n" in said(capsys, "trust", "-y")[2]
    assert said(capsys, "run", "hello")[0] == exits.OK
    assert ran(project) == "new\n"


def test_what_commands_run_and_what_changes_them_is_shown_whole(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = "git clone 'https://u:;touch${IFS}X;@h/x'"
    server = {
        "command": "git",
        "args": ["status"],
        "env": {"GIT_CONFIG_KEY_0": "core.fsmonitor", "X_TOKEN": "s3cr3tv4lue"},
    }
    commands = [{"command": f"true{' ' * 300}; touch x"}, {"command": "x" * 300 + "; touch y"}, {"command": hidden}]
    bundle = {
        "bundle": {"name": "safe"},
        "tools": [
            {"module": "tool-mcp", "config": {"servers": {"a": server}}},
            {"module": "tool-bash", "config": {"network": True, "readable": ["/opt"], "sandbox": "off"}},
        ],
        "hooks": [{"module": "hooks-shell", "config": {"hooks": {"Stop": [{"hooks": commands}]}}}],
    }
    (project / "bundle.md").write_text(f"---\n{json.dumps(bundle)}\n---\n")
    near = {"command": "sh", "args": ["-c", f"true{' ' * 250}; touch z"], "env": {"LD_PRELOAD": "./x.so"}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"near": near}}))
    err = said(capsys, "trust", "-y")[2]
    for shown in (
        "true [300 blanks] ; touch x",
        "x" * 300 + "; touch y",
        hidden,
        'tool-mcp.servers.a env: {"GIT_CONFIG_KEY_0": "core.fsmonitor", "X_TOKEN": "[REDACTED]"}',
        "tool-bash network: true",
        'tool-bash readable: ["/opt"]',
        "tool-bash sandbox: off",
        "sh -c 'true [250 blanks] ; touch z'",
        'near env: {"LD_PRELOAD": "./x.so"}',
    ):
        assert shown in err


def test_secrets_with_signs_of_a_shell_are_hidden_where_no_shell_reads_them(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "postgresql://amp:S3cr&t(x9@db/amp"
    env = {
        "DB_PASSWORD": "aa&bb(1",
        "K_TOKEN": "plain2345678",
        "URL": address,
        "LD_PRELOAD": "./token=x.so",
        "GIT_CONFIG_VALUE_0": "!PASSWORD='x;touch y' API_TOKEN=plain2345678 z",
        "T_TOKEN": "${T_TOKEN}",
    }
    server = {"command": "srv2", "args": ["--password", "q;w3e4r5t6", "--db", address], "env": env}
    shell = {"command": "sh", "args": ["-c", "PASSWORD='x;touch y' API_TOKEN=plain2345678 z"]}
    tool = {"module": "tool-mcp", "config": {"servers": {"a": {"command": "srv2", "env": env}}}}
    (project / "bundle.md").write_text(f"---\n{json.dumps({'bundle': {'name': 'safe'}, 'tools': [tool]})}\n---\n")
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"y": server, "z": shell}}))
    (project / ".amplifier").mkdir(exist_ok=True)
    (project / ".amplifier" / "settings.yaml").write_text(f'storage: {{name: s, config: {{dsn: "{address}"}}}}\n')
    err = said(capsys, "trust", "-y")[2]
    for secret in ("q;w3e4r5t6", "aa&bb(1", "plain2345678", "S3cr&t(x9"):
        assert secret not in err
    for shown in (
        "srv2 --password '[REDACTED, MAY BE CODE]' --db 'postgresql://[REDACTED, MAY BE CODE]@db/amp'",
        '"DB_PASSWORD": "[REDACTED, MAY BE CODE]", "K_TOKEN": "[REDACTED]"',
        '"LD_PRELOAD": "./token=x.so"',
        "\"!PASSWORD='x;touch y' API_TOKEN=[REDACTED] z\"",
        '"T_TOKEN": "${T_TOKEN}"',
        '"dsn": "postgresql://[REDACTED, MAY BE CODE]@db/amp"',
        "x;touch y'\"'\"' API_TOKEN=[REDACTED] z",
    ):
        assert shown in err


def test_of_many_and_of_long_commands_the_ends_are_shown_with_the_files(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [{"command": f"echo {number} {'x' * 100_000 if number == 1 else ''}; true"} for number in range(1_000)]
    hooks = [{"module": "hooks-shell", "config": {"hooks": {"Stop": [{"hooks": commands}]}}}]
    (project / "bundle.md").write_text(f"---\n{json.dumps({'bundle': {'name': 'safe'}, 'hooks': hooks})}\n---\n")
    err = said(capsys, "trust", "-y")[2]
    lines = err.splitlines()
    assert len(err) < 40_000
    assert any(line.startswith("… ") and line.endswith(" lines are not shown …") for line in lines)
    (long,) = (line for line in lines if " characters are not shown … " in line)
    assert long.startswith("  runs         echo 1 xxx") and long.endswith("xxx; true") and len(long) < 4_100
    assert any("echo 0 ; true" in line for line in lines) and any("echo 999 ; true" in line for line in lines)
    rest = lines.index("Not all is shown. Look at these files before you say yes:")
    assert f"  {project}/bundle.md" in lines[rest:]


def test_a_long_change_is_shown_whole_or_says_where_the_rest_is(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(["trust", "-y"])
    lines = [f"a = {number}" for number in range(500)]
    (stranger / "own.py").write_text("\n".join(lines))
    err = said(capsys, "trust", "-y")[2]
    assert [line for line in lines if f"+{line}" not in err.splitlines()] == []
    (stranger / "own.py").write_text("\n".join("b" * 1000 + str(number) for number in range(500)))
    err = said(capsys, "trust", "-y")[2].splitlines()
    rest = err.index(next(line for line in err if line.startswith("… ")))
    assert err[rest].endswith(" more lines are not shown. Look at these files before you say yes:")
    assert f"  {stranger}/own.py" in err[rest:]
