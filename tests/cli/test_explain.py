"""`amplifier bundle explain`: every key of a bundle is described, and its example is valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from amplifier_core import load_plugins
from amplifier_foundation.bundle.check import check_bundle
from amplifier_foundation.bundle.key_help import explain_keys
from amplifier_foundation.cli import exits, invoke

pytestmark = pytest.mark.slow

KEYS = explain_keys()


async def test_the_example_of_every_key_is_valid_and_has_the_key(home: Path, project: Path) -> None:
    (project / "mine.py").write_text("async def mount(coordinator, config): ...\n")
    (project / "team.md").write_text("---\nbundle: {name: team}\n---\n")
    plugins = load_plugins(environ={})
    for path, key in KEYS.items():
        (project / "bundle.yaml").write_text(yaml.safe_dump(key.example, sort_keys=False))
        problems = await check_bundle("bundle.yaml", plugins)
        assert [str(each) for each in problems if each.severity == "error"] == [], path
        value = key.example
        for name in path.split("."):
            value = value[0] if isinstance(value, list) else value
            value = value["reviewer" if name == "NAME" else name]


def test_every_key_says_what_it_means() -> None:
    assert [path for path, key in KEYS.items() if not key.description] == []


def test_a_key_is_explained_by_its_path_or_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in ("background_sessions.worktree", "worktree"):
        assert invoke(["bundle", "explain", asked, "--json"]) == exits.OK
        data = json.loads(capsys.readouterr().out)["data"]
        assert (data["path"], data["where"]) == ("background_sessions.worktree", "background_sessions")
        assert data["below"] == ["background_sessions.worktree.branch", "background_sessions.worktree.finish"]
    assert invoke(["bundle", "explain", "background_sessions.mode"]) == exits.OK
    shown = capsys.readouterr().out
    assert shown.startswith("background_sessions.mode: text\n")
    assert 'default:   "queued"\none of:    "queued", "parallel", "single", "restart"\n' in shown
    assert shown.endswith("background_sessions:\n- name: reviewer\n  mode: queued\n")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("worktre", "no bundle has a key 'worktre'; did you mean 'worktree'?"),
        ("background_sessions.pool_sizes", "did you mean 'background_sessions.pool_size'?"),
        ("usd", "'usd' is the end of several keys: session.budget.usd, "),
        ("xyzzy", "All keys: amplifier bundle schema"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_hint(asked: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bundle", "explain", asked]) == exits.USAGE
    assert message in capsys.readouterr().err
