"""What may name a session, and names that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core.errors import InvalidSessionId
from amplifier_core.ids import new_session_id, validate_session_id


@pytest.mark.parametrize("name", ["a", "7", "A-b_c", "x" * 128, "con-1", "console", "com10", "abc-123-fork-1"])
def test_a_name_of_letters_digits_and_dashes_is_returned_as_it_is(name: str) -> None:
    assert validate_session_id(name) is name


@pytest.mark.parametrize(
    "name",
    ["", "-a", "_a", "a b", "a/b", "../a", "a.b", "a\n", "\na", "é", "٣", "x" * 129, "a\x00", None, 7, b"abc", ["a"]],
    ids=repr,
)
def test_anything_else_is_refused(name: Any) -> None:
    with pytest.raises(InvalidSessionId, match="Use 1 to 128 letters, digits, '-' or '_', beginning with a letter"):
        validate_session_id(name)


@pytest.mark.parametrize("name", ["con", "CON", "Prn", "aux", "nul", "com1", "COM0", "lpt9"])
def test_a_name_that_is_a_device_somewhere_is_refused(name: str) -> None:
    with pytest.raises(InvalidSessionId, match=f"not a session id: '{name}'"):
        validate_session_id(name)


@pytest.mark.parametrize("name", ["a\nb\x1b[31m", "x" * 10_000])
def test_a_refusal_is_one_short_line_whatever_was_refused(name: str) -> None:
    with pytest.raises(InvalidSessionId) as refusal:
        validate_session_id(name)
    text = str(refusal.value)
    assert text.isprintable()
    assert len(text) < 200


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("code reviewer", "code-reviewer-"),
        ("Ünder/lines_ok", "nder-lines_ok-"),
        ("../../etc/passwd", "etc-passwd-"),
        ("con", "con-"),
        ("", ""),
        ("日本語", ""),
        ("_-_", ""),
        ("x" * 500, "x" * 64 + "-"),
    ],
)
def test_a_made_up_id_begins_with_what_is_allowed_of_the_name(name: str, stem: str) -> None:
    made = new_session_id(name)
    assert made.startswith(stem)
    suffix = made.removeprefix(stem)
    assert len(suffix) == 12
    assert set(suffix) <= set("0123456789abcdef")
    assert validate_session_id(made) == made


def test_made_up_ids_do_not_repeat() -> None:
    assert len({new_session_id("x") for _ in range(2_000)}) == 2_000
