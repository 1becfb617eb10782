"""A module with `sandbox: true` runs in a process in a sandbox: what it may do, what it may not, and what is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_core.plugins import Plugins, load_plugins
from amplifier_foundation import hookspecs, run_session_in_subprocess
from amplifier_foundation.bundle.model import Bundle
from amplifier_foundation.bundle.prepared import PreparedBundle
from amplifier_foundation.isolation import sandboxed_process
from amplifier_foundation.isolation.process_table import find_below
from amplifier_foundation.isolation.runner import SubprocessRunner
from amplifier_foundation.isolation.sandboxed_process import ToolProcessEnded
from amplifier_foundation.settings.keys import keep_key
from amplifier_sandbox import choosing, landlock
from tests.programs import require

from .conftest import ACTING, until_it_exists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Open = Callable[..., Awaitable[AmplifierSession]]

pytestmark = pytest.mark.slow

PATIENCE = 30.0
OTHERWISE = [{"module": "provider-playbook", "config": {"otherwise": {"say": "Ready."}}}]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working folder."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the working folder."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    return tmp_path / "outside"


@pytest.fixture(params=["bubblewrap", "landlock"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The sandbox that is found: bubblewrap, or Landlock where there is no bubblewrap."""
    monkeypatch.setattr(choosing, "_results", {})
    if request.param == "bubblewrap":
        require("bwrap")
    elif landlock.find_version() == 0:
        pytest.skip("this kernel has no Landlock")
    else:
        monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    return str(request.param)


@pytest.fixture
def bwrap() -> None:
    """Skip without bubblewrap."""
    require("bwrap")


@pytest.fixture
async def open_session(work: Path, tmp_path: Path) -> AsyncIterator[Open]:
    """Return a session with the module `source`, in a sandbox; each ends, and leaves no process."""
    sessions: list[AmplifierSession] = []
    before = set(find_below([os.getpid()]))

    async def open_session(source: str = ACTING, session: Any = None, **options: Any) -> AmplifierSession:
        path = tmp_path / "act.py"
        path.write_text(source)
        entry = {"module": "tool-act", "source": str(path), "sandbox": True}
        bundle = Bundle(name="work", session=session or {}, providers=OTHERWISE, tools=[entry])
        made = await PreparedBundle.of(bundle).create_session(session_cwd=work, **options)
        sessions.append(made)
        return made

    yield open_session
    for each in sessions:
        await each.cleanup()
    async with asyncio.timeout(PATIENCE):  # what a killed process leaves ends a moment later
        while not set(find_below([os.getpid()])) <= before:
            await asyncio.sleep(0.005)


async def act(session: AmplifierSession, code: str) -> Any:
    """Run code in the sandbox, in the body of an async function; return its text."""
    return (await session.coordinator.get("tools", "act").execute({"code": code})).output


def why_missing(session: AmplifierSession) -> str:
    [failure] = session.load_failures
    assert session.coordinator.get("tools") == {}
    return failure.error


# what holds

WAYS = {
    "a file outside is written": "open('{outside}/new', 'w')",
    "a file outside is read": "open('{outside}/secret').read()",
    "a file outside is reached through a link": "os.symlink('{outside}', 'l'); open('l/secret').read()",
    "a key is read": "open('{home}/.ssh/id_rsa').read()",
    "the environment of the session is read": "open('/proc/{pid}/environ').read()",
    "the memory of the session is read": "open('/proc/{pid}/mem', 'rb')",
    "a service is reached": "socket.create_connection(('127.0.0.1', {port}), 5)",
    "a Unix socket is opened": "socket.socket(socket.AF_UNIX)",
    "the session is signalled": "os.kill({pid}, 0)",
    "the system is written": "open('/usr/new', 'w')",
    "code of the program is written": "open(sys.modules['amplifier_core'].__file__, 'a')",
    "a hook of git is written": "open('.git/hooks/pre-commit', 'w')",
    "settings of git are written": "open('.git/config', 'a')",
    "the bundle is written": "open('bundle.md', 'a')",
    "a repository is moved": "os.rename('.git', 'g')",
}
GUARDED = {name for name in WAYS if name.startswith(("a hook of git", "settings of git", "the bundle", "a repository"))}
"""What Landlock does not cover: it guards no file within a folder that is open."""


@pytest.mark.parametrize(
    ("kind", "way"),
    [(kind, way) for kind in ("bubblewrap", "landlock") for way in WAYS if kind == "bubblewrap" or way not in GUARDED],
    indirect=["kind"],
)
async def test_no_tool_gets_out(
    way: str, kind: str, open_session: Open, work: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text("key\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    subprocess.run([require("git") if kind == "bubblewrap" else "git", "init", "-q", str(work)], check=True)
    (work / "bundle.md").write_text("mine")
    with socket.create_server(("127.0.0.1", 0)) as server:
        facts = {"outside": outside, "home": tmp_path / "home", "pid": os.getpid(), "port": server.getsockname()[1]}
        session = await open_session()
        code = f"import os, socket, sys\ntry:\n    {WAYS[way].format(**facts)}\nexcept OSError:\n    return 'blocked'"
        assert await act(session, code) == "blocked"
    assert [each.name for each in outside.iterdir()] == ["secret"]


async def test_its_environment_has_no_secrets(kind: str, open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    monkeypatch.setenv("MY_SETTING", "canary")
    environment = await act(await open_session(), "import os; return dict(os.environ)")
    assert "canary" not in environment
    assert "'PATH'" in environment


async def test_it_works_in_the_working_folder(kind: str, open_session: Open, work: Path) -> None:
    (work / "a").write_text("one")
    code = "import os\nopen('b', 'w').write(open('a').read() + ' two')\nreturn os.getcwd()"
    assert await act(await open_session(), code) == str(work)
    assert (work / "b").read_text() == "one two"


async def test_it_may_start_programs_and_use_temporary_files(kind: str, open_session: Open) -> None:
    code = """
import asyncio, tempfile
with tempfile.NamedTemporaryFile() as file:
    process = await asyncio.create_subprocess_exec("ls", file.name, stdout=-1)
    said, _ = await process.communicate()
    return said.decode().strip() == file.name
"""
    assert await act(await open_session(), code) == "True"


async def test_a_secret_of_the_working_folder_is_empty_and_a_new_one_too(
    bwrap: None, open_session: Open, work: Path
) -> None:
    (work / ".env").write_text("A=1")
    session = await open_session()
    assert await act(session, "return open('.env').read()") == ""
    (work / "sub").mkdir()
    (work / "sub" / ".env").write_text("B=2")
    assert await act(session, "return open('sub/.env').read()") == ""


async def test_a_rule_of_the_person_releases_a_guarded_file(bwrap: None, open_session: Open, work: Path) -> None:
    (work / ".env").write_text("A=1")
    own = parse_permissions({"allow": ["act(.env)"]}, "mine", is_own=True)
    assert await act(await open_session(permissions=Policy([own])), "return open('.env').read()") == "A=1"
    bundles = parse_permissions({"allow": ["act(.env)"]}, "theirs")
    assert await act(await open_session(permissions=Policy([bundles])), "return open('.env').read()") == ""


async def test_a_new_repository_that_would_run_programs_is_moved_aside(
    kind: str, open_session: Open, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = """
import os
os.makedirs('.git/hooks')
for name in ('HEAD', 'config', 'hooks/pre-commit'):
    open('.git/' + name, 'w').write('[core] fsmonitor = x')
"""
    await act(await open_session(), code)
    assert not (work / ".git").exists()
    assert ".git would run programs on your machine" in caplog.text


# the process


async def test_calls_run_side_by_side(bwrap: None, open_session: Open) -> None:
    session = await open_session()
    waits = "import asyncio, os\nwhile not os.path.exists('go'):\n    await asyncio.sleep(0.01)\nreturn 'went'"
    waiting = asyncio.create_task(act(session, waits))
    await act(session, "open('go', 'w')")
    assert await waiting == "went"


async def test_the_parent_never_imports_the_module(bwrap: None, open_session: Open, tmp_path: Path) -> None:
    session = await open_session()
    assert "act" in await act(session, "import sys; return [str(m.__file__) for m in vars(sys)['modules'].values() "
                              "if getattr(m, '__file__', '') and 'act.py' in str(m.__file__)]")  # fmt: skip
    files = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
    assert str(tmp_path / "act.py") not in files
    assert str(tmp_path) not in sys.path


async def test_the_process_of_an_installed_module_alone_imports_it(bwrap: None, work: Path) -> None:
    code = f"""
import asyncio, sys
from amplifier_foundation.bundle.model import Bundle
from amplifier_foundation.bundle.prepared import PreparedBundle

async def main():
    bundle = Bundle(name="b", tools=[{{"module": "tool-filesystem", "sandbox": True}}])
    session = await PreparedBundle.of(bundle).create_session(session_cwd={str(work)!r})
    result = await session.coordinator.get("tools", "write_file").execute({{"file_path": "a", "content": "x"}})
    await session.cleanup()
    print(result.success, [name for name in sys.modules if name.startswith("amplifier_tool_filesystem")])

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n", done.stderr
    assert (work / "a").read_text() == "x"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os._exit(7)", "exit code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by the signal Segmentation fault"),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "reached its limit of output: 1 MiB"),
        ("while True: pass", "reached its limit of cpu_seconds: 1"),
        ("import os, sys; os.write(int(sys.argv[3]), b'\\xff' * 4)", "it sent a message of 4,294,967,295 bytes"),
        ("import os, sys; os.write(int(sys.argv[3]), b'\\0\\0\\0\\1x')", "it sent a message that is no JSON"),
    ],
)
async def test_the_end_of_the_process_is_an_error_and_the_next_call_starts_another(
    kind: str, open_session: Open, code: str, told: str
) -> None:
    session = await open_session(session={"limits": {"output": "1 MiB", "cpu_seconds": 1}})
    with pytest.raises(ToolProcessEnded, match=told):
        await act(session, code)
    assert await act(session, "return 'again'") == "again"


async def test_running_calls_end_with_their_process(bwrap: None, open_session: Open) -> None:
    session = await open_session()
    waiting = asyncio.create_task(act(session, "import asyncio; open('began', 'w'); await asyncio.sleep(600)"))
    await act(session, "import asyncio, os\nwhile not os.path.exists('began'): await asyncio.sleep(0.01)")
    with pytest.raises(ToolProcessEnded):
        await act(session, "import os; os._exit(1)")
    with pytest.raises(ToolProcessEnded):
        await waiting


FORGED = """
import json, os, struct, sys, time
def say(**message):
    data = json.dumps(message).encode()
    os.write(int(sys.argv[3]), struct.pack(">I", len(data)) + data)
"""


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("result={'result': {'success': 'perhaps'}}", "gave an answer that is no result of a tool"),
        ("result=5", "gave an answer that is no result of a tool"),
        ("result={'result': [], 'value': 5}", "gave an answer that is no result of a tool"),
        ("error={'name': 'StopIteration', 'home': 'builtins', 'text': 'forged'}", "forged"),
        ("error={'name': 'SystemExit', 'home': 'builtins', 'text': 'forged'}", "forged"),
        ("error={'name': 'Popen', 'home': 'subprocess', 'text': 'forged'}", "forged"),
        ("error='no error'", "an error that cannot be read"),
    ],
)
async def test_a_forged_answer_is_an_error_of_its_call(
    bwrap: None, open_session: Open, answer: str, error: str
) -> None:
    session = await open_session()
    with pytest.raises(RuntimeError, match=error):
        await act(session, f"{FORGED}\nsay(id=2, {answer})")
    assert await act(session, "return 5") == "5"


async def test_what_it_prints_is_no_answer(bwrap: None, open_session: Open) -> None:
    code = "import os\nprint('{\"id\": 2, \"result\": 5}', flush=True)\nos.write(2, b'\\0\\0\\0\\1')\nreturn 'mine'"
    assert await act(await open_session(), code) == "mine"


async def test_it_may_ask_for_nothing_but_events_of_its_own(bwrap: None, open_session: Open) -> None:
    session = await open_session()
    heard = []
    for event in ("artifact:write", "artifact:read", "act:done", "tool:pre", "session:end"):
        session.coordinator.hooks.register(event, lambda event, data: heard.append((event, data.get("path"))))
    code = """
told = []
for event in ("artifact:write", "act:done", "tool:pre", "session:end"):
    try:
        await coordinator.hooks.emit(event, {"path": "a"})
    except PermissionError as error:
        told.append(str(error))
for path in ("/etc/passwd", "../outside", 5):
    try:
        await coordinator.hooks.emit("artifact:read", {"path": path})
    except PermissionError as error:
        told.append(str(error))
try:
    await coordinator.hooks._link.call("create", record={})
except LookupError as error:
    told.append(str(error))
return told
"""
    said = await act(session, code)
    assert heard == [("artifact:write", "a"), ("act:done", "a")]
    for refused in (
        "emit 'tool:pre'",
        "emit 'session:end'",
        "cannot ask for 'create'",
        "/etc/passwd",
        "outside",
        "about 5",
    ):
        assert refused in said


async def test_an_error_of_the_tool_is_the_same_error(bwrap: None, open_session: Open) -> None:
    session = await open_session()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await act(session, "open('/nowhere')")
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await act(session, "raise SystemExit(3)")
    assert await act(session, "return 'again'") == "again"


async def test_a_cancelled_call_is_cancelled_in_its_process(bwrap: None, open_session: Open, work: Path) -> None:
    session = await open_session()
    pid = await act(session, "import os; return os.stat('/proc/self/ns/pid').st_ino")
    code = """
import asyncio
try:
    open("began", "w")
    await asyncio.sleep(600)
finally:
    open("cleaned", "w")
"""
    running = asyncio.create_task(act(session, code))
    await act(session, "import asyncio, os\nwhile not os.path.exists('began'): await asyncio.sleep(0.01)")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (work / "cleaned").exists()
    assert await act(session, "import os; return os.stat('/proc/self/ns/pid').st_ino") == pid


async def test_a_call_that_hangs_is_killed_when_it_is_cancelled(
    kind: str, open_session: Open, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxed_process, "GRACE", 0.1)
    session = await open_session()
    running = asyncio.create_task(act(session, "import time; open('began', 'w'); time.sleep(600)"))
    while not (work / "began").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await act(session, "return 'again'") == "again"


async def test_nothing_that_it_starts_outlives_the_session(kind: str, open_session: Open) -> None:
    mark = f"{4714 + len(kind)}.{os.getpid()}"
    code = f"""
import os, subprocess
subprocess.Popen(["sleep", "{mark}"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{mark}"])
    os._exit(0)
os.wait()
return 'left'
"""
    session = await open_session()
    assert await act(session, code) == "left"
    assert is_there(mark)
    await session.cleanup()
    assert not is_there(mark)


def is_there(mark: str) -> bool:
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if each.read_bytes() == f"sleep\0{mark}\0".encode():
                return True
    return False


DETACHED = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{mark}"])
    os._exit(0)
os.wait()
os.execvp("sleep", ["sleep", "{mark}"])
"""


async def test_nothing_outlives_a_killed_parent(kind: str, work: Path, tmp_path: Path) -> None:
    (tmp_path / "act.py").write_text(ACTING)
    which = "" if kind == "bubblewrap" else "import shutil; shutil.which = lambda *_, **__: None"
    mark = f"{4734 + len(kind)}.{os.getpid()}"
    code = f"""
{which}
import asyncio, os, signal
from amplifier_foundation.bundle.model import Bundle
from amplifier_foundation.bundle.prepared import PreparedBundle

async def main():
    entry = {{"module": "tool-act", "source": {str(tmp_path / "act.py")!r}, "sandbox": True}}
    session = await PreparedBundle.of(Bundle(name="b", tools=[entry])).create_session(session_cwd={str(work)!r})
    code = {DETACHED.format(mark=mark)!r}
    await session.coordinator.get("tools", "act").execute({{"code": code}})

asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    while not is_there(mark):
        assert process.poll() is None
        await asyncio.sleep(0.01)
    process.kill()
    process.wait()
    while is_there(mark):
        await asyncio.sleep(0.01)


async def test_the_limits_of_the_session_hold(bwrap: None, open_session: Open) -> None:
    session = await open_session(session={"limits": {"memory": "2 GiB", "file_size": "1 MiB"}})
    with pytest.raises(MemoryError):
        await act(session, "bytearray(10_000_000_000)")
    with pytest.raises(OSError, match="File too large"):
        await act(session, "open('large', 'wb').write(b'x' * 2_000_000)")


async def test_it_is_told_which_call_it_runs(bwrap: None, open_session: Open) -> None:
    session = await open_session()
    session.coordinator.register_capability("tool.call", lambda: {"tool_call_id": "call-7"})
    assert await act(session, "return coordinator.get_capability('tool.call')()['tool_call_id']") == "call-7"


# mounting

BROKEN = ACTING.replace("    input_schema = {", "    input_schema = property(lambda self: {}['type'])\n    unused = {")
"""Its tool fails when it is asked for its schema."""
ONE = "one = {'name': 'act', 'description': '', 'untrusted_results': False}"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise KeyError('broken')", "broken"),
        ("import os; os._exit(3)", "ended by itself with exit code 3"),
        ("x = 1", "has no function 'mount"),
        (f"{ACTING}\n    await coordinator.mount('tools', Act(coordinator))", "the module mounts two tools 'act'"),
        (f"{ACTING}\n    coordinator.hooks.register('tool:pre', print)", "cannot register hooks"),
        (f"{ACTING}\n    await coordinator.mount('providers', 5, 'p')", "cannot mount providers"),
        (f"{ACTING}\n    coordinator.register_contributor('session.cost', 'act', print)", "cannot contribute to"),
        (BROKEN, "the tool 'act' (Act) cannot be described: KeyError: 'type' ("),
        (BROKEN, "act.py:"),
        (f"{FORGED}\nsay(id=1, result=[{{'name': 'a b'}}])\ntime.sleep(600)", "its name is 'a b'"),
        (f"{FORGED}\nsay(id=1, result=[{{'name': 'r\u0435ad'}}])\ntime.sleep(600)", "its name is 'r\u0435ad'"),
        (
            f"{FORGED}{ONE}\none['input_schema'] = {{'a': 'x' * 60_000}}\nsay(id=1, result=[one])\ntime.sleep(600)",
            "the input schema of 'act' is too long",
        ),
        (f"{FORGED}\nsay(id=1, result=5)\ntime.sleep(600)", "tells of tools that are none"),
        (f"{FORGED}{ONE}\nsay(id=1, result=[one, one])\ntime.sleep(600)", "tells of two tools 'act'"),
        (
            f"{FORGED}{ONE}\none['accesses'] = {{'x': 'y'}}\nsay(id=1, result=[one])\ntime.sleep(600)",
            "the accesses of 'act'",
        ),
    ],
)
async def test_a_module_that_cannot_be_mounted_is_left_out_and_named(
    bwrap: None, open_session: Open, source: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxed_process, "GRACE", 0.1)
    assert told in why_missing(await open_session(source))


async def test_a_module_that_hangs_at_its_import_is_left_out(bwrap: None, open_session: Open) -> None:
    session = await open_session("import time; time.sleep(600)", session={"mount_timeout": 2})
    assert "took longer than 2 s" in why_missing(session)


async def test_it_replaces_no_tool_of_another_module(bwrap: None, work: Path, tmp_path: Path) -> None:
    (tmp_path / "act.py").write_text(ACTING.replace('"act"', '"read_file"'))
    entry = {"module": "tool-act", "source": str(tmp_path / "act.py"), "sandbox": True}
    bundle = Bundle(name="b", tools=[{"module": "tool-filesystem"}, entry])
    session = await PreparedBundle.of(bundle).create_session(session_cwd=work)
    [failure] = session.load_failures
    assert failure.error == "another module has mounted a tool 'read_file' already"
    await session.cleanup()


async def test_without_a_package_with_a_sandbox_it_is_refused(open_session: Open) -> None:
    session = await open_session(plugins=Plugins([hookspecs]))
    assert why_missing(session).endswith("Install it with: pip install amplifier-sandbox")


async def test_where_no_sandbox_holds_it_is_refused(open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        choosing, "_results", {"bubblewrap": "its self-test failed", "landlock": "its self-test failed"}
    )
    session = await open_session(plugins=load_plugins())
    assert why_missing(session).startswith("no sandbox can run here, so nothing does. bubblewrap: ")


async def test_a_working_folder_that_holds_the_home_is_refused(
    bwrap: None, open_session: Open, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(work / "ann"))
    assert "holds your home; work in a folder of its own" in why_missing(await open_session())


@pytest.mark.parametrize("section", ["tools", "hooks", "providers"])
async def test_the_kernel_alone_has_no_sandbox_and_mounts_nothing(tmp_path: Path, section: str) -> None:
    (tmp_path / "act.py").write_text("raise SystemExit('imported')")
    plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        section: [{"module": "provider-playbook", "sandbox": True}],
    }
    session = AmplifierSession(plan)
    await session.initialize()
    [failure] = session.load_failures
    assert "'sandbox: true'" in failure.error
    assert not session.coordinator.get("tools") and not session.coordinator.get("providers")
    await session.cleanup()


async def test_code_that_may_not_run_any_more_does_not_begin_again(
    bwrap: None, open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await open_session()

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("the code has changed since it was trusted")

    monkeypatch.setattr(type(session.coordinator.get("module-source-resolver")), "resolve", refuse)
    assert await act(session, "return 'goes on'") == "goes on"
    with pytest.raises(ToolProcessEnded):
        await act(session, "import os; os._exit(0)")
    with pytest.raises(PermissionError, match="has changed"):
        await act(session, "return 'again'")


# permissions


async def test_a_tool_that_describes_its_calls_by_code_is_asked_about(bwrap: None, open_session: Open) -> None:
    source = ACTING.replace('    name = "act"', '    name = "act"\n    def accesses(self, arguments): return []')
    session = await open_session(source, permissions=Policy([parse_permissions({"deny": ["act(private/**)"]}, "mine")]))

    async def effect(**arguments: Any) -> str:
        return (await session.coordinator.hooks.emit("tool:pre", {"tool_name": "act", "tool_input": arguments})).action

    assert await effect(code="1") == "ask_user"
    assert await effect(path="private/a") == "deny"


async def test_the_gate_in_the_sandbox_has_the_rules_of_the_session_as_they_are(
    bwrap: None, open_session: Open, work: Path
) -> None:
    session = await open_session(permissions=Policy([parse_permissions({"deny": ["read_file(a)"]}, "mine")]))
    code = "return coordinator.permissions.decide('read_file', {'file_path': 'a'}).effect"
    assert await act(session, code) == "deny"
    session.coordinator.guard(PermissionGate(Policy(), work))
    assert await act(session, code) == "allow"


# what keeps it


async def test_a_call_goes_on_in_its_process_while_another_takes_the_next_one(
    bwrap: None, open_session: Open, work: Path
) -> None:
    session = await open_session()
    look = "import os; return os.stat('/proc/self/ns/pid').st_ino"
    waits = "import asyncio, os\nopen('began', 'w')\nwhile not os.path.exists('go'):\n    await asyncio.sleep(0.01)\n"
    waiting = asyncio.create_task(act(session, waits + look))
    while not (work / "began").exists():
        await asyncio.sleep(0.01)
    (work / ".env").write_text("A=1")
    second = await act(session, f"open('go', 'w')\n{look}")
    assert await waiting != second
    assert await act(session, look) == second


async def test_a_fork_runs_it_in_a_sandbox_of_its_own(bwrap: None, open_session: Open, outside: Path) -> None:
    session = await open_session()
    child = await session.fork()
    look = f"import os; return os.stat('/proc/self/ns/pid').st_ino, os.path.exists({str(outside)!r})"
    first, second = await act(session, look), await act(child, look)
    assert "False" in first and "False" in second
    assert first != second
    await child.cleanup()
    assert await act(session, "return 'goes on'") == "goes on"


async def test_a_session_in_a_process_of_its_own_keeps_it(bwrap: None, work: Path, outside: Path, plan: Any) -> None:
    told = plan(f"import os; return os.getpid() < 20, os.path.exists({str(outside)!r})")
    told["tools"][0]["sandbox"] = True
    runner = SubprocessRunner()
    try:
        result = await run_session_in_subprocess(told, "Go", "p", work, runner=runner, timeout=60)
    finally:
        runner.close()
    assert result.output == "It says: (True, False)"


# what waits for ever


@pytest.mark.parametrize(
    "place", ["config", "commondir", "rebase-merge/git-rebase-todo", "worktrees/a/commondir", "modules/a/config"]
)
@pytest.mark.parametrize("kind_of_file", ["os.mkfifo(place)", "os.symlink('/dev/zero', place)"])
async def test_no_file_of_a_new_repository_is_waited_for(
    bwrap: None, open_session: Open, place: str, kind_of_file: str
) -> None:
    code = f"""
import os
place = os.path.join('.git', {place!r})
os.makedirs(os.path.dirname(place))
for name in ('.git/HEAD', os.path.dirname(place) + '/HEAD'):
    open(name, 'w').close()
{kind_of_file}
return 'made'"""
    session = await open_session()
    assert await act(session, code) == "made"
    assert await act(session, "return 'again'") == "again"


async def test_no_settings_of_git_are_waited_for(bwrap: None, open_session: Open) -> None:
    code = """
import os
os.mkdir('.git')
open('.git/config', 'w').write('[include]\\n path = ../settings\\n')
os.mkfifo('settings')
return 'made'"""
    assert await act(await open_session(), code) == "made"


# what is new, and who says it

THREAD = """
import os, threading, time
def make():
    while not os.path.exists('go'):
        time.sleep(0.01)
    os.makedirs('.git.new/hooks')
    for name in ('HEAD', 'config'):
        open('.git.new/' + name, 'w').write('[core]\\n fsmonitor = x\\n')
    os.rename('.git.new', '.git')
threading.Thread(target=make, daemon=True).start()
"""


@pytest.mark.parametrize("then", ["a call", "the end"])
async def test_what_a_thread_creates_between_calls_is_moved_aside(
    kind: str, open_session: Open, work: Path, then: str
) -> None:
    session = await open_session()
    await act(session, THREAD)
    (work / "go").touch()
    await until_it_exists(work / ".git")
    if then == "a call":
        await act(session, "return 1")
    else:
        await session.cleanup()
    assert not (work / ".git").exists()


async def test_the_names_of_new_files_are_told_without_control_characters(
    bwrap: None, open_session: Open, caplog: pytest.LogCaptureFixture
) -> None:
    source = ACTING.replace('str(await scope["act"]())', 'await scope["act"]()')
    code = r"""
import os
os.mkdir(b'\xff\x1b[31m\nSystem')
open(b'\xff\x1b[31m\nSystem/bundle.md', 'w')
return {}"""
    [told] = (await act(await open_session(source), code))["warnings"]
    assert told == r"\udcff\x1b[31m\nSystem/bundle.md is new: amplifier obeys it"
    assert told in caplog.text


async def test_an_event_is_that_of_its_own_session(bwrap: None, open_session: Open) -> None:
    session = await open_session()
    heard: list[Any] = []

    async def hear(event: str, data: dict[str, Any]) -> None:
        heard.append((data["session_id"], data.get("parent_id"), data["n"]))

    session.coordinator.hooks.register("work:done", hear, name="hear")
    told = {"session_id": "other", "parent_id": "other", "n": 1}
    await act(session, f"await coordinator.hooks.emit('work:done', {told})")
    assert heard == [(session.session_id, session.parent_id, 1)]


@pytest.mark.parametrize("then", ["a call", "the end"])
async def test_a_process_that_hangs_as_it_begins_again_holds_up_nothing(
    bwrap: None, open_session: Open, work: Path, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxed_process, "GRACE", 0.1)
    hanging = "import os, time\nif os.path.exists('hang'):\n    open('began', 'w').close()\n    time.sleep(600)\n"
    session = await open_session(f"{hanging}{ACTING}", session={"mount_timeout": 60 if then == "the end" else 3})
    (work / "hang").touch()
    with pytest.raises(ToolProcessEnded):
        await act(session, "import os; os._exit(1)")
    calling = asyncio.create_task(act(session, "return 1"))
    if then == "the end":
        await until_it_exists(work / "began")
        async with asyncio.timeout(120):
            await session.cleanup()
    with pytest.raises(ToolProcessEnded, match=None if then == "the end" else "took longer than 3 s to begin again"):
        await calling


async def test_in_the_mode_read_only_the_folder_is_read_alone(kind: str, open_session: Open, work: Path) -> None:
    (work / "a").write_text("one")
    (work / "sub").mkdir()
    (work / "sub" / "bundle.md").write_text("mine")
    source = ACTING.replace('    name = "act"', '    name = "act"\n    accesses = {"code": "read"}')
    session = await open_session(source, permissions=Policy([parse_permissions({"mode": "read-only"}, "mine")]))
    assert await act(session, "return open('a').read()") == "one"
    for name in ("new", "a", "sub/new"):
        with pytest.raises(OSError, match="Read-only|Permission denied"):
            await act(session, f"open({name!r}, 'w')")
    await act(session, "import tempfile; tempfile.TemporaryFile()")
    session.coordinator.guard(PermissionGate(Policy(), work))
    await act(session, "open('new', 'w')")


async def test_a_rule_beside_the_mode_read_only_lets_a_tool_write(bwrap: None, open_session: Open, work: Path) -> None:
    own = parse_permissions({"mode": "read-only", "allow": ["act"]}, "mine", is_own=True)
    await act(await open_session(permissions=Policy([own])), "open('new', 'w')")
    assert (work / "new").exists()


async def test_a_tool_that_is_called_like_a_provider_gets_no_kept_key(
    bwrap: None, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    keep_key("OPENAI_API_KEY", "canary-of-a-key")
    keep_key("WORK_KEY", "named-by-the-bundle")
    source = ACTING.replace('{"coordinator"', '{"config": CONFIG, "coordinator"')
    (tmp_path / "act.py").write_text(f"{source}\n    global CONFIG\n    CONFIG = config\n")
    entry = {"module": "provider-openai", "source": str(tmp_path / "act.py"), "sandbox": True}
    bundle = Bundle(name="b", tools=[{**entry, "config": {"work": "secret://WORK_KEY"}}])
    session = await PreparedBundle.of(bundle).create_session(session_cwd=work)
    assert await act(session, "return config") == "{'work': 'named-by-the-bundle'}"
    await session.cleanup()
