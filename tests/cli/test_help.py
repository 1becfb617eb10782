"""What `--help` says: each command has an example, and the examples are commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from amplifier_foundation.cli import _plugin_commands, cli, exits, invoke


def leaf_commands(group: click.Group, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaf_commands(command, *above, name)
        elif command is not None:
            yield (*above, name), command


LEAVES = dict(leaf_commands(cli))


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_the_help_of_each_command_has_examples_that_parse(words: tuple[str, ...], project: Path) -> None:
    (project / "recordings").mkdir()
    (project / "event.json").write_text("{}")
    command = LEAVES[words]
    shown = command.get_help(click.Context(command, info_name=" ".join(words)))
    examples = re.findall(r"^ +Example: amplifier (.+)$", shown, flags=re.M)
    assert examples
    for example in examples:
        given = shlex.split(re.split(" >+ ", example)[0])
        assert tuple(given[: len(words)]) == words
        command.make_context(" ".join(words), given[len(words) :]).close()


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_brackets_stand_around_the_arguments_that_may_be_left_out(words: tuple[str, ...]) -> None:
    command = LEAVES[words]
    context = click.Context(command)
    for argument in command.get_params(context):
        if isinstance(argument, click.Argument):
            assert argument.make_metavar(context).startswith("[") != argument.required, argument.name


def test_no_line_of_any_help_is_wider_than_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for words in [(), *LEAVES]:
        assert invoke([*words, "--help"]) == exits.OK
        assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_the_commands_of_packages_are_described_in_their_own_words(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = "Summary: Sing songs, one verse after the other, until everybody in the house joins in."
    for name, about_it in (("said", summary), ("unsaid", "")):
        about = tmp_path / f"{name}-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {name}\nVersion: 1\n{about_it}\n")
        (about / "entry_points.txt").write_text(f"[amplifier.commands]\n{name} = no_such_module:command\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    _plugin_commands.cache_clear()
    assert invoke(["--help"]) == exits.OK
    shown = capsys.readouterr().out
    assert re.search(r"^  said +Sing songs, one verse after the other\.$", shown, flags=re.M)
    assert re.search(r"^  unsaid +Offered by unsaid\.$", shown, flags=re.M)
    _plugin_commands.cache_clear()
