"""Test the redactor: values in any encoding, forms, streams; and ordinary text, which stays."""

from __future__ import annotations

import base64
import json
import os
import re
import sysconfig
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from time import process_time
from urllib.parse import quote, quote_plus

import pytest

from amplifier_core.utils import secrets
from amplifier_core.utils.secrets import (
    StreamRedactor,
    hide_known,
    holds_key,
    redact_error,
    redact_text,
    secrets_of,
)
from tests.secret_shapes import KEYS, make_shapes

VALUE = 'own "Pa55/w+rd" of §house\\1'
HIDDEN = "[REDACTED]"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_PASSWORD", VALUE)


def encodings(value: str) -> Iterator[str]:
    raw = value.encode()
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield json.dumps(json.dumps(value))[3:-3]
    yield quote(value)
    yield quote(value, safe="")
    yield quote_plus(value)
    yield re.sub("%..", lambda found: found[0].lower(), quote(value, safe=""))
    yield raw.hex()
    yield raw.hex().upper()


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("form", sorted(set(encodings(VALUE))))
def test_a_known_value_is_hidden_in_each_encoding(form: str) -> None:
    assert redact_text(f"before {form} after") == f"before {HIDDEN} after"


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("before", ["", "u", "us", "use", "user:", "another-user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_known_value_is_hidden_within_base64(before: str, encode: object) -> None:
    encoded = encode(f"{before}{VALUE}:and more".encode()).decode()  # type: ignore[operator]
    shown = redact_text(f"sent {encoded}")
    assert HIDDEN in shown
    rest = shown.removeprefix("sent ").partition(HIDDEN)
    assert len(rest[0]) + len(rest[2]) <= len(encoded) - len(VALUE)


def test_folders_of_the_environment_are_no_passwords(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "google-credentials.json"
    file.touch()
    for name in ("PWD", "OLDPWD", "INIT_CWD", "SERVICE_PWD", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.setenv(name, str(file))
    assert redact_text(f"cannot read {file}") == f"cannot read {file}"
    monkeypatch.setenv("SERVICE_PWD", "a-password-it-is")
    assert redact_text("with a-password-it-is") == f"with {HIDDEN}"


def test_the_password_in_a_variable_with_a_url_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE", "postgres://app:s3cret-of-db@host/app")
    assert redact_text("role app, s3cret-of-db: refused") == f"role app, {HIDDEN}: refused"


def test_a_variable_is_a_secret_from_its_change_on_however_it_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    name, text = "HOUSE_PASSWORD", "a first-of-house, a second-of-house, a third-of-house"
    monkeypatch.setenv(name, "first-of-house")
    assert redact_text(text) == f"a {HIDDEN}, a second-of-house, a third-of-house"
    os.environb[name.encode()] = b"second-of-house"
    assert redact_text(text) == f"a first-of-house, a {HIDDEN}, a third-of-house"
    os.environ.update({name: "third-of-house"})
    assert redact_text(text) == f"a first-of-house, a second-of-house, a {HIDDEN}"
    del os.environ[name]
    assert redact_text(text) == text
    monkeypatch.setattr(os, "environ", {name: "first-of-house"})
    assert redact_text(text) == f"a {HIDDEN}, a second-of-house, a third-of-house"
    os.environ[name] = "second-of-house"
    assert redact_text(text) == f"a first-of-house, a {HIDDEN}, a third-of-house"


def test_variables_are_looked_through_when_one_has_changed_and_not_for_each_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    find = secrets._read_secret
    monkeypatch.setattr(secrets, "_read_secret", lambda name, value: read.append(name) or find(name, value))
    monkeypatch.setenv("HOUSE_PASSWORD", "value-of-house")
    for number in range(3):
        assert redact_text(f"{number}: value-of-house") == f"{number}: {HIDDEN}"
    assert read.count("HOUSE_PASSWORD") == 1


def test_the_secrets_of_a_configuration_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE", "value-of-house")
    config = {"api_key": "${HOUSE}", "base_url": "https://me:pass-of-url@host/v1", "password": "secret://NAME"}
    assert list(secrets_of(config)) == ["value-of-house", "pass-of-url"]


def test_the_shapes_of_secrets_are_hidden_and_nothing_around_them() -> None:
    shapes = list(make_shapes())
    assert len(shapes) >= 300
    leaks = [(name, text) for name, text, secret in shapes if secret in redact_text(text)]
    assert len(leaks) <= len(shapes) // 100, leaks
    assert redact_text("a -----BEGIN PRIVATE KEY-----\nabc=\n-----END PRIVATE KEY----- b") == f"a {HIDDEN} b"
    assert redact_text("with sk-ant-a1b2c3d4e5f6a7b8c9d0, please") == f"with {HIDDEN}, please"


@pytest.mark.parametrize("depth", [1, 2])
def test_json_with_secrets_stays_json(depth: int) -> None:
    for _, text, secret in make_shapes():
        document = json.dumps({"a": text, "b": [text, {"c": 1}]})
        for _ in range(depth - 1):
            document = json.dumps({"inner": document})
        shown = redact_text(document)
        assert json.loads(shown)
        assert secret not in shown


@pytest.mark.parametrize(
    "before", ["\n", "\r\n", "\t", "\x1b[m", "\x1b[31m", "\x1b[01;31m\x1b[K", "\x1b[38;5;208m", "é"]
)
def test_a_secret_at_the_beginning_of_a_line_is_hidden_in_texts_within_texts_too(before: str) -> None:
    shapes = [(f"first{before}{text}", secret) for _, text, secret in make_shapes()]
    shapes += [(f"first{before}{secret}\nlast", secret) for name, _, secret in make_shapes() if name in KEYS]
    leaks = []
    for text, secret in shapes:
        inner = json.dumps({"a": text})
        for written in (text, repr(text), inner, json.dumps([inner]), json.dumps(json.dumps([inner]))):
            shown = redact_text(written)
            leaks += [written] if secret in shown else []
            assert written is not inner or json.loads(shown)
    assert len(leaks) <= len(shapes) // 100, leaks


@pytest.mark.parametrize(
    "text",
    [r"say \nothing of \task-force-2024-of-the-house", r"C:\new\risk-of-the-year-2024", r"\disk-1-of-a-big-machine-2",
     "bmsk-abcdefgh1234567890abcd", "a [3] sk-1 [31mask-abcdefgh1234567890", "docker run mysql -p3306:3306 db",
     "curl -u $USER:$PASS https://x", "Cookie: name=value", "127.0.0.1:5432:5432", '"auth": "OAuth2AuthorizationCode"',
     "cd x;pwd=/home", "a price of $5$ or $6$", "--token-limit 50000", "fw_update_of_the_big_device_now",
     "-DFIRST_PASS=True", "COLOR_PASS=green", "MAX_PASS=100", "BY_PASS=true", "DB_PASS=false", "SMTP_PASS=100",
     "export UID=$(id -u); PWD=/srv/app", "uid=0(root); pwd=/root", "uid=0; pwd=`pwd`",
     "app.log:5432:ERROR:amplifier:Traceback", "apt install mysql -package", "mysql -print", "mysql -p",
     "mysql backup: tar -pczf x2.tgz", "docker run --name mysql -p8080-8090:3306/tcp db", "mysql mkdir -p/srv/db2",
     "docker run --name curl -u 1000:1000 img", "docker run --name curl -u node:node2 img",
     "docker run curlimages/curl -u 1000:1000", "curl x && docker run -u me:staff2 img", "curl x\nrun -u me:staff2",
     "fw_downloadAndInstallVersion12"],
)  # fmt: skip
def test_words_that_look_a_little_like_secrets_stay(text: str) -> None:
    assert redact_text(text) == text
    assert redact_text(json.dumps(text)) == json.dumps(text)


def ordinary_lines() -> Iterator[str]:
    folders = [ROOT / "amplifier_core", ROOT / "amplifier_foundation", *(ROOT / "plugins").glob("*/amplifier_*")]
    library = Path(sysconfig.get_paths()["stdlib"])
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md", library / "pydoc_data" / "topics.py"]
    files += [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    files += [
        file for name in ("*.py", "email/*.py", "http/*.py", "asyncio/*.py") for file in sorted(library.glob(name))
    ]
    for file in files:
        yield from file.read_text(encoding="utf-8", errors="replace").splitlines()


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("password='s3cret pass word' host=h", "password='[REDACTED]' host=h"),
        (r'password="aaaa\"bbbbcccc" x', 'password="[REDACTED]" x'),
        ('passphrase="correct horse battery"', 'passphrase="[REDACTED]"'),
        ("db:\n  password: |\n    one two\n    three\n  user: x", "db:\n  password: |\n    [REDACTED]\n  user: x"),
        ("password: >-\n   s3cretPass", "password: >-\n   [REDACTED]"),
        ("- name: DB_PASSWORD\n  value: s3cretPass", "- name: DB_PASSWORD\n  value: [REDACTED]"),
        ("'password' => 's3cretPass'", "'password' => '[REDACTED]'"),
        ("clone https://abcdef0123456789abcdef@github.com/x", "clone https://[REDACTED]@github.com/x"),
        ('password="$(cat file with it)"', 'password="$(cat file with it)"'),
        ("- name: DB_PASSWORD\n  valueFrom: {key: password}", "- name: DB_PASSWORD\n  valueFrom: {key: password}"),
        ("https://some.person@example.com/a-page", "https://some.person@example.com/a-page"),
    ],
)
def test_a_secret_of_several_words_or_lines_is_hidden_as_a_whole(text: str, hidden: str) -> None:
    assert redact_text(text) == hidden
    document = json.dumps({"a": [text]})
    assert json.loads(redact_text(document))
    if "\n" in text:
        assert json.loads(redact_text(document)) == {"a": [hidden]}


@pytest.mark.parametrize(
    "name",
    ["PGPASSWORD", "DB_PASS", "DBPASSWORD", "SSHPASS", "GITHUB_PAT", "MY_API_KEY_2", "TOKEN_2", "PASSWORD1", "GHTOKEN",
     "X_SECRET_FOO", "ANSIBLE_VAULT_PASS", "SESSION_JWT", "OPENAI_API_KEY_EU"],
)  # fmt: skip
def test_the_names_of_variables_say_that_they_hold_secrets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "value-of-house")
    assert redact_text("it is value-of-house") == f"it is {HIDDEN}"


@pytest.mark.parametrize(
    "name",
    ["PATH", "TOKENIZERS_PARALLELISM", "MAX_TOKENS", "SECRET_NAME", "API_KEY_FILE", "AWS_SECRET_ARN", "PATTERN",
     "PASSAGE", "PASSIVE_MODE", "SORT_KEY", "AUTHOR", "COMPASS_MODE"],
)  # fmt: skip
def test_ordinary_variables_hold_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "value-of-house")
    assert redact_text("it is value-of-house") == "it is value-of-house"


def test_ordinary_lines_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", "a-key-of-the-house-1")
    lines = [line for line in islice(ordinary_lines(), 0, None, 3) if len(line) >= 8]
    assert len(lines) >= 50_000
    parts = ["\n".join(lines[start : start + 20]) for start in range(0, len(lines), 20)]
    suspect = [line for part in parts if redact_text(part) != part for line in part.splitlines()]
    touched = [line for line in suspect if redact_text(line) != line]
    assert len(touched) <= len(lines) // 1000, touched


def test_a_name_that_ends_as_a_scheme_of_authorization_hides_nothing() -> None:
    line = "pip install amplifier-loop-basic amplifier-context-simple"
    assert redact_text(line) == line
    assert redact_text("curl --bearer abcdef-123456") == "curl --bearer [REDACTED]"


@pytest.mark.parametrize(
    "text",
    ["Add basic error-handling", "basic rate-limiting in test_utils", "basic auth-middleware", "a basic src/app_2.py",
     "pip install amplifier-loop-basic\nmy-demo/bundle.md", "basic x86_64-build",
     "basic __init__.py", "basic self.foo_2(x)", "basic HTTP/1.1-server", "basic key=value-pairs", "basic --verbose"],
)  # fmt: skip
def test_words_after_the_name_of_a_scheme_are_no_secret(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "token", ["dXNlcjpwYXNzMQ==", "dXNlcjpodW50ZXIy", "550e8400-e29b-41d4-a716-4466", "ab12-cd34-ef56", "q8Zt_x-4Kd9w"]
)
def test_a_token_after_the_name_of_a_scheme_is_hidden(token: str) -> None:
    assert redact_text(f"curl -H 'x: Bearer {token}'") == f"curl -H 'x: Bearer {HIDDEN}'"
    assert redact_text(f"basic {token}") == f"basic {HIDDEN}"


@pytest.mark.parametrize(
    "token", ["tok_abcdefghijklmnop", "my_user-pass_word", "dev-service-token", "correct-horse-9a8b"]
)
@pytest.mark.parametrize("scheme", ["Bearer", "basic"])
def test_a_token_of_words_in_a_header_is_hidden(scheme: str, token: str) -> None:
    for header in (f"Proxy-Authorization: {scheme}", f'"authorization": "{scheme}', f"'Authorization' = '{scheme}"):
        assert redact_text(f"{header} {token}") == f"{header} {HIDDEN}"
    assert redact_text(f"sent Bearer {token}") == f"sent Bearer {HIDDEN}"


@pytest.mark.parametrize(
    "text",
    ["A", "eyJ-", "sk-", "://", "://a:", "a://:", "&", "?token", "'", "\"api_", "-----BEGIN PRIVATE KEY-----",
     "bearer ", "authorization: ", "password=", "key: '", "token\": \"\\", "M", "<password>", "--token ", "login ",
     "password=\"", "password=\\\"", "password: |\n ", "name: token value: ", "https://a1",
     "basic a-", "bearer Aa-B1.", "basic __"],
)  # fmt: skip
def test_no_text_makes_the_search_endless(text: str) -> None:
    assert redact_text(text * (256 * 1024 // len(text)))


@pytest.mark.parametrize(
    "line", ['{"role": "assistant", "usage": {"input_tokens": 20}}\n', "def count_tokens(text): ...\n"]
)
def test_a_text_with_a_sensitive_name_and_no_value_is_read_about_as_fast_as_one_pattern_reads_it(line: str) -> None:
    text, name = line * 6_000, re.compile("(?i:password|passphrase|secret|token|credential)=")

    def seconds(read: Callable[[str], object]) -> float:
        begin = process_time()
        read(text)
        return process_time() - begin

    redact_text("token=")  # compile the patterns
    assert redact_text(text) == text
    assert min(seconds(redact_text) for _ in range(5)) < 3 * min(seconds(name.findall) for _ in range(5))


@pytest.mark.parametrize("name", ["credentialSECRET", "passphrasecret", "secretoken", "secretTOKEN", "tokenAPI_KEY"])
def test_a_name_that_begins_within_another_word_for_a_secret_is_seen(name: str) -> None:
    assert redact_text(f"x {name}: T0ken-of-9house") == f"x {name}: {HIDDEN}"
    assert redact_text(f"İ {name}: T0ken-of-9house") == f"İ {name}: {HIDDEN}"


def test_errors_that_show_other_texts_than_their_arguments_are_redacted_too() -> None:
    error = OSError(2, "no access with sk-ant-a1b2c3d4e5f6a7b8c9d0", "/x/ghp_a1b2c3d4e5f6a7b8c9d0")
    error.add_note("password=hunter2-hunter2")
    redact_error(error)
    assert str(error) == f"[Errno 2] no access with {HIDDEN}: '/x/{HIDDEN}'"
    assert error.__notes__ == [f"password={HIDDEN}"]


def test_only_keys_and_passwords_in_urls_make_a_document_suspect() -> None:
    assert holds_key("https://me:hunter2@host")
    assert not holds_key("https://${USER}:${PASSWORD}@host")
    assert not holds_key("password: see the manual")


# streams


@pytest.mark.usefixtures("_known")
def test_a_secret_in_pieces_is_hidden_wherever_it_is_cut() -> None:
    text = f"the key is {VALUE}, I think"
    for first in range(len(text)):
        for second in range(first, len(text)):
            redactor = StreamRedactor()
            pieces = (text[:first], text[first:second], text[second:])
            assert "".join([*map(redactor.feed, pieces), redactor.flush()]) == f"the key is {HIDDEN}, I think"


def test_what_is_shown_of_a_stream_is_the_redacted_text_however_it_is_cut() -> None:
    secrets = ["abcabcabc", "abcabcabcabd", "cabcabca", "bdbdbdbdb"]
    random = Random(4)
    for _ in range(1_000):
        text = "".join(random.choices("abcd", weights=[4, 4, 4, 1], k=60)) + random.choice(secrets)
        redactor = StreamRedactor(secrets)
        shown, rest = [], text
        while rest:
            cut = random.randrange(1, 9)
            shown.append(redactor.feed(rest[:cut]))
            rest = rest[cut:]
        shown.append(redactor.flush())
        assert not any(secret in "".join(shown) for secret in secrets), text


@pytest.mark.usefixtures("_known")
def test_a_stream_holds_back_only_what_may_begin_a_secret() -> None:
    redactor = StreamRedactor()
    assert redactor.feed("Hello, ") == "Hello, "
    assert redactor.feed("the ow") == "the "
    assert redactor.feed("l flies") == "owl flies"
    assert redactor.feed(f"to {VALUE[:9]}") == "to "
    assert redactor.flush() == VALUE[:9]


@pytest.mark.usefixtures("_known")
def test_words_of_a_model_keep_the_forms_of_secrets_and_lose_known_values() -> None:
    assert hide_known(f"password = 'example-1234'; not {VALUE}") == f"password = 'example-1234'; not {HIDDEN}"


@pytest.mark.parametrize("seen", range(1, len("hunter2-and-more")))
def test_a_stream_that_is_joined_late_hides_the_rest_of_a_secret(seen: int) -> None:
    redactor = StreamRedactor(["hunter2-and-more"], is_late=True)
    text = f"{'hunter2-and-more'[seen:]}, then hunter2-and-more."
    shown = "".join(map(redactor.feed, text)) + redactor.flush()
    rest = "" if seen <= len("hunter2-and-more") - 4 else "hunter2-and-more"[seen:]
    assert shown == f"{rest}, then [REDACTED]."


def test_a_stream_that_is_joined_late_shows_all_else() -> None:
    redactor = StreamRedactor(["hunter2-and-more"], is_late=True)
    assert redactor.feed("Hello, ") + redactor.feed("more or less") + redactor.flush() == "Hello, more or less"
    redactor = StreamRedactor(["hunter2-and-more"], is_late=True)
    assert redactor.feed("and-m") + redactor.flush() == ""
