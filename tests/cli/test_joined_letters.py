"""Names with joined letters, as Persian words and families of emoji have them, are names everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core import TriggerEvent, TriggerType
from amplifier_foundation.background.service.units import Service, systemd_unit
from amplifier_foundation.bundle.templates import build_instruction
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.mentions import ContextFile, context_block
from amplifier_tool_memory.notes import check_values

if TYPE_CHECKING:
    from collections.abc import Callable

    Told = Callable[..., str]

pytestmark = pytest.mark.usefixtures("home", "project")
NAMES = ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f468\u200d\U0001f469\u200d\U0001f467"]
PARTED = "rev\u200ciew"


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Give a command that ends with a code; return what it prints."""

    def run(*arguments: str, code: int = exits.OK) -> str:
        capsys.readouterr()
        ended = invoke(arguments)
        out, err = capsys.readouterr()
        assert ended == code, (out, err)
        return out + err

    return run


@pytest.mark.parametrize("name", NAMES)
def test_joined_letters_are_taken_wherever_a_name_is(name: str, told: Told) -> None:
    assert name in told("issue", "create", name, "--label", name)
    assert check_values({"title": name, "tags": [name]}) == {"title": name, "tags": [name]}
    bundle = f'---\nbundle: {{name: "{name}"}}\n---\nYou help.\n'
    Path("bundle.md").write_text(bundle, encoding="utf-8")
    assert "valid" in told("bundle", "validate")


@pytest.mark.parametrize("name", NAMES)
def test_joined_letters_are_shown_as_they_are(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    assert f'"{folder}"' in systemd_unit(Service((str(folder),), (str(folder),), folder / "home", True))
    assert name in context_block([ContextFile("text", "", (Path(name),), (f"@{name}",))])
    event = TriggerEvent(TriggerType.FILE_CHANGE, "watch", file_path=name, change_type="created")
    assert build_instruction(event) == f"File changed: {name} (created)"


def test_what_only_hides_is_refused_and_the_rule_is_told(told: Told) -> None:
    assert "printable" in told("issue", "create", PARTED, code=exits.USAGE)
    Path("bundle.md").write_text(f'---\nbundle: {{name: "{PARTED}"}}\n---\nYou help.\n', encoding="utf-8")
    said = told("bundle", "validate", "--json", code=exits.USAGE)
    assert "printable" in json.loads(said)["data"]["problems"][0]["message"]
