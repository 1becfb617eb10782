"""`amplifier run` when its provider fails: one line with the status and the remedy, and an exit code that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke

PROVIDER = """
import os

from amplifier_core import ProviderInfo
from amplifier_core import llm_errors


class House:
    name = "house"

    def get_info(self):
        return ProviderInfo(id="house", display_name="House", credential_env_vars=["HOUSE_API_KEY"])

    async def list_models(self):
        return []

    async def complete(self, request, **kwargs):
        kind, _, status = request.messages[-1].content.partition(" ")
        wait = 7.0 if kind == "RateLimitError" else None
        text = "it said\\nno."
        raise getattr(llm_errors, kind)(text, provider="house", status_code=int(status or 0) or None, retry_after=wait)

    def parse_tool_calls(self, response):
        return []


async def mount(coordinator, config):
    if os.environ.get("HOUSE_API_KEY"):
        await coordinator.mount("providers", House())
"""
BUNDLE = """---
bundle: {name: house}
providers:
  - {module: provider-house, source: ./house.py}
---
"""


@pytest.fixture(autouse=True)
def bundle(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "house.py").write_text(PROVIDER, encoding="utf-8")
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    monkeypatch.setenv("HOUSE_API_KEY", "the-key-of-the-house")


@pytest.mark.parametrize(
    ("asked", "code", "line"),
    [
        ("AuthenticationError 401", exits.FAILED, "house: 401 it said no. Check the key in HOUSE_API_KEY"),
        ("RateLimitError 429", exits.TRY_AGAIN, "house: 429 it said no. Try again in 7 s"),
        ("ProviderUnavailableError 503", exits.TRY_AGAIN, "house: 503 it said no. Try again"),
        (
            "NetworkError",
            exits.TRY_AGAIN,
            "house: it said no. Check the network and the provider's address, and try again",
        ),
        ("NotFoundError 404", exits.FAILED, "house: 404 it said no. Check the model and the provider's address"),
        ("LLMTimeoutError 504", exits.TRY_AGAIN, "house: 504 it said no. Try again"),
        ("StreamError", exits.TRY_AGAIN, "house: it said no. Try again"),
    ],
)
def test_an_error_is_one_line_with_status_and_remedy(
    capsys: pytest.CaptureFixture[str], asked: str, code: int, line: str
) -> None:
    assert invoke(["run", asked]) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"amplifier: {line}\n")
    invoke(["session", "list", "--json"])
    assert line in capsys.readouterr().out


def test_a_missing_key_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOUSE_API_KEY")
    assert invoke(["run", "hello"]) == exits.FAILED
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith("amplifier: No providers mounted (provider-house: ")
    assert "HOUSE_API_KEY is not set" in err


@pytest.mark.parametrize("key", ["the-key\n", "the\rkey", "the-key\x07"])
def test_a_line_break_in_a_key_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", key)
    assert invoke(["run", "NetworkError"]) == exits.FAILED
    err = capsys.readouterr().err
    assert "HOUSE_API_KEY has a line break or another control character in it" in err
    assert "the-key" not in err


def test_a_provider_whose_mount_fails_is_told_with_its_class_and_what_helps(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    (project / "mods.py").write_text(
        "async def mount(coordinator, config):\n    open('creds.json')\n", encoding="utf-8"
    )
    providers = "providers: [{module: provider-mods, source: ./mods.py}]"
    (project / "bundle.md").write_text(f"---\nbundle: {{name: b}}\n{providers}\n---\n", encoding="utf-8")
    assert invoke(["trust", "--yes"]) == exits.OK
    capsys.readouterr()
    assert invoke(["run", "hello"]) == exits.FAILED
    cause = f"FileNotFoundError: [Errno 2] No such file or directory: 'creds.json' ({project / 'mods.py'}:2)"
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"amplifier: No providers mounted (provider-mods: {cause}). See: amplifier bundle validate. "
        "If it finds nothing, correct the provider's 'config' in the bundle, or update its package"
    )


def test_a_bundle_without_a_provider_says_where_one_is_named(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "bundle.md").write_text("---\nbundle: {name: b}\n---\n", encoding="utf-8")
    assert invoke(["run", "hello"]) == exits.FAILED
    assert capsys.readouterr().err.splitlines()[-1] == (
        "amplifier: No providers mounted. Add one under 'providers' of the bundle, or to a turn with: "
        "amplifier run --provider NAME"
    )
