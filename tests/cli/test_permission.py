"""`amplifier permission`, and what a person sees of a call that needs a permission."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.settings import write_setting
from tests.programs import require

BUNDLE = """---
bundle: {name: writer}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: '^write (?P<path>.+)'}, call: {tool: write_file, input: {path: "{path}", content: x}}}
        - {when: {tool: write_file}, say: "{result}"}
tools: [{module: tool-filesystem, config: {allow_write: true}}]
permissions:
  deny: ["write_file(out/**)"]
---
You write.
"""


@pytest.fixture(autouse=True)
def _bundle(project: Path, home: Path) -> None:
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")


def add_own_module(project: Path) -> None:
    """Let the bundle have a module of its own, which may offer any tool."""
    (project / "own").mkdir()
    text = BUNDLE.replace("tools: [", "tools: [{module: tool-own, source: ./own}, ")
    (project / "bundle.md").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ("write_file(a.txt)", exits.OK, "allow: the bundle's tools may do this in its working folder\n"),
        ("write_file(.git/config)", exits.FAILED, "deny: .git/config is protected: git obeys it\n"),
        (
            "write_file(out/x)",
            exits.FAILED,
            "deny: the rule write_file(out/**) of the bundle 'writer', bundle.md:11:10\n",
        ),
        ("bash(git push)", exits.WAITING, "ask: commands are asked for\n"),
        (
            "bash(true; rm -rf /)",
            exits.FAILED,
            "deny: 'rm /': it deletes the working folder, the home folder, or one above them\n",
        ),
        (
            'fetch({"url": "http://127.0.0.1"})',
            exits.FAILED,
            "deny: '127.0.0.1': it is this machine, or its own network\n",
        ),
    ],
)
def test_a_call_is_explained(
    call: str, code: int, said: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if call.startswith("fetch"):
        add_own_module(project)
    assert invoke(["permission", "test", call]) == code
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("tool", ["bash", "read_file"])
def test_what_a_tool_asks_for_the_sake_of_a_rule_is_asked(
    tool: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("bwrap")
    (project / "private").mkdir()
    (project / "private" / "a").write_text("x\n")
    text = BUNDLE.replace("write_file(out/**)", f"{tool}(private/**)")
    (project / "bundle.md").write_text(text, encoding="utf-8")
    assert invoke(["permission", "test", "bash(grep -r x .)"]) == exits.WAITING
    assert capsys.readouterr().out == "ask: commands are asked for\n"


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("emit(deploy:x)", {"name": "deploy:x"}),
        ("delegate(deployer)", {"agent": "deployer"}),
        ("read_file(a.txt)", {"file_path": "a.txt"}),
        ("grep(src)", {"path": "src"}),
        ("bash(ls)", {"command": "ls"}),
        ("fetch(example.com)", {"url": "example.com"}),
    ],
)
def test_the_text_of_a_call_is_the_argument_that_its_tool_has(
    call: str, arguments: dict[str, str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if call.startswith("fetch"):
        add_own_module(project)
    write_setting("user", "permissions.ask", ["emit(deploy:*)", "delegate(deploy*)"])
    code = invoke(["permission", "test", call, "--json"])
    told = json.loads(capsys.readouterr().out)["data"]
    assert told["arguments"] == arguments
    if "deploy" in call:
        assert (code, told["effect"]) == (exits.WAITING, "ask")
        assert invoke(["permission", "test", call.replace("deploy", "report")]) == exits.OK


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("nope(x)", ""),
        ("write_fil(a.txt)", "; did you mean 'write_file'?"),
        ('Bash({"command": "ls"})', "; did you mean"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_tool_that_nobody_offers_is_an_error(
    call: str, hint: str, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["permission", "test", call, *more]) == exits.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert f"no installed module and no bundle here offers a tool '{call.partition('(')[0]}'{hint}" in err


def test_a_module_that_exits_does_not_end_the_command(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = project / "modules" / "amplifier-module-tool-write-file"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("async def mount(coordinator, config):\n    raise SystemExit(3)\n", "utf-8")
    monkeypatch.setenv("AMPLIFIER_MODULES", str(project / "modules"))
    assert invoke(["permission", "test", "write_file(out/x)"]) == exits.FAILED
    out, err = capfd.readouterr()
    assert out == "deny: the rule write_file(out/**) of the bundle 'writer', bundle.md:11:10\n"
    assert "tool-write-file cannot say what its calls reach" in err
    assert "line 2: it called exit(3), which a module may not do" in err


def test_a_bundle_with_modules_of_its_own_may_offer_any_tool(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_own_module(project)
    assert invoke(["permission", "test", "nope(x)"]) == exits.OK
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("call", ["write_file(a", "(a)", "write_file({)"])
def test_what_is_no_call_is_told(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["permission", "test", call]) == exits.USAGE
    assert "Traceback" not in capsys.readouterr().err


def test_the_rules_are_listed_with_their_places(capsys: pytest.CaptureFixture[str]) -> None:
    write_setting("user", "permissions.allow", ["bash(git status *)"])
    write_setting("project", "permissions.mode", "ask")
    assert invoke(["permission", "list", "--json"]) == exits.OK
    listed = json.loads(capsys.readouterr().out)["data"]["rules"]
    assert [(each["source"], each["effect"], each["rule"]) for each in listed] == [
        ("project settings", "mode", "ask"),
        ("user settings", "allow", "bash(git status *)"),
        ("bundle 'writer'", "deny", "write_file(out/**)"),
    ]
    assert all(each["place"] for each in listed[1:])


@pytest.mark.parametrize(("path", "is_written"), [("a.txt", True), ("out/a.txt", False), (".envrc", False)])
def test_a_run_writes_only_what_it_may(path: str, is_written: bool, project: Path) -> None:
    assert invoke(["run", f"write {path}"]) == exits.OK
    assert (project / path).exists() is is_written


def test_nobody_to_ask_is_its_own_exit_code(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_setting("user", "permissions.mode", "ask")
    assert invoke(["run", "write a.txt"]) == exits.WAITING
    assert not (project / "a.txt").exists()
    assert 'asks: write_file(path="a.txt", content="x"): the mode ask' in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["permissions: {mode: yolo}\n", "permissions: [a]\n", 'permissions: {deny: ["a b"]}\n', "permissions: {den: []}\n"],
)
def test_with_unreadable_rules_nothing_starts(
    text: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir(exist_ok=True)
    (home / "settings.yaml").write_text(text, encoding="utf-8")
    assert invoke(["run", "write a.txt"]) == exits.USAGE
    assert not (project / "a.txt").exists()
    assert "settings.yaml:1:" in capsys.readouterr().err


def test_no_tool_reaches_the_data_folder_inside_of_the_working_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(project / "my [data]"))
    for call in ("write_file(my [data]/settings.yaml)", "read_file(my [data]/amplifier.db)"):
        assert invoke(["permission", "test", call]) == exits.FAILED
        assert "of the built-in settings" in capsys.readouterr().out
    write_setting("user", "permissions.allow", ["write_file(my \\[data\\]/**)", "write_file(**)"])
    assert invoke(["permission", "test", "write_file(my [data]/settings.yaml)"]) == exits.FAILED
    assert invoke(["permission", "test", "write_file(my data/settings.yaml)"]) == exits.OK
    (project / "link").symlink_to(project / "my [data]")
    assert invoke(["permission", "test", "write_file(link/settings.yaml)"]) == exits.FAILED


def test_a_delegated_session_has_no_more_than_its_parent(project: Path) -> None:
    child = BUNDLE.replace("name: writer", "name: child").replace('deny: ["write_file(out/**)"]', "mode: auto")
    (project / "child.md").write_text(child, encoding="utf-8")
    call = "{tool: delegate, input: {agent: ./child.md, instruction: 'write {path}'}}"
    rule = f"{{when: {{user: '^delegate (?P<path>.+)'}}, call: {call}}}"
    text = BUNDLE.replace("      rules:\n", f"      rules:\n        - {rule}\n", 1)
    text = text.replace("tools: [", "tools: [{module: tool-delegate, config: {bundles: true}}, ")
    (project / "bundle.md").write_text(text, encoding="utf-8")
    write_setting("user", "permissions.allow", ["delegate(./child.md)"])
    invoke(["run", "delegate out/a.txt"])
    assert not (project / "out" / "a.txt").exists()
    invoke(["run", "delegate b.txt"])
    assert (project / "b.txt").exists()
