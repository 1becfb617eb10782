"""What `amplifier doctor` says of the sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from amplifier_foundation.cli import invoke
from amplifier_sandbox import choosing
from amplifier_sandbox.plugin import check_sandbox
from tests.programs import require


def test_doctor_says_what_the_sandbox_covers_and_what_it_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    require("bwrap")
    invoke(["doctor", "--json"])
    found = [each for each in json.loads(capsys.readouterr().out)["data"] if each["part"] == "sandbox"]
    covered = "commands of tool-bash, and tools with 'sandbox: true' in their bundle"
    assert found[0]["fact"] == f"{covered}, run in bubblewrap, which was tried just now"
    assert [each["fact"] for each in found[1:-1]] == choosing.describe()["open"]
    assert found[-1]["fact"] == "tools without 'sandbox: true' run in the process of their session, with your rights"
    assert [each["state"] for each in found] == ["ok"] + ["off"] * (len(found) - 1)


def test_without_bubblewrap_doctor_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(choosing, "_results", {})
    weak = next(each for each in check_sandbox() if each["state"] == "weak")
    assert "bubblewrap" in weak["fact"]
    assert weak["remedy"] == "apt-get install bubblewrap"


def test_of_a_bubblewrap_that_cannot_run_doctor_does_not_say_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho No permissions to create new namespace >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(choosing, "_results", {})
    weak = next(each for each in check_sandbox() if each["state"] == "weak")
    assert "its self-test failed: No permissions to create new namespace" in weak["fact"]
    assert weak["remedy"].startswith("allow new user namespaces and mounts")
