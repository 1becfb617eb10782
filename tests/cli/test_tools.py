"""Tools of packages in real commands, as their READMEs show them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import Run

ROOT = Path(__file__).parents[2]
BUNDLE = """---
bundle: {name: planner}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^plan (?P<task>.+)'}
          call: {tool: todo, input: {action: create, todos: [{content: "{task}", status: pending}]}}
        - when: {user: '^break'}
          call: {tool: todo, input: {action: update, todos: [{content: "", status: pending}]}}
        - when: {user: '^show'}
          call: {tool: todo, input: {action: list}}
        - when: {tool: todo}
          say: "{result}"
tools: [{module: tool-todo}]
---
"""


def test_a_resumed_session_and_a_fork_of_an_earlier_turn_go_on_with_their_lists(project: Path, amplifier: Run) -> None:
    (project / "bundle.md").write_text(BUNDLE)

    def say(*arguments: str) -> str:
        done = amplifier("run", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "created" in say("plan one")
    assert "created" in say("--resume", "last", "plan two")
    assert "'content' must be" in say("--resume", "last", "break it")
    assert '"two"' in say("--resume", "last", "show")
    assert '"one"' in say("--fork", "last@1", "show")


def run_readme(project: Path, amplifier: Run, package: str, *prompts: str) -> list[str]:
    """Return the answers of the bundle of a README."""
    text = (ROOT / "plugins" / package / "README.md").read_text(encoding="utf-8")
    [bundle] = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (project / "bundle.md").write_text(bundle, encoding="utf-8")
    return [amplifier("run", *prompt.split("|")).stdout.strip() for prompt in prompts]


def test_the_readme_of_the_list_says_what_happens(project: Path, amplifier: Run) -> None:
    answers = run_readme(
        project, amplifier, "amplifier-tool-todo", "plan Write the tests", "--resume|last|what is left?"
    )
    assert answers == ["The list has 1 tasks."] * 2


def test_the_readme_of_the_search_says_what_happens(project: Path, amplifier: Run) -> None:
    (project / "a.txt").write_text("a (needle)\n")
    (project / ".env").write_text("a (needle)\n")
    assert run_readme(project, amplifier, "amplifier-tool-search", "find (needle)") == ["1 files have it."]


def test_the_readme_of_the_web_refuses_this_machine(project: Path, amplifier: Run) -> None:
    run_readme(project, amplifier, "amplifier-tool-web")
    done = amplifier("run", "read http://localhost/")
    assert "web_fetch: Denied by hook: not permitted: 'localhost': it is this" in done.stderr
