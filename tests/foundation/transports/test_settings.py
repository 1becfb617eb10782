"""Test the setting `transports`: what it takes, who may set it, and what `doctor` says of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.plugins import Plugins
from amplifier_foundation import hookspecs
from amplifier_foundation.settings import InvalidSettings, read_settings
from amplifier_foundation.transports.checkup import check_routes
from tests import folder_transport

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Amplifier = Callable[..., subprocess.CompletedProcess[str]]

GOOD: dict[str, Any] = {"name": "transport-nats", "site": "berlin", "publish": ["work:*"]}


def write(home: Path, *entries: dict[str, Any]) -> None:
    home.mkdir(exist_ok=True, mode=0o700)
    (home / "settings.yaml").write_text(json.dumps({"transports": list(entries)}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "transports[0].name"),
        ({"site": "Berlin Mitte"}, "transports[0].site"),
        ({"publish": [], "subscribe": []}, "needs events: publish: [NAME, …], subscribe: [NAME, …], or both"),
        ({"publish": ["*:done"]}, "a * may only be the last character, as in 'work:*'"),
        ({"publsh": ["a"]}, "did you mean 'publish'?"),
        (
            {"config": {"token": "t0p-s3cret-0123456789"}},
            "a secret is written here; keep it with 'amplifier auth login'",
        ),
        ({"config": {"servers": ["nats://me:t0p-s3cret@host"]}}, "a secret is written here"),
    ],
)
def test_an_entry_that_cannot_work_is_refused_at_its_place(
    change: dict[str, Any], said: str, home: Path, project: Path
) -> None:
    write(home, {**GOOD, **change})
    with pytest.raises(InvalidSettings) as told:
        read_settings()
    assert said in str(told.value)
    assert "s3cret" not in str(told.value)


def test_a_transport_stands_there_once(home: Path, project: Path) -> None:
    write(home, GOOD, {**GOOD, "site": "oslo"})
    with pytest.raises(InvalidSettings, match="'transport-nats' stands here twice"):
        read_settings()


def test_a_project_sets_no_transport(home: Path, project: Path) -> None:
    write(home, GOOD)
    (project / ".amplifier").mkdir()
    for name in ("settings.yaml", "settings.local.yaml"):
        (project / ".amplifier" / name).write_text(json.dumps({"transports": [{**GOOD, "site": "mallory"}]}))
    settings = read_settings()
    assert settings.get("transports") == [GOOD]
    assert [each.message.partition(";")[0] for each in settings.problems] == [
        "only your own settings name transports"
    ] * 2


def test_config_shows_the_setting_and_its_place(home: Path, project: Path, amplifier: Amplifier) -> None:
    write(home, {**GOOD, "config": {"servers": ["nats://127.0.0.1:1"], "token": "secret://NATS_TOKEN"}})
    shown = amplifier("config", "show").stdout
    [line] = [each for each in shown.splitlines() if each.startswith("transports")]
    assert "berlin" in line
    assert "secret://NATS_TOKEN" in amplifier("config", "get", "transports").stdout


def test_up_without_the_package_says_what_to_install(home: Path, project: Path, amplifier: Amplifier) -> None:
    write(home, {**GOOD, "name": "transport-natz"})
    (project / "bundle.md").write_text("---\nbundle: {name: b}\nbackground_sessions: [{name: s}]\n---\n")
    done = amplifier("up", "--once")
    assert (done.returncode != 0, "transport-natz" in done.stderr, "Traceback" in done.stderr) == (True, True, False)
    assert "transport-nats" in done.stderr


def test_doctor_says_whether_a_broker_is_there(tmp_path: Path, home: Path) -> None:
    plugins = Plugins([hookspecs])
    plugins.register(folder_transport)
    entry = {**GOOD, "name": "transport-folder", "subscribe": ["heard:*"], "config": {"folder": str(tmp_path)}}
    away = {**entry, "config": {"folder": str(tmp_path / "away")}}
    missing = {**entry, "name": "transport-nothing"}
    secret = {**entry, "config": {"folder": str(tmp_path), "token": "secret://NOT_KEPT"}}
    found = list(check_routes([entry, away, missing, secret], plugins))
    assert [state for state, *_ in found] == ["ok", "weak", "weak", "weak"]
    reached = "transport-folder reaches its broker as site 'berlin', which publishes work:* and receives heard:*"
    assert found[0][1] == reached
    assert "away is away" in found[1][1]
    assert found[2][2] == "pip install amplifier-transport-nothing"
    assert "there is no key NOT_KEPT" in found[3][1]


def test_doctor_shows_a_row(home: Path, project: Path, amplifier: Amplifier) -> None:
    write(home, {**GOOD, "config": {"servers": ["nats://127.0.0.1:9"]}})
    rows = json.loads(amplifier("doctor", "--json").stdout)["data"]
    [row] = [each for each in rows if each["part"] == "transports"]
    assert row["state"] == "weak"
    assert "127.0.0.1:9" in row["fact"]
