"""What can be printed: joined letters and emoji, and nothing that only hides."""

from __future__ import annotations

import pytest

from amplifier_core.permissions.hidden import is_printable, replace_unprintable

PERSIAN, FAMILY = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "",
        PERSIAN,
        f"fix {FAMILY}",
        "\u2764\ufe0f\u200d\U0001f525",
        "A\u200c\u0647",
        "\u0da7\u0dca\u200d",
    ],
)
def test_joined_letters_and_emoji_can_be_printed(text: str) -> None:
    assert is_printable(text)
    assert replace_unprintable(text, lambda each: "?") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200cb", "a?b"),  # it looks like another name
        ("\u200d", "?"),
        (f"{PERSIAN}\u202e", f"{PERSIAN}?"),
        ("\u0645\u200c\u200c\u200c\u0645", "\u0645\u200c?\u200c\u0645"),
        (f"{PERSIAN}\n\u200b\x1b[m", f"{PERSIAN}???[m"),
        ("\ufeff\u2066x\udcff", "??x?"),
    ],
)
def test_what_hides_or_steers_cannot(text: str, shown: str) -> None:
    assert not is_printable(text)
    assert replace_unprintable(text, lambda each: "?") == shown
