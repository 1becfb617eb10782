"""A bundle without mistakes is not checked against its schema again while it stays the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_core.errors import BundleError
from amplifier_foundation.bundle.load import load_bundle_sync, read_leniently

pytestmark = pytest.mark.slow

PLAIN = "---\nbundle: {name: plain}\ntools: [{module: tool-filesystem}]\n---\nYou help.\n"
SESSIONS = PLAIN.replace("tools:", "background_sessions: [{name: one, triggers: [{type: timer}]}]\ntools:")
READ = """
import sys
from amplifier_foundation.bundle.load import load_bundle_sync
bundle = load_bundle_sync("bundle.md")
print([each.name for each in bundle.background_sessions], bundle.tools, "pydantic" in sys.modules)
print("amplifier_foundation.bundle.schema" in sys.modules)
"""


@pytest.fixture
def folder(home: Path, project: Path) -> Path:
    home.mkdir(exist_ok=True)
    return project


def read() -> list[str]:
    done = subprocess.run([sys.executable, "-c", READ], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(("text", "sessions", "pydantic"), [(PLAIN, [], False), (SESSIONS, ["one"], True)])
def test_an_unchanged_bundle_reads_the_same_without_its_schema(
    text: str, sessions: list[str], pydantic: bool, folder: Path
) -> None:
    (folder / "bundle.md").write_text(text)
    tools = [{"module": "tool-filesystem"}]
    assert read() == [f"{sessions} {tools} True", "True"]
    assert read() == [f"{sessions} {tools} {pydantic}", "False"]


def test_a_changed_bundle_is_checked_and_its_mistakes_are_told_each_time(folder: Path) -> None:
    bundle = folder / "bundle.md"
    bundle.write_text(SESSIONS)
    whole = load_bundle_sync(bundle)
    assert load_bundle_sync(bundle).background_sessions == whole.background_sessions
    bundle.write_text(SESSIONS.replace("timer", "5"))
    for _ in range(2):
        with pytest.raises(BundleError, match=r"bundle.md:3:\d+"):
            load_bundle_sync(bundle)
    assert len(list((folder.parent / "home" / "cache" / "bundles").glob("*"))) == 1


def test_a_bundle_that_was_read_without_its_mistakes_keeps_them(folder: Path) -> None:
    bundle = folder / "bundle.md"
    bundle.write_text(PLAIN.replace("---\nYou", "hooks: 5\n---\nYou"))
    for _ in range(2):
        read_leniently(bundle)
        with pytest.raises(BundleError, match=r"hooks: must be a list"):
            load_bundle_sync(bundle)


@pytest.mark.parametrize(
    "values", [{}, "garbage", None, {"data": [], "keys": [], "values": []}, {"data": {}, "keys": [[1]], "values": 5}]
)
def test_a_changed_entry_of_the_cache_does_no_harm(values: object, folder: Path) -> None:
    bundle = folder / "bundle.md"
    bundle.write_text(f"{PLAIN}{values}\n")  # another text each time: this process remembers what it has read
    load_bundle_sync(bundle)
    [entry] = (folder.parent / "home" / "cache" / "documents").iterdir()
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "values": values}))
    code = READ.replace("print", "assert bundle.name == 'plain', ")
    subprocess.run([sys.executable, "-c", code], check=True)
    entry.unlink()
    os.mkfifo(entry)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("value", ["${HUSH}", "Bearer ${HUSH}", "secret://HUSH"])
def test_a_bundle_that_names_a_secret_is_kept_without_its_value(
    value: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSH", "hush-hush")
    bundle = folder / "bundle.md"
    named = f"providers: [{{module: provider-x, config: {{api_key: '{value}'}}}}]\ntools:"
    bundle.write_text(PLAIN.replace("tools:", named))
    load_bundle_sync(bundle)
    [entry] = (folder.parent / "home" / "cache" / "documents").iterdir()
    assert json.loads(entry.read_text())["values"]["data"]["providers"][0]["config"] == {"api_key": value}
    assert "hush-hush" not in entry.read_text()
    code = READ.replace("print", "import sys; assert 'yaml' not in sys.modules and bundle.name == 'plain', ")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("value", ["${HUSH:-hush-hush}", "${HUSH} hush-hush", "hush-hush"])
def test_a_bundle_with_a_secret_beside_a_variable_is_not_kept(value: str, folder: Path) -> None:
    bundle = folder / "bundle.md"
    named = f"providers: [{{module: provider-x, config: {{api_key: '{value}'}}}}]\ntools:"
    bundle.write_text(PLAIN.replace("tools:", named))
    load_bundle_sync(bundle)
    assert not (folder.parent / "home" / "cache" / "documents").exists()


def test_a_bundle_with_a_secret_is_not_kept(folder: Path) -> None:
    bundle = folder / "bundle.md"
    bundle.write_text(PLAIN.replace("tools:", "providers: [{module: provider-x, config: {api_key: hush}}]\ntools:"))
    for _ in range(2):
        assert [problem.code for problem in load_bundle_sync(bundle).problems] == ["AMP113"]
    cache = folder.parent / "home" / "cache"
    assert not [path for path in cache.rglob("*") if path.is_file() and "hush" in path.read_text()]
