"""Slash commands from Markdown files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .conftest import write_command, write_skill

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def commands(project: Path) -> Path:
    return project / ".claude" / "commands"


async def test_a_folder_is_a_namespace_and_the_front_matter_describes(open_session: Any, commands: Path) -> None:
    write_command(commands, "git/commit", "---\ndescription: Commit it\nargument-hint: [WHY] [FILE]\n---\nCommit.\n")
    write_command(commands, "hello", "# Say hello\n\nTo everybody.\n")
    write_command(commands, "one", '---\nargument-hint: [ONE]\nmodel: opus\nallowed-tools: "Bash(*)"\n---\nOne.')
    write_command(commands, "a/b/c/d/e/deep", "Too deep.")
    write_command(commands, ".hidden", "x")
    write_command(commands, "notes.txt", "x").rename(commands / "notes.txt")
    session = await open_session()
    assert await session.commands() == {
        "git:commit [WHY] [FILE]": "Commit it (project)",
        "hello": "Say hello (project)",
        "one [ONE]": "One. (project)",
    }
    assert await session.type("git:commit") == "Commit."


@pytest.mark.parametrize(
    ("text", "argument", "prompt"),
    [
        ("Fix $ARGUMENTS now.", "the 'big' bug", "Fix the 'big' bug now."),
        ("$1 before $2, not $3.", "'a b' c", "a b before c, not ."),
        ("$1", "it's", "it's"),
        ("$1 costs $10 and $ARGUMENTSX", "$2", "$2 costs $10 and $ARGUMENTSX"),
        ("Say it.", "loudly", "Say it.\n\nARGUMENTS: loudly"),
        ("Say it.", "", "Say it."),
        ("A\\1 $ARGUMENTS", "\\g<0> $1", "A\\1 \\g<0> $1"),
    ],
)
async def test_arguments_stand_in_their_places(
    open_session: Any, commands: Path, text: str, argument: str, prompt: str
) -> None:
    write_command(commands, "go", text)
    assert await (await open_session()).type("go", argument) == prompt


async def test_nothing_of_a_command_is_run(open_session: Any, commands: Path, project: Path) -> None:
    write_command(commands, "status", "State: !`touch ran`\n!`touch ran`\nGo on. See `!x` and $1.")
    said = await (await open_session()).type("status", "!`touch ran`")
    assert said == (
        "State: `touch ran`\n`touch ran`\nGo on. See `!x` and !`touch.\n\n"
        "(Not run for you: `touch ran`. Run what you need of it with your own tools.)"
    )
    assert not (project / "ran").exists()


async def test_mentioned_files_of_the_working_folder_are_added(
    open_session: Any, commands: Path, project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (project / "note.txt").write_text("the note")
    (tmp_path / "outside.txt").write_text("outside")
    write_command(commands, "look", "Look at @note.txt, @$1 and @~/key.")
    (tmp_path / "person" / "key").write_text("private")
    said = await (await open_session()).type("look", "../outside.txt")
    assert '<context_file paths="@note.txt → note.txt">\nthe note\n</context_file>' in said
    assert "outside\n" not in said and "private" not in said
    assert "mentions are left out" in caplog.text


async def test_a_skill_is_a_command_too_and_a_command_of_its_name_counts_first(
    open_session: Any, commands: Path, project: Path
) -> None:
    skill = write_skill(project / ".claude" / "skills", "notes", "Notes.", argument_hint="[TOPIC]")
    write_skill(project / ".claude" / "skills", "twice", "Skill.")
    write_command(commands, "twice", "Command.")
    session = await open_session()
    assert await session.commands() == {"notes [TOPIC]": "Does notes. (project)", "twice": "Command. (project)"}
    assert await session.type("notes", "cats") == (
        f'<skill name="notes" folder="{skill}">\nNotes.\n\nARGUMENTS: cats\n</skill>'
    )
    assert await session.type("twice") == "Command."


async def test_a_command_that_has_gone_or_changed_says_so_or_is_new(open_session: Any, commands: Path) -> None:
    from amplifier_core.errors import CommandFailed
    from amplifier_core.prompt_commands import collect_commands, expand_command

    file = write_command(commands, "go", "First.")
    session = await open_session()
    offered = (await collect_commands(session.coordinator)).offered["go"]
    file.write_text("Second.")
    assert await expand_command(offered, "") == "Second."
    file.unlink()
    with pytest.raises(CommandFailed, match=r"/go of tool-skills failed: \S+/go.md is gone"):
        await expand_command(offered, "")


@pytest.mark.parametrize("text", ["", "---\ndescription: x\n---\n", "---\nnever closed\n", "---\n- a list\n---\nx"])
async def test_a_command_without_a_prompt_is_left_out(
    open_session: Any, commands: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_command(commands, "go", text)
    write_command(commands, "bad name", "x")
    assert await (await open_session()).commands() == {}
    assert "skills and commands are left out" in caplog.text
    assert "'bad name' cannot be typed" in caplog.text


async def test_front_matter_that_grows_is_text(open_session: Any, commands: Path) -> None:
    bomb = "a: &a [x, x]\n" + "\n".join(f"b{n}: [*a, *a, *a, *a]" for n in range(50))
    write_command(commands, "bomb", f"---\ndescription: boom\n{bomb}\n---\nGo.")
    assert await (await open_session()).commands() == {"bomb": "boom (project)"}
