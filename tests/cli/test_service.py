"""`amplifier service`: what is written for systemd and launchd, and what is asked of them."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_foundation.background.service.units import Service, bundles_of, launchd_plist, systemd_unit
from amplifier_foundation.cli import exits, invoke

STRANGE = 'a b%c$HOME"q\\'
SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$CALLS"
exit ${CODE:-0}
"""

WORKTREES = """---
bundle: {name: w}
providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]
background_sessions: [{name: fix, worktree: merge}]
---
Fix.
"""

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="writes what systemd reads")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's units are."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "systemd" / "user" / "amplifier.service"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a `systemctl` is told that does nothing."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def strange(tmp_path: Path) -> Service:
    folder = tmp_path / STRANGE
    folder.mkdir()
    return Service((str(folder),), (str(folder),), folder / "home", True)


def test_the_unit_says_where_a_path_has_what_a_unit_would_read(tmp_path: Path) -> None:
    unit = systemd_unit(strange(tmp_path)).replace(str(tmp_path), "/t")
    lines = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    assert lines["ExecStart"].endswith(r'''"up" "--" "/t/a b%%c$$HOME\"q\\"''')
    assert lines["Environment"] == r'''"AMPLIFIER_HOME=/t/a b%%c$HOME\"q\\/home"'''
    assert lines["EnvironmentFile"] == r"""-/t/a b%%c$HOME"q\/home/environment"""
    assert lines["ReadWritePaths"].startswith(r""""-/t/a b%%c$HOME\"q\\/home" "-/t/a b%%c$HOME\"q\\" """)
    assert (lines["Type"], lines["WatchdogSec"], lines["Restart"]) == ("notify", "60", "on-failure")
    assert lines["StartLimitIntervalSec"] == "0"  # a failure that lasts is tried again for as long
    assert "RestartPreventExitStatus" not in lines  # a late disk makes a bundle missing, and the data folder unusable
    assert lines["ExecReload"] == "kill -HUP $MAINPID"


def test_a_path_that_no_line_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot stand in a unit"):
        systemd_unit(Service(("/a\nExecStart=/bin/sh",), (), tmp_path, False))


def test_the_bundles_of_a_unit_can_be_read_back(tmp_path: Path) -> None:
    service = strange(tmp_path)
    for text in (systemd_unit(service), launchd_plist(service)):
        assert bundles_of(text) == service.bundles
    for text in ("", "<?xml", "[Service]\nExecStart=/bin/true\n", '[Service]\nExecStart="/bin/tr\n'):
        assert bundles_of(text) == ()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here to ask")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "amplifier.service"
    file.write_text(systemd_unit(strange(tmp_path)))
    (tmp_path / "run").mkdir()
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run"), "SYSTEMD_LOG_LEVEL": "warning"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "amplifier.service" in line]) == (0, [])


def test_launchd_is_told_the_same(tmp_path: Path) -> None:
    service = strange(tmp_path)
    agent = plistlib.loads(launchd_plist(service).encode())
    assert agent["ProgramArguments"][:4] == [sys.executable, "-P", "-m", "amplifier_foundation"]
    assert agent["ProgramArguments"][-2:] == ["--", str(tmp_path / STRANGE)]
    assert agent["EnvironmentVariables"] == {"AMPLIFIER_HOME": str(service.home)}
    assert (agent["KeepAlive"], agent["Umask"]) == ({"SuccessfulExit": False}, 0o077)


def test_printing_does_nothing_else(
    background: Path, home: Path, config: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["service", "install", "--print"]) == exits.OK
    out, err = capsys.readouterr()
    assert err == ""
    assert f'"up" "--" "{background}"\n' in out
    assert f'Environment="AMPLIFIER_HOME={home}"\n' in out
    assert f'ReadWritePaths="-{home}" "-{background.parent}" ' in out
    assert [path.exists() for path in (config, calls)] == [False, False]


def test_a_service_may_write_the_repository_around_a_project_with_worktrees(
    home: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "repository" / "sub"
    project.mkdir(parents=True)
    (project / "bundle.md").write_text(WORKTREES)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=project.parent, check=True)
    assert invoke(["service", "install", "--print", str(project)]) == exits.OK
    writable = f'"-{project}" "-{project.parent}" "-{project.parent}/.git" '
    assert f'ReadWritePaths="-{home}" {writable}' in capsys.readouterr().out


def test_the_bundles_that_another_service_would_stop_running_are_named(
    background: Path, home: Path, config: Path, calls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(background.parent, tmp_path / "other project") / background.name
    assert invoke(["service", "install", str(other), "--yes"]) == exits.OK
    assert invoke(["service", "install", str(other), "--yes"]) == exits.OK
    assert "stops running" not in capsys.readouterr().err
    assert invoke(["service", "install", "--yes"]) == exits.OK
    err = capsys.readouterr().err
    everything = f"amplifier service install '{other}' {background}"
    assert f"The service stops running: {other}\nIt runs all of them with: {everything}\n" in err


def test_it_is_installed_and_uninstalled(
    background: Path, home: Path, config: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["service", "install", "bundle.md", "--yes"]) == exits.OK
    err = capsys.readouterr().err
    assert err.startswith(f"This writes {config}\nand runs:\n  systemctl --user daemon-reload\n")
    assert str(home / "environment") in err
    assert (home.stat().st_mode & 0o777, config.stat().st_mode & 0o777) == (0o700, 0o600)
    assert invoke(["service", "status", "--json"]) == exits.OK
    data = json.loads(capsys.readouterr().out)["data"]
    assert data == {"file": str(config), "installed": True, "active": True, "pid": None, "pids": []}
    assert invoke(["service", "uninstall", "--yes"]) == exits.OK
    assert calls.read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable amplifier.service",
        "--user restart amplifier.service",
        "--user is-active --quiet amplifier.service",
        "--user disable --now amplifier.service",
        "--user daemon-reload",
    ]
    capsys.readouterr()
    assert invoke(["service", "status"]) == exits.OK
    assert "(not installed)" in capsys.readouterr().out
    assert invoke(["service", "uninstall", "--yes"]) == exits.NOT_FOUND


def test_nothing_is_done_that_nobody_agreed_to(background: Path, config: Path, calls: Path) -> None:
    assert invoke(["service", "install"]) == exits.USAGE  # nobody can be asked here
    assert not config.exists()
    assert not calls.exists()


def test_what_systemctl_says_is_told_with_what_is_left_to_do(
    background: Path, config: Path, calls: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODE", "3")
    assert invoke(["service", "install", "--yes"]) == exits.FAILED
    err = capsys.readouterr().err
    assert "systemctl --user daemon-reload: it ended with 3\nFix that, then type:\n" in err
    assert err.endswith("  systemctl --user restart amplifier.service\n")


def test_without_systemctl_it_is_said_what_to_type(
    background: Path, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(config.parent))
    assert invoke(["service", "install", "--yes"]) == exits.OK
    assert "On a system with it, type:\n  systemctl --user daemon-reload\n" in capsys.readouterr().err
    assert config.is_file()


def test_what_cannot_run_is_not_installed(project: Path, home: Path, config: Path) -> None:
    (project / "bundle.md").write_text("---\nbundle: {name: idle}\n---\nAnswer.\n")
    assert invoke(["service", "install", "--yes"]) == exits.USAGE
    assert not config.exists()
