"""The files of skills and commands, as people and strangers write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amplifier_core.permissions import what_obeys
from amplifier_foundation.bundle.prompt_files import Kind, read_command, read_front, read_skill, read_text
from amplifier_foundation.bundle.prompt_folders import (
    MOST,
    MOST_FILES,
    PromptFolder,
    find_prompt_files,
    list_files,
    list_skill_files,
    project_folders,
)
from amplifier_foundation.documents.problems import Problem


def write(folder: Path, front: str, body: str = "Do it.\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\n{front}\n---\n{body}", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("front", "description", "hint"),
    [
        ("name: s\ndescription: Plain.", "Plain.", ""),
        ('name: s\ndescription: "Quoted: yes"\nargument-hint: "[A]"', "Quoted: yes", "[A]"),
        ("name: s\ndescription: Use when: it rains", "Use when: it rains", ""),
        ("name: s\ndescription: x\nargument-hint: [A]", "x", "[A]"),
        ("name: s\ndescription: x\nargument-hint: [A] [B] | [C]", "x", "[A] [B] | [C]"),
        ("name: s\ndescription: >\n  Folded\n  text", "Folded text", ""),
        ("name: s\ndescription: @mention `tick`", "@mention `tick`", ""),
        ("name: s\ndescription: x\nmetadata: {version: 1.0}\nlicense: MIT\nallowed-tools: Bash(git *) Read", "x", ""),
    ],
)
def test_published_front_matter_is_read_also_where_it_is_no_yaml(
    tmp_path: Path, front: str, description: str, hint: str
) -> None:
    skill, problems = read_skill(write(tmp_path / "s", front), read_text)
    assert problems == [] and skill is not None
    assert (skill.name, skill.description, skill.hint) == ("s", description, hint)


@pytest.mark.parametrize("name", ["Upper", "two--dashes", "-first", "last-", "under_score", "x" * 65, "ümlaut", "a b"])
def test_a_skill_has_a_name_of_the_published_form(tmp_path: Path, name: str) -> None:
    skill, [problem] = read_skill(write(tmp_path / name, f"name: {name}\ndescription: x"), read_text)
    assert skill is None
    assert "1 to 64 of a-z, 0-9 and single '-'" in problem.message


def test_the_text_of_a_file_begins_below_its_front_matter(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    for text, data, body in [
        ("\ufeff---\r\na: 1\r\n---\r\nx\r\ny", {"a": 1}, "x\ny"),
        ("no front matter", {}, "no front matter"),
        ("---\n---\nx", {}, "x"),
        ("----\nx", {}, "----\nx"),
    ]:
        file.write_bytes(text.encode())
        front = read_front(file, read_text)
        assert front is not None and not isinstance(front, list)
        assert (front.data, front.body) == (data, body)
    file.unlink()
    assert read_front(file, read_text) is None
    os.mkfifo(file)
    assert [each.message for each in read_front(file, read_text) or ()] == ["is not a regular file"]


def test_a_command_to_run_is_reported_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "go.md"
    for text, line in [("a\n\n!`x`", 3), ("---\ndescription: d\nmodel: m\n---\n\nb !`x`\n", 6)]:
        file.write_text(text)
        command, [problem] = read_command(file, "go", read_text)
        assert command is not None
        assert (problem.line, problem.severity) == (line, "warning")


def test_a_folder_has_a_bounded_number_of_them(tmp_path: Path) -> None:
    folder = PromptFolder("command", "project", tmp_path / "commands", tmp_path)
    folder.path.mkdir()
    for number in range(MOST + 1):
        (folder.path / f"c{number}.md").write_text("x")
    problems: list[Problem] = []
    assert len(list(find_prompt_files(folder, read_text, problems))) == MOST
    assert [each.message for each in problems] == [f"only the first {MOST} commands of a folder are used"]
    assert len(list_files([folder])) == MOST
    skill = write(tmp_path / "skills" / "s", "name: s\ndescription: x")
    for number in range(MOST_FILES + 1):
        (skill / f"f{number}").touch()
    (skill / "large").write_bytes(b"x" * (256 * 1024 + 1))
    assert len(list_skill_files(skill)) == MOST_FILES


@pytest.mark.parametrize("link", ["commands", "commands/inner", "commands/go.md", "."])
def test_no_link_leads_out_of_a_project(tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "inner").mkdir(parents=True)
    for name in ("go.md", "inner/go.md", "commands/go.md"):
        (elsewhere / name).parent.mkdir(exist_ok=True)
        (elsewhere / name).write_text("x")
    root = tmp_path / "project"
    folder = PromptFolder("command", "project", root / ".claude" / "commands", root)
    target = elsewhere / "go.md" if link.endswith(".md") else elsewhere
    place = root / ".claude" if link == "." else root / ".claude" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(target)
    assert list(find_prompt_files(folder, read_text, [])) == []
    own = PromptFolder("command", "user", folder.path)
    assert list(find_prompt_files(own, read_text, []))


def test_circles_of_links_end(tmp_path: Path) -> None:
    folder = tmp_path / "commands"
    folder.mkdir()
    (folder / "go.md").write_text("x")
    (folder / "again").symlink_to(folder)
    (folder / "self.md").symlink_to("self.md")
    names = [each.name for each in find_prompt_files(PromptFolder("command", "user", folder), read_text, [])]
    assert names[:2] == ["go", "again:go"] and len(names) == 5


def test_names_that_are_no_text_are_told_as_what_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    folder.mkdir()
    write(folder / os.fsdecode(b"\xff"), "description: x")
    problems: list[Problem] = []
    assert list(find_prompt_files(PromptFolder("skill", "user", folder), read_text, problems)) == []
    assert "\\udcff" in str(problems[0])


@pytest.mark.parametrize("kind", ["skill", "command"])
def test_no_session_writes_the_skills_and_commands_of_a_project(tmp_path: Path, kind: Kind) -> None:
    folders = [each.path.relative_to(tmp_path) for each in project_folders(kind, tmp_path)]
    assert [each for each in folders if what_obeys(f"{each}/review/SKILL.md") is None] == []
