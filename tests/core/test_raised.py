"""Whose error it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.raised import describe_raised, find_origin, note_origin

if TYPE_CHECKING:
    from pathlib import Path


class Module:
    def complete(self) -> None:
        read({})


def read(answer: dict[str, Any]) -> Any:
    return answer["choices"]


def test_code_that_cannot_be_parsed_is_told_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    with pytest.raises(SyntaxError) as raised:
        compile("def broken(:", str(file), "exec")
    assert describe_raised(raised.value) == f"SyntaxError: invalid syntax ({file}:1)"


def test_a_text_that_code_cannot_parse_is_told_with_the_line_of_the_code() -> None:
    with pytest.raises(SyntaxError) as raised:
        compile("1 +", "<string>", "eval")
    place = f"{__file__}:{raised.tb.tb_lineno}"
    assert describe_raised(raised.value) == f"SyntaxError: invalid syntax ({place})"


TITLES = {"a": "provider 'a'", "b": "provider 'b'", "context": "context manager"}


@pytest.mark.parametrize("failing", TITLES)
def test_of_several_modules_of_one_package_the_one_that_was_called_is_named(failing: str) -> None:
    modules = {each: Module() for each in TITLES}
    mounted = {"providers": {each: modules[each] for each in "ab"}, "context": modules["context"], "orchestrator": None}
    with pytest.raises(KeyError) as raised:
        modules[failing].complete()
    note_origin(raised.value, mounted)
    assert find_origin(raised.value)[0] == TITLES[failing]


def test_where_none_of_them_was_called_the_place_alone_is_told() -> None:
    mounted = {"providers": {each: Module() for each in "ab"}, "context": None, "orchestrator": None}
    with pytest.raises(KeyError) as raised:
        read({})
    note_origin(raised.value, mounted)
    title, place = find_origin(raised.value)
    assert title == ""
    assert place.partition(":")[0] == __file__


def test_an_error_that_cannot_tell_its_text_is_told_by_its_class() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert describe_raised(Mute()) == "Mute: its text cannot be read"
