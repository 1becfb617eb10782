"""The READMEs say what is true: their blocks run, their tables are those of the code."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from pydantic import BaseModel

import amplifier_foundation
from amplifier_core import TriggerContext, hookspecs, load_plugins, storage
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.documents import DocumentSearch, DocumentStore
from amplifier_core.due_queues import DueQueues
from amplifier_core.prompt_commands import collect_commands, expand_command
from amplifier_core.session_queries import SessionQueries
from amplifier_core.shared_stores import ReceivingStore, SharedStore
from amplifier_core.store_transfer import StoreTransfer
from amplifier_core.store_views import MessageSearch, StoreViews, WordSearch
from amplifier_core.testing import MemoryStore, check_trigger
from amplifier_foundation import converse
from amplifier_foundation import hookspecs as of_foundation
from amplifier_foundation.bundle.background_config import BackgroundSessionConfig
from amplifier_foundation.bundle.check import check_bundle
from amplifier_foundation.bundle.first_provider import choose_provider
from amplifier_foundation.bundle.load import read_bundle
from amplifier_foundation.bundle.registry import BundleRegistry
from amplifier_foundation.cli import cli, exits, invoke
from tests import forks
from tests.other_programs import CLAUDE_ID, claude_session, codex_session

ROOT = Path(__file__).parents[1]
READMES = [ROOT / name / "README.md" for name in ("", "amplifier_foundation", "amplifier_core")]
README = "\n".join(path.read_text(encoding="utf-8") for path in READMES)
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.M | re.S)


def block(language: str, containing: str) -> str:
    [found] = [text for kind, text in BLOCKS if kind == language and containing in text]
    return found


def table(heading: str) -> list[list[str]]:
    rows = README[README.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def normal(text: str) -> list[str]:
    """Return the lines without what differs from run to run."""
    for pattern, shown in (
        (r"\d\d:\d\d:\d\d", "TIME"),
        (r"\b([a-z]+)-[0-9a-f]{12}\b", r"\1-ID"),
        (r"(?<=(?:reviewer  |summarizer)   )[0-9a-f]{4}(?= )", "TAG"),
        (r"\b\d+(\.\d+)? s\b", "SECONDS"),
        (r"sha256 [0-9a-f]{12}", "sha256 DIGEST"),
        (r"\S*/amplifier-demo\b", "amplifier-demo"),
        (r"\S*/?amplifier (session|run|up) ", r"amplifier \1 "),
    ):
        text = re.sub(pattern, shown, text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.fixture
def folder(project: Path, home: Path) -> Path:
    (project / "bundle.md").write_text(block("markdown", "name: notes"), encoding="utf-8")
    return project


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    if words[0] == "amplifier":
        return forks.run(words[1:], cwd=folder)
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of a console block with the output that stands below it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def test_no_block_of_the_reference_is_left_untested() -> None:  # test_readme_walk.py goes through README.md
    first, *reference = (path.read_text(encoding="utf-8") for path in READMES)
    kinds = sorted(kind for text in reference for kind in re.findall(r"^```(\w+)$", text, flags=re.M))
    expected = ["console"] * 20 + ["python"] * 6 + ["toml", "sh"] + ["yaml"] * 8 + ["markdown"] * 6
    assert kinds == sorted(expected)
    assert set(re.findall(r"^```(\w+)$", first, flags=re.M)) == {"console", "text", "markdown"}


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.M | re.S)):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), flags=re.M)
            assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, link


def test_the_two_commands_are_targets_of_make() -> None:
    for command, _ in commands(block("console", "make demo")):
        assert run(f"{command} --dry-run", ROOT).returncode == 0


def test_the_program_is_on_the_path_after_the_activation() -> None:
    activate = Path(sys.prefix) / "bin" / "activate"
    if not activate.is_file():
        pytest.skip("this Python has no virtual environment")
    script = "\n".join(command for command, _ in commands(block("console", "bin/activate")))
    script = script.replace(".venv/bin/activate", shlex.quote(str(activate)))
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("amplifier ")


def test_a_workflow_runs_as_documented(project: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "bundle.md").write_text(block("markdown", "name: builders"), encoding="utf-8")
    for command, output in commands(block("console", "amplifier flow run")):
        out, _ = here(command, capsys)
        assert output == [] or out.splitlines() == output


def test_issues_are_kept_and_worked_on_as_documented(
    project: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, output in commands(block("console", "--blocked-by")):
        assert here(command, capsys)[0].splitlines() == output
    (project / "bundle.md").write_text(block("markdown", "name: coders"), encoding="utf-8")
    here("amplifier up --once", capsys)
    assert "result:\nDone: Release 1.1" in here("amplifier issue show 2", capsys)[0]


def test_an_editor_is_served_as_documented(project: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [(_, _), (doctor, _)] = commands(block("console", "amplifier-acp"))
    assert "amplifier acp serves an editor" in here(doctor, capsys)[0]


def test_a_real_model_answers_after_two_commands(
    project: Path, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [(login, _), (first, _)] = commands(block("console", "What is in this folder?"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("key-of-the-readme"))
    assert "kept in" in here(login, capsys)[0]
    monkeypatch.setattr(
        "amplifier_foundation.bundle.check.names_of_modules",
        lambda: {"provider-anthropic", "provider-playbook"},
    )
    choice = choose_provider()
    assert (choice.module, choice.reason) == ("provider-anthropic", "ANTHROPIC_API_KEY is in keys.json")
    assert first.startswith("amplifier run ")


def test_the_permissions_are_read_and_explained_as_documented(
    project: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir(exist_ok=True)
    [(command, said)] = commands(block("console", "amplifier permission test"))
    assert here(command, capsys, code=exits.FAILED)[0].splitlines() == said
    (home / "settings.yaml").write_text(block("yaml", "permissions:\n  mode: auto"), encoding="utf-8")
    assert here(command, capsys)[0].startswith("allow: the rule write_file(.git/config)")


def test_a_bundle_runs_once_it_is_trusted_as_documented(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    [(command, [said])] = commands(block("console", "is not trusted"))
    assert here(command, capsys, code=exits.WAITING)[1] == said.replace("/home/ann/theirs", str(folder)) + "\n"
    here("amplifier trust --yes", capsys)
    assert here(command, capsys)[0] == "You said: hello\n"


def test_what_the_program_writes_needs_no_trust(
    project: Path, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    for command in ("init one", "bundle new two", "run -b one hello", "run -b two hello"):
        here(f"amplifier {command}", capsys)
    done = run("amplifier demo three", project)
    assert (done.returncode, done.stderr) == (0, "")
    here("amplifier up --once three", capsys)


def test_the_demo_shows_what_the_readme_shows(project: Path, home: Path) -> None:
    done = run("amplifier demo", project)
    assert (done.returncode, done.stderr) == (0, "")
    printed = normal(done.stdout)
    assert [line for line in normal(block("text", "You write app.py")) if line not in printed] == []
    tool = (project / "amplifier-demo" / "tools" / "check_python.py").read_text()
    lines = len([line for line in tool.splitlines() if line.strip()])
    said = f"`amplifier-demo/tools/check_python.py`, {lines} lines of code"
    assert said in " ".join(README.split())
    shutil.rmtree(project / "amplifier-demo")
    again = run("amplifier demo", project)  # the store knows the files of the deleted folder
    assert (again.returncode, again.stderr) == (0, "")
    assert "In app.py I found this: app.py, line 2" in again.stdout


def test_the_demos_findings_follow_the_file(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from amplifier_foundation.cli import demo

    monkeypatch.setattr(demo, "BROKEN", "x = 1\n\nwhile True\n    pass\n")
    monkeypatch.setattr(demo, "FIXED", "x = 1\n")
    assert invoke(["-q", "demo"]) == exits.OK
    summaries = forks.run(["session", "list", "--all", "--json"]).stdout
    assert summaries.count('"status": "completed"') == 6
    listed = re.findall(r'"session_id": "(question-[0-9a-f]+)"', summaries)
    shown = run(f"amplifier session show {listed[0]}", project).stdout
    assert "In app.py I found this: app.py, line 3: expected ':'" in shown


def test_the_bundle_validates_and_runs_as_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    for command, output in commands(block("console", 'amplifier run "good morning"')):
        if command == "amplifier up bundle.md":
            assert_runs_until_interrupted(folder)
            continue
        done = run(command, folder)
        assert done.returncode == 0, done.stderr
        if output:
            assert done.stdout.splitlines() == output


def assert_runs_until_interrupted(folder: Path) -> None:
    """Bring the bundle up, change a file, see it counted, and interrupt it."""
    with forks.Popen(["up", "bundle.md"], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C stops" in line:
                (folder / "note.txt").write_text("one\ntwo\n")
            if "note.txt has 2 lines." in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == exits.INTERRUPTED


def test_an_error_is_printed_as_shown(folder: Path) -> None:
    (folder / "mistyped.md").write_text((folder / "bundle.md").read_text().replace("pool_size:", "pool_sizes:"))
    [(command, output)] = commands(block("console", "mistyped.md"))
    done = run(command, folder)
    assert done.returncode == exits.USAGE
    assert done.stderr.splitlines() == output


def test_the_bundle_commands_work_as_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, text in BLOCKS:
        named = re.search(r"^# (team/\S+)$", text, flags=re.M)
        if named and kind in ("markdown", "yaml"):
            path = folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    subprocess.run(["bash", "-ec", block("sh", "team/context")], cwd=folder, check=True)
    for command, _ in commands(block("console", "amplifier bundle new")):
        out, err = here(command, capsys)
        assert "warning" not in err
        if command == "amplifier bundle show team":
            assert 'context["team:context/rules.md"]' in out
            assert 'agents["team:reviewer"].description' in out


def here(command: str, capsys: pytest.CaptureFixture[str], code: int = exits.OK) -> tuple[str, str]:
    """Run a command within this process, where the program's start is not what is shown."""
    capsys.readouterr()
    ended = invoke(shlex.split(command)[1:])
    out, err = capsys.readouterr()
    assert ended == code, err
    return out, err


def test_the_settings_are_set_and_shown_as_documented(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, output in commands(block("console", "amplifier config show")):
        out, _ = here(command, capsys)
        assert not output or out.splitlines() == output


def test_the_key_commands_work_as_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("key-of-the-readme"))
    for command, _ in commands(block("console", "amplifier auth list")):
        assert "key-of-the-readme" not in "".join(here(command, capsys))


async def test_the_preferences_are_valid_as_shown(folder: Path) -> None:
    (folder / "bundle.yaml").write_text("bundle: {name: b}\n" + block("yaml", "provider_preferences"), encoding="utf-8")
    assert {problem.code for problem in await check_bundle("bundle.yaml", load_plugins(environ={}))} <= {"AMP115"}


async def test_the_worktrees_are_valid_as_shown(folder: Path) -> None:
    trigger = "    triggers: [{type: manual}]\n"
    text = "bundle: {name: b}\n" + block("yaml", "worktree:") + trigger
    (folder / "bundle.yaml").write_text(text, encoding="utf-8")
    assert {problem.code for problem in await check_bundle("bundle.yaml", load_plugins(environ={}))} <= {"AMP115"}


def test_the_session_commands_work_as_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "true %s")
    run('amplifier run "good morning"', folder)
    session_id = run("amplifier session list", folder).stdout.splitlines()[1].split()[0]
    for command, _ in commands(block("console", "amplifier session tree")):
        done = run(command.replace("ID", session_id[:12]), folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_sessions_and_bundles_of_other_programs_are_imported_as_shown(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    name = re.sub(r"[^A-Za-z0-9]", "-", str(folder))
    claude_session(str(folder)).write(tmp_path / ".claude" / "projects" / name / f"{CLAUDE_ID}.jsonl")
    codex_session(str(folder)).write(tmp_path / ".codex" / "sessions" / "2026" / "11" / "20" / "rollout-1.jsonl")
    claude_session(str(folder)).write(Path("talk.jsonl"))
    for command, _ in commands(block("console", "amplifier session import")):
        assert here(command.replace("ID", CLAUDE_ID[:8]), capsys)[0]
    for path in (folder / ".claude" / "agents", tmp_path / "plugins" / "team-tools" / "agents"):
        path.mkdir(parents=True)
        (path / "reviewer.md").write_text("---\nname: reviewer\ndescription: Reviews\n---\nYou review.\n", "utf-8")
    for command, _ in commands(block("console", "amplifier bundle import")):
        assert here(command, capsys)[0].endswith("bundle.md\n")


def test_a_session_gives_work_to_others_as_shown(folder: Path) -> None:
    (folder / "team.md").write_text(block("markdown", "{name: team}"), encoding="utf-8")
    (folder / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    for command, output in commands(block("console", "team.md")):
        done = run(command, folder)
        assert done.returncode == 0, done.stderr
        if output:
            assert done.stdout.splitlines() == output
    tree = run("amplifier session tree", folder).stdout
    assert tree.count("completed") == 3
    assert "agent reader" in tree
    assert "agent self" in tree


def test_the_python_example_runs(folder: Path) -> None:
    (folder / "converse.py").write_text(block("python", "# converse.py"), encoding="utf-8")
    done = subprocess.run([sys.executable, "converse.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"notes-[0-9a-f]{12} You said: good morning\n", done.stdout)


def test_the_workflow_from_python_runs_as_shown(folder: Path) -> None:
    (folder / "bundle.md").write_text(block("markdown", "name: builders"), encoding="utf-8")
    (folder / "flow.py").write_text(block("python", "# flow.py"), encoding="utf-8")
    [(command, output)] = commands(block("console", "flow.py"))
    done = run(command.replace("python", sys.executable), folder)
    assert (done.returncode, done.stderr, done.stdout.splitlines()) == (0, "", output)


TODOS = """---
bundle: {name: todos}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {tool: todo, output: '(?P<left>.*)'}, say: "{left}"}
        - {when: {user: '(?P<what>.*)'}, call: {tool: todo, input: {what: "{what}"}}}
tools: [{module: tool-todo, source: ./tools/todo.py}]
---
"""


async def test_the_example_of_documents_runs(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "todo.py").write_text(block("python", "# tools/todo.py"), encoding="utf-8")
    (tmp_path / "bundle.md").write_text(TODOS)
    store, bundle = MemoryStore(), read_bundle(tmp_path / "bundle.md")
    plugins = load_plugins()
    turns = [await converse(bundle, what, store, plugins, working_dir=tmp_path) for what in ("milk", "tea", "milk")]
    assert [turn.output for turn in turns] == ["open, 1 left", "open, 2 left", "done, 1 left"]
    assert [(event.name, event.data["what"]) for event in await store.events() if event.name.startswith("todo:")] == [
        ("todo:open", "milk"),
        ("todo:open", "tea"),
        ("todo:done", "milk"),
    ]


async def test_the_command_of_a_module_makes_a_prompt() -> None:
    names: dict[str, Any] = {}
    exec(compile(block("python", "hooks-review"), "review", "exec"), names)  # the README's own code
    coordinator = ModuleCoordinator(session_id="s")
    await names["mount"](coordinator, {})
    [command] = (await collect_commands(coordinator)).offered.values()
    assert (command.name, command.hint, command.source) == ("review", "[FILE]", "hooks-review")
    assert await expand_command(command, "a.py") == "Review a.py for bugs."


def test_a_package_is_begun_and_tested_as_shown(project: Path, home: Path) -> None:
    (new, shown), (enter, _), (install, _), (test, _) = commands(block("console", "amplifier plugin new trigger"))
    done = run(new, project)
    assert (done.returncode, done.stdout.splitlines()) == (0, shown), done.stderr
    package = project / enter.removeprefix("cd ")
    assert install == "pip install -e '.[dev]'"  # tests/foundation/packages installs such packages
    assert test == "pytest"
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=package, env={**os.environ, "PYTHONPATH": str(package)}, check=False
    )
    assert tested.returncode == 0


async def test_the_example_trigger_keeps_the_contract(tmp_path: Path) -> None:
    source = block("python", "amplifier_trigger_git_commit/__init__.py")
    body = source[source.index("class ") : source.index("@hookimpl")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 21
    names: dict[str, Any] = {}
    exec(compile(source, "trigger", "exec"), names)  # the README's own code
    git("init", "-q", folder=tmp_path)

    async def commit() -> None:
        git("commit", "-q", "--allow-empty", "-m", "one more", folder=tmp_path)

    context = TriggerContext("readme/trigger#1", working_dir=tmp_path)
    events = await check_trigger(names["GitCommitTrigger"], {}, provoke=commit, context=context)
    assert [event.data["what"] for event in events] == ["commit (initial): one more", "commit: one more"]


def git(*arguments: str, folder: Path) -> None:
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "core.logAllRefUpdates=true"]
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True)


def test_the_example_trigger_names_itself_the_same_everywhere() -> None:
    project = tomllib.loads(block("toml", "[build-system]"))
    [(name, package)] = project["project"]["entry-points"]["amplifier"].items()
    assert project["project"]["name"] == f"amplifier-{name}"
    assert package == f"amplifier_{name.replace('-', '_')}"
    assert f'register("{name}", ' in block("python", f"# {package}/__init__.py")


def test_the_hooks_of_the_table_are_those_of_the_code() -> None:
    specs = {**vars(hookspecs), **vars(of_foundation)}
    specified = {name for name in specs if name.startswith("amplifier_")}
    listed = [row[0].strip("`") for row in table("| hook | called | may |")]
    assert (set(listed), len(listed)) == (specified, len(specified))


def test_the_keys_of_a_background_session_are_those_of_the_code() -> None:
    listed = [key for row in table("| key | default | meaning |") for key in re.findall(r"`([^`]+)`", row[0])]
    known = [field.alias or name for name, field in BackgroundSessionConfig.model_fields.items()]
    assert sorted(listed) == sorted(known)


def test_the_defaults_of_a_background_session_are_those_of_the_code() -> None:
    fields = {each.alias or name: each.get_default() for name, each in BackgroundSessionConfig.model_fields.items()}
    worded = {"name": "required", "bundle": "this one", "triggers": "none", "runner": "this process"}
    worded["approval_timeout"] = "the setting"
    for names, written, _ in table("| key | default | meaning |"):
        keys = re.findall(r"`([^`]+)`", names)
        values = yaml.safe_load(f"[{written.replace('`', '')}]") or [None]
        for key, value in zip(keys, values * len(keys) if len(values) == 1 else values, strict=True):
            default = fields[key].model_dump() if isinstance(fields[key], BaseModel) else fields[key]
            assert written == worded[key] if key in worded else value == default, key


def test_the_methods_of_a_store_are_those_of_the_code() -> None:
    of_sessions = (storage.SessionStorage, storage.SessionStore, storage.Inbox, storage.PromptDeliveries)
    contracts = (*of_sessions, DocumentStore, DocumentSearch, StoreViews, MessageSearch, WordSearch)
    contracts += (SessionQueries, DueQueues, StoreTransfer, SharedStore, ReceivingStore)
    for row, contract in zip(table("| contract | methods |"), contracts, strict=True):
        methods = {name for name, each in vars(contract).items() if inspect.isfunction(each) and name[0] != "_"}
        assert row[0].startswith(f"`{contract.__name__}`")
        assert set(re.findall(r"`(\w+)[`(]", row[1])) == methods, contract


def test_the_optional_methods_of_a_trigger_are_those_of_the_code() -> None:
    listed = {name for row in table("| optional | meaning |") for name in re.findall(r"(\w+)\(", row[0])}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "plugins").rglob("trigger.py"))
    assert {name for name in listed if f"def {name}(" not in sources} == set()


def test_where_things_are_is_one_table_in_two_places() -> None:
    rooms = {row[0].split("`")[1]: row[1] for row in table("| room | what it does |")}
    changes = {row[0]: row[1].split("`")[1] for row in table("| to add | touch |")}
    written = amplifier_foundation.__doc__ or ""
    first, second = re.findall(r"(?:^    .*\n)+", written, flags=re.M)
    assert [re.split(r" {2,}", line.strip()) for line in first.splitlines()] == [list(each) for each in rooms.items()]
    added = (line.strip().rpartition(" ") for line in second.splitlines())
    assert [(thing.strip(), path) for thing, _, path in added] == list(changes.items())
    for path in [*rooms, *changes.values()]:
        assert (ROOT / path).exists() or (ROOT / "amplifier_foundation" / path).exists()
    folder = ROOT / "amplifier_foundation"
    assert {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")} == {
        name for name in rooms if name[-1] == "/"
    }


def test_every_command_that_shows_something_has_json() -> None:
    without = {
        name
        for name, command in leaf_commands(cli)
        if not {"--json", "--jsonl"} & {option for each in command.params for option in each.opts}
    }
    assert without == ACTING


ACTING = {
    "acp",
    "completion",
    "config set",
    "config unset",
    "dashboard",
    "demo",
    "host adopt",
    "host drain",
    "mcp serve",
    "pause",
    "restart",
    "resume",
    "service install",
    "service uninstall",
    "start",
    "stop",
    "trigger drop",
    "trigger fire",
    "trigger retry",
    "up",
    "worker",
}
"""Commands that do something and show nothing."""


def leaf_commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaf_commands(command, f"{above}{name} ")
        elif command is not None:
            yield f"{above}{name}", command


def test_the_packages_of_the_table_are_those_of_the_folder() -> None:
    listed = [re.sub(r"\[(.*?)\].*", r"\1", row[0]) for row in table("| package | what it is |")]
    assert sorted(listed) == sorted(path.name for path in (ROOT / "plugins").iterdir() if path.is_dir())


def test_the_environment_variables_are_those_of_the_code() -> None:
    sources = [
        path.read_text() for name in ("amplifier_core", "amplifier_foundation") for path in (ROOT / name).rglob("*.py")
    ]
    used = {found for text in sources for found in re.findall(r'["`](AMPLIFIER_[A-Z_]+)["`=]', text)}
    assert {row[0].strip("`") for row in table("| variable | meaning |")} == used


def test_the_exit_codes_are_those_of_the_code() -> None:
    assert {int(code): meaning for code, meaning in table("| code | meaning |")} == exits.MEANINGS


def test_the_notifications_of_the_readme_are_settings(folder: Path, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "settings.yaml").write_text(block("yaml", "notify:"), encoding="utf-8")
    done = run("amplifier config get notify", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert [entry["on"][0] for entry in json.loads(done.stdout)] == ["given_up", "given_up", "approval"]


def test_the_transports_of_the_reference_are_settings(folder: Path, home: Path) -> None:
    home.mkdir(exist_ok=True, mode=0o700)
    (home / "settings.yaml").write_text(block("yaml", "transports:"), encoding="utf-8")
    done = run("amplifier config get transports", folder)
    assert (done.returncode, '"site": "berlin"' in done.stdout) == (0, True), done.stderr


async def test_the_server_of_the_reference_is_set_and_answers(folder: Path, home: Path) -> None:
    home.mkdir(exist_ok=True, mode=0o700)
    (home / "settings.yaml").write_text(block("yaml", "dashboard:"), encoding="utf-8")
    done = run("amplifier config get servers.dashboard.port", folder)
    assert (done.returncode, done.stdout) == (0, "8642\n"), done.stderr
    names: dict[str, Any] = {}
    exec(block("python", "amplifier_register_server"), names)
    plugins = load_plugins()
    plugins.register(SimpleNamespace(amplifier_register_server=names["amplifier_register_server"]), "counter")
    serve = plugins.registry_of("server").get("counter")
    async with serve({}, of_foundation.ServerContext(MemoryStore(), plugins)) as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        assert await reader.read() == b"0 sessions"
        writer.close()


def test_the_budgets_of_the_readme_are_budgets(project: Path, home: Path) -> None:
    places = [row[0] for row in table("| in the bundle | is the budget of |")]
    assert len(places) == 4
    for place in places:
        section = re.findall(r"`([^`]+)`", place)[0].replace(", …}", ", name: q}")
        (project / "bundle.md").write_text(f"---\nbundle: {{name: b}}\n{section}\n---\n", encoding="utf-8")
        assert run("amplifier bundle validate bundle.md", project).returncode == 0, place


def test_the_commands_about_costs_and_recordings_run(folder: Path) -> None:
    for command, output in [
        *commands(block("console", "--record recordings")),
        *commands(block("console", "amplifier cost")),
    ]:
        done = run(command, folder)
        assert done.returncode == 0, done.stderr
        assert output == [] or done.stdout.splitlines() == output


def test_the_commands_about_plugins_work_as_shown(folder: Path) -> None:
    (folder / ".git").mkdir()
    for command, _ in commands(block("console", "amplifier plugin list")):
        done = run(command, folder)
        assert done.returncode == 0, command + done.stderr
    assert (folder / ".amplifier" / "plugins.lock").is_file()


def test_the_commands_about_hosts_take_what_is_documented() -> None:  # tests/cli/test_hosts.py runs them
    for command, _ in commands(block("console", "amplifier host list")):
        name, verb, *arguments = command.split()[1:]
        found = cli.get_command(click.Context(cli), name)
        assert isinstance(found, click.Group)
        assert found.commands[verb].make_context(verb, arguments)


def test_the_commands_of_every_day_do_something_by_themselves() -> None:
    for cell, _ in table("| command | what it does |"):
        named = re.match(r"`amplifier ([a-z ]+)", cell)
        assert named is not None
        command: click.Command | None = cli
        for word in named[1].split():
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        assert command is not None
        assert not isinstance(command, click.Group), cell


def test_the_commands_of_the_changelog_exist() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    for command in re.findall(r"`amplifier ([a-z]+)", changelog):
        assert run(f"amplifier {command} --help", Path.cwd()).returncode == 0


@pytest.mark.parametrize(
    "plugin",
    sorted(
        {path.name for path in (ROOT / "plugins").iterdir() if path.is_dir()}
        - {"amplifier-providers", "amplifier-dashboard"}
    ),
)
async def test_the_bundle_in_a_plugins_readme_is_valid(plugin: str, project: Path, home: Path) -> None:
    text = (ROOT / "plugins" / plugin / "README.md").read_text(encoding="utf-8")
    assert f"pip install {plugin}" in text
    examples = re.findall(r"^```(?:yaml|markdown)\n(---\n.*?)^```$", text, flags=re.M | re.S)
    assert examples
    (project / "src").mkdir()
    for example in examples:
        (project / "bundle.md").write_text(example, encoding="utf-8")
        plugins = load_plugins(environ={})
        problems = await check_bundle("bundle.md", plugins, registry=BundleRegistry(plugins=plugins).names())
        assert [str(each) for each in problems if each.code != "AMP115"] == []  # the reader adds a provider
