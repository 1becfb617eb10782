"""The sandbox of this machine is chosen by a try; its filters and profiles are what they should be."""

from __future__ import annotations

import pytest

from amplifier_sandbox import choosing
from amplifier_sandbox.contracts import Run
from amplifier_sandbox.landlock import find_version
from amplifier_sandbox.protection import Guarded
from amplifier_sandbox.seatbelt import make_profile
from amplifier_sandbox.seccomp import MACHINES, make_filter
from tests.programs import require

needs_landlock = pytest.mark.skipif(find_version() == 0, reason="this kernel has no Landlock")


@pytest.fixture(autouse=True)
def _untested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the results of self-tests."""
    monkeypatch.setattr(choosing, "_results", {})


def test_bubblewrap_is_chosen_and_described() -> None:
    require("bwrap")
    described = choosing.describe()
    assert (described["kind"], described["tested"]) == ("bubblewrap", True)
    assert "no network without a grant" in " ".join(described["covers"])
    assert described["missing"]["sandbox-exec"] == "sandbox-exec is a program of macOS"
    assert described["open"]


@needs_landlock
def test_without_bubblewrap_landlock_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    described = choosing.describe()
    assert (described["kind"], described["tested"]) == ("landlock", True)
    assert described["missing"]["bubblewrap"].startswith(
        "bubblewrap is not installed; install it with: apt-get install"
    )


# filters and profiles


@pytest.mark.parametrize("machine", MACHINES)
def test_a_filter_is_short_and_ends_in_an_answer(machine: str) -> None:
    program = make_filter((2, 10, 16), machine)
    assert program is not None
    assert len(program) % 8 == 0 and len(program) // 8 < 256
    assert program[-8:-6] == b"\x06\x00"


def test_an_unknown_machine_has_no_filter() -> None:
    assert make_filter((), "vax") is None


def test_the_profile_of_macos_quotes_paths() -> None:
    profile = make_profile(Run(["ls"], '/a "b', '/a "b', scratch="/tmp/x"))
    assert '(subpath "/a \\"b")' in profile
    assert "(deny default)" in profile and "network" not in profile


def test_the_profile_of_macos_closes_the_files_of_amplifier_after_it_opens_the_folder() -> None:
    guarded = Guarded((), (), True, {}, {}, fixed=("deep/.venv",), hidden=("data",))
    *_, opened, fixed, hidden, top, above = make_profile(Run(["ls"], "/w", "/w", guarded=guarded)).splitlines()
    assert opened.startswith("(allow file-write*") and '(subpath "/w")' in opened
    assert fixed == '(deny file-write* (subpath "/w/deep/.venv"))'
    assert hidden == '(deny file-read* file-write* (subpath "/w/data"))'
    assert (top, above) == ('(deny file-write-unlink (literal "/w"))', '(deny file-write-unlink (literal "/w/deep"))')
