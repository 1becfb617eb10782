"""`amplifier session import` and `amplifier bundle import`, as a person types them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.documents.files import parse_frontmatter
from tests.other_programs import (
    CLAUDE_ID,
    CODEX_ID,
    FOLDER_ID,
    ClaudeFile,
    claude_session,
    codex_session,
    text,
    write_session_folder,
)

Told = Callable[..., tuple[int, str, str]]
SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
def told(home: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """Run the command line; return its exit code, and what it said on stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = invoke(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a person."""
    folder = tmp_path / "person"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def keep_sessions(person: Path, folder: Path) -> None:
    """Keep a session of each program that worked in a folder."""
    name = re.sub(r"[^A-Za-z0-9]", "-", str(folder))
    claude = claude_session(str(folder)).write(person / ".claude" / "projects" / name / f"{CLAUDE_ID}.jsonl")
    codex = person / ".codex" / "sessions" / "2026" / "11" / "20" / f"rollout-2026-11-20T08-00-00-{CODEX_ID}.jsonl"
    codex_session(str(folder)).write(codex)
    own = write_session_folder(person / ".amplifier" / "projects" / "-p" / "sessions" / FOLDER_ID, str(folder))
    for age, path in enumerate((claude, codex, own / "transcript.jsonl")):
        os.utime(path, (1_800_000_000 - age, 1_800_000_000 - age))


def test_what_is_on_this_machine_is_listed_with_this_projects_first(told: Told, person: Path, project: Path) -> None:
    keep_sessions(person, project)
    other = ClaudeFile("/somewhere/else", "99999999-0000-4000-8000-000000000000")
    other.user("elsewhere")
    other.write(person / ".claude" / "projects" / "-somewhere-else" / "99999999-0000-4000-8000-000000000000.jsonl")
    told("session", "import", CODEX_ID)
    code, out, _ = told("session", "import", "--json")
    listed = json.loads(out)["data"]
    assert code == exits.OK
    assert listed["total"] == 4
    assert [(row["id"][:4], row["from"], row["is_here"], row["imported"]) for row in listed["sessions"]] == [
        ("7b1e", "claude-code", True, False),
        ("0199", "codex", True, True),
        ("3f0c", "amplifier", True, False),
        ("9999", "claude-code", False, False),
    ]
    assert listed["sessions"][1]["name"] == "Why does the build fail?"
    code, out, err = told("session", "import", "-n", "1")
    assert CLAUDE_ID in out
    assert err == "1 of 4 sessions; list more with --limit\n"


def test_the_sessions_of_a_program_in_this_folder_are_imported_and_then_again(
    told: Told, person: Path, project: Path
) -> None:
    keep_sessions(person, project)
    code, out, err = told("session", "import", "--from", "claude-code", "--dry-run")
    assert (code, "nothing was stored: 1 session would be new, 0 would grow" in err) == (exits.OK, True)
    assert "No sessions" in told("session", "list")[2]
    code, out, err = told("session", "import", "--from", "claude-code")
    assert (code, out) == (exits.OK, f"{CLAUDE_ID}  imported, 10 messages  Parser fix\n")
    assert f'amplifier run --resume {CLAUDE_ID} "…"' in err
    assert told("session", "import", "--from", "claude-code")[1] == f"{CLAUDE_ID}  nothing new  Parser fix\n"
    assert "→ Read" in told("session", "show", "last")[1]
    code, out, _ = told("session", "fork", f"{CLAUDE_ID}@1", "--json")
    assert json.loads(out)["data"]["message_count"] == 8


def test_an_export_is_imported_where_the_session_is_not(
    told: Told, person: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_sessions(person, project)
    told("session", "import", CLAUDE_ID)
    fork = json.loads(told("session", "fork", f"{CLAUDE_ID}@1", "--name", "aside", "--json")[1])["data"]["session_id"]
    for each in (CLAUDE_ID, fork):
        assert told("session", "export", each, "-o", f"{each}.jsonl")[0] == exits.OK
    assert told("session", "import", f"{fork}.jsonl")[1] == f"{fork}  already a session of yours  aside\n"
    before = [told("session", "export", each)[1].splitlines() for each in (CLAUDE_ID, fork)]
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "another"))
    out = told("session", "import", f"{CLAUDE_ID}.jsonl", f"{fork}.jsonl", "--json")[1]
    rows = {row["session_id"]: row for row in json.loads(out)["data"]["sessions"]}
    assert [(rows[each]["state"], rows[each]["from"]) for each in (CLAUDE_ID, fork)] == [("new", "amplifier")] * 2
    assert (rows[fork]["name"], rows[fork]["project"], rows[fork]["parent_id"]) == ("aside", str(project), CLAUDE_ID)
    after = [told("session", "export", each)[1].splitlines() for each in (CLAUDE_ID, fork)]
    assert [[said_in(line) for line in lines[1:]] for lines in after] == [
        [said_in(line) for line in lines[1:]] for lines in before
    ]
    assert "already" not in told("session", "import", f"{CLAUDE_ID}.jsonl")[1]
    assert told("session", "import", f"{CLAUDE_ID}.jsonl", "--from", "amplifier")[1].split("  ")[1] == "nothing new"


def test_the_session_of_anybodys_file_works_here_and_that_of_ones_own_file_where_it_did(
    told: Told, person: Path, project: Path, tmp_path: Path
) -> None:
    for name, identity in (("a", CLAUDE_ID), ("b", "b0000000-0000-4000-8000-000000000000")):
        file = ClaudeFile("/somewhere", identity)
        file.user("hello")
        file.answer("m1", text("Hi."))
        file.write(tmp_path / "files" / f"{name}.jsonl")
    files = [str(tmp_path / "files" / f"{name}.jsonl") for name in ("a", "b")]
    _, out, err = told("session", "import", files[0], "--dry-run")
    assert out == f"{CLAUDE_ID}  imported, 2 messages  hello  {project}\n"
    assert "anybody may have written 1 session of these" in err
    assert "If they are your own, import them with --own" in err
    assert told("session", "import", files[1], "--own", "--dry-run")[1].endswith("  hello  /somewhere\n")
    assert told("session", "import", files[0])[0] == exits.OK
    code, out, err = told("session", "import", files[1], "--own")
    assert (code, "anybody" in err, "the folder /somewhere does not exist here" in err) == (exits.OK, False, True)
    listed = json.loads(told("session", "list", "--all", "--json")[1])["data"]
    assert [each["project"] for each in listed] == ["/somewhere", str(project)]
    said = f"{CLAUDE_ID}  yours now, it works in its folder  hello"
    assert told("session", "import", files[0], "--own", "--dry-run")[1] == f"{said}  /somewhere\n"
    assert told("session", "import", files[0], "--own")[1] == f"{said}\n"
    assert told("session", "import", files[0], "--own")[1] == f"{CLAUDE_ID}  nothing new  hello\n"
    assert "--own takes a PATH" in told("session", "import", "--own")[2]


def said_in(line: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(line)["message"]
    return {key: value for key, value in message.items() if key != "metadata"}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        pytest.param(lambda lines: lines, "", id="whole"),
        pytest.param(
            lambda lines: lines[:3], "10 messages are announced, 2 are there: the export is not whole", id="cut"
        ),
        pytest.param(
            lambda lines: lines[:4] + lines[5:], "10 messages are announced, 9 are there", id="a line too few"
        ),
        pytest.param(lambda lines: lines[:4] + lines[3:], "line 5 has the message m3 again", id="a line twice"),
        pytest.param(
            lambda lines: [*lines[:-1], '{"id": "m10", "message": "x"}'], "line 11 has no message", id="no message"
        ),
    ],
)
def test_an_export_that_is_not_whole_is_told(
    told: Told, person: Path, project: Path, monkeypatch: pytest.MonkeyPatch, lines: Any, problem: str
) -> None:
    keep_sessions(person, project)
    told("session", "import", CLAUDE_ID)
    whole = told("session", "export", CLAUDE_ID)[1].splitlines()
    Path("export.jsonl").write_text("".join(f"{line}\n" for line in lines(whole)), encoding="utf-8")
    monkeypatch.setenv("AMPLIFIER_HOME", str(project / "another"))
    _, out, err = told("session", "import", "export.jsonl", "--own")
    assert "imported" in out
    assert problem in out + err
    assert bool(problem) == ("announced" in out + err or "line " in out + err)


def test_an_export_for_people_names_what_can_be_imported(told: Told, person: Path, project: Path) -> None:
    keep_sessions(person, project)
    told("session", "import", CLAUDE_ID)
    told("session", "export", CLAUDE_ID, "--format", "markdown", "-o", "talk.md")
    code, _, err = told("session", "import", "talk.md")
    assert code == exits.USAGE
    assert "a session's folder, and an export as JSON lines can be imported" in err


def test_sessions_of_other_folders_need_all(told: Told, person: Path, tmp_path: Path) -> None:
    keep_sessions(person, tmp_path / "gone")
    code, _, err = told("session", "import", "--from", "codex")
    assert code == exits.NOT_FOUND
    assert "All folders: amplifier session import --from codex --all" in err
    code, out, err = told("session", "import", "--from", "codex", "--all", "--json")
    (row,) = json.loads(out)["data"]["sessions"]
    assert (row["state"], row["project"]) == ("new", str(tmp_path / "gone"))
    assert CODEX_ID in told("session", "list", "--all")[1]


def test_the_folder_of_a_session_may_be_gone(told: Told, person: Path, tmp_path: Path) -> None:
    keep_sessions(person, tmp_path / "gone")
    _, _, err = told("session", "import", CLAUDE_ID[:8])
    assert f"the folder {tmp_path / 'gone'} does not exist here" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere.jsonl"], exits.NOT_FOUND, "neither a path nor the id of a session"),
        (["notes.txt"], exits.USAGE, "this is no session of claude-code, codex, amplifier"),
        (["empty"], exits.NOT_FOUND, "there are no sessions in empty"),
        (["empty.jsonl", "--from", "codex"], exits.FAILED, "it has no messages"),
        (["--all"], exits.USAGE, "--all takes --from"),
        (["--dry-run"], exits.USAGE, "--dry-run takes a PATH, an ID or --from"),
        (["--from", "aider"], exits.USAGE, "'aider' is not one of"),
    ],
)
def test_what_cannot_be_imported_is_said(
    told: Told, person: Path, project: Path, arguments: list[str], code: int, words: str
) -> None:
    (project / "notes.txt").write_text("hello\n")
    (project / "empty.jsonl").write_text("")
    (project / "empty").mkdir()
    assert told("session", "import", *arguments)[0] == code
    assert words in told("session", "import", *arguments)[2]


def test_damage_and_what_is_left_out_are_named(told: Told, person: Path, project: Path) -> None:
    file = claude_session(str(project))
    file.note(type="brand-new", value=1)
    path = file.write(project / "session.jsonl")
    with path.open("a") as end:
        end.write('{"type": "user"')
    code, _, err = told("session", "import", "session.jsonl")
    assert code == exits.OK
    assert f"the last line, {len(file.lines) + 1}, is cut and is left out" in err
    assert "1 attachment 'todo_reminder', 1 line of the type 'brand-new'" in err
    source = json.loads(told("session", "import", "session.jsonl", "--json")[1])["data"]["sources"][0]
    assert source["left_out"] == {"attachment 'todo_reminder'": 1, "line of the type 'brand-new'": 1}
    assert len(source["problems"]) == 1


def test_secrets_in_an_imported_session_are_hidden_where_those_of_any_session_are(
    told: Told, person: Path, project: Path
) -> None:
    file = ClaudeFile(str(project))
    file.user(f"use {SECRET} please")
    file.answer("m1", text("Done."))
    file.write(project / "session.jsonl")
    outputs = [told("session", "import", "session.jsonl")]
    outputs += [told("session", "show", CLAUDE_ID), told("session", "export", CLAUDE_ID), told("session", "list")]
    assert all(SECRET not in out + err for _, out, err in outputs)


# bundles

REVIEWER = """---
name: reviewer
description: Use this to review. Examples: <example>user: "done" assistant: "I review"</example>
tools: Read, Grep, Bash(git diff:*), mcp__github__list, ExitPlanMode
model: opus
color: red
---

You review code.
"""


def write_plugin(root: Path) -> Path:
    """Write a plugin with one of everything."""
    hooks = {
        "PreToolUse": [
            {
                "matcher": "Bash",
                "hooks": [
                    {
                        "type": "command",
                        "command": "${CLAUDE_PLUGIN_ROOT}/scripts/check.sh",
                        "timeout": 10,
                        "once": True,
                    },
                    {"type": "prompt", "prompt": "Is it fine?"},
                ],
            }
        ],
        "WorktreeCreate": [],
    }
    servers = {
        "db": {"command": "${CLAUDE_PLUGIN_ROOT}/server", "args": ["-x"], "env": {"DB_TOKEN": SECRET, "MODE": "r"}},
        "old": {"type": "sse", "url": "https://example.com/sse"},
    }
    about = {"name": "team-tools", "version": "1.2.0", "description": "Reviews", "author": {"name": "Ann"}}
    files = {
        ".claude-plugin/plugin.json": json.dumps({**about, "keywords": ["a"], "outputStyles": "./styles"}),
        "agents/reviewer.md": REVIEWER,
        "agents/planner.md": "---\nname: planner\ndescription: Plans\npermissionMode: plan\n---\nYou plan.\n",
        "commands/git/commit.md": "Commit $ARGUMENTS\n",
        "skills/changelog/SKILL.md": "---\nname: changelog\ndescription: Writes entries\n---\nWrite.\n",
        "skills/changelog/references/style.md": "Short.\n",
        "hooks/hooks.json": json.dumps({"description": "checks", "hooks": hooks}),
        ".mcp.json": json.dumps({"mcpServers": servers}),
        "scripts/check.sh": "#!/bin/sh\nexit 0\n",
        ".env": "KEY=1\n",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    (root / "scripts" / "check.sh").chmod(0o755)
    (root / "scripts" / "passwd").symlink_to("/etc/passwd")
    return root


def read_bundle(path: Path) -> tuple[dict[str, Any], str]:
    return parse_frontmatter(path.read_text(encoding="utf-8"))


def test_an_agent_becomes_a_bundle_that_is_valid_and_not_trusted(
    told: Told, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    (project / "reviewer.md").write_text(REVIEWER, encoding="utf-8")
    code, out, err = told("bundle", "import", "reviewer.md")
    assert (code, out) == (exits.OK, f"{project / 'reviewer' / 'bundle.md'}\n")
    assert re.findall("^left out: (.*?): (?:there|the tool|tools of|agents)", err, re.MULTILINE) == [
        "reviewer.md: tools: Bash(git diff:*)",
        "reviewer.md: tools: mcp__github__list",
        "reviewer.md: tools: ExitPlanMode",
        "reviewer.md: color",
    ]
    data, body = read_bundle(project / "reviewer" / "bundle.md")
    assert body.strip() == "You review code."
    assert data["bundle"]["description"].endswith('user: "done" assistant: "I review"</example>')
    assert [entry["module"] for entry in data["tools"]] == ["tool-filesystem", "tool-bash"]
    assert {"write_file", "edit_file", "delegate"} < {*data["permissions"]["deny"]}
    assert not {"read_file", "grep", "bash"} & {*data["permissions"]["deny"]}
    assert data["session"]["provider_preferences"] == [{"provider": "anthropic", "model": "claude-opus-*"}]
    assert told("bundle", "validate", "reviewer")[:2] == (exits.OK, "reviewer: valid\n")
    code, _, err = told("run", "-b", "reviewer", "hello")
    assert (code, "is not trusted" in err) == (exits.WAITING, True)


def test_a_plugin_becomes_a_bundle_with_its_agents_skills_commands_hooks_and_servers(
    told: Told, project: Path, tmp_path: Path
) -> None:
    plugin = write_plugin(tmp_path / "plugin")
    code, out, _ = told("bundle", "import", str(plugin), "--to", "ours", "--json")
    assert code == exits.OK
    told_of = json.loads(out)["data"]
    folder = project / "ours"
    assert {key: told_of[key] for key in ("agents", "skills", "commands", "hooks", "servers")} == {
        "agents": ["planner", "reviewer"],
        "skills": ["changelog"],
        "commands": ["git:commit"],
        "hooks": ["PreToolUse"],
        "servers": ["db"],
    }
    assert [(each["file"], each["key"]) for each in told_of["left_out"]] == [
        (".claude-plugin/plugin.json", "outputStyles"),
        (".env", ""),
        ("scripts/passwd", ""),
        ("agents/reviewer.md", "tools"),
        ("agents/reviewer.md", "tools"),
        ("agents/reviewer.md", "tools"),
        ("agents/reviewer.md", "color"),
        ("hooks/hooks.json", "hooks.PreToolUse.once"),
        ("hooks/hooks.json", "hooks.PreToolUse"),
        ("hooks/hooks.json", "hooks.WorktreeCreate"),
        (".mcp.json", "mcpServers.db.env.DB_TOKEN"),
        (".mcp.json", "mcpServers.old"),
    ]
    data, body = read_bundle(folder / "bundle.md")
    modules = [entry["module"] for entry in data["tools"]]
    assert modules == ["tool-filesystem", "tool-bash", "tool-delegate", "tool-skills", "tool-mcp"]
    assert data["tools"][-1]["config"]["mcpServers"] == {
        "db": {"command": f"{folder}/server", "args": ["-x"], "env": {"DB_TOKEN": "${DB_TOKEN}", "MODE": "r"}}
    }
    command = {"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/scripts/check.sh", "timeout": 10}
    assert data["hooks"][0]["config"] == {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [command]}]}}
    assert data["agents"] == {"include": ["planner", "reviewer"]}
    assert "Reviews" in body
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == [
        "agents/planner.md",
        "agents/reviewer.md",
        "bundle.md",
        "commands/git/commit.md",
        "scripts/check.sh",
        "skills/changelog/SKILL.md",
        "skills/changelog/references/style.md",
    ]
    assert os.access(folder / "scripts" / "check.sh", os.X_OK)
    assert SECRET not in "".join((folder / file).read_text() for file in files)
    planner, _ = read_bundle(folder / "agents" / "planner.md")
    assert planner["permissions"] == {"mode": "read-only"}
    assert told_of["problems"] == []


def test_the_agents_of_an_imported_plugin_are_valid(told: Told, project: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    (plugin / "agents").mkdir(parents=True)
    (plugin / "agents" / "reviewer.md").write_text(REVIEWER, encoding="utf-8")
    assert told("bundle", "import", str(plugin), "--to", "ours")[0] == exits.OK
    assert told("bundle", "validate", "ours", "--strict")[:2] == (exits.OK, "ours: valid\n")


def test_a_claude_folder_gives_its_hooks_and_memory_and_keeps_the_rest(
    told: Told, project: Path, tmp_path: Path
) -> None:
    root = tmp_path / "theirs"
    (root / ".claude" / "agents").mkdir(parents=True)
    (root / ".claude" / "projects").mkdir()
    (root / ".claude" / "agents" / "reviewer.md").write_text(REVIEWER, encoding="utf-8")
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}
    settings = {"hooks": hooks, "permissions": {"allow": ["Bash(*)"]}}
    (root / ".claude" / "settings.json").write_text(json.dumps(settings))
    (root / "CLAUDE.md").write_text("Write tests first.\n")
    (root / "app.py").write_text("print()\n")
    code, out, _ = told("bundle", "import", str(root), "--json")
    listed = json.loads(out)["data"]
    assert (code, listed["name"], listed["agents"], listed["hooks"]) == (exits.OK, "theirs", ["reviewer"], ["Stop"])
    assert {(".claude/projects", ""), (".claude/settings.json", "permissions")} < {
        (each["file"], each["key"]) for each in listed["left_out"]
    }
    assert read_bundle(project / "theirs" / "bundle.md")[1].strip() == "Write tests first."
    assert not (project / "theirs" / "app.py").exists()


def test_nothing_outside_of_the_folder_is_read_and_nothing_is_overwritten(
    told: Told, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.md").write_text("---\nname: spy\ndescription: of others\n---\nThe secret.\n")
    plugin = write_plugin(tmp_path / "plugin")
    manifest = {"name": "team-tools", "agents": ["../secret.md", "./linked"], "hooks": "../hooks.json"}
    (plugin / ".claude-plugin" / "plugin.json").write_text(json.dumps(manifest))
    (plugin / "linked").symlink_to(tmp_path)
    (project / "ours" / "scripts").mkdir(parents=True)
    (project / "ours" / "scripts" / "check.sh").write_text("mine\n")
    code, _, err = told("bundle", "import", str(plugin), "--to", "ours")
    assert code == exits.CONFLICT
    assert "check.sh exists and stays as it is" in err
    assert not (project / "ours" / "bundle.md").exists()
    code, _, err = told("bundle", "import", str(plugin), "--to", "ours", "--force")
    assert code == exits.OK
    assert err.count("it leads out of the folder, or is a link") == 3
    assert "The secret." not in "".join(path.read_text() for path in (project / "ours").rglob("*.md"))
    assert (project / "ours" / "scripts" / "check.sh").read_text() != "mine\n"
    (project / "linked").mkdir()
    (project / "linked" / "scripts").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    code, _, err = told("bundle", "import", str(plugin), "--to", "linked")
    assert (code, "by a link" in err) == (exits.USAGE, True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("notes.md", "", "this is no file of an agent"),
        ("notes.txt", "hello", "this is no file of an agent"),
        ("binary.md", "\udcff\udcfe", "this is no file of an agent"),
        ("folder/app.py", "", "this is no plugin"),
    ],
)
def test_what_is_no_bundle_of_claude_code_is_refused(
    told: Told, project: Path, name: str, content: str, words: str
) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    code, _, err = told("bundle", "import", name.partition("/")[0])
    assert (code, words in err) == (exits.USAGE, True)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"name": 7, "agents": {"a": 1}, "hooks": [[], {"hooks": [1]}], "mcpServers": {"a": [], "b": {"command": 7}}}',
        '{"hooks": {"hooks": {"Stop": [{"hooks": [{"type": "command"}, 3]}, 4]}}, "keywords": "x", "author": []}',
        '{"name": "a/b", "mcpServers": "./nowhere.json", "commands": "", "skills": ["./"], "version": null}',
        '{"keywords": 5}',
        '{"agents": "a\\u0000b", "skills": ["%s"], "hooks": "\\u0000", "mcpServers": "\\u0000"}' % ("b/" * 3000),
        '{"agents": "\\ud800", "description": "\\ud800", "mcpServers": {"\\ud800": {"command": "x"}}}',
    ],
)
def test_a_strange_manifest_gives_no_traceback(told: Told, project: Path, tmp_path: Path, content: str) -> None:
    plugin = write_plugin(tmp_path / "plugin")
    (plugin / ".claude-plugin" / "plugin.json").write_text(content)
    (plugin / "hooks" / "hooks.json").write_text(content)
    (plugin / ".mcp.json").write_text(content)
    code, _, err = told("bundle", "import", str(plugin), "--to", "ours")
    assert (code, "--debug" in err) == (exits.OK, False)


def test_agents_with_names_that_no_file_can_have_are_left_out(told: Told, project: Path, tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "plugin")
    about = "---\ndescription: of others\n---\nText.\n"
    (plugin / "agents" / "we\nird.md").write_text(about)
    (plugin / "agents" / "long.md").write_text(about.replace("---\n", "---\nname: " + "語" * 120 + "\n", 1))
    code, _, err = told("bundle", "import", str(plugin), "--to", "ours")
    assert (code, err.count("no agent can be called so")) == (exits.OK, 2)
    assert "left out: agents/we ird.md: name: no agent" in err  # no name makes a line of its own
    assert told("bundle", "validate", "ours")[0] == exits.OK


def test_a_plugin_called_like_the_folder_above_is_not_written_there(told: Told, project: Path, tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "plugin")
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": ".."}')
    code, out, _ = told("bundle", "import", str(plugin))
    assert (code, out) == (exits.OK, f"{project / 'plugin' / 'bundle.md'}\n")
    assert told("bundle", "import", str(plugin), "--name", "..")[0] == exits.USAGE


def test_a_folder_with_a_fifo_in_place_of_a_file_is_named(told: Told, project: Path, tmp_path: Path) -> None:
    (project / "ours" / "scripts").mkdir(parents=True)
    os.mkfifo(project / "ours" / "scripts" / "check.sh")
    code, _, err = told("bundle", "import", str(write_plugin(tmp_path / "plugin")), "--to", "ours", "--force")
    assert code == exits.USAGE
    assert "check.sh" in err
    assert "named pipe" in err
