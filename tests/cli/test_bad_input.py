"""What a person is told who makes a mistake: one line, the right exit code, no traceback."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import errors
from amplifier_foundation.cli import cli, exits, invoke
from tests import forks

pytestmark = [pytest.mark.usefixtures("home", "project"), pytest.mark.slow]

HEAD = "---\nbundle: {name: x}\n"


def write(text: str, name: str = "bundle.md") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = invoke(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return code, err


def session_section(text: str) -> str:
    return f"{HEAD}background_sessions:\n{text}---\nWork.\n"


def test_no_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["up"], ["bundle", "show"], ["trigger", "list"]):
        code, err = refused(capsys, *command)
        assert code == exits.NOT_FOUND
        assert "bundle.md" in err
    assert refused(capsys, "up", "missing.md")[0] == exits.NOT_FOUND


def test_a_bundle_that_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bundle.md").write_bytes(b"\xff\xfe\x00bundle")
    code, err = refused(capsys, "up")
    assert code == exits.USAGE
    assert err.startswith("amplifier: bundle.md:")


def test_a_bundle_with_a_mistake_is_told_line_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    write(session_section("  - name: a\n    pool_sizes: 3\n"))
    code, err = refused(capsys, "up")
    assert code == exits.USAGE
    assert (
        "bundle.md:5:5: error[AMP102] background_sessions[0].pool_sizes: unknown key; did you mean 'pool_size'?" in err
    )


@pytest.mark.parametrize(
    ("section", "wanted", "remedy"),
    [
        (
            "background_sessions:\n  - name: a\n    triggers: [{module: trigger-timr}]\n",
            "unknown trigger 'trigger-timr'; did you mean 'trigger-timer'? Installed: ",
            "did you mean",
        ),
        ("providers: [{module: provider-nobody}]\n", "unknown provider 'provider-nobody'", "'package: NAME'"),
        ("tools: [{module: tool-x, package: their-x}]\n", "unknown tool 'tool-x'", "pip install their-x"),
    ],
)
def test_an_unknown_name_names_what_is_installed_and_the_remedy(
    section: str, wanted: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(f"{HEAD}{section}---\nWork.\n")
    for command in (["up"], ["run", "hello"], ["bundle", "validate"]):
        code, err = refused(capsys, *command)
        if command == ["up"] and "background_sessions" not in section:
            assert code == exits.USAGE
            continue
        assert code == exits.USAGE
        assert wanted in err
        assert remedy in err
        assert "pip install amplifier-" not in err


def test_two_sections_of_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    write(session_section("  - {name: same}\n  - {name: same}\n"))
    code, err = refused(capsys, "up")
    assert code == exits.USAGE
    assert "bundle.md:5:" in err
    assert "same" in err
    write(f"{HEAD}tools: []\ntools: []\n---\n")
    code, err = refused(capsys, "bundle", "validate")
    assert code == exits.USAGE
    assert "bundle.md:4:1: error[AMP206]" in err


def test_a_trigger_path_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    write(session_section("  - name: a\n    triggers:\n      - {module: trigger-file-watcher, config: {path: 5}}\n"))
    code, err = refused(capsys, "-q", "up")
    assert code == exits.USAGE
    assert "path" in err


def test_a_bundle_without_background_sessions_has_nothing_to_bring_up(capsys: pytest.CaptureFixture[str]) -> None:
    write(f"{HEAD}---\nWork.\n")
    code, err = refused(capsys, "up")
    assert code == exits.USAGE
    assert "declares no background_sessions" in err


def test_a_data_folder_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "file" / "home"))
    code, err = refused(capsys, "session", "list")
    assert code == exits.TRY_AGAIN
    assert "AMPLIFIER_HOME" in err
    assert str(tmp_path / "file" / "home") in err


@pytest.mark.parametrize("name", ["locks", "run", "processes"])
def test_a_file_in_place_of_a_folder_of_the_data_folder_is_named_and_left_alone(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir(0o700, exist_ok=True)
    stray = home / name
    stray.write_text("of somebody")
    stray.chmod(0o644)
    write(f"{HEAD}background_sessions: [{{name: one}}]\n---\nWork.\n")
    code, err = refused(capsys, "up", "--once")
    assert code == exits.TRY_AGAIN
    assert f"{stray}: is a file, where a folder is needed" in err
    assert (stray.stat().st_mode & 0o777, stray.read_text()) == (0o644, "of somebody")


AS_NOBODY = """
import os, sys
from pathlib import Path
from amplifier_foundation.cli import invoke
os.environ["AMPLIFIER_HOME"] = sys.argv[1] + "/open"
assert invoke(["session", "list"]) == 0  # everything is imported now, while it may be read
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)  # root may write everywhere
os.environ["AMPLIFIER_HOME"] = sys.argv[1] + sys.argv[2]
os.chdir(sys.argv[1])
sys.exit(invoke(["session", "list"]))
"""


@pytest.mark.parametrize(
    ("locked", "mode", "data_folder", "told"),
    [
        ("locked", 0o555, "/locked/home", "/locked/home: cannot be used (Permission denied). Make it writable, or set"),
        (".amplifier", 0, "/open", "/.amplifier cannot be used (Permission denied). Make it readable and writable"),
    ],
)
def test_a_folder_that_is_closed_to_its_user(locked: str, mode: int, data_folder: str, told: str) -> None:
    folder = Path(tempfile.mkdtemp())  # outside tmp_path, whose parents only their owner may enter
    folder.chmod(0o777)
    (folder / locked).mkdir(mode=mode)
    try:
        command = [sys.executable, "-c", AS_NOBODY, folder, data_folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        (folder / locked).chmod(0o700)
        shutil.rmtree(folder)
    assert done.returncode == exits.USAGE, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"amplifier: {folder}{told}")


def test_a_damaged_store_is_said_and_left_as_it_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    store = home / "amplifier.db"
    store.write_bytes(b"this is no database, and must not be overwritten " * 100)
    before = store.read_bytes()
    code, err = refused(capsys, "session", "list")
    assert code == exits.FAILED
    assert str(store) in err
    assert store.read_bytes() == before


@pytest.mark.parametrize("session_id", ["../escape", "a b", "NUL", "", "x" * 200, "a\nb", "é", "-begins"])
def test_hostile_session_ids_are_refused(session_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(capsys, "session", "show", "--", session_id)
    assert code == exits.USAGE
    assert "not a session id" in err


def test_an_unknown_session_and_one_that_is_not_unique(capsys: pytest.CaptureFixture[str]) -> None:
    write(
        f"{HEAD}providers: [{{module: provider-playbook, config: {{otherwise: {{say: ok}}}}}}]\n---\n".replace(
            "x}", "twice}"
        )
    )
    assert refused(capsys, "session", "show", "absent")[0] == exits.NOT_FOUND
    assert invoke(["run", "one"]) == invoke(["run", "two"]) == exits.OK
    code, err = refused(capsys, "session", "show", "twice")
    assert code == exits.CONFLICT
    assert "Type more of the id" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sesion"], "Did you mean 'session'?"),
        (["run", "--resume", "abcd", "--fork", "abcd", "x"], "exclude each other"),
        (["run", "--fork", "abcd@x", "hello"], "the number of a turn"),
        (["run", "  "], "the prompt is empty"),
        (["trigger", "fire", "a", "--data", "{"], "--data is not JSON"),
        (["trigger", "fire", "a", "--data", '{"n": NaN}'], "--data is not JSON: data.n: nan"),
        (["trigger", "fire", "a", "--data", "[1]"], "must be a JSON object"),
        (["--no-such-option"], "No such option"),
        (["run", "-q", "hello"], "It stands before the command: amplifier -q run"),
    ],
)
def test_usage_errors_end_with_4(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(capsys, *arguments)
    assert code == exits.USAGE
    assert told in err


@pytest.mark.parametrize(
    "command", ["session list -n", "logs -n", "memory list --limit", "issue list --limit", "session import -n"]
)
def test_a_limit_that_no_store_can_count_to_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(capsys, *command.split(), "9" * 23)
    assert (code, "is not in the range" in err) == (exits.USAGE, True)


@pytest.mark.parametrize(
    "command",
    [
        *("trigger simulate --days", "stop --timeout", "host drain one --timeout", "plugin check one --timeout"),
        *("mcp test one --within", "mcp add one --timeout"),
    ],
)
def test_a_number_that_is_none_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(capsys, *command.split(), "nan")
    assert (code, "'nan' is not a number" in err) == (exits.USAGE, True)


def test_a_turn_that_fails_is_one_line_and_its_session_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    write(f"{HEAD}providers: [{{module: provider-playbook, config: {{rules: []}}}}]\n---\n")
    code, err = refused(capsys, "run", "hello")
    assert code == exits.FAILED
    assert "no rule" in err
    assert len(err.splitlines()) == 1
    capsys.readouterr()
    assert invoke(["session", "list"]) == exits.OK
    assert "failed" in capsys.readouterr().out


def test_safe_mode_loads_no_plugin_and_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(capsys, "--safe-mode", "session", "list")
    assert code == exits.NOT_FOUND
    assert "this plugin is not loaded. Leave out --safe-mode" in err


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["--debug", "session", "show", "absent"]) == exits.NOT_FOUND
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, exits.TERMINATED)])
def test_a_signal_ends_up_cleanly(number: signal.Signals, code: int, home: Path) -> None:
    text = session_section("  - {name: a, triggers: [{module: trigger-timer, config: {interval_seconds: 3600}}]}\n")
    write(text.replace("background_sessions", "providers: [{module: provider-playbook}]\nbackground_sessions"))
    with forks.Popen(["up"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C stops" in line:
                break
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (code, "")


def test_what_others_named_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bundle = write(
        "---\nbundle: {name: 'ñ. name of a bundle'}\n"
        "providers: [{module: provider-playbook, config: {otherwise: {say: '{prompt}'}}}]\n"
        "background_sessions: [{name: a, triggers: [{module: trigger-file-watcher, config: {debounce_ms: 0}}]}]\n---\n"
    )
    assert invoke(["up", "--once", str(bundle)]) == exits.OK
    Path("a\x1b[31m\nb").touch()
    assert invoke(["up", "--once", str(bundle)]) == exits.OK
    assert invoke(["session", "tree"]) == exits.OK
    assert invoke(["-q", "run", "-b", str(bundle), "\x1b]0;title\x07"]) == exits.OK
    assert invoke(["session", "list", "--json"]) == exits.OK
    out = capsys.readouterr().out
    assert "woken by file a\N{REPLACEMENT CHARACTER}[31m b created" in out
    [session] = [each for each in json.loads(out[out.rindex('{\n  "schema"') :])["data"] if each["turn_count"] == 1][:1]
    assert invoke(["session", "show", session["session_id"]]) == exits.OK
    shown = capsys.readouterr().out
    assert "\N{REPLACEMENT CHARACTER}]0;title" in shown
    assert "\x1b" not in shown
    assert invoke(["session", "export", session["session_id"], "--format", "markdown"]) == exits.OK
    assert capsys.readouterr().out.count("\N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}") == 2


def test_an_answer_cannot_steer_the_terminal_at_the_end_of_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    bundle = write(
        "---\nbundle: {name: echo}\n"
        "providers: [{module: provider-playbook, config: {otherwise: {say: '{prompt}'}}}]\n---\n"
    )
    prompt = "\x1b]0;title\x07\r\nsafe \u202eelif\u202c"
    assert invoke(["-q", "run", "-b", str(bundle), prompt]) == exits.OK
    assert capsys.readouterr().out == "\ufffd]0;title\ufffd\nsafe \ufffdelif\ufffd\n"
    assert invoke(["-q", "run", "-b", str(bundle), "--json", prompt]) == exits.OK
    out = capsys.readouterr().out
    assert json.loads(out)["data"]["output"] == prompt
    assert not {"\x1b", "\x07", "\u202e", "\u202c"} & set(out)


@pytest.mark.parametrize(("text", "enough"), [("4d6", "; type 4 characters of its id, or more"), ("4d68", "")])
def test_a_beginning_of_an_id_that_is_too_short_is_told(
    text: str, enough: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["approvals", "approve", text]) == exits.NOT_FOUND
    assert capsys.readouterr().err == f"amplifier: no approval '{text}' waits{enough}. See: amplifier approvals list\n"


@pytest.mark.parametrize("command", [["ps"], ["run", "hello"], ["doctor"], ["approvals", "list"]])
def test_a_current_folder_that_is_gone_is_told(command: list[str], tmp_path: Path) -> None:
    code = "import os, shutil, sys; os.chdir(sys.argv.pop(1)); shutil.rmtree(os.getcwd()); "
    code += "from amplifier_foundation.cli import main; main()"
    gone = tmp_path / "gone"
    gone.mkdir()
    ran = subprocess.run([sys.executable, "-c", code, gone, *command], capture_output=True, text=True, check=False)
    told = "amplifier: the current folder was deleted or moved. Change to another one: cd\n"
    assert (ran.returncode, ran.stderr) == (exits.NOT_FOUND, told)


NO_ROOM = "output cannot be written (No space left on device). Free some space and try again"
DONE = "it is done, but a part of the output could not be written (No space left on device)"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("session list --json", exits.TRY_AGAIN, f"the {NO_ROOM}"),
        ("--version", exits.TRY_AGAIN, f"the {NO_ROOM}"),
        ("dashboard --port 0", exits.TRY_AGAIN, f"the {NO_ROOM}"),
        ("run --help", exits.TRY_AGAIN, f"the {NO_ROOM}"),
        ("up --dry-run", exits.TRY_AGAIN, f"the {NO_ROOM}"),
        ("service install --print", exits.TRY_AGAIN, f"the {NO_ROOM}"),
        ("up --once", exits.UNREPORTED, DONE),
    ],
)
def test_an_output_without_room_is_one_line(
    command: str, code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    write(session_section("  - name: a\n"))
    with open("/dev/full", "w") as full:  # noqa: PTH123 - the file must not be made
        program = [sys.executable, "-m", "amplifier_foundation", *command.split()]
        ran = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (code, f"amplifier: {told}")


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
from amplifier_foundation.cli import main
main()
"""


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("docs command", "the output cannot be written (File too large). Raise the limit of the size of files: "),
        ("ps", "amplifier.db: this process may write no larger file; what was acknowledged is kept. Raise the limit: "),
    ],
)
def test_a_limit_of_the_size_of_files_is_told_with_its_remedy(command: str, told: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        program = [sys.executable, "-B", "-c", LIMITED, *command.split()]
        ran = subprocess.run(program, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, told in ran.stderr) == (exits.TRY_AGAIN, True), ran.stderr


def test_one_cause_has_one_code_and_its_remedy() -> None:
    full, closed = OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EACCES, "Permission denied", "x")
    read_only = OSError(errno.EROFS, "Read-only file system", "x")
    for error, code, remedy in (
        (full, exits.TRY_AGAIN, "a file cannot be written (No space left on device). Free some space and try again"),
        (closed, exits.USAGE, "x cannot be used (Permission denied). Make it readable and writable, or choose "),
        (read_only, exits.TRY_AGAIN, "x cannot be used (Read-only file system). Make it readable and writable, or "),
    ):
        wrapped = errors.StoreUnavailable("/x", "cannot be used")
        wrapped.__cause__ = error
        assert (exits.exit_code(error), exits.exit_code(wrapped)) == (code, code)
        assert (exits.explain_system(error) or "").startswith(remedy)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_file_without_room_is_no_mistake_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    write(session_section("  - name: a\n"))
    code, err = refused(capsys, "bundle", "schema", "-o", "/dev/full")
    told = "amplifier: /dev/full cannot be written: No space left on device. Free some space and try again\n"
    assert (code, err) == (exits.TRY_AGAIN, told)


def test_an_error_of_a_task_beside_others_is_told_as_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: Any) -> None:
        error = OSError(errno.EMFILE, "Too many open files")
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [error])])

    monkeypatch.setattr(cli, "callback", fail)
    assert refused(capsys, "ps") == (exits.TRY_AGAIN, "amplifier: Too many open files. Raise the limit: ulimit -n\n")


@pytest.mark.parametrize("command", [["run"], ["run", "read"], ["run", b"hi \xff"]])
@pytest.mark.parametrize("locale", ["C.UTF-8", "POSIX"])
def test_bytes_of_a_prompt_that_are_not_utf_8_are_told(command: list[str | bytes], locale: str) -> None:
    write(HEAD + "providers: [{module: provider-playbook, config: {otherwise: {say: '{prompt}'}}}]\n---\nHear.\n")
    ran = subprocess.run(
        [sys.executable, "-m", "amplifier_foundation", *command],
        input=b"" if isinstance(command[-1], bytes) else "h\u00e9 ".encode() + b"\xff",
        env={**os.environ, "LC_ALL": locale, "AMPLIFIER_TRUST": "1"},
        capture_output=True,
        check=False,
    )
    told = "amplifier: the prompt has bytes that are not UTF-8; they are sent as \ufffd"
    assert (ran.returncode, ran.stderr.decode().splitlines()[0]) == (exits.OK, told)
    assert "\ufffd" in ran.stdout.decode()
    assert isinstance(command[-1], bytes) or "h\u00e9" in ran.stdout.decode()


@pytest.mark.parametrize("command", [["run"], ["run", "-"], ["run", "read"]])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_the_mark_at_the_begin_of_a_text_is_no_part_of_it(command: list[str], encoding: str) -> None:
    write(HEAD + "providers: [{module: provider-playbook, config: {otherwise: {say: '{prompt}'}}}]\n---\nHear.\n")
    ran = subprocess.run(
        [sys.executable, "-m", "amplifier_foundation", *command, "--json"],
        input="h\u00e9 \u65e5\r\n\u0d0a".encode(encoding),
        env={**os.environ, "LC_ALL": "POSIX", "AMPLIFIER_TRUST": "1"},
        capture_output=True,
        check=False,
    )
    heard = json.loads(ran.stdout)["data"]["output"]
    assert (ran.returncode, "\ufeff" in heard, "h\u00e9 \u65e5\r\n\u0d0a" in heard) == (exits.OK, False, True)
    assert b"not UTF-8" not in ran.stderr


def test_the_development_mode_of_python_shows_no_slow_callbacks() -> None:
    write(HEAD + "providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]\n---\nHear.\n")
    ran = subprocess.run(
        [sys.executable, "-m", "amplifier_foundation", "run", "hi"],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONASYNCIODEBUG": "1", "AMPLIFIER_TRUST": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (exits.OK, "hi\n")
    assert "Executing" not in ran.stderr


@pytest.mark.parametrize("arguments", [("run", "hi"), ("up",)])
def test_a_limit_of_the_system_is_told_with_its_remedy(arguments: Sequence[str]) -> None:
    write(HEAD + "providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]\n---\nHear.\n")
    code = "import threading; threading.stack_size(1 << 47); from amplifier_foundation.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "AMPLIFIER_TRUST": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == exits.TRY_AGAIN
    assert "no thread or process can be started. End other processes, or raise the limits: ulimit -u, " in ran.stderr
    assert exits.exit_code(MemoryError()) == exits.TRY_AGAIN
    assert exits.exit_code(OSError(errno.EMFILE, "Too many open files")) == exits.TRY_AGAIN


def test_every_exit_code_has_its_meaning_and_every_error_its_code() -> None:
    codes: dict[str, Any] = {name: value for name, value in vars(exits).items() if name.isupper() and name[0] != "_"}
    codes.pop("BY_SIGNAL")
    codes.pop("MEANINGS")
    codes.pop("READING")
    codes.pop("REPEATABLE")
    assert sorted(codes.values()) == sorted(exits.MEANINGS)
    assert exits.exit_code(errors.StoreUnavailable("/x", "full")) == exits.TRY_AGAIN
    assert exits.exit_code(errors.SessionNotFound("x")) == exits.NOT_FOUND
    assert exits.exit_code(errors.SessionExists("x")) == exits.CONFLICT
    assert exits.exit_code(RuntimeError()) == exits.FAILED
    assert exits.exit_code(OSError(errno.ENOSPC, "No space left on device")) == exits.TRY_AGAIN


def test_the_empty_id_of_a_variable_that_is_not_set_is_no_new_session(capsys: pytest.CaptureFixture[str]) -> None:
    write(session_section("  - name: a\n"))
    for command in (["run", "--resume", "", "hi"], ["run", "--fork", "", "hi"], ["session", "resume", "", "hi"]):
        code, err = refused(capsys, *command)
        assert (code, "the id of the session is empty" in err) == (exits.USAGE, True)
    assert refused(capsys, "session", "tree", "")[0] == exits.USAGE


def test_a_descriptor_that_is_closed_to_this_user_is_no_file_of_the_data_folder() -> None:
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), 3)
    assert (exits.find_closed(error), exits.exit_code(error)) == (None, exits.FAILED)
