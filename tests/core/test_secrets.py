"""Test that secrets are hidden in texts and errors."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from amplifier_core.llm_errors import AuthenticationError
from amplifier_core.utils.plan_secrets import hide_secrets_of
from amplifier_core.utils.secrets import (
    redact_all,
    redact_error,
    redact_text,
    redactor,
    secrets_of,
)

KEY = "sk-ant-" + "a1b2c3d4" * 4


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"invalid x-api-key {KEY}", "invalid x-api-key [REDACTED]"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer [REDACTED]"),
        ("GET https://me:pass@host/v1", "GET https://[REDACTED]@host/v1"),
        ("to postgresql://me:hunter/2@db:5/app", "to postgresql://[REDACTED]@db:5/app"),
        ("at postgres://db:5432/a@b", "at postgres://db:5432/a@b"),
        ("POST /v1?api_key=abcdefgh1234 failed", "POST /v1?api_key=[REDACTED] failed"),
        ("the key is my-own-key-of-the-house", "the key is [REDACTED]"),
        ("You have 200 tokens left: shorten it", "You have 200 tokens left: shorten it"),
        ("a gAAAA-sk-abcdefghijklmnopqrstuvwx blob", "a gAAAA-sk-abcdefghijklmnopqrstuvwx blob"),
    ],
)
def test_a_text_has_no_secret_left(monkeypatch: pytest.MonkeyPatch, text: str, hidden: str) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", "my-own-key-of-the-house\n")
    assert redact_text(text) == hidden


def test_many_texts_have_none_left_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "pickle-4711-brine")
    redact = redactor(["another-secret"])
    texts = ["key pickle-4711-brine", "another-secret", "Bearer abcdefghijklmnop", "nothing"]
    assert [redact(each) for each in texts] == [redact_text(each, ["another-secret"]) for each in texts]
    assert redact("nothing") == "nothing"


def test_an_error_and_its_causes_have_none_left() -> None:
    error = AuthenticationError(f"no: {KEY}", provider="x", status_code=401)
    error.__cause__ = OSError(5, f"with {KEY}")
    redact_error(error)
    assert (str(error), error.args) == ("no: [REDACTED]", ("no: [REDACTED]",))
    assert KEY not in repr(error)
    assert KEY not in str(error.__cause__.args)


def test_metadata_has_none_left_by_key_or_by_form() -> None:
    data = {"id": "r1", "headers": {"x-api-key": "short"}, "log": [f"sent {KEY}", 3]}
    assert redact_all(data) == {"id": "r1", "headers": {"x-api-key": "[REDACTED]"}, "log": ["sent [REDACTED]", 3]}


def test_a_secret_that_is_an_argument_of_its_own_is_hidden_where_its_option_says_so() -> None:
    args = ["--password", "correct horse", "--api-key", "a1b2c3", "--auth", "basic", "--private-key", "/home/me/key1"]
    hidden = [*args]
    hidden[1] = hidden[3] = "[REDACTED]"
    assert redact_all({"args": args}) == {"args": hidden}
    assert list(secrets_of({"args": args})) == ["correct horse", "a1b2c3"]
    filled_in = ["--password", "${PASSWORD}", "--token", "secret://NAME", "--password", "--secret"]
    assert redact_all(filled_in) == filled_in


@pytest.mark.parametrize(
    "args",
    [["--max-token", "32768"], ["--eos-token", "128001"], ["--token", "128001"], ["--ask-password", "mailserver"],
     ["--generate-password", "accounts"], ["--no-password", "postgres"], ["--secret", "id=npmrc,src=/x1"],
     ["--credentials", "creds1.json"]],
)  # fmt: skip
def test_what_follows_an_option_that_takes_no_secret_stays(args: list[str]) -> None:
    assert redact_all(args) == args
    assert list(secrets_of({"args": args})) == []
    if "-" in args[0][2:]:
        assert redact_text(" ".join(args)) == " ".join(args)


def test_the_secrets_of_a_configuration_are_those_at_sensitive_keys() -> None:
    config = {"providers": [{"config": {"api_key": "one", "model": "m", "deep": {"auth_token": "two"}}}]}
    assert list(secrets_of(config)) == ["one", "two"]


def test_a_configuration_that_holds_itself_is_looked_through_once() -> None:
    config: dict[str, object] = {"api_key": "one", "deeper": [{"token": "two"}]}
    config["itself"] = [config]
    assert list(islice(secrets_of(config), 3)) == ["one", "two"]


def test_a_variable_in_a_configuration_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("first-value-of-it", "second-value-of-it"):
        monkeypatch.setenv("SOME_VARIABLE", value)
        hide_secrets_of({"api_key": "${SOME_VARIABLE}"})
        assert redact_text(f"it is {value}") == "it is [REDACTED]"


def test_the_secrets_of_any_configuration_are_hidden() -> None:
    for config in ({"api_key": "plain-and-secret"}, {"api_key": "odd-and-secret", "path": Path("x")}):
        hide_secrets_of(config)
        assert redact_text(f"it is {config['api_key']}") == "it is [REDACTED]"
