"""Installed plugins: which are loaded, and what a broken one costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core import plugins as plugins_module
from amplifier_core.errors import NameTaken
from amplifier_core.plugin_marks import LoadingMarks
from amplifier_core.plugins import PluginRow, Plugins, load_plugins

if TYPE_CHECKING:
    from tests.core.conftest import Site

GOOD = """
from amplifier_core.hookspecs import hookimpl

@hookimpl
def amplifier_register_trigger(register):
    register("trigger-{name}", object)
"""


def good(name: str) -> str:
    return GOOD.replace("{name}", name)


def load(*names: str, **environ: str) -> Plugins:
    """Load the plugins of these names and no others that are installed where the tests run."""
    return load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": ",".join(names)} | environ)


def row_of(loaded: Plugins, name: str) -> PluginRow:
    [row] = [row for row in loaded.rows if row.name == name]
    return row


def test_an_installed_plugin_is_loaded_and_listed(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.plugin("amplifier-trigger-zeta", good("zeta"), version="2.1")
    loaded = load("trigger-zeta")
    assert loaded.triggers.get("trigger-zeta") is object
    assert row_of(loaded, "trigger-zeta") == PluginRow(
        "trigger-zeta", "amplifier-trigger-zeta", "2.1", "amplifier_trigger_zeta", "loaded", "", ["trigger-zeta"]
    )
    assert caplog.messages == []


BROKEN = {
    "an import of what is not installed": (
        "import a_package_that_nobody_has",
        "ModuleNotFoundError: No module named 'a_package_that_nobody_has' ({file}:1)",
    ),
    "a syntax error": ("def broken(:", "SyntaxError: invalid syntax ({file}:1)"),
    "an exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "exit()": ("exit()", "SystemExit: None"),
    "an error of several lines": ("raise ValueError('one\\n  two')", "ValueError: one two"),
    "an error that says nothing": ("raise ValueError", "ValueError"),
    "a hook that does not exist": (
        good("bad").replace("register_trigger", "register_tigger"),
        "no hook 'amplifier_register_tigger' (did you mean 'amplifier_register_trigger'?)",
    ),
    "an offer that fails": (
        good("bad").replace("object)", "missing)"),
        "NameError: name 'missing' is not defined ({file}:6)",
    ),
}


@pytest.mark.parametrize(("source", "cause"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_plugin_is_a_row_that_says_why_and_the_rest_are_loaded(
    site: Site, caplog: pytest.LogCaptureFixture, source: str, cause: str
) -> None:
    site.plugin("amplifier-trigger-alpha", good("alpha"))
    site.plugin("amplifier-trigger-bad", source, version="0.9")
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    loaded = load("trigger-alpha", "trigger-bad", "trigger-zeta")
    assert list(loaded.triggers) == ["trigger-alpha", "trigger-zeta"]
    row = row_of(loaded, "trigger-bad")
    assert (row.status, row.dist, row.version) == ("failed", "amplifier-trigger-bad", "0.9")
    cause = cause.replace("{file}", str(site.folder / "amplifier_trigger_bad.py"))
    assert cause in row.error
    [warning] = caplog.messages
    assert warning.startswith("plugin 'trigger-bad' of amplifier-trigger-bad 0.9 was not loaded: ")
    assert cause in warning
    assert "\n" not in warning


def test_a_plugin_that_never_ends_its_import_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins_module, "IMPORT_TIME_LIMIT", 0.2)
    site.plugin("amplifier-trigger-endless", "while True: pass")
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    loaded = load("trigger-endless", "trigger-zeta")
    place = f"{site.folder / 'amplifier_trigger_endless.py'}:1"
    assert row_of(loaded, "trigger-endless").error == f"TimeoutError: it took longer than 0.2 s to load ({place})"
    assert list(loaded.triggers) == ["trigger-zeta"]


def test_a_plugin_that_never_ends_its_registration_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins_module, "IMPORT_TIME_LIMIT", 0.2)
    site.plugin(
        "amplifier-trigger-endless", good("endless").replace("    register", "    while True: pass\n    register")
    )
    loaded = load("trigger-endless")
    place = f"{site.folder / 'amplifier_trigger_endless.py'}:6"
    assert row_of(loaded, "trigger-endless").error == f"TimeoutError: it took longer than 0.2 s to load ({place})"


def test_loading_gives_the_alarm_back_to_who_had_it(site: Site) -> None:
    def own(signum: int, frame: object) -> None:
        raise AssertionError("nothing should ring")

    before = signal.signal(signal.SIGALRM, own)
    try:
        site.plugin("amplifier-trigger-zeta", good("zeta"))
        load("trigger-zeta")
        assert signal.getsignal(signal.SIGALRM) is own
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_plugins_can_be_loaded_in_a_thread(site: Site) -> None:
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    loaded: list[Plugins] = []
    thread = threading.Thread(target=lambda: loaded.append(load("trigger-zeta")))
    thread.start()
    thread.join()
    assert list(loaded[0].triggers) == ["trigger-zeta"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_signal_while_a_plugin_is_imported_ends_the_program(
    site: Site, name: str, error: type[BaseException]
) -> None:
    def leave(number: int, frame: object) -> None:
        raise SystemExit(3)

    site.plugin("amplifier-trigger-slow", f"import signal\nsignal.raise_signal(signal.{name})\nraise AssertionError")
    handler, number = signal.default_int_handler if error is KeyboardInterrupt else leave, signal.Signals[name]
    before = signal.signal(number, handler)  # a shell ignores SIGINT for what runs in the background
    try:
        with pytest.raises(error):
            load("trigger-slow")
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_an_interrupt_that_a_plugin_raises_itself_is_a_failure_of_it(site: Site) -> None:
    site.plugin("amplifier-trigger-bad", "raise KeyboardInterrupt")
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    loaded = load("trigger-bad", "trigger-zeta")
    assert row_of(loaded, "trigger-bad").error == f"KeyboardInterrupt ({site.folder / 'amplifier_trigger_bad.py'}:1)"
    assert list(loaded.triggers) == ["trigger-zeta"]


# harm to the process


@pytest.mark.parametrize("call", ["print('hello')", "import sys; sys.stdout.write('hello')"])
@pytest.mark.parametrize("where", ["import", "registration"])
def test_a_plugin_that_prints_is_named_and_stdout_stays_clean(
    site: Site, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, call: str, where: str
) -> None:
    source = f"{call}\n{good('loud')}" if where == "import" else good("loud") + f"    {call}\n"
    site.plugin("amplifier-trigger-loud", source)
    assert list(load("trigger-loud").triggers) == ["trigger-loud"]
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("hello")  # a handler that another test left may say more
    assert caplog.messages == [
        "plugin 'trigger-loud' of amplifier-trigger-loud 1.0: it printed while it was loaded; its text went to stderr"
    ]


LOAD = """
import os
import threading
from amplifier_core.plugins import load_plugins

ended = threading.Event()
if {threads}:
    threading.Thread(target=ended.wait).start()
load_plugins(environ={{"AMPLIFIER_LOAD_PLUGINS": "trigger-raw"}})
ended.set()
os.write(1, b"data\\n")
"""


@pytest.mark.parametrize(("threads", "out"), [(False, "data\n"), (True, "child\nraw\ndata\n")])
def test_what_a_child_or_c_code_writes_to_stdout_goes_to_stderr_unless_a_thread_may_write_there(
    site: Site, threads: bool, out: str
) -> None:
    site.plugin("amplifier-trigger-raw", "import os\nos.system('echo child')\nos.write(1, b'raw\\n')\n" + good("raw"))
    command = [sys.executable, "-c", LOAD.format(threads=threads)]
    environment = {**os.environ, "PYTHONPATH": str(site.folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == out
    assert ("child\nraw\n" in done.stderr) is not threads


def test_a_plugin_that_keeps_stdout_prints_there_once_it_is_loaded(
    site: Site, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("amplifier-trigger-keeps", "import sys\nstdout = sys.stdout\nstdout.flush()\n" + good("keeps"))
    load("trigger-keeps")
    print("later", file=sys.modules["amplifier_trigger_keeps"].stdout)
    assert capsys.readouterr().out == "later\n"
    assert caplog.messages == []


def test_a_plugin_that_changes_the_working_folder_is_named_and_the_folder_stays(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = Path.cwd()
    site.plugin("amplifier-trigger-moves", f"import os\nos.chdir({str(tmp_path)!r})\n{good('moves')}")
    assert list(load("trigger-moves").triggers) == ["trigger-moves"]
    assert Path.cwd() == before
    assert caplog.messages == [
        "plugin 'trigger-moves' of amplifier-trigger-moves 1.0: "
        "it changed the working folder while it was loaded; that was undone"
    ]


def test_plugins_are_loaded_in_a_folder_that_was_deleted(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    assert list(load("trigger-zeta").triggers) == ["trigger-zeta"]


@pytest.mark.parametrize(
    "call", ["register(None, None)", "register('', object)", "register('x', None)", "register(1, 2)"]
)
def test_an_offer_without_a_name_or_a_factory_names_its_plugin(
    site: Site, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    site.plugin("amplifier-trigger-bad", good("bad").replace('register("trigger-bad", object)', call))
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    loaded = load("trigger-bad", "trigger-zeta")
    assert f"ValueError: {call}".replace("object", "<class 'object'>") in row_of(loaded, "trigger-bad").error
    assert "plugin 'trigger-bad' of amplifier-trigger-bad 1.0 was not loaded" in caplog.text
    assert list(loaded.triggers) == ["trigger-zeta"]


LOADING = """
import sys
from pathlib import Path
from amplifier_core.plugins import load_plugins

loaded = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "trigger-bad,trigger-zeta"}, marks=Path(sys.argv[1]))
print(*loaded.triggers)
"""


def load_elsewhere(site: Site, marks: Path) -> subprocess.CompletedProcess[str]:
    """Load two plugins in a process of its own."""
    command = [sys.executable, "-c", LOADING, str(marks)]
    environment = {**os.environ, "PYTHONPATH": str(site.folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("ending", ["os._exit(0)", "os.abort()"])
def test_a_plugin_that_ended_the_process_is_skipped_and_named_until_it_is_mended(
    site: Site, tmp_path: Path, ending: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    site.plugin("amplifier-trigger-bad", f"import os\n{ending}\n{good('bad')}")
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    assert load_elsewhere(site, marks).stdout == ""
    for _ in range(2):
        after = load_elsewhere(site, marks)
        assert (after.returncode, after.stdout) == (0, "trigger-zeta\n")
        cause = "it ends the process that loads it. Update or remove amplifier-trigger-bad, or start with"
        assert f"plugin 'trigger-bad' of amplifier-trigger-bad 1.0 was not loaded: {cause}" in after.stderr
    (site.folder / "amplifier_trigger_bad.py").write_text(good("bad"))
    mended = load_elsewhere(site, marks)
    assert (mended.stdout, mended.stderr) == ("trigger-bad trigger-zeta\n", "")
    assert list(marks.iterdir()) == []


def test_a_plugin_whose_process_was_ended_from_outside_is_loaded_the_next_time(site: Site, tmp_path: Path) -> None:
    site.plugin("amplifier-trigger-bad", good("bad"))
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    (tmp_path / "loading-1-1").write_text("trigger-bad")
    (tmp_path / "loading-1-2").write_text("trigger-nobody-has")
    (tmp_path / "loading-1-3").write_text("")
    after = load_elsewhere(site, tmp_path)
    assert (after.stdout, after.stderr) == ("trigger-bad trigger-zeta\n", "")
    assert list(tmp_path.glob("loading-*")) == []


def test_a_process_that_loads_plugins_now_accuses_none(tmp_path: Path) -> None:
    with LoadingMarks(tmp_path) as loading:
        loading.note("trigger-bad")
        with LoadingMarks(tmp_path) as another:
            assert not another.is_guilty("trigger-bad")
        assert len(list(tmp_path.glob("loading-*"))) == 1
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_for_marks_plugins_are_loaded_all_the_same(site: Site, tmp_path: Path) -> None:
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    environ = {"AMPLIFIER_LOAD_PLUGINS": "trigger-zeta"}
    assert list(load_plugins(environ=environ, marks=tmp_path / "absent").triggers) == ["trigger-zeta"]
    assert not (tmp_path / "absent").exists()


def test_two_dists_that_offer_one_name_are_both_named(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.plugin("dist-one", good("zeta"), name="one")
    site.plugin("dist-two", good("zeta"), version="2.0", name="two")
    loaded = load("one", "two")
    text = "trigger 'trigger-zeta' is registered by both dist-one 1.0 and dist-two 2.0"
    assert (row_of(loaded, "one").status, row_of(loaded, "two").status) == ("loaded", "failed")
    assert text in row_of(loaded, "two").error
    assert [message.startswith(text) for message in caplog.messages] == [True]
    with pytest.raises(NameTaken, match=text):
        loaded.triggers.get("trigger-zeta")


def test_two_dists_with_an_entry_point_of_one_name_are_both_named(site: Site) -> None:
    site.plugin("dist-one", good("alpha"), name="trigger-same")
    site.plugin("dist-two", good("zeta"), version="2.0", name="trigger-same")
    loaded = load("trigger-same")
    rows = [row for row in loaded.rows if row.name == "trigger-same"]
    assert sorted(row.status for row in rows) == ["failed", "loaded"]
    [failed] = [row for row in rows if row.status == "failed"]
    assert "dist-one 1.0" in failed.error
    assert "dist-two 2.0" in failed.error
    assert len(list(loaded.triggers)) == 1


# which are loaded


@pytest.mark.parametrize(
    ("environ", "loaded"),
    [
        ({"AMPLIFIER_LOAD_PLUGINS": "trigger-alpha"}, ["trigger-alpha"]),
        ({"AMPLIFIER_LOAD_PLUGINS": " trigger-alpha , trigger-zeta,"}, ["trigger-alpha", "trigger-zeta"]),
        ({"AMPLIFIER_LOAD_PLUGINS": ""}, []),
        ({"AMPLIFIER_LOAD_PLUGINS": "trigger-nobody-has"}, []),
        (
            {"AMPLIFIER_LOAD_PLUGINS": "trigger-alpha,trigger-zeta", "AMPLIFIER_BLOCK_PLUGINS": "trigger-zeta"},
            ["trigger-alpha"],
        ),
    ],
)
def test_the_environment_says_which_plugins_are_loaded(site: Site, environ: dict[str, str], loaded: list[str]) -> None:
    for name in ("alpha", "zeta"):
        site.plugin(f"amplifier-trigger-{name}", good(name))
    plugins = load_plugins(environ=environ)
    assert list(plugins.triggers) == loaded
    statuses = {name: row_of(plugins, f"trigger-{name}").status for name in ("alpha", "zeta")}
    assert statuses == {name: "loaded" if f"trigger-{name}" in loaded else "blocked" for name in ("alpha", "zeta")}


def test_without_a_list_every_plugin_but_the_blocked_is_loaded(site: Site) -> None:
    for name in ("alpha", "zeta"):
        site.plugin(f"amplifier-trigger-{name}", good(name))
    plugins = load_plugins(environ={"AMPLIFIER_BLOCK_PLUGINS": "trigger-zeta"})
    assert {row.name: row.status for row in plugins.rows if row.status != "loaded"} == {"trigger-zeta": "blocked"}
    assert "trigger-alpha" in plugins.triggers


@pytest.mark.parametrize("variable", ["AMPLIFIER_LOAD_PLUGINS", "AMPLIFIER_BLOCK_PLUGINS"])
def test_an_unknown_name_in_the_environment_is_named_with_the_nearest_match(
    variable: str, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "trigger-zeta"} | {variable: "trigger-zeta, trigger-zetta"})
    [record] = caplog.records
    expected = f"{variable}: unknown plugin 'trigger-zetta'; did you mean 'trigger-zeta'? Installed: "
    assert record.getMessage().startswith(expected)
    assert "trigger-zeta" in record.getMessage().removeprefix(expected).split(", ")
    load_plugins(environ={variable: "trigger-zetta"}, safe_mode=True)
    assert caplog.records == [record]


def test_the_environment_of_the_process_counts_when_none_is_given(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    monkeypatch.setenv("AMPLIFIER_LOAD_PLUGINS", "trigger-zeta")
    assert [row.name for row in load_plugins().rows if row.status == "loaded"] == ["trigger-zeta"]


def test_safe_mode_loads_and_imports_none(site: Site) -> None:
    site.plugin("amplifier-trigger-zeta", good("zeta"))
    plugins = load_plugins(environ={}, safe_mode=True)
    assert {row.status for row in plugins.rows} == {"blocked"}
    assert row_of(plugins, "trigger-zeta").version == "1.0"
    assert list(plugins.triggers) == []
    assert "amplifier_trigger_zeta" not in sys.modules


def test_rows_come_sorted_by_name(site: Site) -> None:
    for name in ("zeta", "alpha"):
        site.plugin(f"amplifier-trigger-{name}", good(name))
    names = [row.name for row in load_plugins(environ={}, safe_mode=True).rows]
    assert names == sorted(names)
    assert {"trigger-alpha", "trigger-zeta"} <= set(names)
