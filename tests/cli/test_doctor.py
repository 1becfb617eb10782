"""`amplifier doctor`: each weakness is told with its remedy, and a healthy machine has none."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import Plugins, hookimpl, load_plugins
from amplifier_foundation import hookspecs
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.security import checkup
from amplifier_foundation.security.checkup import check_network, check_plugins, check_ports, find_all
from amplifier_foundation.security.trust import inspect_bundle, trust_content
from amplifier_foundation.sessions.lock import owner_lock
from amplifier_foundation.settings import write_setting
from tests.dead_mounts import unreachable

pytestmark = pytest.mark.slow

PARTS = [
    "trust",
    "permissions",
    "store",
    "acp",
    "processes",
    "ray",
    "sandbox",
    "keys",
    "files",
    "ports",
    "network",
    "notify",
]


@pytest.fixture(autouse=True)
def _healthy(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project and a data folder that only this user can change, and trust that is asked for."""
    monkeypatch.delenv("AMPLIFIER_TRUST", raising=False)
    for folder in (project, home):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)


def diagnose(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = invoke(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "amplifier/doctor/1"
    return code, answer["data"]


def test_a_healthy_machine_has_nothing_weak(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = diagnose(capsys)
    assert [each for each in findings if each["state"] == "weak"] == []
    assert code == exits.OK
    assert list(dict.fromkeys(each["part"] for each in findings)) == PARTS


def test_a_person_gets_a_table_with_the_remedies(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "keys.json").write_text('{"keys": {"WEATHER_TOKEN": {"key": "a-key"}}}')
    (home / "keys.json").chmod(0o600)
    assert invoke(["doctor"]) == exits.FAILED
    out = capsys.readouterr().out
    assert out.split("\n")[0].split() == ["PART", "STATE", "FACT", "REMEDY"]
    assert "WEATHER_TOKEN" in out
    assert "amplifier auth login NAME" in out
    assert "a-key" not in out


def test_a_damaged_lock_of_plugins_hides_nothing_else(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / ".amplifier").mkdir()
    (project / ".amplifier" / "plugins.lock").write_text("{")
    assert invoke(["doctor"]) == exits.USAGE
    out, err = capsys.readouterr()
    assert "permissions" in out
    assert "plugins.lock: it cannot be read" in err


def test_a_data_folder_in_the_project_is_weak(
    capsys: pytest.CaptureFixture[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "data").mkdir(mode=0o700)
    monkeypatch.setenv("AMPLIFIER_HOME", str(project / "data"))
    code, findings = diagnose(capsys)
    weak = [(each["part"], each["fact"]) for each in findings if each["state"] == "weak"]
    fact = (
        f"{project}/data lies in {project}: tools without a sandbox run beside it, and no command runs under Landlock"
    )
    assert (code, weak) == (exits.FAILED, [("files", fact)])
    monkeypatch.setenv("HOME", str(project))
    assert diagnose(capsys)[0] == exits.OK


def test_trust_that_is_switched_off_is_weak(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    code, findings = diagnose(capsys)
    assert (code, findings[0]["state"], findings[0]["remedy"]) == (exits.FAILED, "weak", "unset AMPLIFIER_TRUST")


def test_trusted_code_that_has_changed_is_told(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    bundle = project / "bundle.md"
    bundle.write_text("---\nbundle: {name: b}\ntools: [{module: t, source: ./t.py}]\n---\n")
    (project / "t.py").write_text("")
    trust_content(inspect_bundle(str(bundle), {}))
    (project / "t.py").write_text("changed = True")
    findings = diagnose(capsys)[1]
    assert findings[0]["fact"] == f"{bundle} has changed, and is asked for again"


@pytest.mark.parametrize("damaged", ["{", '{"trusted": []}'])
def test_a_damaged_ledger_is_weak(capsys: pytest.CaptureFixture[str], home: Path, damaged: str) -> None:
    (home / "trust.json").write_text(damaged)
    (home / "trust.json").chmod(0o600)
    code, findings = diagnose(capsys)
    assert (code, findings[0]["state"]) == (exits.FAILED, "weak")
    assert "trust.json" in findings[0]["fact"]


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("bash(**)", "commands run unasked: the rule bash(**)"),
        ("web_fetch(**)", "the network is used unasked"),
        ("write_file(/var/tmp/**)", "files outside of the project are written unasked"),
        ("delegate(**)", "bundles by path are run unasked"),
        ("write_file(.git/config)", "files that programs obey are written unasked"),
        ("read_file(.env)", "files with secrets are read unasked"),
    ],
)
def test_what_the_settings_allow_unasked_is_weak(capsys: pytest.CaptureFixture[str], rule: str, told: str) -> None:
    write_setting("user", "permissions.allow", [rule])
    code, findings = diagnose(capsys)
    (weak,) = [each for each in findings if each["part"] == "permissions"]
    assert (code, weak["state"]) == (exits.FAILED, "weak")
    assert weak["fact"].startswith(told)
    assert "settings.yaml:" in weak["fact"]


def test_events_that_wait_for_a_folder_that_is_gone_are_weak(
    background: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke(["trigger", "fire", "asked"]) == exits.OK
    capsys.readouterr()
    assert [each for each in diagnose(capsys)[1] if each["part"] == "events"] == []
    old, new = background.parent, background.parent.with_name("elsewhere")
    old.rename(new)
    monkeypatch.chdir(new)
    code, findings = diagnose(capsys)
    [weak] = [each for each in findings if each["part"] == "events"]
    assert (code, weak["state"]) == (exits.FAILED, "weak")
    assert weak["fact"] == f"1 event waits for echo/asked of {old}, a folder that is gone"
    assert invoke(shlex.split(weak["remedy"].partition(": amplifier ")[2])) == exits.OK
    capsys.readouterr()
    assert [each for each in diagnose(capsys)[1] if each["part"] == "events"] == []


def test_a_folder_that_cannot_be_reached_hides_nothing_of_the_others(
    background: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert invoke(["trust", "--yes"]) == invoke(["trigger", "fire", "asked"]) == exits.OK
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    why = "cannot be reached (File name too long)"
    with unreachable(background.parent):
        code, findings = diagnose(capsys)
        assert (invoke(["ps"]), invoke(["trust", "--list"])) == (exits.OK, exits.OK)
        assert f"of {background.parent}, a folder that {why}. Bring it back" in capsys.readouterr().err
    weak = {each["part"]: each for each in findings if each["state"] == "weak" and each["part"] in ("trust", "events")}
    assert code == exits.FAILED
    assert weak["trust"]["fact"] == f"{background} {why}: nobody knows whether it has changed"
    assert weak["events"]["fact"] == f"1 event waits for echo/asked of {background.parent}, a folder that {why}"
    assert invoke(shlex.split(weak["trust"]["remedy"].partition(": amplifier ")[2])) == exits.OK


def test_permissions_that_cannot_be_read_are_weak(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "settings.yaml").write_text("permissions: {mode: anything}\n")
    (home / "settings.yaml").chmod(0o600)
    code, findings = diagnose(capsys)
    (weak,) = [each for each in findings if each["part"] == "permissions"]
    assert (code, weak["state"]) == (exits.FAILED, "weak")
    assert weak["fact"].startswith("nothing starts: ")


def test_files_that_others_can_open_or_change_are_weak(
    capsys: pytest.CaptureFixture[str], home: Path, project: Path
) -> None:
    (home / "amplifier.db").touch()
    (home / "amplifier.db").chmod(0o644)
    (project / "bundle.md").touch()
    (project / "bundle.md").chmod(0o664)
    code, findings = diagnose(capsys)
    weak = {each["fact"]: each["remedy"] for each in findings if each["part"] == "files"}
    assert code == exits.FAILED
    assert weak == {
        f"{home / 'amplifier.db'} is open to others (mode 0644)": f"chmod go= {home / 'amplifier.db'}",
        f"others can change {project / 'bundle.md'} (mode 0664)": f"chmod go-w {project / 'bundle.md'}",
    }


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_files_of_another_user_are_weak(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "bundle.md").touch()
    os.chown(project / "bundle.md", 65534, 65534)
    facts = [each["fact"] for each in diagnose(capsys)[1] if each["part"] == "files"]
    assert facts == [f"{project / 'bundle.md'} belongs to another user"]


def find_store(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, str | None]]:
    return [(each["state"], each["fact"], each["remedy"]) for each in diagnose(capsys)[1] if each["part"] == "store"]


def test_a_store_that_cannot_be_read_is_weak(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    path = home / "amplifier.db"
    made = "is not there. It is made when the first session is stored"
    assert find_store(capsys) == [("off", f"{path}: {made}", None)]
    assert path.exists()  # by the try of amplifier acp
    assert find_store(capsys) == [("ok", "the store can be read, and its disk has room", None)]
    path.write_bytes(b"")
    [(state, fact, remedy)] = find_store(capsys)
    assert (state, remedy) == ("weak", "amplifier store check")
    assert fact.startswith(f"{path}: is empty: no store is that small. Go back to a backup")


def test_events_of_a_store_that_is_not_there_are_not_looked_for(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_BLOCK_PLUGINS", "acp")  # its try opens the store
    assert find_store(capsys)[0][0] == "off"
    assert not (home / "amplifier.db").exists()


def test_a_full_disk_is_weak(capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "LEAST_FREE", shutil.disk_usage(home).free * 2)
    find_store(capsys)  # the try of amplifier acp makes it
    [(state, fact, remedy)] = find_store(capsys)
    assert (state, remedy) == ("weak", "free some space")
    assert fact.startswith(f"the disk of {home} is full: ")


@contextmanager
def listening(family: socket.AddressFamily, address: str, project: Path) -> Iterator[int]:
    """Listen, as a process with background sessions; yield the port."""
    with socket.socket(family) as server:
        server.bind((address, 0))
        server.listen()
        with owner_lock({"projects": [str(project)], "bundles": []}):
            yield server.getsockname()[1]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not tell who listens")
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")])
def test_a_port_that_other_machines_reach_is_weak(family: socket.AddressFamily, address: str, project: Path) -> None:
    with listening(family, address, project) as port:
        (weak,) = check_ports()
    assert weak.state == "weak"
    assert weak.fact == f"other machines reach process {os.getpid()} at {address} port {port}"


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_of_this_machine_alone_is_ok(family: socket.AddressFamily, address: str, project: Path) -> None:
    with listening(family, address, project):
        (found,) = check_ports()
    assert found.state == "ok"


class _Sandbox:
    @hookimpl
    def amplifier_register_checkup(self, register: Any) -> None:
        register("sandbox", lambda: [{"part": "sandbox", "state": "ok", "fact": "commands run in bubblewrap"}])


class _Broken:
    @hookimpl
    def amplifier_register_checkup(self, register: Any) -> None:
        def fail() -> list[dict[str, str]]:
            raise RuntimeError("no such thing")

        register("broken", fail)


def test_a_plugin_adds_its_findings_and_one_that_fails_is_told(project: Path) -> None:
    plugins = Plugins([hookspecs])
    plugins.register(_Sandbox(), "sandbox")
    plugins.register(_Broken(), "broken")
    broken, sandbox = check_plugins(plugins)
    assert tuple(broken) == ("broken", "weak", "the check 'broken' failed: RuntimeError: no such thing", "")
    assert sandbox.fact == "commands run in bubblewrap"
    assert [each.state for each in find_all(plugins, project) if each.part == "sandbox"] == ["ok"]


def test_without_a_sandbox_it_says_with_what_rights_tools_run(project: Path) -> None:
    (found,) = [
        each
        for each in find_all(load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": ""}), project)
        if each.part == "sandbox"
    ]
    assert found.state == "off"
    assert "with your rights" in found.fact


@pytest.fixture
def unset_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the network is set."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("unset_network")
def test_proxies_are_tried_and_told_without_their_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as answers, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, and nobody listens
        open_port, closed_port = answers.getsockname()[1], silent.getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:hunter-two@127.0.0.1:{open_port}")
        monkeypatch.setenv("HTTP_PROXY", f"http://me:hunter-two@127.0.0.1:{closed_port}")
        monkeypatch.setenv("ALL_PROXY", "http://me:hunter/two@127.0.0.1")
        found = {each.fact: (each.state, each.remedy) for each in check_network()}
    answered = f"requests go through the proxy 127.0.0.1:{open_port} of HTTPS_PROXY, which answered just now"
    refused = f"the proxy 127.0.0.1:{closed_port} of HTTP_PROXY does not answer (Connection refused)"
    assert found[answered] == ("ok", "")
    assert found[refused] == ("weak", "Check HTTP_PROXY and the network")
    assert found["ALL_PROXY is no address of a proxy that can be read"][0] == "weak"
    assert "hunter" not in str(found)


@pytest.mark.usefixtures("unset_network")
def test_certificates_that_cannot_be_used_are_weak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (free,) = check_network()
    assert (free.state, free.fact) == ("ok", "requests go without a proxy")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "company.pem")
    assert ("off", "REQUESTS_CA_BUNDLE does not count here") in [each[1:3] for each in check_network()]
    file = tmp_path / "company.pem"
    file.write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    (_, weak) = check_network()
    assert (weak.state, weak.remedy) == ("weak", "Correct or unset SSL_CERT_FILE")
    assert weak.fact.startswith(f"SSL_CERT_FILE={file} holds no certificates that can be read (")
