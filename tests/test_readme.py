"""The README says what is true: its blocks run, its tables are those of the code."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import TriggerContext, hookspecs, load_plugins
from amplifier_core.testing import check_trigger
from amplifier_foundation import hookspecs as of_foundation
from amplifier_foundation.bundles.check import check_bundle
from amplifier_foundation.cli import exits, invoke

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
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
    program = [sys.executable, "-m", "amplifier_foundation"] if words[0] == "amplifier" else [words[0]]
    return subprocess.run([*program, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of a console block with the output that stands below it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def test_no_block_is_left_untested() -> None:
    assert sorted(kind for kind, _ in BLOCKS) == sorted(
        ["console"] * 7 + ["text", "python", "toml", "python"] + ["markdown"] * 4
    )


def test_the_two_commands_are_targets_of_make() -> None:
    for command, _ in commands(block("console", "make demo")):
        assert run(f"{command} --dry-run", ROOT).returncode == 0


def test_the_demo_shows_what_the_readme_shows(project: Path, home: Path) -> None:
    done = run("amplifier demo", project)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(normal(done.stdout)) == sorted(normal(block("text", "You write app.py")))
    tool = (project / "amplifier-demo" / "tools" / "check_python.py").read_text()
    lines = len([line for line in tool.splitlines() if line.strip()])
    said = f"`amplifier-demo/tools/check_python.py`, {lines} lines of code"
    assert said in " ".join(README.split())


def test_the_demos_findings_follow_the_file(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from amplifier_foundation.cli import demo

    monkeypatch.setattr(demo, "BROKEN", "x = 1\n\nwhile True\n    pass\n")
    monkeypatch.setattr(demo, "FIXED", "x = 1\n")
    assert invoke(["-q", "demo"]) == exits.OK
    summaries = subprocess.run(
        [sys.executable, "-m", "amplifier_foundation", "session", "list", "--all", "--json"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert summaries.count('"status": "completed"') == 6
    listed = re.findall(r'"session_id": "(question-[0-9a-f]+)"', summaries)
    shown = run(f"amplifier session show {listed[0]}", project).stdout
    assert "In app.py I found this: app.py, line 3: expected ':'" in shown


def test_the_bundle_validates_and_runs_as_shown(folder: Path) -> None:
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
    with subprocess.Popen(
        [sys.executable, "-m", "amplifier_foundation", "up", "bundle.md"], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C stops" in line:
                (folder / "note.txt").write_text("one\ntwo\n")
            if "note.txt has 2 lines." in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == exits.INTERRUPTED


def test_a_mistake_is_told_as_shown(folder: Path) -> None:
    (folder / "mistyped.md").write_text((folder / "bundle.md").read_text().replace("pool_size:", "pool_sizes:"))
    [(command, output)] = commands(block("console", "mistyped.md"))
    done = run(command, folder)
    assert done.returncode == exits.USAGE
    assert done.stderr.splitlines() == output


def test_the_bundle_commands_work_as_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = {
        "bundle.md": block("markdown", "# team/bundle.md"),
        "agents/reviewer.md": block("markdown", "description: Reviews what"),
        "base.yaml": "bundle: {name: base}\nproviders: [{module: provider-playbook}]\n",
        "behaviors/careful.yml": "bundle: {name: careful}\ntools: [{module: tool-filesystem}]\n",
        "context/rules.md": "Rules.\n",
        "context/style.md": "Style.\n",
    }
    for name, text in written.items():
        (folder / "team" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "team" / name).write_text(text, encoding="utf-8")
    for command, _ in commands(block("console", "amplifier bundle new")):
        out, err = here(command, capsys)
        assert "warning" not in err
        if command == "amplifier bundle show team":
            assert 'context["team:context/rules.md"]' in out
            assert 'agents["team:reviewer"].description' in out


def here(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Run a command within this process, where the program's start is not what is shown."""
    capsys.readouterr()
    code = invoke(shlex.split(command)[1:])
    out, err = capsys.readouterr()
    assert code == exits.OK, err
    return out, err


def test_the_settings_are_set_and_shown_as_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, output in commands(block("console", "amplifier config show")):
        out, _ = here(command, capsys)
        assert not output or out.splitlines() == output


def test_the_session_commands_work_as_shown(folder: Path) -> None:
    run('amplifier run "good morning"', folder)
    session_id = run("amplifier session list", folder).stdout.splitlines()[1].split()[0]
    for command, _ in commands(block("console", "amplifier session tree")):
        done = run(command.replace("ID", session_id[:12]), folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout


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


def test_the_commands_of_the_changelog_exist() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    for command in re.findall(r"`amplifier ([a-z]+)", changelog):
        assert run(f"amplifier {command} --help", Path.cwd()).returncode == 0


@pytest.mark.parametrize("plugin", sorted(path.name for path in (ROOT / "plugins").iterdir() if path.is_dir()))
async def test_the_bundle_in_a_plugins_readme_is_valid(plugin: str, project: Path, home: Path) -> None:
    text = (ROOT / "plugins" / plugin / "README.md").read_text(encoding="utf-8")
    assert f"pip install {plugin}" in text
    examples = re.findall(r"^```(?:yaml|markdown)\n(---\n.*?)^```$", text, flags=re.M | re.S)
    assert examples
    (project / "src").mkdir()
    for example in examples:
        (project / "bundle.md").write_text(example, encoding="utf-8")
        assert [str(problem) for problem in await check_bundle("bundle.md", load_plugins(environ={}))] == []
