"""JSON for people: no character in it steers a terminal or hides text, and a program reads the same value."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from amplifier_foundation.documents.json_text import dump_json

pytestmark = pytest.mark.slow

WITH_A_SHAPE = ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "SHORTHAND", "MUSICAL")
"""Scripts with visible characters, or joined ones, of the category `Cf`."""


def test_a_program_reads_every_character_and_a_person_sees_none_that_hides() -> None:
    letters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    text = dump_json(letters)
    assert json.loads(text) == letters
    left = {each for each in set(text) if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")}
    assert [each for each in left if not unicodedata.name(each, "").startswith(WITH_A_SHAPE)] == []


def test_letters_stay_as_they_are() -> None:
    assert dump_json({"name": "Zoë 日本 🙂"}) == '{"name": "Zoë 日本 🙂"}'
