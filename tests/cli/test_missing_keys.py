"""A start tells of a provider without its key, and what was given up names the command that tries it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.settings.keys import keep_key

Amplifier = Callable[..., "CompletedProcess[str]"]

BUNDLE = """---
bundle: {{name: reviews}}
{providers}
background_sessions:
  - name: reviewer
    triggers: [{{type: file_change, config: {{patterns: ["*.py"]}}}}]
---
You review.
"""
ANTHROPIC = "providers: [{module: provider-anthropic}]"
BOTH = "providers: [{module: provider-anthropic}, {module: provider-playbook, config: {otherwise: {say: hi}}}]"
PLAYBOOK = "providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]"
NO_KEY = (
    "bundle.md:3:22: warning[AMP115] providers[0].module: provider-anthropic has no key on this machine: events wait "
    "for one. Keep it with: amplifier auth login anthropic, or set ANTHROPIC_API_KEY\n"
)
NO_PROVIDER = (
    "bundle.md:2:1: warning[AMP115] providers: the bundle has no provider: its sessions have no model to ask. Add one "
    "under 'providers'\n"
)


@pytest.fixture(autouse=True)
def _without_keys(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def write(providers: str) -> None:
    Path("bundle.md").write_text(BUNDLE.format(providers=providers), encoding="utf-8")


@pytest.mark.parametrize(
    ("providers", "told"),
    [
        (ANTHROPIC, NO_KEY),
        ("", NO_PROVIDER),
        ("providers: [{module: provider-anthropic, config: {api_key: '${KEY}'}}]", ""),
        ("providers: [{module: provider-anthropic, config: {base_url: 'http://127.0.0.1:9'}}]", ""),
        ("providers: [{module: provider-ollama, config: {default_model: llama}}]", ""),
        (PLAYBOOK, ""),
        ("providers: [{module: provider-anthropic}, {module: provider-playbook, config: {priority: 1}}]", ""),
        (f"{BOTH}\nsession: {{orchestrator: {{module: loop-basic, config: {{default_provider: playbook}}}}}}", ""),
        (f"{BOTH}\nsession: {{provider_preferences: [{{provider: playbook}}]}}", ""),
        (f"{BOTH}\nsession: {{orchestrator: {{module: loop-basic, config: {{max_iterations: 5}}}}}}", NO_KEY),
    ],
)
def test_a_dry_run_tells_of_a_provider_that_cannot_answer(
    providers: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(providers)
    assert invoke(["up", "--dry-run"]) == exits.OK
    assert capsys.readouterr().err == told


def test_the_provider_that_the_orchestrator_asks_is_tested(capsys: pytest.CaptureFixture[str]) -> None:
    write(f"{BOTH}\nsession: {{orchestrator: {{module: loop-basic, config: {{default_provider: playbook}}}}}}")
    assert invoke(["trust", "--yes"]) == exits.OK
    capsys.readouterr()
    assert invoke(["provider", "test"]) == exits.OK
    assert capsys.readouterr().out.startswith("playbook: works")


def test_the_key_of_code_in_a_bundle_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    write("providers: [{module: provider-anthropic, source: ./own.py}]")
    Path("own.py").write_text('credential_env_vars = ("MY_KEY",)\nasync def mount(coordinator, config): ...\n')
    assert invoke(["up", "--dry-run"]) == exits.OK
    assert capsys.readouterr().err == ""


def test_a_key_of_the_environment_and_a_kept_one_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("providers: [{module: provider-gemini}]")
    assert invoke(["up", "--dry-run"]) == exits.OK
    assert "amplifier auth login gemini, or set GEMINI_API_KEY or GOOGLE_API_KEY" in capsys.readouterr().err
    with monkeypatch.context() as environment:
        environment.setenv("GOOGLE_API_KEY", "a-key-of-google")
        assert invoke(["up", "--dry-run"]) == exits.OK
    keep_key("GEMINI_API_KEY", "a-kept-key-of-gemini")
    assert invoke(["up", "--dry-run"]) == exits.OK
    assert capsys.readouterr().err == ""


@pytest.mark.long
def test_a_start_without_a_key_tells_so_and_its_events_wait(amplifier: Amplifier) -> None:
    write(ANTHROPIC)
    assert invoke(["trust", "--yes"]) == exits.OK
    assert NO_KEY in amplifier("up", "--once").stderr
    Path("app.py").write_text("x = (\n", encoding="utf-8")
    done = amplifier("up", "--once")
    assert done.returncode == exits.FAILED
    remedy = "Set ANTHROPIC_API_KEY, or api_key in the provider's config, or run: amplifier auth login anthropic"
    assert remedy in done.stdout
    write(PLAYBOOK)
    assert invoke(["trust", "--yes"]) == exits.OK
    assert amplifier("up", "--once").returncode == exits.OK


@pytest.mark.long
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTPS_PROXY", "http://ann:S3CRETpw#x@127.0.0.1:1"),
        ("ALL_PROXY", "socks5://127.0.0.1:1"),
        ("SSL_CERT_FILE", "/nonexistent.pem"),
    ],
)
def test_events_wait_for_a_variable_of_the_network_to_be_mended(
    amplifier: Amplifier, home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    write(ANTHROPIC)
    assert invoke(["trust", "--yes"]) == exits.OK
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-a-test")
    amplifier("up", "--once")
    Path("app.py").write_text("x = (\n", encoding="utf-8")
    with monkeypatch.context() as environment:
        environment.setenv(variable, value)
        done = amplifier("up", "--once")
    assert (done.returncode, "given up" in done.stdout) == (exits.FAILED, False)
    assert variable in done.stdout
    told = [done.stdout, done.stderr, *(each.read_bytes().decode("latin-1") for each in home.rglob("*.db*"))]
    assert not any("S3CRETpw" in each for each in told)
    write(PLAYBOOK)
    assert invoke(["trust", "--yes"]) == exits.OK
    assert amplifier("up", "--once").returncode == exits.OK


def test_a_dead_letter_names_its_retry(amplifier: Amplifier, capsys: pytest.CaptureFixture[str]) -> None:
    write("")
    assert invoke(["trust", "--yes"]) == exits.OK
    amplifier("up", "--once")
    Path("app.py").write_text("x = (\n", encoding="utf-8")
    done = amplifier("up", "--once")
    assert done.returncode == exits.FAILED
    capsys.readouterr()
    assert invoke(["trigger", "dead"]) == exits.OK
    out, err = capsys.readouterr()
    assert err == "Try them again when the cause is gone: amplifier trigger retry ID, or --all\n"
    retry = f". Try it again: amplifier trigger retry {out.splitlines()[1][:8]}"
    assert retry in done.stdout
    assert invoke(["logs"]) == exits.OK
    assert retry in capsys.readouterr().out
