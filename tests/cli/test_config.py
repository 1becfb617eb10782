"""Settings on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.documents.positions import show_file

pytestmark = pytest.mark.usefixtures("home", "project")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMPLIFIER_STORAGE", "AMPLIFIER_FETCH_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = exits.OK) -> tuple[str, str]:
    """Run `amplifier config …`; return what it said on stdout and stderr."""
    capsys.readouterr()
    assert invoke(["config", *arguments]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    envelope = json.loads(told(capsys, *arguments, "--json")[0])
    assert envelope["schema"] == f"amplifier/config.{arguments[0]}/1"
    return envelope["data"]


def write(text: str, name: str = "settings.yaml") -> Path:
    path = Path.cwd() / ".amplifier" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


SECRETS = """\
bundles: {mine: "git+https://user:hunter2@host/repo@main"}
overrides:
  provider-x:
    config: {api_key: sk-1, auth: {user: me, pin: 1234}, list: [{token: tok-7}], "a.b": 5}
"""


def test_every_setting_is_shown_with_its_value_and_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    write("fetch:\n  timeout: 30\n")
    out, err = told(capsys, "show")
    assert [line.split() for line in out.splitlines()] == [
        ["SETTING", "VALUE", "FROM"],
        ["bundle", "-", "default"],
        ["bundles", "-", "default"],
        ["storage", "storage-sqlite", "default"],
        ["overrides", "-", "default"],
        ["models", "-", "default"],
        ["permissions", "-", "default"],
        ["fetch.timeout", "30", ".amplifier/settings.yaml:2:12"],
        ["approvals.timeout", "24h", "default"],
        ["retention.sessions", "90d", "default"],
        ["retention.keep", "20", "default"],
        ["retention.max_size", "0", "default"],
        ["retention.undo", "200MB", "default"],
        ["retention.prompts", "1000", "default"],
        ["notify", "-", "default"],
        ["hosts.lease", "30", "default"],
        ["transports", "-", "default"],
        ["servers", "-", "default"],
        ["disabled_plugins", "-", "default"],
        ["max_subprocess", "4", "default"],
    ]
    assert err == ""


def test_the_json_has_every_setting_and_every_file(
    capsys: pytest.CaptureFixture[str], home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-x")
    write("fetch:\n  timeout: 30\n")
    shown = data(capsys, "show")
    rows = {row["key"]: row for row in shown["settings"]}
    assert list(rows) == [
        *("bundle", "bundles", "storage", "overrides", "models", "permissions", "fetch.timeout"),
        "approvals.timeout",
        *("retention.sessions", "retention.keep", "retention.max_size", "retention.undo", "retention.prompts"),
        "notify",
        "hosts.lease",
        "transports",
        "servers",
        "disabled_plugins",
        "max_subprocess",
    ]
    assert rows["fetch.timeout"] == {
        "key": "fetch.timeout",
        "value": 30,
        "origin": {"source": "file", "file": ".amplifier/settings.yaml", "line": 2, "column": 12},
    }
    assert rows["storage"]["origin"] == {"source": "environment", "file": None, "line": None, "column": None}
    assert rows["bundle"]["value"] is None
    assert shown["files"] == {
        "user": f"{home}/settings.yaml",
        "project": f"{project}/.amplifier/settings.yaml",
        "local": f"{project}/.amplifier/settings.local.yaml",
    }


def test_no_secret_is_shown_in_any_way(capsys: pytest.CaptureFixture[str]) -> None:
    write(SECRETS)
    keys = [row["key"] for row in data(capsys, "show")["settings"]]
    assert 'overrides.provider-x.config["a.b"]' in keys
    said = [told(capsys, "show"), told(capsys, "show", "--json")]
    said += [told(capsys, "get", key, *json_) for key in keys[1:] for json_ in ((), ("--json",))]
    said += [told(capsys, "get", key) for key in ("bundles", "overrides", "overrides.provider-x.config.auth")]
    text = json.dumps(said)
    assert text.count("[REDACTED]") > 4
    assert [secret for secret in ("hunter2", "sk-1", "1234", "tok-7") if secret in text] == []
    assert "AMP306" in text


def test_one_setting_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    write(SECRETS, "settings.local.yaml")
    assert told(capsys, "get", "storage") == ("storage-sqlite\n", "")
    assert told(capsys, "get", 'overrides.provider-x.config["a.b"]') == ("5\n", "")
    assert json.loads(told(capsys, "get", "fetch")[0]) == {"timeout": 120}
    assert data(capsys, "get", "storage")["value"] == "storage-sqlite"


def test_what_is_not_set_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = told(capsys, "get", "fetch.timout", code=exits.NOT_FOUND)
    assert (out, err) == (
        "",
        "amplifier: 'fetch.timout' is not set; did you mean 'fetch.timeout'? See: amplifier config show\n",
    )
    assert told(capsys, "get", "bundle", code=exits.NOT_FOUND)[1].startswith("amplifier: 'bundle' is not set")


@pytest.mark.parametrize("key", ["", ".", "a..b", "fetch.", 'a["', 'a["\\q"]', 'a[""]', "a[0]", 'a["b"]c'])
def test_what_is_no_settings_name_is_refused(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("get", key), ("set", key, "x"), ("unset", key)):
        assert "is not the name of a setting" in told(capsys, *arguments, code=exits.USAGE)[1]


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("fetch.timeout", "30", 30),
        ("bundle", "mine", "mine"),
        ("bundles.one", "git+https://host/x@main#subdirectory=y", "git+https://host/x@main#subdirectory=y"),
        ("overrides.tool-x.config", "{a: [1, true, null]}", {"a": [1, True, None]}),
        ('overrides.tool-x.config["a.b"]', "@text", "@text"),
        ("overrides.tool-x.config.a", "'1'", "1"),
        ("overrides.tool-x.config.a", "", None),
    ],
)
@pytest.mark.parametrize("scope", ["user", "project", "local"])
def test_a_value_is_set_and_removed(
    key: str, text: str, value: Any, scope: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"project": "settings.yaml", "local": "settings.local.yaml"}
    file = project / ".amplifier" / names[scope] if scope in names else home / "settings.yaml"
    assert told(capsys, "set", key, text, "--scope", scope) == (f"{show_file(file)}: {key} is set\n", "")
    rows = {row["key"]: row["value"] for row in data(capsys, "show")["settings"]}
    below = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
    assert {name: rows[name] for name in below} == below
    assert told(capsys, "unset", key, "--scope", scope) == (f"{show_file(file)}: {key} is not set any more\n", "")
    assert file.read_text() == ""


def test_the_user_is_told_when_the_project_says_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    write("storage: storage-project\n")
    _, err = told(capsys, "set", "storage", "storage-jsonl")
    assert err == "but here the value comes from: .amplifier/settings.yaml:1:10\n"
    assert told(capsys, "set", "storage", "storage-sqlite", "--scope", "local")[1] == ""


def test_what_is_set_is_told_even_if_another_file_is_damaged(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    write("bundel: x\n")
    out, err = told(capsys, "set", "storage", "storage-jsonl")
    assert out == f"{home}/settings.yaml: storage is set\n"
    assert err.startswith(".amplifier/settings.yaml:1:1: error[AMP301] bundel: unknown key")


@pytest.mark.parametrize(
    "command", ["session list", "run hello", "bundle validate", "bundle show", "bundle list", "config show"]
)
def test_what_is_to_be_warned_of_is_told_once_by_every_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("theirs: 1\n")
    provider = "{module: provider-playbook, config: {otherwise: {say: hi}}}"
    Path("bundle.md").write_text(f"---\nbundle: {{name: x}}\nproviders: [{provider}]\n---\n")
    assert invoke(command.split()) == exits.OK
    warning = ".amplifier/settings.yaml:1:1: warning[AMP301] theirs: not a setting of this program; it is ignored\n"
    assert capsys.readouterr().err.count(warning) == 1
    assert invoke(["-q", *command.split()]) == exits.OK
    assert "AMP301" not in capsys.readouterr().err


def test_a_damaged_file_is_one_line_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    file = write("bundle: [\n")
    for arguments in (("show",), ("get", "bundle"), ("set", "bundle", "x", "--scope", "project")):
        out, err = told(capsys, *arguments, code=exits.USAGE)
        assert out == ""
        assert err.startswith("amplifier: .amplifier/settings.yaml:2:1: error[AMP203] ")
    assert file.read_text() == "bundle: [\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("set", "bundel", "x"), exits.USAGE, "unknown key; did you mean 'bundle'?"),
        (("set", "fetch.timeout", "soon"), exits.USAGE, "must be a number, not text"),
        (("set", "bundle", "x", "--scope", "all"), exits.USAGE, "'all' is not one of"),
        (("unset", "bundle"), exits.NOT_FOUND, "'bundle' is not set: there is no "),
        (("unset", "storage", "--scope", "local"), exits.NOT_FOUND, "'storage' is not set"),
    ],
)
def test_a_mistake_is_told_in_a_line(
    arguments: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    out, err = told(capsys, *arguments, code=code)
    assert out == ""
    assert message in err
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "scope", "reason"),
    [
        ("foo.bar", "user", "foo: not a setting of this program; it is ignored"),
        ("modules.x", "user", "modules: not a setting of this program; it is ignored"),
        ("servers.x.command", "project", "only your own settings name servers; it is ignored here"),
    ],
)
def test_what_would_be_ignored_is_not_set(
    key: str, scope: str, reason: str, capsys: pytest.CaptureFixture[str], home: Path, project: Path
) -> None:
    out, err = told(capsys, "set", key, "x", "--scope", scope, code=exits.USAGE)
    assert out == ""
    assert reason in err
    assert list(home.glob("settings*")) + list(project.glob(".amplifier/*")) == []


def test_a_file_that_would_lose_its_comments_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    file = write("bundles:\n  one: /one # ours\n")
    _, err = told(capsys, "set", "bundles", "{two: /two}", "--scope", "project", code=exits.USAGE)
    assert err == (
        f"amplifier: {file}: cannot be changed without losing its comments. "
        "Write this by hand: bundles: {two: /two}\n"
    )


def test_the_program_itself_sets_and_shows(amplifier: Any, home: Path) -> None:
    done = amplifier("config", "set", "storage", "storage-jsonl")
    assert (done.returncode, done.stdout, done.stderr) == (exits.OK, f"{home}/settings.yaml: storage is set\n", "")
    done = amplifier("config", "get", "storage")
    assert (done.returncode, done.stdout, done.stderr) == (exits.OK, "storage-jsonl\n", "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("overrides.provider-x.config.api_key", "hush-hush"),
        ("overrides.provider-x.config", "{auth: {password: sesame}}"),
        ("overrides.provider-x.config.note", "sk-proj-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"),
        ("overrides.provider-x.config.base_url", "https://me:sesame@host/"),
        ("storage", '{name: storage-postgres, config: {dsn: "postgresql://me:sesame/1@host/db"}}'),
        ("overrides.provider-x.config.headers", "['Authorization: Bearer a1b2c3d4e5f6a7b8']"),
    ],
)
@pytest.mark.parametrize("scope", ["user", "local"])
def test_a_secret_is_not_written_into_a_file(
    key: str, value: str, scope: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["config", "set", key, value, "--scope", scope]) == exits.USAGE
    said = capsys.readouterr().err
    assert "amplifier auth login NAME" in said
    assert "secret://NAME" in said
    assert value not in said
    assert list(home.glob("settings*")) + list(project.glob(".amplifier/*")) == []


@pytest.mark.parametrize("value", ["secret://X_API_KEY", "${X_API_KEY}"])
def test_a_reference_to_a_secret_is_written(value: str, home: Path) -> None:
    assert invoke(["config", "set", "overrides.provider-x.config.api_key", value]) == exits.OK
    assert value in (home / "settings.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "typo", "meant"),
    [
        ("storage", "sqlite", "storage-sqlite"),
        ("storage", "storage-sqlit", "storage-sqlite"),
        ("storage", "storage_sqlite", "storage-sqlite"),
        ("storage", "Storage-sqlite", "storage-sqlite"),
        ("storage", "{name: jsonl}", "storage-jsonl"),
        ("bundle", "foremn", "foreman"),
        ("bundle", "foremn:bundle", "foreman"),
        ("overrides.provider-playbok.config.default_model", "m", "provider-playbook"),
        ("overrides", "{tool-bsh: {config: {a: 1}}}", "tool-bash"),
        ("models.fast.antropic", "m", "provider-anthropic"),
        ("models.fast", "{antropic: m}", "provider-anthropic"),
    ],
)
def test_a_name_near_an_installed_one_is_a_typo_and_is_not_stored(
    key: str, typo: str, meant: str, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    _, err = told(capsys, "set", key, typo, code=exits.NOT_FOUND)
    assert f"; did you mean '{meant}'? Installed: " in err
    assert "pip" not in err
    assert not (home / "settings.yaml").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("storage", "storage-of-others"),
        ("bundle", "foreman:bundle"),
        ("bundle", "./foremn"),
        ("bundle", "foremn-folder"),
        ("overrides.provider-x.config.default_model", "m"),
        ("overrides.tool-bsh.source", "./bsh.py"),
        ("models.fast", "{openai: m, other: m}"),
    ],
)
def test_a_name_of_something_to_come_is_stored(
    key: str, value: str, capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    (project / "foremn-folder").mkdir()
    assert told(capsys, "set", key, value)[0].endswith(f"{key} is set\n")
