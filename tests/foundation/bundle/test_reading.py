"""From bytes to data: front matter, YAML, and what is refused with its line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import BundleLoadError, BundleNotFoundError
from amplifier_foundation.bundle import UnreadableBundle, load_bundle_sync
from amplifier_foundation.documents.positions import Positions
from amplifier_foundation.documents.yaml_reader import read_yaml

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("front", "line"),
    [
        ("a: &x 1\n", "3:4: error[AMP204] a: YAML anchor 'x'; write the value out here, or quote it if it is text"),
        ("a: *x\n", "3:4: error[AMP204] a: YAML alias 'x'; write the value out here, or quote it if it is text"),
        ("a:\n  <<: {b: 1}\n", "4:3: error[AMP204] a: anchors and merge keys ('<<') are refused; write it out"),
        ("a: !!python/name:os.system x\n", "3:4: error[AMP205] a: YAML tag; remove it, values are plain data here"),
        ("a: !secret x\n", "3:4: error[AMP205] a: YAML tag; remove it, values are plain data here"),
        ("a: 1\nb: 2\na: 3\n", "5:1: error[AMP206] a: this key stands here twice; first at bundle.md:3:1"),
        ("a: {1: x}\n", "3:5: error[AMP207] a: a key must be text; write '1' in quotes"),
        ("yes: x\n", "3:1: error[AMP207] a key must be text; write 'yes' in quotes"),
        ("? [a]\n: x\n", "3:3: error[AMP207] a key must be text"),
        ("a: .inf\n", "3:4: error[AMP213] a: must be a finite number"),
        ("a: " + "9" * 5000 + "\n", "3:4: error[AMP213] a: not a number or boolean that can be read"),
        ("a: !!int ''\n", "3:4: error[AMP213] a: not a number or boolean that can be read"),
        ("a: b: c\n", "3:4: error[AMP203] ': ' is not possible here; quote it: a: \"b: c\""),
        ("a:\n\tb: 1\n", "4:1: error[AMP214] a tab; YAML is indented with spaces"),
        ("a: x\x07y\n", "3:5: error[AMP211] character U+0007 is not allowed here"),
        ("a: [1,\n  2\n", "5:1: error[AMP203] ',' or ']' is missing "
                         "(parsing a flow sequence that begins in line 3)"),
    ],
)  # fmt: skip
def test_what_surprises_in_yaml_is_refused_where_it_stands(problems: Any, front: str, line: str) -> None:
    found = problems(f"---\nbundle: {{name: demo}}\n{front}---\n")
    assert f"bundle.md:{line}" in found


def test_every_refused_thing_of_a_file_is_told_at_once(problems: Any) -> None:
    found = problems("---\nbundle: {name: demo, nmae: x}\na: &x 1\nb: *x\n---\n")
    assert [line.split()[0] for line in found if "error" in line] == [
        "bundle.md:2:22:",
        "bundle.md:3:4:",
        "bundle.md:4:4:",
    ]


@pytest.mark.parametrize(
    ("front", "places"),
    [
        ("tools:\n  - &x {module: tool-a}\n  - *x\n", ["4:5", "5:5"]),
        ("session: *x\n", ["3:10"]),
        ("background_sessions:\n  - {<<: *x, name: b}\n", ["4:6", "4:10"]),
    ],
)
def test_an_alias_is_no_second_mistake_where_it_stands(problems: Any, front: str, places: list[str]) -> None:
    found = problems(f"---\nbundle: {{name: demo}}\n{front}---\n")
    assert [line.partition(" ")[0] for line in found] == [f"bundle.md:{place}:" for place in places]
    assert all("AMP204" in line for line in found)


def test_a_column_counts_characters_and_not_bytes(problems: Any) -> None:
    assert problems("---\nbundle: {name: démö, nmae: x}\n---\n")[0].startswith("bundle.md:2:22: error[AMP102]")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("# just text\n", "1:1: error[AMP201] a bundle begins with front matter: make '---' the first line"),
        ("", "1:1: error[AMP201] a bundle begins with front matter: make '---' the first line"),
        ("---\na: 1\n", "1:1: error[AMP202] the front matter that begins here has no end: write a line '---' after it"),
        ("---\n- a\n---\n", "2:1: error[AMP212] must be a mapping such as 'bundle: {name: …}'"),
        ("---\nbundle: {name: a}\n---\nx\0y\n", "4:2: error[AMP211] character U+0000 is not allowed here"),
        (b"---\nbundle:\n  name: \xff\n", "3:9: error[AMP210] byte 0xff is not UTF-8; save the file as UTF-8"),
        (b"---\n" + b" " * (4 * 1024 * 1024), "1:1: error[AMP209] larger than 4 MiB"),
        (
            "---\na: " + "[" * 100 + "]" * 100 + "\n---\n",
            "2:68: error[AMP208] a[0][0][0]: nested deeper than 64 levels",
        ),
        ("---\na: [" + "1," * 100_001 + "]\n---\n", "2:200001: error[AMP209] a[99998]: more than 100,000 values"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_it_ends(problems: Any, content: str | bytes, line: str) -> None:
    assert problems(content) == [f"bundle.md:{line}"]


def test_an_endlessly_nested_file_is_given_up_early(problems: Any) -> None:
    assert "AMP208" in problems("---\na: " + "[" * 2_000_000 + "\n---\n")[0]
    assert "AMP208" in problems("a: " + "{b: " * 1_000_000, "bundle.yaml")[0]


def test_a_byte_order_mark_and_windows_line_ends_are_read(folder: Path) -> None:
    (folder / "bundle.md").write_bytes(b"\xef\xbb\xbf---\r\nbundle:\r\n  name: demo\r\n---\r\nOne\r\ntwo\r\n")
    bundle = load_bundle_sync("bundle.md")
    assert (bundle.name, bundle.instruction) == ("demo", "One\ntwo")


def test_a_yaml_file_is_a_bundle_whose_instruction_is_a_key(folder: Path) -> None:
    (folder / "bundle.yaml").write_text("bundle: {name: demo}\ninstruction: Be brief.\n")
    assert load_bundle_sync(folder).instruction == "Be brief."


def test_two_instructions_are_one_too_many(problems: Any) -> None:
    assert problems("---\nbundle: {name: a}\ninstruction: x\n---\ny\n") == [
        "bundle.md:3:1: error[AMP104] instruction: the text below the front matter is the instruction; "
        "keep one of the two"
    ]


def test_two_documents_are_no_bundle(problems: Any) -> None:
    assert problems("bundle: {name: a}\n---\nb: 1\n", "bundle.yaml") == [
        "bundle.yaml:2:1: error[AMP203] a second YAML document begins here; a bundle is one"
    ]


def test_values_are_what_json_can_say() -> None:
    text = "a: 2024-01-31\nb: 12:30\nc: 0x10\nd: 1_000\ne: yes\nf: ~\ng: 1.5\nh: !!str 5\ni: '7'\nj: =\n"
    data, problems = read_yaml(text, Positions("x"))
    assert problems == []
    assert data == {
        "a": "2024-01-31", "b": "12:30", "c": 16, "d": 1000, "e": True, "f": None, "g": 1.5, "h": "5", "i": "7",
        "j": "=",
    }  # fmt: skip


def test_every_key_and_value_has_its_spot() -> None:
    positions = Positions("x.yaml")
    read_yaml("a:\n  - b: {c: 1}\n", positions)
    at = {path: positions.at(path) for path in [("a",), ("a", 0, "b", "c"), ("a", 0, "z", "y")]}
    assert [str(place) for place in at.values()] == ["x.yaml:2:3", "x.yaml:2:12", "x.yaml:2:5"]
    assert str(positions.at(("a", 0, "b", "c"), key=True)) == "x.yaml:2:9"
    assert positions.at(("a", 0, "b c")).path == 'a[0]["b c"]'


def test_a_version_stays_as_it_is_written(folder: Path) -> None:
    (folder / "bundle.md").write_text("---\nbundle: {name: 7, version: 1.10}\n---\n")
    bundle = load_bundle_sync("bundle.md")
    assert (bundle.name, bundle.version) == ("7", "1.10")


def test_a_folder_without_a_bundle_says_what_it_looked_for(folder: Path) -> None:
    with pytest.raises(BundleNotFoundError, match=r"this folder has no bundle\.md, bundle\.yaml, bundle\.yml"):
        load_bundle_sync(folder)


@pytest.mark.parametrize("source", ["missing.md", "missing", "./missing/"])
def test_nothing_at_a_path_is_not_found(folder: Path, source: str) -> None:
    with pytest.raises(BundleNotFoundError, match=r"missing.*: no such file or folder"):
        load_bundle_sync(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("file://elsewhere/bundle.md", "names a path of this machine"),
        ("a\0b.md", "cannot contain the character"),
        ("~nobody-of-this-name/bundle.md", "home folder of an unknown user"),
        ("a" * 5000 + ".md", "cannot be read"),
    ],
)
def test_what_cannot_be_loaded_says_what_can(folder: Path, source: str, message: str) -> None:
    with pytest.raises(BundleLoadError) as caught:
        load_bundle_sync(source)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("source", ["git+https://user:hunter2@127.0.0.1:9/x", "https://u:hunter2@127.0.0.1:9/b.md"])
def test_what_cannot_be_reached_is_said_without_its_password(
    folder: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(folder / "home"))
    with pytest.raises(BundleNotFoundError, match=r"://\*\*\*@127\.0\.0\.1:9/.*Check the address") as caught:
        load_bundle_sync(source)
    assert "hunter2" not in str(caught.value)


def test_a_pipe_is_no_bundle_and_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "bundle.md")
    with pytest.raises(BundleLoadError, match="not a file"):
        load_bundle_sync("bundle.md")


def test_an_error_is_also_the_builtin_that_a_caller_catches(folder: Path) -> None:
    (folder / "bundle.md").write_text("no front matter")
    with pytest.raises(ValueError, match="AMP201") as caught:
        load_bundle_sync("bundle.md")
    assert isinstance(caught.value, UnreadableBundle)
    assert isinstance(caught.value, BundleLoadError)


def test_a_file_outside_the_current_folder_is_shown_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bundle.md").write_text("x")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    with pytest.raises(UnreadableBundle) as caught:
        load_bundle_sync(folder)
    assert str(caught.value).startswith(f"{folder}/bundle.md:1:1: ")
