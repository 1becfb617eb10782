"""`amplifier bundle`: every verb, on real files, repositories and packages."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import sysconfig
import venv
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.documents.problems import CODES
from amplifier_foundation.settings import CODES as OF_SETTINGS

pytestmark = [pytest.mark.usefixtures("home", "project"), pytest.mark.slow]

VERBS = ["add", "explain", "import", "install", "list", "new", "remove", "schema", "show", "tree", "update", "validate"]


def write(front: str = "", name: str = "bundle.md", bundle: str = "x", body: str = "") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nbundle: {{name: {bundle}}}\n{front}---\n{body}", encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = invoke(["bundle", *arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def data(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = exits.OK) -> Any:
    ended, out, _ = run(capsys, *arguments, "--json")
    assert ended == code
    envelope = json.loads(out)
    assert re.fullmatch(rf"amplifier/bundle\.{arguments[0]}(\.codes)?/1", envelope["schema"])
    return envelope["data"]


def test_the_verbs_are_listed_sorted_and_each_has_help_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--help")
    listed = re.findall(r"^  (\w+)  +(\S.*)$", out[out.index("Commands:") :], flags=re.M)
    assert [name for name, _ in listed] == VERBS
    for verb in VERBS:
        code, out, _ = run(capsys, verb, "--help")
        assert code == exits.OK
        assert "--json" in out
    assert run(capsys, "demo")[0] == exits.USAGE


# validate


def test_every_bundle_is_checked_and_one_with_errors_makes_it_4(capsys: pytest.CaptureFixture[str]) -> None:
    write(name="good.md")
    write("tools: 5\n", name="bad.md")
    code, out, err = run(capsys, "validate", "good.md", "bad.md", "missing.md")
    assert (code, out) == (exits.USAGE, "good.md: valid\n")
    assert err.splitlines() == [
        "bad.md:3:8: error[AMP103] tools: must be a list, not a whole number",
        f"missing.md: error[AMP108] missing.md: no such file or folder; searched in {Path.cwd()}",
    ]
    checked = data(capsys, "validate", "good.md", "bad.md", code=exits.USAGE)
    assert checked["bundles"] == [{"bundle": "good.md", "valid": True}, {"bundle": "bad.md", "valid": False}]
    assert (checked["valid"], [problem["code"] for problem in checked["problems"]]) == (False, ["AMP103"])


def test_what_two_bundles_include_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    write("tools: 5\n", name="base.md")
    for name in ("one.md", "two.md"):
        write("includes: [./base.md]\n", name=name)
    assert run(capsys, "validate", "one.md", "two.md")[2].count("\n") == 1


def test_the_bundle_of_this_folder_is_the_default_and_a_missing_one_is_5(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "validate")
    assert (code, out) == (exits.NOT_FOUND, "")
    assert "amplifier init" in err
    write()
    assert run(capsys, "validate") == (exits.OK, "bundle.md: valid\n", "")
    assert run(capsys, "validate", "missing.md")[0] == exits.NOT_FOUND


def test_strict_takes_warnings_for_errors(capsys: pytest.CaptureFixture[str]) -> None:
    write("unknown_section: 1\n")
    assert run(capsys, "validate")[:2] == (exits.OK, "bundle.md: valid\n")
    code, out, err = run(capsys, "validate", "--strict")
    assert (code, out) == (exits.USAGE, "")
    assert err.startswith("bundle.md:3:1: error[AMP106]")


def test_text_shows_the_line_with_a_caret_under_the_column(capsys: pytest.CaptureFixture[str]) -> None:
    write("background_sessions:\n  - name: a\n    pool_sizes: 3\n")
    code, _, err = run(capsys, "validate", "--format", "text")
    assert code == exits.USAGE
    first, line, caret = err.splitlines()
    assert first.startswith("bundle.md:5:5: error[AMP102] ")
    assert (line, caret) == ("    5 |     pool_sizes: 3", "      |     ^")


def test_a_long_wide_or_hostile_line_is_shown_as_one_line_and_the_caret_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("bundle.md").write_text(f"---\nbundle: {{name: '{'好' * 70}', nam: 1, x: '{'y' * 90}'}}\n---\n")
    err = run(capsys, "validate", "--format", "text")[2].splitlines()
    line, caret = err[1], err[2]
    assert line.startswith("    2 | …好")
    assert line.endswith("…")
    from rich.cells import cell_len

    assert cell_len(line[: line.index("nam")]) == caret.index("^")
    Path("bundle.md").write_bytes(b"---\nbundle: {name: x, \x1b[31mnam: 1}\n---\n")
    err = run(capsys, "validate", "--format", "text")[2].splitlines()
    assert err[1] == "    2 | bundle: {name: x, �[31mnam: 1}"


def test_a_line_that_may_hold_a_secret_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    write("tools: [{module: tool-filesystem, config: {api_key: hunter2}, nam: 1}]\n")
    code, _, err = run(capsys, "validate", "--format", "text")
    assert code == exits.USAGE
    assert "AMP113" in err
    assert "hunter2" not in err


@pytest.mark.parametrize(("term", "expected"), [("xterm", "\x1b[31m\x1b[1merror[AMP103]"), ("dumb", ": error[AMP103]")])
def test_a_terminal_gets_the_line_in_colour(home: Path, term: str, expected: str) -> None:
    write("tools: 5\n")
    shown, end = pty.openpty()
    command = [sys.executable, "-m", "amplifier_foundation", "bundle", "validate"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=end, check=False, env={**os.environ, "TERM": term})
    os.close(end)
    with os.fdopen(shown, "rb", buffering=0) as terminal:
        err = terminal.read(10_000).decode()
    assert done.returncode == exits.USAGE
    assert expected in err
    assert "tools: 5" in err


def test_sarif_holds_every_problem_and_nothing_else_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    write("unknown_section: 1\ntools: 5\n")
    code, out, err = run(capsys, "validate", "--format", "sarif")
    assert (code, err) == (exits.USAGE, "")
    [told] = json.loads(out)["runs"]
    assert [(each["ruleId"], each["level"]) for each in told["results"]] == [("AMP106", "warning"), ("AMP103", "error")]


def test_the_codes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "validate", "--codes")
    assert [line.split("  ", 1)[0] for line in out.splitlines()] == ["CODE", *CODES, *OF_SETTINGS]
    assert data(capsys, "validate", "--codes") == {**CODES, **OF_SETTINGS}


# schema


def test_the_schema_is_printed_or_written_with_the_line_that_uses_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "schema")
    assert (code, err) == (exits.OK, "# yaml-language-server: $schema=bundle.schema.json\n")
    printed = json.loads(out)
    assert "trigger-timer" in json.dumps(printed["$defs"]["TriggerConfig"])
    assert "TimerConfig" in json.dumps(printed)
    code, out, err = run(capsys, "schema", "--output", "s.json")
    assert (code, out, err) == (exits.OK, "", "# yaml-language-server: $schema=s.json\n")
    assert json.loads(Path("s.json").read_text()) == printed == data(capsys, "schema")
    assert run(capsys, "schema", "-o", "missing/s.json")[0] == exits.USAGE


def test_a_module_that_offers_a_schema_is_asked_and_no_other_is_imported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = "def config_schema():\n    return {'type': 'object', 'properties': {'depth': {'type': 'integer'}}}\n"
    for name, source in (
        ("offers", offered),
        ("heavy", "raise SystemExit('imported')\n"),
        ("broken", offered + "import no_such_thing\n"),
    ):
        install_package(tmp_path / "lib", f"schema_{name}", source, "amplifier.modules", f"tool-{name}")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    asked = [rule["if"]["properties"]["module"]["const"] for rule in _rules(data(capsys, "schema"))]
    assert "tool-offers" in asked
    assert {"tool-heavy", "tool-broken"}.isdisjoint(asked)


def _rules(schema: Any) -> list[Any]:
    rules: list[Any] = schema["$defs"]["ModuleEntry"]["allOf"]
    return rules


# show and tree


def composed() -> None:
    write("tools:\n  - {module: tool-filesystem, config: {root: ., ignore: [a]}}\n", name="base.md", bundle="base")
    write(
        "includes: [./base.md]\ntools:\n  - module: tool-filesystem\n    config: {ignore: [b], api_key: hunter2}\n",
        body="Work.",
    )


def test_show_tells_each_value_and_where_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    composed()
    code, out, err = run(capsys, "show")
    assert (code, err) == (exits.OK, "")
    head, _, table = out.partition("\n\n")
    assert [line.split()[0] for line in head.splitlines()] == [
        "name",
        "version",
        "digest",
        "file",
        "file",
        "instruction",
    ]
    assert [re.split(r"  +", line) for line in table.splitlines()] == [
        ["KEY", "VALUE", "FROM"],
        ["tools[0].module", "tool-filesystem", "bundle.md:5:13"],
        ["tools[0].config.root", ".", "base.md:4:46"],
        ["tools[0].config.ignore[0]", "a", "base.md:4:58"],
        ["tools[0].config.ignore[1]", "b", "bundle.md:6:23"],
        ["tools[0].config.api_key", "[REDACTED]", "bundle.md:6:36"],
    ]
    shown = data(capsys, "show")
    assert shown["plan"]["tools"][0]["config"] == {"root": ".", "ignore": ["a", "b"], "api_key": "[REDACTED]"}
    assert shown["origins"]["tools[0].config.root"] == "base.md:4:46"
    assert sorted(shown["files"]) == ["base.md", "bundle.md"]
    assert (shown["name"], shown["instruction"]) == ("x", "Work.")


def test_show_keeps_to_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    composed()
    assert list(data(capsys, "show", "--section", "tools")["plan"]) == ["tools"]
    code, out, err = run(capsys, "show", "--section", "spawn")
    assert (code, err) == (exits.OK, "The section 'spawn' is empty.\n")
    assert "KEY" not in out
    code, _, err = run(capsys, "show", "--section", "tool")
    assert code == exits.USAGE
    assert "session, providers" in err


def test_show_tells_what_settings_put_over_it(capsys: pytest.CaptureFixture[str]) -> None:
    composed()
    Path(".amplifier").mkdir()
    Path(".amplifier/settings.yaml").write_text(
        "overrides:\n  tool-filesystem:\n    config:\n      root: ./other\n      ignore: [c]\n"
    )
    shown = data(capsys, "show")
    assert shown["plan"]["tools"][0]["config"]["root"] == "./other"
    origins = shown["origins"]
    assert origins["tools[0].config.root"] == ".amplifier/settings.yaml:4:13"
    assert origins["tools[0].config.ignore[0]"] == "base.md:4:58"
    assert origins["tools[0].config.ignore[2]"].startswith(".amplifier/settings.yaml:5:")


def test_the_tree_marks_what_is_included_twice_and_ends_with_4_for_what_is_broken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(name="base.md", bundle="base")
    write("includes: [./base.md]\n", name="mid.md", bundle="mid")
    write("includes: [./mid.md, ./base.md]\n")
    code, out, _ = run(capsys, "tree")
    assert code == exits.OK
    assert [line.rstrip() for line in out.splitlines()] == [
        "x 1.0.0  bundle.md",
        "├── mid 1.0.0  mid.md",
        "│   └── base 1.0.0  base.md",
        "└── base 1.0.0  base.md  included above",
    ]
    assert [each["name"] for each in data(capsys, "tree")["includes"]] == ["mid", "base"]
    write("includes: [./missing.md]\n")
    code, out, _ = run(capsys, "tree")
    assert code == exits.USAGE
    assert "└── ./missing.md  missing.md: no such file or folder" in out


# new


def test_a_new_bundle_is_valid_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "new", "first")
    assert (code, out) == (exits.OK, "first/bundle.md\n")
    assert 'amplifier run -b first "hello"' in err
    assert run(capsys, "validate", "--strict", "first") == (exits.OK, "first: valid\n", "")
    assert invoke(["-q", "run", "-b", "first", "hello"]) == exits.OK
    assert capsys.readouterr() == ("You said: hello\n", "")
    Path("notes.txt").write_text("one\ntwo\n")
    assert invoke(["-q", "run", "-b", "first", "read notes.txt"]) == exits.OK
    assert capsys.readouterr() == ("It has 2 lines.\n", "")


def test_the_command_that_tries_a_new_bundle_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    assert """Try it: amplifier run -b 'a b' "hello"\n""" in run(capsys, "new", "a b")[2]


def test_what_stands_in_the_comments_of_a_new_bundle_works_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, "new")["name"] == "project"
    write(name="base.md", bundle="base")
    text = Path("bundle.md").read_text()
    Path("bundle.md").write_text(re.sub(r"^# (includes:|background_sessions:|  .*)$", r"\1", text, flags=re.M))
    assert run(capsys, "validate", "--strict")[0] == exits.OK
    shown = data(capsys, "show")["plan"]
    assert [each["name"] for each in shown["background_sessions"]] == ["reader"]


def test_a_bundle_that_is_there_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("bundle.md", "bundle.yaml"):
        Path("there").mkdir(exist_ok=True)
        (Path("there") / name).write_text(mine := "bundle: {name: mine}\ntools: []\n")
        code, out, err = run(capsys, "new", "there")
        assert (code, out) == (exits.CONFLICT, "")
        assert f"there/{name} exists" in err
        assert (Path("there") / name).read_text() == mine
        (Path("there") / name).unlink()


@pytest.mark.parametrize("name", ["true", "1.0", "it's {odd}: not", "a b", "é"])
def test_a_name_is_written_so_that_it_stays_what_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(capsys, "new", "--name", name)[0]
    if ":" in name:
        assert code == exits.USAGE
        assert not Path("bundle.md").exists()
    else:
        assert data(capsys, "show")["name"] == name


# list, add, remove, update


def own(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the listed bundles without those of installed packages."""
    return [row for row in data(capsys, "list") if row["name"] != "foreman"]


def test_a_bundle_that_has_a_name_is_meant_by_it_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    write(name="far/bundle.md", bundle="far")
    write(name="far/inner.md", bundle="inner")
    added = data(capsys, "add", "mine", "./far")
    assert (added["name"], added["uri"], added["version"]) == ("mine", str(Path("far").absolute()), "1.0.0")
    [row] = own(capsys)
    assert (row["name"], row["from"]) == ("mine", "you")
    assert run(capsys, "validate", "mine", "mine:inner")[:2] == (exits.OK, "mine: valid\nmine:inner: valid\n")
    assert data(capsys, "show", "mine:inner")["name"] == "inner"
    assert data(capsys, "tree", "mine")["name"] == "far"
    assert run(capsys, "remove", "mine")[:2] == (exits.OK, "mine: removed\n")
    assert own(capsys) == []
    assert run(capsys, "remove", "mine")[0] == exits.NOT_FOUND


def test_a_name_is_given_to_what_is_a_bundle_and_to_one_alone(capsys: pytest.CaptureFixture[str]) -> None:
    write(name="one.md")
    write(name="two.md")
    write("tools: 5\n", name="wrong.md")
    assert run(capsys, "add", "a", "missing.md")[0] == exits.NOT_FOUND
    assert run(capsys, "add", "a", "wrong.md")[0] == exits.USAGE
    assert run(capsys, "add", "a:b", "one.md")[0] == exits.USAGE
    code, _, err = run(capsys, "add", "a", "https://me:hunter2@127.0.0.1:9/bundle.md")
    assert code == exits.USAGE
    assert "hunter2" not in err
    assert own(capsys) == []
    assert [run(capsys, "add", "a", "one.md")[0] for _ in range(2)] == [exits.OK] * 2
    code, _, err = run(capsys, "add", "a", "two.md")
    assert code == exits.CONFLICT
    assert "amplifier bundle remove a" in err


OFFER = """
from pathlib import Path
from amplifier_core.hookspecs import hookimpl


@hookimpl
def amplifier_register_bundle(register):
    for name in {names!r}:
        register(name, Path(__file__).parent)
"""


def test_bundles_of_packages_and_settings_are_listed_as_theirs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path / "lib", "packed_one", OFFER.format(names=["packed", "claimed"]), "amplifier")
    install_package(tmp_path / "lib", "packed_two", OFFER.format(names=["claimed"]), "amplifier")
    where = write(name=str(tmp_path / "lib" / "packed_one" / "bundle.md"), bundle="packed").parent
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    Path(".amplifier").mkdir()
    Path(".amplifier/settings.yaml").write_text("bundles: {ours: ./bundle.md}\n")
    rows = {row["name"]: (row["from"], row["uri"]) for row in data(capsys, "list")}
    assert rows["packed"] == ("packed-one 1", str(where))
    assert rows["ours"][0] == "settings"
    assert "claimed" not in rows
    assert run(capsys, "validate", "packed")[1] == "packed: valid\n"
    code, _, err = run(capsys, "remove", "packed")
    assert code == exits.NOT_FOUND
    assert "it comes from packed-one 1" in err


def install_package(folder: Path, name: str, source: str, group: str, entry: str = "") -> None:
    """Put a package with one entry point in a folder, as pip would."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source)
    about = folder / f"{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{entry or name} = {name}\n")


def test_an_entry_point_that_names_a_module_instead_of_its_mount_ends_no_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path / "site", "odd_tool", "x = 1\n", "amplifier.modules", "tool-odd")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    write("providers: [{module: provider-playbook}]\ntools: [{module: tool-odd}]\n")
    code, _, err = run(capsys, "validate")
    assert (code, "has no attribute" in err) == (exits.OK, False)


def test_update_fetches_anew_and_says_from_which_commit_to_which(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    first = commit(repository, "1.0.0")
    uri = f"git+file://{repository}@main"
    assert run(capsys, "update")[2] == "No remote bundles.\n"
    assert data(capsys, "add", "far", uri)["version"] == "1.0.0"
    write(name="near.md")
    assert run(capsys, "add", "near", "near.md")[0] == exits.OK
    assert run(capsys, "update")[1] == "far: unchanged\n"
    second = commit(repository, "2.0.0")
    assert run(capsys, "update")[1] == f"far: {first[:12]} -> {second[:12]}\n"
    assert {row["name"]: row["version"] for row in own(capsys)} == {"far": "2.0.0", "near": "1.0.0"}
    [absent, far] = data(capsys, "update", "fur", "far", code=exits.NOT_FOUND)
    assert absent["error"].endswith("no bundle is registered as 'fur'; did you mean 'far'?")
    assert (far["changed"], far["error"]) == (False, "")


def test_update_fetches_what_bundles_include_and_run_each_source_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    inner, outer, worker = (tmp_path / name for name in ("inner", "outer", "worker"))
    for repository in (inner, outer, worker):
        repository.mkdir()
        git(repository, "init", "-q", "-b", "main")
        (repository / "more.md").write_text("---\nbundle: {name: more}\n---\n")
    first = {inner: commit(inner, "1"), worker: commit(worker, "1")}
    commit(outer, "1", "includes: ['inner:more', inner]\n")  # a fetched bundle names no repository of this machine
    write(
        f"includes: [outer]\nbackground_sessions:\n  - {{name: w, bundle: 'git+file://{worker}@main', "
        "triggers: [{type: timer, config: {interval_seconds: 9}}]}\n"
    )
    Path(".amplifier").mkdir()
    Path(".amplifier/settings.yaml").write_text(
        f"bundles: {{outer: 'git+file://{outer}@main', inner: 'git+file://{inner}@main'}}\n"
    )
    assert run(capsys, "validate")[0] == exits.OK
    second = {inner: commit(inner, "2"), worker: commit(worker, "2")}
    code, out, err = run(capsys, "update")
    assert (code, err) == (exits.OK, "")
    assert out.splitlines() == [
        f"git+file://{outer}@main: unchanged",
        f"git+file://{inner}@main: {first[inner][:12]} -> {second[inner][:12]}",
        f"git+file://{worker}@main: nothing -> {second[worker][:12]}",
    ]
    commit(outer, "2", "includes: [./gone.md]\n")
    code, out, err = run(capsys, "update", "outer", "bundle.md")
    assert code == exits.NOT_FOUND
    assert [line.partition(":")[0] for line in out.splitlines()] == ["outer", "git+file"]
    assert "gone.md: no such file or folder; searched in " in err


def commit(repository: Path, version: str, front: str = "") -> str:
    (repository / "bundle.md").write_text(f"---\nbundle: {{name: far, version: '{version}'}}\n{front}---\n")
    git(repository, "add", ".")
    git(repository, "-c", "user.name=a", "-c", "user.email=a@example.invalid", "commit", "-q", "-m", version)
    return git(repository, "rev-parse", "HEAD")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


# install


def test_nothing_is_missing_of_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    write("providers: [{module: provider-playbook}]\n")
    assert run(capsys, "install") == (exits.OK, "Nothing is missing.\n", "")
    assert data(capsys, "install") == {"missing": [], "installed": False}
    assert invoke(["--safe-mode", "bundle", "install"]) == exits.OK
    assert capsys.readouterr() == ("Nothing is missing.\n", "")


def test_the_bundle_of_a_background_session_is_found_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    sessions = "{bundle: {name: a}, background_sessions: [{name: w, bundle: 'foreman:workers/coding-worker'}]}"
    Path("bundle.md").write_text(f"---\n{sessions}\n---\n")
    assert run(capsys, "install", "--dry-run") == (exits.OK, "Nothing is missing.\n", "")


def test_a_dry_run_prints_the_commands_and_nothing_is_installed_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    write(
        "tools: [{module: tool-hammer, source: 'git+https://host/hammer@v1'}]\n"
        "background_sessions: [{name: a, bundle: ./worker.md}]\n"
    )
    write("background_sessions: [{name: b, triggers: [{module: trigger-bell, package: bells}]}]\n", name="worker.md")
    Path(".amplifier").mkdir()
    Path(".amplifier/settings.yaml").write_text("storage: storage-cloud\n")
    code, out, err = run(capsys, "install", "--dry-run")
    assert code == exits.OK
    pip = f"{sys.executable} -P -m pip install --no-input --disable-pip-version-check"
    assert out.splitlines() == [
        f"{pip} git+https://host/hammer@v1",
        f"{pip} bells",
    ]
    assert "bundle.md:3:18: tool 'tool-hammer' is not installed\n" in err
    assert "settings: storage 'storage-cloud' is not installed; no package of the project has it" in err
    kinds = [each["kind"] for each in data(capsys, "install", "--dry-run")["missing"]]
    assert kinds == ["tool", "trigger", "storage"]
    code, out, err = run(capsys, "install")
    assert (code, len(out.splitlines())) == (exits.USAGE, 2)
    assert "--yes" in err


@pytest.fixture
def environment(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of its own that sees what is installed here; pip finds `tool-hammer` in a folder of wheels."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True, with_pip=False)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here = sysconfig.get_paths()["purelib"]
    (folder / "lib" / python / "site-packages" / "here.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return folder / "bin" / "python"


def wheel(folder: Path) -> None:
    """Write a wheel with one module, as `amplifier-module-<name>`."""
    about = "amplifier_module_tool_hammer-1.0.dist-info"
    files = {
        "amplifier_module_tool_hammer.py": "async def mount(coordinator, config=None): ...\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: amplifier-module-tool-hammer\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": "[amplifier.modules]\ntool-hammer = amplifier_module_tool_hammer:mount\n",
    }
    record = "".join(
        f"{name},sha256={urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}\n"
        for name, text in files.items()
    )
    with ZipFile(folder / "amplifier_module_tool_hammer-1.0-py3-none-any.whl", "w") as archive:
        for name, text in {**files, f"{about}/RECORD": f"{record}{about}/RECORD,,\n"}.items():
            archive.writestr(name, text)


def in_environment(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "amplifier_foundation", "bundle", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_missing_is_installed_for_real_and_then_there(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://ann:pw1#x@127.0.0.1:1")  # no address of it is asked
    write("tools: [{module: tool-hammer, package: amplifier-module-tool-hammer}]\n")
    assert in_environment(environment, "validate").returncode == exits.USAGE
    done = in_environment(environment, "install", "--yes")
    assert done.returncode == exits.OK, done.stderr
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith(f"{environment} -P -m pip install")
    assert "Successfully installed amplifier-module-tool-hammer-1.0" in done.stderr
    assert in_environment(environment, "install").stdout == "Nothing is missing.\n"
    assert in_environment(environment, "validate").stdout == "bundle.md: valid\n"


def test_an_unreadable_proxy_is_told_without_its_password_and_pip_is_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("tools: [{module: tool-hammer, package: amplifier-module-tool-hammer}]\n")
    monkeypatch.setenv("https_proxy", "http://ann:pw1#x@127.0.0.1:1")
    code, _, err = run(capsys, "install", "--yes")
    assert (code, "pw1" in err) == (exits.FAILED, False)
    assert "amplifier: https_proxy is no address of a proxy that can be read. Write it as" in err


def test_a_pip_that_fails_is_1_with_its_last_line(environment: Path) -> None:
    write("background_sessions: [{name: a, triggers: [{module: trigger-nobody, package: nobody-s}]}]\n")
    done = in_environment(environment, "install", "--yes")
    assert done.returncode == exits.FAILED
    assert done.stderr.splitlines()[-1] == ("amplifier: ERROR: No matching distribution found for nobody-s")


def test_what_no_package_is_known_for_is_said_and_makes_it_1(environment: Path) -> None:
    write("tools: [{module: tool-nobody}, {module: tool-filesytem}]\n")
    done = in_environment(environment, "install", "--yes")
    assert (done.returncode, done.stdout) == (exits.FAILED, "")
    assert "'tool-nobody' is not installed; name its package beside it: 'package: NAME'" in done.stderr
    assert "'tool-filesytem' is not installed; did you mean 'tool-filesystem'?" in done.stderr
    assert done.stderr.splitlines()[-1] == "amplifier: no package is known for tool-nobody, tool-filesytem"
