"""Test that JSON without its secrets is still JSON, whatever its texts are."""

from __future__ import annotations

import json
from random import Random

import pytest

from amplifier_core.utils.secrets import redact_text

PIECES = (
    *("Cookie:", "request cookie: ", "session_id=0123456789abcdef0123456789abcdef", "sid=a1b2c3d4e5f6a7b8c9d0;"),
    *(
        "sshpass -p ",
        "curl -u me:",
        "curl -su admin:",
        "--user me:",
        "mysql -p",
        "mysql -u me -p",
        "hunter2",
        "übermut1",
    ),
    *(
        "Enter your password: ",
        "token:",
        "TOKEN=",
        "password=",
        "secret = ",
        "'token' => ",
        "api_key",
        "authorization:",
    ),
    *(
        "name: DB_PASSWORD",
        "value: ",
        "value",
        "--token",
        "password: |",
        "login me password ",
        "Bearer ",
        "a1b2c3d4e5f6",
    ),
    *("-----BEGIN PRIVATE KEY-----", "npm_a1b2c3d4e5f6a7b8c9d0a1b2c3d4e5f6", "sk-ant-a1b2c3d4e5f6a7b8c9d0", "pwd="),
    *(
        "uid=me;",
        "redis://:a1b2@host/",
        "?code=",
        "auth",
        " ",
        " ",
        "\n",
        "\n",
        "\t",
        "\b",
        "\\",
    ),
    *('"', "'", ",", ":", "=", "}", "]", "…", "\u202e", "x", "1", "12345678", "pm_a1b2c3d4e5f6a7b8c9d0a1b2c3d4e5f6"),
)


def draw_value(random: Random, depth: int = 3) -> object:
    kind = random.randrange(8 if depth else 4)
    if kind < 4:
        text = "".join(random.choices(PIECES, k=random.randrange(1, 6)))
        return json.dumps({"a": text, "b": [text]}) if depth and random.randrange(5) == 0 else text
    if kind == 4:
        return random.choice([None, True, 12345678, 1.2345678e-10])
    if kind == 5:
        return [draw_value(random, depth - 1) for _ in range(random.randrange(4))]
    keys = (random.choice([random.choice(PIECES), "password", "token", "name", "value", "auth"]) for _ in range(3))
    return {key: draw_value(random, depth - 1) for key in keys}


@pytest.mark.parametrize("seed", range(2))
def test_json_of_any_texts_stays_json(seed: int) -> None:
    random, broken = Random(seed), []
    for _ in range(1_000):
        value = [draw_value(random), {"metadata": 1}]
        for is_ascii, between in ((True, (",", ":")), (False, (", ", ": "))):
            written = json.dumps(value, ensure_ascii=is_ascii, separators=between)
            shown = redact_text(written)
            try:
                json.loads(shown)
            except ValueError:
                broken.append((written, shown))
    assert broken == []


@pytest.mark.parametrize(
    "text",
    ["The request cookie:\nsession_id=0123456789abcdef0123456789abcdef", "sshpass -p übermut1", "sshpass -p\tübermut1",
     "sshpass -p …", "Enter your password: ", "token:", "TOKEN=", "authorization:\nabcdefgh12345678", "curl -u me:"],
)  # fmt: skip
def test_a_text_that_ends_or_goes_on_after_a_sign_of_a_secret_leaves_json_whole(text: str) -> None:
    for is_ascii in (True, False):
        for value in ({"content": text, "metadata": {"a": [1]}}, [[[text]], {"b12345": 1}], {"a": {"b": {"c": text}}}):
            for separators in ((",", ":"), (", ", ": ")):
                assert json.loads(redact_text(json.dumps(value, ensure_ascii=is_ascii, separators=separators)))
