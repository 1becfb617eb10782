"""Settings: who wins, where each value stands, and what changing one leaves alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.documents.files import read_yaml
from amplifier_foundation.documents.positions import Place
from amplifier_foundation.settings import (
    CODES,
    DEFAULTS,
    InvalidSettings,
    SettingNotSet,
    SettingNotWritten,
    project_folder,
    read_settings,
    settings_file,
    unset_setting,
    write_setting,
)
from amplifier_foundation.settings.writing import change_list

pytestmark = pytest.mark.usefixtures("home", "project")

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMPLIFIER_STORAGE", "AMPLIFIER_FETCH_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def write(home: Path, project: Path) -> Write:
    """Write the file of a scope; return its path."""
    files = {
        "user": home / "settings.yaml",
        "project": project / ".amplifier" / "settings.yaml",
        "local": project / ".amplifier" / "settings.local.yaml",
    }

    def write_file(scope: str, content: str | bytes) -> Path:
        path = files[scope]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def problems_of(content: str | bytes, write: Write, scope: str = "project") -> list[str]:
    write(scope, content)
    with pytest.raises(InvalidSettings) as caught:
        read_settings()
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return str(caught.value).splitlines()


# who wins


def test_without_any_file_every_setting_is_its_default() -> None:
    settings = read_settings()
    assert settings.values == DEFAULTS
    assert [settings.origin(name) for name in DEFAULTS] == ["default"] * len(DEFAULTS)
    settings.values["bundles"]["mine"] = "/changed"
    assert read_settings().values == DEFAULTS


def test_later_sources_win_and_each_value_knows_its_own(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    user = write("user", "bundle: from-user\nstorage: storage-user\nfetch:\n  timeout: 1\n")
    write("project", "# shared\nbundle: from-project\nbundles:\n  one: /one\n  two: /two\n")
    write("local", "bundles: {two: /local}\n")
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-environment")
    settings = read_settings(overrides={"bundle": "from-line", "storage": None})
    assert settings.values == {
        "bundle": "from-line",
        "bundles": {"one": "/one", "two": "/local"},
        "storage": "storage-environment",
        "overrides": {},
        "models": {},
        "permissions": {},
        "approvals": DEFAULTS["approvals"],
        "fetch": {"timeout": 1},
        "retention": DEFAULTS["retention"],
        "notify": [],
        "hosts": {"lease": 30},
        "transports": [],
        "servers": {},
        "disabled_plugins": [],
        "max_subprocess": 4,
    }
    assert {name: str(settings.origin(name)) for name in ("bundle", "storage", "overrides", "fetch.timeout")} == {
        "bundle": "command line",
        "storage": "environment",
        "overrides": "default",
        "fetch.timeout": f"{user}:4:12",
    }
    assert settings.origin("bundles.one") == Place(".amplifier/settings.yaml", 4, 8, "bundles.one")
    assert settings.origin(("bundles", "two")) == Place(".amplifier/settings.local.yaml", 1, 16, "bundles.two")
    assert str(settings.origin("bundles")) == ".amplifier/settings.local.yaml:1:10"
    assert settings.layer_of("bundles").source == "local"


def test_what_nobody_set_has_no_origin(write: Write) -> None:
    write("project", "overrides: {tool-x: {config: {a: {b: 1}}}}\n")
    write("local", "overrides: {tool-x: {config: {a: 2}}}\n")
    settings = read_settings()
    assert (settings.get("overrides.tool-x.config.a"), settings.get("overrides.tool-x.config.a.b", "no")) == (2, "no")
    for path in ("nothing", "overrides.tool-x.config.a.b"):
        with pytest.raises(SettingNotSet, match=rf"^'{path}' is not set\. See: amplifier config show$"):
            settings.origin(path)


@pytest.mark.parametrize("again", range(2))
def test_a_secret_after_an_option_of_a_server_is_a_warning_and_a_number_is_none(write: Write, again: int) -> None:
    path = write("user", "servers: {gw: {args: [--max-token, '32768', --token, a1b2c3d4e5]}}\n")
    for _ in range(again + 1):
        settings = read_settings()
    assert settings.get("servers.gw.args")[3] == "a1b2c3d4e5"
    [problem] = settings.problems
    assert (problem.severity, problem.code, problem.path) == ("warning", "AMP113", "servers.gw.args[3]")
    assert "a1b2c3d4e5" not in str(problem)
    path.write_text("servers: {gw: {token: a1b2c3d4e5}}\n")
    with pytest.raises(InvalidSettings, match="a secret is written here"):
        read_settings()


def test_overrides_of_one_module_are_merged(write: Write) -> None:
    write("user", "overrides: {tool-x: {source: /code, config: {a: 1, b: [1]}}}\n")
    write("local", "overrides: {tool-x: {config: {a: 2, b: [2]}}, tool-y: {source: /y}}\n")
    assert read_settings().get("overrides") == {
        "tool-x": {"source": "/code", "config": {"a": 2, "b": [1, 2]}},
        "tool-y": {"source": "/y"},
    }


def test_the_published_spelling_of_the_bundle_is_read(write: Write) -> None:
    write("project", "bundle:\n  active: foundation\n")
    settings = read_settings()
    assert settings.get("bundle") == "foundation"
    assert str(settings.origin("bundle")) == ".amplifier/settings.yaml:2:11"


def test_a_key_with_nothing_after_it_is_not_set(write: Write) -> None:
    write("project", "bundle: mine\nbundles:\nfetch:\n")
    write("local", "bundle:\n")
    assert read_settings().values == {**DEFAULTS, "bundle": "mine"}


@pytest.mark.parametrize("content", ["", "# nothing yet\n", "{}", "---\n", "\ufeff\r\n"])
def test_an_empty_file_sets_nothing(write: Write, content: str) -> None:
    write("project", content)
    assert read_settings().values == DEFAULTS


def test_a_time_limit_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_FETCH_TIMEOUT", "7.5")
    settings = read_settings()
    assert (settings.get("fetch.timeout"), settings.origin("fetch.timeout")) == (7.5, "environment")
    monkeypatch.setenv("AMPLIFIER_FETCH_TIMEOUT", "")
    assert read_settings().get("fetch.timeout") == 120


def test_relative_paths_are_those_of_the_project_and_not_of_the_current_folder(
    write: Write, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        "project",
        "bundle: ./bundles/mine\n"
        "bundles: {a: here, b: ~/there, c: git+https://host/x@main#subdirectory=y, d: file:///abs, e: ns:b/c.md}\n"
        "overrides: {tool-x: {source: tools/x.py}, tool-y: {source: git+https://host/y}}\n",
    )
    write("user", "bundles: {mine: bundles/mine}\n")
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    settings = read_settings(overrides={"bundles": {"line": "./x.md"}})
    assert settings.values["bundle"] == f"{project}/bundles/mine"
    assert settings.values["bundles"] == {
        "mine": f"{home}/bundles/mine",
        "a": f"{project}/here",
        "b": str(Path.home() / "there"),
        "c": "git+https://host/x@main#subdirectory=y",
        "d": "/abs",
        "e": "ns:b/c.md",
        "line": f"{below}/x.md",
    }
    assert settings.get("overrides.tool-x.source") == f"{project}/tools/x.py"
    assert settings.get("overrides.tool-y.source") == "git+https://host/y"
    assert str(settings.origin("bundles.a")) == f"{project}/.amplifier/settings.yaml:2:14"


# which folder is the project


def test_the_project_is_the_nearest_folder_up_to_the_root_of_a_checkout(project: Path) -> None:
    below = project / "a" / "b"
    below.mkdir(parents=True)
    assert project_folder(below) is None
    (project / ".amplifier").mkdir()
    assert project_folder(below) == project
    (project / "a" / ".git").mkdir()
    assert project_folder(below) is None
    (project / "a" / ".amplifier").mkdir()
    assert project_folder(below) == project / "a"


def test_neither_the_home_folder_nor_the_data_folder_is_a_project(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".amplifier").mkdir()
    (tmp_path / ".amplifier" / "settings.yaml").write_text("not: ours\n")
    assert project_folder(project) is None
    assert read_settings(project).values == DEFAULTS
    assert read_settings(tmp_path).values == DEFAULTS
    with pytest.raises(SettingNotWritten, match="this folder is not a project; use the scope 'user'"):
        settings_file("project", tmp_path)
    monkeypatch.setenv("AMPLIFIER_HOME", str(project / ".amplifier"))
    write_setting("user", "bundle", "mine")
    below = project / "below"
    below.mkdir()
    assert project_folder(below) is None
    assert [layer.source for layer in read_settings(project).layers] == [
        "default",
        "user",
        "environment",
        "command line",
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file of somebody else")
def test_a_folder_above_that_belongs_to_somebody_else_is_no_project(project: Path) -> None:
    below = project / "below"
    below.mkdir()
    (project / ".amplifier").mkdir()
    (project / ".amplifier" / "settings.yaml").write_text("overrides: {tool-x: {source: /evil}}\n")
    os.chown(project / ".amplifier", 65534, 65534)
    assert project_folder(below) is None
    assert read_settings(below).values == DEFAULTS
    assert project_folder(project) == project


# what is wrong


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("bundel: x\n", "1:1: error[AMP301] bundel: unknown key; did you mean 'bundle'?"),
        (
            "x: 1\nfetch:\n  timout: 3\n",
            "3:3: error[AMP301] fetch.timout: unknown key; did you mean 'timeout'?",
        ),
        ("max_subproces: 2\n", "1:1: error[AMP301] max_subproces: unknown key; did you mean 'max_subprocess'?"),
        ("max_subprocess: 0\n", "1:17: error[AMP303] max_subprocess: must be at least 1"),
        ("max_subprocess: many\n", "1:17: error[AMP302] max_subprocess: must be a whole number, not text"),
        ("overrides: {x: {sorce: a}}\n", "1:17: error[AMP301] overrides.x.sorce: unknown key; did you mean 'source'?"),
        ("bundle: 3\n", "1:9: error[AMP302] bundle: must be text, not a whole number"),
        ("bundle: {active: 3}\n", "1:18: error[AMP302] bundle: must be text, not a whole number"),
        ("bundle: {active: a, other: b}\n", "1:9: error[AMP302] bundle: must be text, not a mapping"),
        ("bundles: [a]\n", "1:10: error[AMP302] bundles: must be a mapping, not a list"),
        ("bundles: {a: }\n", "1:14: error[AMP302] bundles.a: must be text, not nothing"),
        ("overrides: {tool-x: /code}\n", "1:21: error[AMP302] overrides.tool-x: must be a mapping, not text"),
        ("overrides: {x: {config: }}\n", "1:25: error[AMP302] overrides.x.config: must be a mapping, not nothing"),
        ("fetch: {timeout: soon}\n", "1:18: error[AMP302] fetch.timeout: must be a number, not text"),
        ("fetch: {timeout: true}\n", "1:18: error[AMP302] fetch.timeout: must be a number, not true or false"),
        ("fetch: {timeout: 0}\n", "1:18: error[AMP303] fetch.timeout: must be more than 0"),
        ("bundle: ''\n", "1:9: error[AMP303] bundle: must not be empty"),
        ("storage: a b\n", "1:10: error[AMP303] storage: must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"),
        ("bundles: {'a/b': /x}\n",
         "1:10: error[AMP303] bundles: 'a/b' is not a name; use printable characters without ':', '/' and '\\'"),
        ("bundle: ~nob/x\n", "1:9: error[AMP304] bundle: '~nob/x' is in the home folder of an unknown user"),
        ("bundles:\n  a: file://host/x\n", "2:6: error[AMP304] bundles.a: a file:// URL names a path of this machine: "
                                               "file:///folder/bundle.md"),
        ("- a\n", "1:1: error[AMP212] must be a mapping such as 'bundle: my-bundle'"),
        ("a: 1\n---\nb: 1\n", "2:1: error[AMP203] a second YAML document begins here; a settings file is one"),
        ("bundle: x\nbundle: y\n", "2:1: error[AMP206] bundle: this key stands here twice; first at "
                                    ".amplifier/settings.yaml:1:1"),
        ("a: [\n", "2:1: error[AMP203] a value is missing here"),
        (b"bundle: \xff\n", "1:9: error[AMP210] byte 0xff is not UTF-8; save the file as UTF-8"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_where_it_stands(content: str | bytes, line: str, write: Write) -> None:
    assert f".amplifier/settings.yaml:{line}" in problems_of(content, write)


def test_everything_wrong_in_every_file_is_told_at_once(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_STORAGE", "no such")
    monkeypatch.setenv("AMPLIFIER_FETCH_TIMEOUT", "soon")
    user = write("user", "storage: 1\n")
    write("local", "- a\n")
    assert [line.partition(" error")[0] for line in problems_of("bundel: 1\nstorag: 2\n", write)] == [
        f"{user}:1:10:",
        ".amplifier/settings.yaml:1:1:",
        ".amplifier/settings.yaml:2:1:",
        ".amplifier/settings.local.yaml:1:1:",
        "AMPLIFIER_STORAGE:",
        "AMPLIFIER_FETCH_TIMEOUT:",
    ]


def test_a_file_that_cannot_be_opened_is_no_file_without_settings(write: Write, project: Path) -> None:
    path = write("project", "")
    path.unlink()
    path.mkdir()
    with pytest.raises(InvalidSettings, match=r"^\.amplifier/settings\.yaml: error\[AMP305\] not a file$"):
        read_settings()
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(InvalidSettings, match=r"AMP305\] not a file"):
        read_settings()
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(InvalidSettings, match=r"AMP305\] cannot be read"):
        read_settings()


def test_where_there_is_no_folder_there_are_no_settings(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    (project / ".amplifier").write_text("not a folder either")
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "file" / "home"))
    assert read_settings().values == DEFAULTS


def test_a_wrong_option_is_told_as_one(write: Write) -> None:
    with pytest.raises(ValueError, match=r"^command line: error\[AMP301\] bundel: unknown key"):
        read_settings(overrides={"bundel": "x"})


def test_sections_of_another_program_are_ignored_with_a_warning(write: Write) -> None:
    write("project", "bundle: {active: a}\nmodules: {tools: []}\n")
    settings = read_settings()
    assert settings.get("bundle") == "a"
    assert [str(problem) for problem in settings.problems] == [
        ".amplifier/settings.yaml:2:1: warning[AMP301] modules: not a setting of this program; it is ignored"
    ]


def test_a_secret_in_the_shared_file_is_warned_of_and_is_in_no_text(write: Write) -> None:
    section = (
        "overrides:\n  provider-x:\n    config:\n      api_key: {}\n      auth: {{user: a, password: {}}}\n      n: x\n"
    )
    write("project", section.format("sk-1", "sk-2"))
    write("local", section.format("sk-3", "sk-4"))
    settings = read_settings()
    where, why = (
        "overrides.provider-x.config",
        "a secret in a file that the whole project sees; put it in settings.local.yaml",
    )
    assert [str(problem) for problem in settings.problems] == [
        f".amplifier/settings.yaml:4:7: warning[AMP306] {where}.api_key: {why}",
        f".amplifier/settings.yaml:5:7: warning[AMP306] {where}.auth: {why}",
    ]
    assert "sk-" not in repr(settings)
    for reference in ("${KEY}", "Bearer ${KEY}"):
        write("project", section.format(reference, "''").replace("auth", "login"))
        assert read_settings().problems == ()


def test_every_code_of_settings_is_tested() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [code for code in CODES if f"[{code}]" not in text and f"{code}\\]" not in text] == []


# changing one


def test_a_new_file_is_private_and_is_read_back(home: Path, project: Path) -> None:
    assert write_setting("user", "fetch.timeout", 30) == home / "settings.yaml"
    assert write_setting("local", ("overrides", "tool.x", "config", "a"), [1, {"b": None}]) == (
        project / ".amplifier" / "settings.local.yaml"
    )
    assert (home / "settings.yaml").read_text() == "fetch:\n  timeout: 30\n"
    assert stat.S_IMODE((home / "settings.yaml").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    settings = read_settings()
    assert settings.get("fetch.timeout") == 30
    assert settings.get(("overrides", "tool.x", "config")) == {"a": [1, {"b": None}]}


def test_a_project_without_settings_begins_in_the_current_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = project / "below"
    below.mkdir()
    assert write_setting("project", "bundle", "a", folder=below) == below / ".amplifier" / "settings.yaml"
    (project / ".amplifier").mkdir()
    deeper = below / "deeper"
    deeper.mkdir()
    monkeypatch.chdir(deeper)
    assert write_setting("project", "storage", "storage-x") == below / ".amplifier" / "settings.yaml"


COMMENTED = """\
# what we agreed on
bundle: old   # the default
bundles:  # names
    one: /one  # first

    # the second
    two: '/two # not a comment'
fetch: {timeout: 1}  # seconds
overrides:
    tool-x:
        config: {a: 1, b: [x, y]}  # both

# the end
"""


@pytest.mark.parametrize(
    ("path", "value", "before", "after"),
    [
        ("bundle", "new", "bundle: old   #", "bundle: new   #"),
        ("bundle", "git+https://h/x@main#subdirectory=b", "old ", "git+https://h/x@main#subdirectory=b "),
        ("bundles.two", "/2", "'/two # not a comment'", "/2"),
        ("bundles.three", "/a: b", "comment'\n", "comment'\n    three: '/a: b'\n"),
        ("fetch.timeout", 2.5, "{timeout: 1}", "{timeout: 2.5}"),
        ("storage", "storage-x", "# both\n", "# both\nstorage: storage-x\n"),
        ("overrides.tool-x.config.b", ["z, {"], "[x, y]", '["z, {"]'),
        ("overrides.tool-x.config.c", {"d": "é"}, "[x, y]}", "[x, y], c: {d: é}}"),
        ("overrides.tool-x.source", "/x", "# both\n", "# both\n        source: /x\n"),
        ("overrides.tool-y.config.a", None, "# both\n", "# both\n    tool-y:\n        config:\n            a: null\n"),
        ("overrides.tool-x.config.a", "1", "a: 1", "a: '1'"),
        ("overrides.tool-x.config.a", "x\ny", "a: 1", 'a: "x\\ny"'),
        ("overrides.tool-x.config.a", "word " * 60 + "end", "a: 1", "a: " + json.dumps("word " * 60 + "end")),
    ],
)
def test_one_value_is_changed_and_every_other_character_stays(
    write: Write, path: str, value: Any, before: str, after: str
) -> None:
    file = write("project", COMMENTED)
    file.chmod(0o640)
    write_setting("project", path, value)
    expected = COMMENTED.replace(before, after, 1).replace(
        "        config:\n            a: null", "      config:\n        a: null"
    )
    assert file.read_text() == expected
    assert read_settings().get(path) == value
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [each.name for each in file.parent.iterdir()] == ["settings.yaml"]


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("bundle", "bundle: old   # the default\n"),
        ("bundles.one", "    one: /one  # first\n"),
        ("fetch.timeout", "fetch: {timeout: 1}  # seconds\n"),
        ("overrides.tool-x.config.a", "a: 1, "),
        (
            "overrides.tool-x.config",
            "overrides:\n    tool-x:\n        config: {a: 1, b: [x, y]}  # both\n",
        ),
        (
            "bundles",
            "bundles:  # names\n    one: /one  # first\n\n    # the second\n    two: '/two # not a comment'\n",
        ),
    ],
)
def test_one_value_is_removed_and_every_other_character_stays(write: Write, path: str, gone: str) -> None:
    file = write("project", COMMENTED)
    assert gone in COMMENTED
    unset_setting("project", path)
    assert file.read_text() == COMMENTED.replace(gone, "")


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", "storage: storage-x\n"),
        ("# only words", "# only words\nstorage: storage-x\n"),
        ("bundle: a", "bundle: a\nstorage: storage-x\n"),
        ("bundle: a\r\n# é\r\nbundles:\r\n", "bundle: a\r\n# é\r\nbundles:\r\nstorage: storage-x\r\n"),
        ("\ufeff# é\nbundle: a\n", "\ufeff# é\nbundle: a\nstorage: storage-x\n"),
        ("---\nbundle: a\n...\n", "---\nbundle: a\nstorage: storage-x\n...\n"),
        ("{bundle: a} # flow\n", "{bundle: a, storage: storage-x} # flow\n"),
        ("storage:\nbundle: a # a\n", "storage: storage-x\nbundle: a # a\n"),
        ("storage: # none yet\n", "storage: storage-x # none yet\n"),
        ("? storage\n: old # odd\n", "? storage\n: storage-x # odd\n"),
        ('"storage": "old" # quoted\n', '"storage": storage-x # quoted\n'),
        ("~", "{storage: storage-x}"),
        ("bundle: >\n  a\n  b\n# end\n", "bundle: >\n  a\n  b\nstorage: storage-x\n# end\n"),
    ],
)
def test_a_value_is_set_in_files_as_people_write_them(write: Write, text: str, after: str) -> None:
    file = write("project", text)
    write_setting("project", "storage", "storage-x")
    assert file.read_bytes().decode() == after
    assert read_settings().get("storage") == "storage-x"


def test_a_section_with_nothing_in_it_is_filled(write: Write) -> None:
    file = write("project", "# a\nfetch:  # seconds\nbundle: x\n")
    write_setting("project", "fetch.timeout", 9)
    assert file.read_text() == "# a\nfetch: {timeout: 9}  # seconds\nbundle: x\n"


MULTI_LINE = "overrides:\n  tool-x:\n    config:\n      a:\n        - 1\n        - 2\n"
FLOW = "overrides: {tool-x:\n  {source: /x}}\n"


def test_what_can_only_be_written_anew_is_when_no_comment_is_lost(write: Write) -> None:
    file = write("project", FLOW)
    write_setting("project", "overrides.tool-z.source", "/z")
    assert read_yaml(file) == {"overrides": {"tool-x": {"source": "/x"}, "tool-z": {"source": "/z"}}}
    assert (file.parent / "settings.yaml.backup").read_text() == FLOW


def test_a_value_of_several_lines_is_replaced_when_no_comment_is_among_them(write: Write) -> None:
    file = write("project", f"# agreed\n{MULTI_LINE}# the end\n")
    write_setting("project", "overrides.tool-x.config.a", [3, "x"])
    assert file.read_text() == (
        "# agreed\noverrides:\n  tool-x:\n    config:\n      a:\n      - 3\n      - x\n# the end\n"
    )
    write_setting("project", "overrides.tool-x", {"source": "/x"})
    assert file.read_text() == "# agreed\noverrides:\n  tool-x:\n    source: /x\n# the end\n"
    assert [each.name for each in file.parent.iterdir()] == ["settings.yaml"]


def test_what_would_lose_a_comment_is_left_and_the_line_is_told(write: Write) -> None:
    file = write("project", MULTI_LINE.replace("- 1", "- 1 # agreed"))
    with pytest.raises(SettingNotWritten) as caught:
        write_setting("project", "overrides.tool-x.config.a", [3])
    assert str(caught.value) == (
        f"{file}: cannot be changed without losing its comments. "
        "Write this by hand: overrides: {tool-x: {config: {a: [3]}}}"
    )
    text = "# agreed\noverrides: {tool-x: {source: /x},\n  tool-y: {source: /y}}\n"
    write("project", text)
    with pytest.raises(SettingNotWritten, match=r"Write this by hand: overrides: \{tool-z: \{source: /z\}\}$"):
        write_setting("project", "overrides.tool-z.source", "/z")
    with pytest.raises(SettingNotWritten, match=r"Remove 'overrides\.tool-x' by hand$"):
        unset_setting("project", "overrides.tool-x.source")
    assert file.read_text() == text


def test_the_published_spelling_of_the_bundle_is_kept(write: Write) -> None:
    file = write("project", "bundle:\n  active: old  # ours\n")
    write_setting("project", "bundle", "new")
    assert file.read_text() == "bundle:\n  active: new  # ours\n"
    unset_setting("project", "bundle")
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("bundel", "x", r"AMP301\] bundel: unknown key; did you mean 'bundle'\?"),
        ("fetch.timeout", "soon", r"AMP302\] fetch\.timeout: must be a number, not text"),
        ("storage.nam", "x", r"AMP301\] storage\.nam: unknown key; did you mean 'name'\?"),
        ("bundles.a", "~nobody-of-this-name/", "AMP304"),
    ],
)
def test_what_is_no_setting_is_not_written(project: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        write_setting("project", path, value)
    assert list(project.iterdir()) == []


def test_a_value_in_the_way_is_not_overwritten(write: Write) -> None:
    file = write("project", "overrides: {tool-x: {config: {a: 1}}}\n")
    with pytest.raises(SettingNotWritten, match=r"overrides\.tool-x\.config\.a is a int: nothing can be put below it"):
        write_setting("project", "overrides.tool-x.config.a.b", 2)
    assert "a: 1" in file.read_text()


def test_a_damaged_file_is_not_changed(write: Write) -> None:
    file = write("project", "bundle: [\n")
    with pytest.raises(InvalidSettings, match="AMP203"):
        write_setting("project", "bundle", "x")
    with pytest.raises(InvalidSettings, match="AMP203"):
        unset_setting("project", "bundle")
    assert file.read_text() == "bundle: [\n"


def test_a_wrong_key_can_be_removed_but_nothing_set_beside_it(write: Write) -> None:
    file = write("project", "bundel: x\nfetch: {timeout: soon}\n")
    with pytest.raises(InvalidSettings, match="AMP301"):
        write_setting("project", "bundle", "x")
    unset_setting("project", "bundel")
    unset_setting("project", "fetch.timeout")
    assert file.read_text() == ""
    assert read_settings().values == DEFAULTS


def test_what_is_not_set_cannot_be_removed(write: Write) -> None:
    with pytest.raises(SettingNotSet, match=r"'bundle' is not set: there is no \.amplifier/settings\.yaml"):
        unset_setting("project", "bundle")
    write("project", "fetch: {timeout: 1}\n")
    for path in ("bundle", "fetch.timeout.x", "fetch.other"):
        with pytest.raises(SettingNotSet, match=r"is not set in \.amplifier/settings\.yaml"):
            unset_setting("project", path)


def test_a_linked_file_stays_a_link(write: Write, home: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles.yaml").write_text("bundle: a\n")
    home.mkdir()
    (home / "settings.yaml").symlink_to(tmp_path / "dotfiles.yaml")
    write_setting("user", "bundle", "b")
    assert (home / "settings.yaml").is_symlink()
    assert (tmp_path / "dotfiles.yaml").read_text() == "bundle: b\n"


def test_a_folder_that_cannot_be_made_is_told(project: Path) -> None:
    (project / ".amplifier").write_text("a file")
    with pytest.raises(SettingNotWritten, match=r"settings\.yaml: cannot be written \(.*\)\. Check that you may write"):
        write_setting("project", "bundle", "x")


def test_processes_that_write_at_once_lose_nothing(home: Path, project: Path) -> None:
    code = (
        "import sys; from amplifier_foundation.settings import write_setting\n"
        "for n in range(5): write_setting('user', ('bundles', f'{sys.argv[1]}{n}'), '/x')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, name], stderr=subprocess.PIPE) for name in "abcd"]
    assert [writer.communicate()[1] for writer in writers] == [b""] * 4
    assert sorted(read_settings().values["bundles"]) == [f"{name}{n}" for name in "abcd" for n in range(5)]


def test_processes_that_change_a_list_at_once_lose_nothing(home: Path, project: Path) -> None:
    code = (
        "import sys; from amplifier_foundation.security.policies import remember_rule\n"
        "for n in range(5): remember_rule(f'{sys.argv[1]}{n}')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, name], stderr=subprocess.PIPE) for name in "abcd"]
    assert [writer.communicate()[1] for writer in writers] == [b""] * 4
    rules = sorted(f"{name}{n}" for name in "abcd" for n in range(5))
    assert sorted(read_settings().values["permissions"]["allow"]) == rules
    before, after = change_list("user", "permissions.allow", lambda now: [])
    assert (sorted(before), after, (home / "settings.yaml").read_text()) == (rules, [], "")


@pytest.mark.parametrize("value", ["Bash(ls)", {"Bash": "ls"}, 0])
def test_a_value_that_is_no_list_is_not_replaced_by_one(value: Any, home: Path, project: Path) -> None:
    from amplifier_foundation.security.policies import remember_rule

    file = home / "settings.yaml"
    home.mkdir()
    file.write_text(json.dumps({"permissions": {"allow": value}}))
    before = file.read_bytes()
    with pytest.raises(SettingNotWritten, match=r"settings\.yaml: 'permissions\.allow' is not a list\. Write one"):
        remember_rule("Bash(pwd)")
    assert file.read_bytes() == before


# what others rely on


def test_the_defaults_are_those_of_the_code() -> None:
    from amplifier_foundation.sessions.storages import DEFAULT_STORAGE
    from amplifier_foundation.settings.schema import SettingsFile

    assert list(DEFAULTS) == list(SettingsFile.model_fields)
    assert DEFAULTS["storage"] == DEFAULT_STORAGE


def test_importing_the_settings_imports_nothing_heavy() -> None:
    code = (
        "import sys, amplifier_foundation.settings\n"
        "print({'asyncio', 'pydantic', 'yaml'} & set(sys.modules) or 'nothing')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "nothing\n"
