"""A person sees which provider answered instead of another: at the terminal, and in the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke
from tests.foundation.bundle.test_fallback import BOTH, BUNDLE, SERVICE


def test_the_turn_and_the_record_say_who_answered(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "service.py").write_text(SERVICE, encoding="utf-8")
    (project / "bundle.md").write_text(BUNDLE.format(session=BOTH, more=""), encoding="utf-8")
    assert invoke(["run", "--name", "calm", "hello"]) == exits.OK
    assert "instead of" not in capsys.readouterr().err
    (project / "two.out").touch()
    assert invoke(["run", "--name", "hasty", "hello"]) == exits.OK
    said = capsys.readouterr()
    assert said.out == "one large-2\n"
    assert "⚠ one answers instead of two: ProviderUnavailableError: 529 overloaded" in said.err
    assert invoke(["session", "show", "hast"]) == exits.OK
    shown = " ".join(capsys.readouterr().out.split())
    assert "assistant (one large-2 instead of two: ProviderUnavailableError: 529 overloaded) one large-2" in shown
    assert invoke(["session", "show", "calm"]) == exits.OK
    assert "instead of" not in capsys.readouterr().out
