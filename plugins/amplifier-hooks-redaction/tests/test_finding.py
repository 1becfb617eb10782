"""Test what is found, in which time, and the configuration."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.validation.behavioral import HookBehaviorTests
from amplifier_core.validation.structural import HookStructuralTests
from amplifier_hooks_redaction import check_config, config_schema, mount
from amplifier_hooks_redaction.finding import Finder, is_card


class TestBehavior(HookBehaviorTests):
    pass


class TestStructure(HookStructuralTests):
    pass


def find(text: str, *kinds: str, **patterns: str) -> list[str]:
    found: list[str] = []
    Finder(patterns, kinds).replace(text, lambda name, what: found.append(what) or "")
    return found


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("email", "Joe <joe.doe+x@mail.example.co.uk>, ok", ["joe.doe+x@mail.example.co.uk"]),
        ("email", "git@github.com:a/b a@b @x a@ user@host", ["git@github.com"]),
        ("email", "see a.b@c.de.", ["a.b@c.de"]),
        ("phone", "+49 30 1234567, +1 (555) 123-4567, (555) 123-4567, 555-123-4567, +4915112345678", 5),
        ("phone", "2026-01-31T09:30:00.125 10.0.0.1 1.2.3 192.168.100.200 550e8400-e29b-41d4-a716-446655440000", []),
        ("phone", "9f86d081884c7d659a2feaa0c55ad015 12345678901234 3.14159265358979 a-555-123-4567", []),
        ("card", "4111 1111 1111 1111 and 5500-0000-0000-0004 and 340000000000009", 3),
        ("card", "4111 1111 1111 1112 1769851800125000000 1234567890123456 4111111111111111.5", []),
    ],
)  # fmt: skip
def test_personal_data_is_found_and_what_looks_like_it_is_not(kind: str, text: str, found: list[str] | int) -> None:
    seen = find(text, kind)
    assert (seen if isinstance(found, list) else len(seen)) == found


@pytest.mark.parametrize(
    ("number", "valid"),
    [
        ("4012888888881881", True),
        ("378282246310005", True),
        ("6011111111111117", True),
        ("3530111333300000", True),
        ("30569309025904", True),
        ("2223003122003222", True),
        ("4012888888881882", False),
        ("79927398713", False),
        ("0000000000000000", False),
    ],
)
def test_a_card_is_known_by_its_maker_and_its_check_digit(number: str, valid: bool) -> None:
    assert is_card(number) is valid


def test_own_patterns_find_texts_of_any_language() -> None:
    assert find("Fall INT-1, Größe ÄÖÜ-22 \udcff INT-3", case=r"INT-\d+", size=r"\p{Lu}+-\d{2}") == [
        "INT-1",
        "INT-3",
        "ÄÖÜ-22",
    ]


EVIL = {
    "nested": (r"(a+)+$", "a" * 1_000_000 + "b"),
    "alternatives": (r"(a|aa)+$", "a" * 1_000_000 + "b"),
    "several": (r"(x+x+)+y", "x" * 1_000_000),
    "bounded": (r"(a?){30}a{30}b", "a" * 1_000_000),
}


@pytest.mark.parametrize("name", EVIL)
def test_no_pattern_takes_a_time_that_grows_fast(name: str) -> None:
    pattern, text = EVIL[name]  # a search that tries again and again would take years
    find(text, name=pattern)


@pytest.mark.parametrize("unit", ["a", "1", "a@", "a.", "4111 ", "+1 ", "12-", "(1", "@a."])
def test_personal_data_is_looked_for_in_a_time_that_grows_with_the_text(unit: str) -> None:
    # a quadratic time would be hours
    find(unit * (1_000_000 // len(unit)), "email", "phone", "card")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"scope": []}, "scope: unknown key; did you mean 'scopes'?"),
        ({"scopes": ["results"]}, "scopes.0: Input should be 'tool_results', 'prompts' or 'events'"),
        ({"personal_data": ["name"]}, "personal_data.0: Input should be 'email', 'phone' or 'card'"),
        (
            {"patterns": {"x": "("}},
            "patterns: x: '(' cannot be used: missing ): (. Lookarounds and backreferences do not exist here",
        ),
        (
            {"patterns": {"x": r"(?<=a)b"}},
            "patterns: x: '(?<=a)b' cannot be used: invalid perl operator: (?<=. Lookarounds and backreferences do"
            " not exist here",
        ),
        ({"patterns": {"x": "a*"}}, "patterns: x: 'a*' fits an empty text, so it would be found everywhere"),
        ({"replacement": 7}, "replacement: Input should be a valid string"),
        ({"rules": ["pii"]}, "rules.0: Input should be 'secrets' or 'pii-basic'"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused_with_its_key(config: dict[str, Any], message: str) -> None:
    coordinator = ModuleCoordinator(session_id="s")
    with pytest.raises(ValueError) as refused:
        await mount(coordinator, config)
    assert str(refused.value) == f"hooks-redaction: {message}"
    assert coordinator.hooks.list_handlers() == {}


def test_without_re2_there_are_no_own_patterns_and_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    check_config({"personal_data": ["email"]})
    with pytest.raises(ValueError, match="pip install 'amplifier-hooks-redaction"):
        check_config({"patterns": {"unseen": "never compiled before"}})


def test_the_schema_names_every_key() -> None:
    check_config({})
    assert "scopes" in config_schema()["properties"]


async def test_a_kernel_without_a_redactor_of_texts_hides_secrets_by_their_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "amplifier_core.utils.secrets", None)
    coordinator = ModuleCoordinator(session_id="s")
    await mount(coordinator, {"patterns": {"case": r"INT-\d+"}})
    given = {"tool_name": "x", "result": {"output": {"password": "abcabcabc", "note": "INT-7"}}}
    result = await coordinator.hooks.emit("tool:post", given)
    assert (result.data or {})["result"]["output"] == {"password": "[REDACTED]", "note": "[REDACTED]"}
