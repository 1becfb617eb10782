from click.testing import CliRunner

from amplifier_command_example import command


def test_it_greets() -> None:
    result = CliRunner().invoke(command, ["Ann"])
    assert (result.exit_code, result.output) == (0, "Hello, Ann!\n")


def test_it_greets_programs_in_json() -> None:
    result = CliRunner().invoke(command, ["Ann", "--json"])
    assert (result.exit_code, result.output) == (0, '{"greeting": "Hello, Ann!"}\n')
