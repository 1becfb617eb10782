"""An unchanged settings file is not parsed or checked again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_foundation.documents.positions import Place
from amplifier_foundation.settings import InvalidSettings, layer, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = Path(".amplifier/settings.yaml")
TEXT = "bundle: ./mine.md # ours\noverrides:\n  tool-x: {config: {a: [1, 2.5, true, null]}, source: ./x}\nother: 1\n"


@pytest.fixture
def write(home: Path, project: Path) -> Callable[[str], None]:
    home.mkdir(exist_ok=True)

    def write_file(text: str) -> None:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(text)

    return write_file


def entries(home: Path) -> list[Path]:
    return sorted((home / "cache" / "settings").glob("*"))


def test_what_was_checked_once_reads_the_same_with_its_places(write: Any, home: Path) -> None:
    text = TEXT.replace("other: 1\n", "")
    write(text)
    first, again = read_settings(), read_settings()
    assert (again.values, again.problems) == (first.values, ())
    assert again.values["overrides"]["tool-x"]["source"] == str(Path.cwd() / "x")
    for path in ("bundle", "overrides.tool-x.config.a"):
        assert again.origin(path) == first.origin(path) != "default"
    assert isinstance(again.origin("bundle"), Place)


def test_reading_it_again_imports_neither_yaml_nor_pydantic(write: Any, home: Path) -> None:
    code = (
        "import sys\nfrom amplifier_foundation.settings import read_settings\n"
        "print(read_settings().get('fetch.timeout'), sorted({'yaml', 'pydantic', 'asyncio'} & set(sys.modules)))"
    )

    def read() -> str:
        return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    write("# nothing yet\n\n")
    assert read() == "120 []"
    write("fetch: {timeout: 60} # ours\n")
    assert [read(), read()] == ["60 ['pydantic', 'yaml']", "60 []"]
    FILE.unlink()
    assert read() == "120 []"


def test_a_change_is_seen_though_size_and_time_stay(write: Any) -> None:
    write("fetch: {timeout: 60}\n")
    before = FILE.stat()
    assert read_settings().get("fetch.timeout") == read_settings().get("fetch.timeout") == 60
    write("fetch: {timeout: 61}\n")
    os.utime(FILE, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_settings().get("fetch.timeout") == 61


def test_what_is_wrong_is_told_each_time_and_never_kept(write: Any, home: Path) -> None:
    write("fetch: {timeout: soon}\n")
    for _ in range(2):
        with pytest.raises(InvalidSettings, match="fetch.timeout: must be a number"):
            read_settings()
    write(TEXT)
    for _ in range(2):
        assert [problem.code for problem in read_settings().problems] == ["AMP301"]
    assert entries(home) == []


def test_a_secret_is_not_written_anywhere(write: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = FILE.with_name("settings.local.yaml")
    write("")
    local.write_text("overrides: {tool-x: {config: {api_key: hush-hush}}}\n")
    first = read_settings()
    [entry] = entries(home)
    assert "hush" not in entry.read_text()
    monkeypatch.setattr(
        layer, "shape_problems", lambda values, positions: pytest.fail("checked again") if values else []
    )
    assert read_settings().values == first.values
    assert first.get("overrides.tool-x.config.api_key") == "hush-hush"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": 1}', "\0"])
def test_a_damaged_entry_does_no_harm(text: str, write: Any, home: Path) -> None:
    write("fetch: {timeout: 60}\n")
    read_settings()
    [entry] = entries(home)
    entry.write_text(text)
    assert read_settings().get("fetch.timeout") == 60
    assert entry.stat().st_mode & 0o777 == 0o600


def test_reading_makes_no_data_folder(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "absent"))
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("fetch: {timeout: 60}\n")
    assert read_settings().get("fetch.timeout") == 60
    assert not (tmp_path / "absent").exists()
