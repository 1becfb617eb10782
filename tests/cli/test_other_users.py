"""The data folder, or a file in it, belongs to another user: the error names that user and the remedy."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.documents.kept import Check, Kept
from amplifier_foundation.paths import make_private, project_of, require_own_files, unusable_error
from amplifier_foundation.sessions.lock import owner_lock
from amplifier_foundation.settings import read_settings

OTHER = 65534
SETPRIV = shutil.which("setpriv")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0 or SETPRIV is None, reason="only root gives files to another user"),
    pytest.mark.slow,
]


CLOSED = ("--bounding-set=-dac_override,-dac_read_search,-fowner,-sys_ptrace",)
CAPABILITIES = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
SERVED = ("--reuid=1234", "--regid=1234", "--clear-groups", "--securebits=+no_setuid_fixup", *CAPABILITIES)
"""Another user, whom the folder lets in nevertheless: `access` heeds the capability, too."""


def as_user(*command: str, privileges: tuple[str, ...] = CLOSED) -> subprocess.CompletedProcess[str]:
    """Run a command, or `-c` some code, to which other users' files are closed."""
    module = [] if command[0] == "-c" else ["-m", "amplifier_foundation"]
    return subprocess.run(
        [str(SETPRIV), *privileges, sys.executable, *module, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", ["up --once", "ps", "stop --all"])
def test_a_lock_of_another_user_is_told_with_its_owner(command: str, background: Path, home: Path) -> None:
    with owner_lock({"projects": [project_of()]}):
        [lock] = (home / "locks").glob("up-*.lock")
    os.chown(lock, OTHER, OTHER)
    done = as_user(*command.split())
    assert done.stderr.startswith(f"amplifier: {lock}: cannot be used (Permission denied): it belongs to ")
    assert done.stderr.count("\n") == 1
    assert f"uid {OTHER}" in done.stderr
    assert "Set AMPLIFIER_HOME to a folder of yours" in done.stderr
    assert done.returncode == exits.USAGE


@pytest.mark.parametrize("command", ["run hi", "up --once", "session list"])
def test_a_data_folder_of_another_user_is_told_once_and_no_plugin_is_blamed(
    command: str, background: Path, home: Path
) -> None:
    make_private(home)
    (home / "settings.yaml").touch()
    os.chown(home, OTHER, OTHER)
    done = as_user(*command.split())
    [line] = done.stderr.splitlines()[-1:]
    assert line.startswith(f"amplifier: {home}: cannot be used (Permission denied): it belongs to ")
    assert "plugin" not in done.stderr
    assert done.returncode == exits.USAGE


@pytest.mark.parametrize(
    ("command", "name"), [("auth list", "keys.json"), ("untrust", "trust.json"), ("bundle list", "registry.json")]
)
def test_nobody_is_told_to_repair_a_file_in_a_data_folder_of_another_user(
    command: str, name: str, background: Path, home: Path
) -> None:
    make_private(home)
    os.chown(home, OTHER, OTHER)
    done = as_user(*command.split())
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"amplifier: {home / name}: cannot be used (Permission denied): {home} belongs to ")
    assert told.endswith("Set AMPLIFIER_HOME to a folder of yours")
    assert done.returncode == exits.USAGE


@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_nothing_is_made_in_an_open_data_folder_of_another_user(mode: int, background: Path, home: Path) -> None:
    home.mkdir()
    os.chown(home, OTHER, 0)
    home.chmod(mode)
    for command in ("up --once", "run hi", "ps"):
        done = as_user(*command.split())
        assert f"amplifier: {home}: cannot be used (Operation not permitted): it belongs to " in done.stderr
        assert (done.returncode, [*home.iterdir()]) == (exits.USAGE, [])


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("settings.yaml", "run hi"),
        ("settings.yaml", "config set max_subprocess 3"),
        ("skills", "permission test bash(rm)"),
    ],
)
def test_what_another_user_put_into_the_data_folder_is_not_obeyed(
    name: str, command: str, background: Path, home: Path
) -> None:
    home.mkdir(0o777)
    planted = home / name
    if planted.suffix:
        planted.write_text("permissions: {allow: ['bash(*)']}\n")
    else:
        planted.mkdir()
    os.chown(planted, OTHER, OTHER)
    for _ in range(2):  # the folder is private the second time
        done = as_user(*command.split())
        [line] = done.stderr.splitlines()[-1:]
        assert line.startswith(f"amplifier: {planted}: belongs to ")
        assert line.endswith("Remove it, as root if you may not, or set AMPLIFIER_HOME to a folder of yours")
        assert (done.returncode, done.stdout) == (exits.USAGE, "")
    assert "is not obeyed" in as_user("doctor", "--json").stdout
    assert planted.stat().st_uid == OTHER


def test_files_of_another_user_are_found_while_others_vanish(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(0o700)
    for name in ("gone", "settings.yaml"):
        (home / name).touch()
    os.chown(home / "settings.yaml", OTHER, OTHER)
    scandir = os.scandir

    def scan_late(folder: Path) -> Any:
        with scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        (home / "gone").unlink()
        return nullcontext(found)

    monkeypatch.setattr(os, "scandir", scan_late)
    with pytest.raises(StoreUnavailable, match="settings.yaml: belongs to"):
        require_own_files()


LOOKS = """
from pathlib import Path
from amplifier_foundation.security.checkup import check_files
from amplifier_foundation.security.trust_ledger import Ledger
from amplifier_foundation.settings import read_settings
print(read_settings().get("max_subprocess"), [each.state for each in check_files(Path())], Ledger().begun > 1)
"""


def test_a_private_data_folder_on_a_mount_with_one_owner_for_all_is_used(background: Path, home: Path) -> None:
    for command in (("config", "set", "max_subprocess", "7"), ("trust", "--yes"), ("session", "list")):
        assert as_user(*command).returncode == exits.OK
    for path in (home, *home.rglob("*")):  # as the mount shows them
        os.chown(path, OTHER, OTHER)
    done = as_user("-c", LOOKS, privileges=SERVED)
    assert (done.stdout, done.stderr) == ("7 ['ok'] True\n", "")


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_nobody_is_told_to_remove_a_store_of_another_user(mode: int, home: Path) -> None:
    make_private(home)
    for name in ("amplifier.db", "settings.yaml"):
        (home / name).touch()
        os.chown(home / name, OTHER, OTHER)
    os.chown(home, *((OTHER, OTHER) if mode != 0o700 else (4321, 4321)))
    home.chmod(mode)
    done = as_user("config", "get", "max_subprocess", privileges=SERVED)
    assert done.stderr.startswith(f"amplifier: {home}/amplifier.db: belongs to ")
    assert done.stderr.endswith("is not obeyed. Set AMPLIFIER_HOME to a folder of yours\n")
    assert done.returncode == exits.USAGE


@pytest.mark.parametrize("command", [("export", "last"), ("tree", "--format", "html")])
def test_a_session_is_written_into_a_file_of_another_user_with_a_warning(
    command: tuple[str, ...], background: Path, home: Path
) -> None:
    assert as_user("run", "hi").returncode == exits.OK
    file = background.with_name("shared")
    file.touch()
    file.chmod(0o666)
    os.chown(file, OTHER, OTHER)
    done = as_user("session", *command, "-o", str(file))
    assert f"amplifier: {file} stays open to others: its mode cannot be changed" in done.stderr
    assert (done.returncode, stat.S_IMODE(file.stat().st_mode)) == (exits.OK, 0o666)
    assert file.stat().st_size > 0


def test_what_another_user_kept_of_a_check_is_not_believed(home: Path, tmp_path: Path) -> None:
    make_private(home)
    file = tmp_path / "checked.yaml"
    check = Check("test", (file,))
    file.touch()
    check.keep(file, "its content", {"planted": True})
    assert check.find(file, "its content") == Kept({"planted": True})
    [entry] = (home / "cache" / "test").iterdir()
    os.chown(entry, OTHER, OTHER)
    assert check.find(file, "its content") is None


def test_settings_of_root_are_obeyed_and_root_obeys_those_of_the_user_whose_folder_it_uses(
    home: Path, project: Path, amplifier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_private(home)
    (home / "settings.yaml").write_text("max_subprocess: 7\n")
    with monkeypatch.context() as context:
        context.setattr(os, "geteuid", lambda: OTHER)
        assert read_settings().get("max_subprocess") == 7
    for path in (home, home / "settings.yaml"):
        os.chown(path, OTHER, OTHER)
    assert amplifier("config", "get", "max_subprocess").stdout == "7\n"


def test_the_doctor_names_files_of_another_user(background: Path, home: Path) -> None:
    make_private(home / "locks")
    (home / "locks" / "up-1.lock").touch(0o600)
    os.chown(home / "locks" / "up-1.lock", OTHER, OTHER)
    done = as_user("doctor", "--json")
    assert done.returncode == exits.FAILED
    assert f"{home}/locks/up-1.lock belongs to another user" in done.stdout
    assert "Set AMPLIFIER_HOME to a folder of yours" in done.stdout
    assert "chown" not in done.stdout  # nobody is told to make a folder root's


@pytest.mark.parametrize("command", ["run hi", "ps", "doctor"])
def test_a_data_folder_below_a_closed_folder_is_an_error_of_its_own(
    command: str, background: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    os.chown(closed, OTHER, OTHER)
    monkeypatch.setenv("AMPLIFIER_HOME", str(closed / "home"))
    done = as_user(*command.split())
    said = done.stdout if command == "doctor" else done.stderr
    assert "cannot be used (Permission denied). Make it writable, or set AMPLIFIER_HOME" in " ".join(said.split())
    assert done.returncode == (exits.FAILED if command == "doctor" else exits.USAGE)


def test_a_process_of_another_user_is_not_taken_for_ended(home: Path) -> None:
    lock = make_private(home / "processes") / "1-a.lock"
    lock.touch(0o600)
    os.chown(lock, OTHER, OTHER)
    done = as_user("-c", "from amplifier_foundation.sessions.presence import is_gone; print(is_gone('1-a'))")
    assert (done.stdout, lock.exists()) == ("False\n", True)


KEEPS_ITS_FILES = """
import ctypes, sys
from amplifier_foundation.sessions.lock import owner_lock
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/PID/fd is closed to others
with owner_lock({"projects": ["/p"]}):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_process_that_keeps_its_files_to_itself_is_not_taken_for_a_missing_one(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KEEPS_ITS_FILES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        look = "from amplifier_foundation.sessions.lock import is_missing, running_owner"
        done = as_user("-c", f"{look}; print(is_missing(running_owner('/p')))")
        process.communicate()
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_what_root_left_in_a_folder_of_yours_is_made_yours(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_private(home / "run")
    os.chown(home.parent, OTHER, OTHER)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    error = unusable_error(home / "run" / "1.sock", PermissionError(13, "Permission denied"))
    assert f"{home}/run belongs to root (uid 0). Make it yours: sudo chown -R {OTHER}:" in str(error)
    os.chown(home.parent, 0, 0)  # nobody is told to take `/etc`
    error = unusable_error(home / "run" / "1.sock", PermissionError(13, "Permission denied"))
    assert "chown" not in str(error)


def test_root_makes_the_folders_above_the_data_folder_for_the_user_of_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "user"
    home.mkdir()
    os.chown(home, OTHER, OTHER)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("AMPLIFIER_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert invoke(["session", "list"]) == exits.OK
    assert "who cannot use what root makes in it" in capsys.readouterr().err
    owners = {each.name: each.stat().st_uid for each in (home / ".local", home / ".local/share")}
    assert owners == {".local": OTHER, "share": OTHER}


def test_root_is_warned_in_the_data_folder_of_a_user(
    background: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_private(home)
    os.chown(home, OTHER, OTHER)
    assert invoke(["ps"]) == exits.OK
    assert "who cannot use what root makes in it. Run amplifier as that user" in capsys.readouterr().err
