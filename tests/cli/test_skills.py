"""Skills and slash commands at the command line: a conversation, trust, and what a bundle says of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from tests import forks

BUNDLE = """---
bundle: {name: talk}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^use (?P<name>\\S+)$'}
          call: {tool: skill, input: {name: "{name}"}}
        - when: {user: '^read (?P<name>\\S+) (?P<file>\\S+)$'}
          call: {tool: skill, input: {name: "{name}", file: "{file}"}}
        - when: {tool: skill, output: '(?s)(?P<what>.*)'}
          say: "It says: {what}"
      otherwise: {say: "You said: {prompt}"}
tools: [{module: tool-skills}]
---
Answer.
"""


@pytest.fixture(autouse=True)
def person(project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with a skill and a command, in a project with its own, and a bundle with others."""
    folder = tmp_path / "person"
    monkeypatch.setenv("HOME", str(folder))
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    write(folder / ".claude/skills/mine/SKILL.md", "---\nname: mine\ndescription: My own.\n---\nMine: $ARGUMENTS.\n")
    write(project / "skills/shipped/SKILL.md", "---\nname: shipped\ndescription: Of the bundle.\n---\nShipped.\n")
    write(project / "skills/shipped/more.md", "More of it.\n")
    write(project / "commands/ship.md", "Ship $1.\n")
    return folder


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def of_project(project: Path) -> Path:
    """A skill of the project; return its file."""
    write(project / ".claude/commands/git/commit.md", "---\nargument-hint: [WHY]\n---\nCommit because $ARGUMENTS.\n")
    return write(project / ".claude/skills/local/SKILL.md", "---\nname: local\ndescription: Local.\n---\nFirst.\n")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forks.run(arguments)


def test_a_person_types_commands_and_a_model_loads_skills(terminals: Any, of_project: Path, project: Path) -> None:
    person = terminals("run")
    person.prompted()
    helped = person.say("/help")
    assert "/git:commit [WHY] Commit because $ARGUMENTS. (project) (tool-skills)" in helped
    assert "/mine             My own. (user) (tool-skills)" in helped
    assert "/ship             Ship $1. (bundle) (tool-skills)" in helped
    person.type("/git:co\tit works\n")
    assert "You said: Commit because it works.\n" in person.prompted()
    assert '<skill name="mine" ' in person.say("/mine cats")
    assert "First.\n</skill>" in person.say("use local")
    write(project / ".claude/commands/late.md", "Late.\n")
    assert "You said: Late.\n" in person.say("/late")
    assert "no command /git:comit; did you mean /git:commit?" in person.say("/git:comit")


def test_a_session_uses_a_skill_with_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "use shipped"]) == exits.OK
    assert "Shipped.\n</skill>\n\nFiles of the skill" in capsys.readouterr().out
    assert invoke(["run", "read shipped more.md"]) == exits.OK
    assert capsys.readouterr().out == "It says: More of it.\n\n"
    assert invoke(["run", "/ship 'the boat'"]) == exits.OK
    assert capsys.readouterr().out == "You said: Ship the boat.\n"


def test_skills_of_a_project_count_as_they_were_trusted(
    of_project: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    assert run("run", "use mine").returncode == exits.WAITING
    shown = run("trust", "--yes").stderr
    assert "skill        local: Local." in shown and "command      git:commit: Commit because" in shown
    assert "skill        shipped: Of the bundle." in shown
    assert "First." in run("run", "use local").stdout

    write(of_project.parent / "new.md", "Planted.")
    write(of_project.parent / "obey.md", "Planted.")
    assert "obey" not in run("run", "use local").stdout
    assert "the skill 'local' has no file 'new.md'" in run("run", "read local new.md").stdout
    of_project.write_text(of_project.read_text() + "Second.\n")
    left = run("run", "use local")
    assert "there is no skill 'local'" in left.stdout
    assert f"SKILL.md: not trusted. Look at it, and trust it, with: amplifier trust {project}" in left.stderr
    assert "You said: Commit because x." in run("run", "/git:commit x").stdout
    changed = run("trust")
    assert changed.returncode == exits.USAGE and "+Second." in changed.stderr and "+Planted." in changed.stderr
    assert run("trust", "--yes").returncode == exits.OK
    assert "Second." in run("run", "use local").stdout
    assert "Planted." in run("run", "read local new.md").stdout

    assert f"{project} is not trusted any more" in run("untrust").stdout
    assert run("trust", "bundle.md", "--yes").returncode == exits.OK
    assert "there is no skill 'local'" in run("run", "use local").stdout


def test_skills_of_a_bundle_are_a_part_of_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    assert run("trust", "--yes").returncode == exits.OK
    assert "Shipped." in run("run", "use shipped").stdout
    for file in ("skills/shipped/SKILL.md", "skills/shipped/new.md", "commands/new.md"):
        before = (project / file).read_text() if (project / file).exists() else ""
        write(project / file, f"{before}\nAdded.\n")
        refused = run("run", "use shipped")
        assert refused.returncode == exits.WAITING
        problem = "has changed since it was trusted" if before else "uses files that were not trusted with it"
        assert f"bundle.md {problem} ({file})" in refused.stderr
        assert "Added" in run("trust", "--yes").stderr
        assert run("run", "use shipped").returncode == exits.OK


def test_a_person_is_asked_about_a_project_once_and_may_say_no(
    terminals: Any, of_project: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    assert run("trust", "bundle.md", "--yes").returncode == exits.OK
    person = terminals("run")
    person.until(r"skill +local: Local\. \(\.claude/skills/local/SKILL\.md\)\n(.*\n)*Trust it\? \[y/N\]: ")
    person.type("n\n")
    assert "not trusted" in person.prompted()
    assert "there is no skill 'local'" in person.say("use local")
    person = terminals("run")
    person.until(r"Trust it\? \[y/N\]: ")
    person.type("y\n")
    person.prompted()
    assert "First." in person.say("use local")
    person = terminals("run")
    assert "Trust it?" not in person.prompted()


def test_a_session_that_writes_a_skill_does_not_get_it(
    terminals: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    assert run("trust", "--yes").returncode == exits.OK
    person = terminals("run")
    person.prompted()
    write(project / ".agents/skills/planted/SKILL.md", "---\nname: planted\ndescription: Obey.\n---\nObey.\n")
    write(project / "skills/worse/SKILL.md", "---\nname: worse\ndescription: Obey.\n---\nObey.\n")
    assert "there is no skill 'planted'" in person.say("use planted")
    assert "there is no skill 'worse'" in person.say("use worse")
    assert run("trust", "--yes").returncode == exits.OK
    assert "Obey.\n</skill>" in person.say("use planted")


def test_a_bundle_names_its_skills_and_commands(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    assert invoke(["bundle", "show"]) == exits.OK
    shown = capsys.readouterr().out
    assert "skill       shipped: Of the bundle.\n" in shown
    assert "command     /ship: Ship $1.\n" in shown
    assert invoke(["bundle", "show", "--json"]) == exits.OK
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["skills"], data["commands"]) == ({"shipped": "Of the bundle."}, {"ship": "Ship $1."})
    (project / "bundle.md").write_text(BUNDLE.replace("tools: [{module: tool-skills}]\n", ""), encoding="utf-8")
    assert invoke(["bundle", "show"]) == exits.OK
    assert "shipped" not in capsys.readouterr().out


def test_broken_ones_are_reported_with_their_place_and_stop_nothing(
    capsys: pytest.CaptureFixture[str], project: Path, tmp_path: Path
) -> None:
    write(project / "skills/mute/SKILL.md", "---\nname: mute\n---\nx\n")
    write(project / "skills/torn/SKILL.md", "---\nname: torn\ndescription:\n  - [a\n---\nx\n")
    write(project / "skills/other/SKILL.md", "---\nname: another\ndescription: x\n---\nx\n")
    write(project / "commands/runs.md", "Look:\n\n!`git status`\n")
    write(project / "commands/a b.md", "x")
    (project / "commands/linked.md").symlink_to("/etc/hostname")
    assert invoke(["bundle", "validate"]) == exits.OK
    said = capsys.readouterr().err
    for place, message in {
        "skills/mute/SKILL.md:2:1": "description: a skill needs a description",
        "skills/torn/SKILL.md:5:1": "',' or ']' is missing",
        "skills/other/SKILL.md:2:7": "name: the name of a skill is that of its folder, 'other'",
        "commands/runs.md:3:1": "!`git status` is not run",
        "commands/a b.md": "'a b' cannot be typed",
        "commands/linked.md": "is left out: it is a link that leads elsewhere",
    }.items():
        assert any(line.startswith(f"{place}: warning[") and message in line for line in said.splitlines()), place
    assert invoke(["bundle", "validate", "--strict"]) == exits.USAGE
    capsys.readouterr()
    assert invoke(["run", "use shipped"]) == exits.OK
