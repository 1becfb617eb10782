"""Installed plugins: which are loaded, and what a broken one costs."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from amplifier_core import plugins as plugins_module
from amplifier_core.errors import NameTaken
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
        "ModuleNotFoundError: No module named 'a_package_that_nobody_has'",
    ),
    "a syntax error": ("def broken(:", "SyntaxError: invalid syntax (amplifier_trigger_bad.py, line 1)"),
    "an exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "exit()": ("exit()", "SystemExit: None"),
    "an error of several lines": ("raise ValueError('one\\n  two')", "ValueError: one two"),
    "an error that says nothing": ("raise ValueError", "ValueError"),
    "a hook that does not exist": (
        good("bad").replace("register_trigger", "register_tigger"),
        "no hook 'amplifier_register_tigger' (did you mean 'amplifier_register_trigger'?)",
    ),
    "an offer that fails": (good("bad").replace("object)", "missing)"), "NameError: name 'missing' is not defined"),
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
    assert row_of(loaded, "trigger-endless").error == "TimeoutError: its import took longer than 0.2 s"
    assert list(loaded.triggers) == ["trigger-zeta"]


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


def test_an_interrupt_while_a_plugin_is_imported_ends_the_program(site: Site) -> None:
    site.plugin("amplifier-trigger-bad", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load("trigger-bad")


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
