"""`amplifier auth`: keys are asked for without echo, kept, listed without the key, and removed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.settings.keys import find_key, keep_key

pytestmark = pytest.mark.slow

KEY = "typed-key-of-the-tests-0123456789"
HOUSE = """
from amplifier_core.llm_errors import AuthenticationError

class Service:
    name = "house"
    def __init__(self, key): self.key = key
    async def list_models(self):
        if not self.key.startswith("typed"):
            raise AuthenticationError(f"401: wrong key {self.key}")
        return []

async def mount(coordinator, config):
    await coordinator.mount("providers", Service(config["api_key"]))
"""
Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def _house(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider of this house; there is no keyring."""
    folder = tmp_path / "modules" / "amplifier-module-provider-house" / "amplifier_module_provider_house"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(HOUSE, encoding="utf-8")
    monkeypatch.setenv("AMPLIFIER_MODULES", str(tmp_path / "modules"))
    for name in ("HOUSE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def told(done: CompletedProcess[str]) -> str:
    assert done.returncode == exits.OK, done.stderr
    return done.stdout


def test_a_key_comes_from_a_pipe_and_is_never_shown(amplifier: Run, home: Path) -> None:
    login = told(amplifier("auth", "login", "house", stdin=f"{KEY}\n"))
    where = f"kept in {home / 'keys.json'}, readable by your user alone (0600): no keyring works here"
    assert login == f"HOUSE_API_KEY: {where}\n"
    listed = told(amplifier("auth", "list"))
    assert listed.split() == ["NAME", "USED", "BY", "FROM", "HOUSE_API_KEY", "provider-house", "keys.json"]
    assert find_key("HOUSE_API_KEY") == KEY
    assert told(amplifier("auth", "logout", "house")) == "HOUSE_API_KEY: removed\n"
    again = amplifier("auth", "logout", "provider-house")
    assert (again.returncode, again.stderr) == (
        exits.NOT_FOUND,
        "amplifier: no key HOUSE_API_KEY is kept. See: amplifier auth list\n",
    )
    assert KEY not in login + listed


def test_a_key_is_typed_without_echo(terminals: Callable[..., object], home: Path) -> None:
    terminal = terminals("auth", "login", "HOUSE_TOKEN")
    shown = terminal.until("Key for HOUSE_TOKEN: ")  # type: ignore[attr-defined]
    terminal.type(f"{KEY}\n")  # type: ignore[attr-defined]
    shown += terminal.until("HOUSE_TOKEN: kept in ")  # type: ignore[attr-defined]
    assert terminal.ended() == exits.OK  # type: ignore[attr-defined]
    assert KEY not in shown
    assert find_key("HOUSE_TOKEN") == KEY


def test_the_environment_is_listed_and_told_to_come_first(amplifier: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", "from-the-environment")
    done = amplifier("auth", "login", "house", stdin=KEY)
    assert "HOUSE_API_KEY is also in the environment, and that one is used" in done.stderr
    data = json.loads(told(amplifier("auth", "list", "--json")))
    assert data["data"] == [{"name": "HOUSE_API_KEY", "used_by": ["provider-house"], "from": "environment"}]


def test_a_checked_key_is_kept_only_if_the_provider_accepts_it(amplifier: Run, home: Path) -> None:
    refused = amplifier("auth", "login", "house", "--check", stdin="wrong-key-0123456789")
    assert refused.returncode == exits.USAGE
    assert refused.stderr == "amplifier: the key is not kept: provider: 401: wrong key [REDACTED]. Check the key\n"
    assert not (home / "keys.json").exists()
    told(amplifier("auth", "login", "house", "--check", stdin=KEY))
    assert find_key("HOUSE_API_KEY") == KEY


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["login", "houze"], KEY, "no provider 'provider-houze' is installed; did you mean 'provider-house'?"),
        (["login", "playbook"], KEY, "provider-playbook needs no key"),
        (["login", "house"], "\n", "there is no key; type it, or pipe it"),
        (["login", "house"], "two words", "this is no key"),
        (["login", "house"], "x" * 20_000, "this is no key"),
        (["login", "--check", "A_TOKEN"], KEY, "--check is for providers"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    amplifier: Run, home: Path, arguments: list[str], stdin: str, message: str
) -> None:
    done = amplifier("auth", *arguments, stdin=stdin)
    assert done.returncode == exits.USAGE
    assert message in done.stderr
    assert not (home / "keys.json").exists()


def test_a_provider_to_be_installed_later_can_have_a_key(amplifier: Run) -> None:
    told(amplifier("auth", "login", "anthropic", stdin=KEY))
    assert find_key("ANTHROPIC_API_KEY") == KEY


def test_an_empty_list_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["auth", "list"]) == exits.OK
    assert capsys.readouterr().err == "There is no key. Keep one: amplifier auth login PROVIDER\n"


def test_commands_without_keys_import_neither_keyring_nor_sdk(project: Path) -> None:
    import subprocess

    keep_key("HOUSE_API_KEY", KEY)
    (project / "bundle.md").write_text("---\nbundle: {name: b}\nproviders: [{module: provider-playbook}]\n---\n")
    heavy = {"anthropic", "google.genai", "httpx", "httpx2", "keyring", "ollama", "openai"}
    for arguments in (
        ["--help"], ["ps"], ["plugin", "list"], ["session", "list"], ["bundle", "validate"], ["auth", "list"],
        ["run", "hello"],
    ):  # fmt: skip
        code = (
            "import sys; from amplifier_foundation.cli import invoke; "
            f"invoke({arguments!r}); print('imported:', {heavy!r} & set(sys.modules))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
        )
        assert done.stdout.endswith("imported: set()\n")
