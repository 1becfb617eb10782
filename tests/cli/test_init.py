"""The first contact: `amplifier init` and `amplifier run` find a provider by looking around."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from amplifier_foundation.bundle.first_provider import choose_provider
from amplifier_foundation.bundle.load import load_bundle_sync
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.settings.keys import keep_key

from .test_bundle import install_package

KEY = "found-key-of-the-tests-0123456789"
PROVIDER = """
import os
from amplifier_core import ChatResponse, ProviderInfo, TextBlock

class Service:
    name = "NAME"
    def __init__(self, config): self.config, self.priority = config, config.get("priority", 100)
    def get_info(self): return ProviderInfo(id="NAME", display_name="NAME")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        key = self.config.get("api_key") or os.environ.get("NAME_API_KEY".upper()) or "no key"
        facts = ["NAME", key[:5], self.config.get("default_model", "default"), self.config.get("base_url", "")]
        return ChatResponse(content=[TextBlock(text=" ".join(facts).strip())])

async def mount(coordinator, config):
    service = Service(config)
    await coordinator.mount("providers", service, name=service.name)
"""
Run = Callable[..., "CompletedProcess[str]"]


class Tags(BaseHTTPRequestHandler):
    """Lists models as Ollama does."""

    models = ("nomic-embed-text:latest", "qwen9:8b")

    def do_GET(self) -> None:
        body = json.dumps({"models": [{"name": name} for name in self.models]}).encode()
        self.send_response(200 if self.path == "/api/tags" else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An Ollama on a port of its own; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Tags) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("OLLAMA_HOST", f"0.0.0.0:{server.server_port}")
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def install(home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install providers of these names, in a folder of modules; without a key, and without an Ollama."""
    monkeypatch.setenv("AMPLIFIER_MODULES", str(tmp_path / "modules"))
    monkeypatch.delenv("HOUSE_API_KEY", raising=False)

    def install(*names: str) -> None:
        for name in names:
            package = f"amplifier-module-provider-{name}/amplifier_module_provider_{name}"
            folder = tmp_path / "modules" / package
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text(PROVIDER.replace("NAME", name), encoding="utf-8")

    return install


def told(done: CompletedProcess[str]) -> CompletedProcess[str]:
    assert done.returncode == exits.OK, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_with_a_key_in_the_environment_and_nothing_else_two_commands_are_enough(
    amplifier: Run, install: Callable[..., None], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("house")
    monkeypatch.setenv("HOUSE_API_KEY", KEY)
    made = told(amplifier("init"))
    assert made.stdout == "bundle.md\n"
    assert made.stderr.splitlines() == [
        "provider-house: HOUSE_API_KEY is in the environment",
        'Try it: amplifier run "hello"',
    ]
    assert KEY not in (project / "bundle.md").read_text()
    assert load_bundle_sync("bundle.md").problems == []
    assert told(amplifier("bundle", "validate")).stdout == "bundle.md: valid\n"
    assert told(amplifier("run", "hello")).stdout == "house found default\n"


@pytest.mark.parametrize("command", [("init",), ("bundle", "new")])
def test_a_first_bundle_is_written_whatever_keeps_its_packages_from_being_known(
    command: tuple[str, ...], amplifier: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(folder: str, *options: str) -> str:
        done = told(amplifier(*options, *command, folder))
        assert done.stdout == f"{folder}/bundle.md\n"
        *_, last = done.stderr.splitlines()
        assert last == f'Try it: amplifier run -b {folder} "hello"'
        return done.stderr

    assert "missing" not in write("safe", "--safe-mode"), "a plugin that is not loaded is installed"
    with monkeypatch.context() as patched:
        patched.setenv("AMPLIFIER_BLOCK_PLUGINS", "storage-sqlite")
        assert "missing" not in write("blocked")
        patched.delenv("AMPLIFIER_BLOCK_PLUGINS")
        patched.setenv("AMPLIFIER_STORAGE", "storage-of-none")
        assert "missing" not in write("unknown"), "no package is known"
    (project / ".amplifier").mkdir()
    (project / ".amplifier/settings.yaml").write_text("{")
    write("broken")


def test_a_first_bundle_imports_no_plugin(
    home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "imported"
    install_package(tmp_path / "site", "noisy", f"open({str(mark)!r}, 'w').close()", "amplifier")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("AMPLIFIER_HOME", str(home))
    for arguments, imports in (
        (("init", "a"), False),
        (("bundle", "new", "b"), False),
        (("bundle", "validate", "b"), True),
    ):
        subprocess.run([sys.executable, "-m", "amplifier_foundation", *arguments], check=True, capture_output=True)
        assert mark.exists() == imports, arguments


def test_a_kept_key_is_found_and_used(amplifier: Run, install: Callable[..., None]) -> None:
    install("house")
    keep_key("HOUSE_API_KEY", KEY)
    assert "provider-house: HOUSE_API_KEY is in keys.json\n" in told(amplifier("init", "--model", "fast")).stderr
    assert told(amplifier("run", "hello")).stdout == "house found fast\n"


def test_of_several_keys_one_is_taken_and_the_others_are_told(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("house", "openai", "anthropic")
    for name in ("HOUSE", "OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
    choice = choose_provider()
    assert (choice.module, choice.reason) == ("provider-anthropic", "ANTHROPIC_API_KEY is in the environment")
    assert choice.remarks == (
        "OPENAI_API_KEY is in the environment, too: amplifier init --provider openai",
        "HOUSE_API_KEY is in the environment, too: amplifier init --provider house",
    )


def test_a_key_without_its_provider_is_told_with_the_package(
    amplifier: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_foundation.bundle.check.names_of_modules", lambda: {"provider-playbook"})
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    choice = choose_provider()
    assert choice.module == "provider-playbook"
    assert choice.remarks == (
        "OPENAI_API_KEY is in the environment; its provider is missing: pip install amplifier-provider-openai",
    )
    with pytest.raises(LookupError) as caught:
        choose_provider("openai")
    assert str(caught.value) == (
        "provider 'provider-openai' is not installed. Installed: provider-playbook. "
        "Its key is there: OPENAI_API_KEY (environment). Install it with: pip install amplifier-provider-openai"
    )
    assert KEY not in str(caught.value)


def test_a_bundle_with_a_missing_provider_names_its_package_and_its_key(
    amplifier: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABSENT_API_KEY", KEY)
    (project / "bundle.md").write_text(
        "---\nbundle: {name: b}\nproviders: [{module: provider-absent, package: absent}]\n---\n"
    )
    done = amplifier("run", "hello")
    assert done.returncode == exits.USAGE
    wanted = "Its key is there: ABSENT_API_KEY (environment). Install it with: pip install absent"
    assert wanted in " ".join(done.stderr.split())


def test_without_a_key_a_local_ollama_answers(
    amplifier: Run, install: Callable[..., None], ollama: str, project: Path
) -> None:
    install("ollama")
    assert f"provider-ollama: Ollama answers at {ollama}\n" in told(amplifier("init")).stderr
    assert "base_url" not in (project / "bundle.md").read_text()
    assert told(amplifier("run", "hello")).stdout == "ollama no ke qwen9:8b\n"


def test_the_provider_for_openai_stands_in_for_that_for_ollama(ollama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"provider-openai", "provider-playbook"}
    monkeypatch.setattr("amplifier_foundation.bundle.check.names_of_modules", lambda: names)
    better = "Ollama's own provider is missing: pip install amplifier-provider-ollama"
    for choice in (choose_provider(), choose_provider("ollama")):
        assert choice.module == "provider-openai"
        assert choice.config == {"base_url": f"{ollama}/v1", "default_model": "qwen9:8b"}
        assert choice.remarks == (better,)


def test_ollama_by_its_name_needs_no_running_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    names = {"provider-ollama", "provider-openai"}
    monkeypatch.setattr("amplifier_foundation.bundle.check.names_of_modules", lambda: names)
    assert choose_provider("ollama")[:3] == ("provider-ollama", {}, "you named it")
    names.remove("provider-ollama")
    with pytest.raises(LookupError, match=r"no Ollama answers at http://127.0.0.1:9. Start it with: ollama serve"):
        choose_provider("ollama")
    names.clear()
    with pytest.raises(LookupError, match="pip install amplifier-provider-ollama"):
        choose_provider("ollama")


def test_an_ollama_without_a_model_or_without_its_provider_is_told(
    install: Callable[..., None], ollama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("amplifier_foundation.bundle.check.names_of_modules", lambda: {"provider-playbook"})
        choice = choose_provider()
        remark = f"Ollama answers at {ollama}; to use it: pip install amplifier-provider-ollama"
        assert (choice.module, choice.remarks) == ("provider-playbook", (remark,))
    install("openai")
    names = {"provider-openai", "provider-playbook"}
    monkeypatch.setattr("amplifier_foundation.bundle.check.names_of_modules", lambda: names)
    monkeypatch.setattr(Tags, "models", ())
    assert choose_provider().remarks == (f"Ollama answers at {ollama}; to use it: ollama pull MODEL",)
    with pytest.raises(LookupError, match=r"has no model. Get one with: ollama pull MODEL"):
        choose_provider("ollama")
    assert choose_provider("ollama", "mine").config["default_model"] == "mine"


@pytest.mark.parametrize("host", ["127.0.0.1:9", "http://127.0.0.1:9/", "[::1]:9", "host:port", "http://", "a b"])
def test_an_address_without_an_ollama_is_no_error(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert choose_provider().module == "provider-playbook"


def test_without_anything_the_playbook_answers_in_memory_and_in_a_file(amplifier: Run, project: Path) -> None:
    done = told(amplifier("run", "hello"))
    assert done.stdout == "You said: hello\n"
    assert "so provider-playbook answers: no installed provider has a key" in done.stderr
    assert "A model needs: amplifier auth login" in done.stderr
    assert list(project.iterdir()) == []
    told(amplifier("init"))
    (project / "notes.txt").write_text("one\ntwo\n")
    assert told(amplifier("run", "read notes.txt")).stdout == "It has 2 lines.\n"


def test_a_model_that_the_playbook_cannot_ask_is_told(amplifier: Run) -> None:
    done = told(amplifier("run", "--model", "nope", "hello"))
    assert done.stdout == "You said: hello\n"
    assert "amplifier: provider-playbook asks no model: 'nope' is not used\n" in done.stderr


def test_a_session_without_a_bundle_is_resumed_with_its_provider(
    amplifier: Run, install: Callable[..., None], project: Path
) -> None:
    install("house", "other")
    first = told(amplifier("run", "--json", "--provider", "house", "--model", "large", "hello"))
    assert "so provider-house answers: you named it. Keep it: amplifier init" in first.stderr
    turn = json.loads(first.stdout)["data"]
    assert turn["output"] == "house no ke large"
    keep_key("OTHER_API_KEY", KEY)
    assert told(amplifier("run", "--resume", turn["session_id"], "again")).stdout == "house no ke large\n"
    assert told(amplifier("-q", "run", "--fork", turn["session_id"], "--provider", "other", "and?")).stdout == (
        "other found default\n"
    )


def test_the_command_line_names_the_provider_and_the_model_of_a_bundle(
    amplifier: Run, install: Callable[..., None]
) -> None:
    install("house", "other")
    told(amplifier("init", "--provider", "house"))
    assert told(amplifier("run", "--model", "large", "hello")).stdout == "house no ke large\n"
    assert told(amplifier("run", "--provider", "other", "--model", "small", "hello")).stdout == "other no ke small\n"
    done = amplifier("run", "--provider", "absent", "hello")
    assert (done.returncode, done.stdout) == (exits.NOT_FOUND, "")
    assert "provider 'provider-absent' is not installed. Installed: " in done.stderr


def test_an_existing_bundle_stays_unless_it_is_forced(amplifier: Run, project: Path) -> None:
    (project / "bundle.md").write_text("mine")
    done = amplifier("init")
    assert (done.returncode, done.stdout) == (exits.CONFLICT, "")
    assert done.stderr == "amplifier: bundle.md exists and stays as it is; replace a bundle.md with --force\n"
    assert (project / "bundle.md").read_text() == "mine"
    told(amplifier("init", "--force"))
    assert (project / "bundle.md.backup").read_text() == "mine"
    assert told(amplifier("run", "hello")).stdout == "You said: hello\n"


@pytest.mark.parametrize("target", ["gone/b.md", ".", None])
def test_a_bundle_that_cannot_be_read_is_replaced_by_force(amplifier: Run, project: Path, target: str | None) -> None:
    path = project / "bundle.md"
    if target is None:
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    assert "replace a bundle.md with --force" in amplifier("init").stderr
    (project / "bundle.yaml").write_text("bundle: {name: a}\nproviders: []\n")
    assert "bundle.yaml exists and stays as it is" in amplifier("init", "--force").stderr
    assert (path.is_symlink(), path.is_fifo()) == (target is not None, target is None)
    (project / "bundle.yaml").unlink()
    told(amplifier("init", "--force"))
    assert told(amplifier("run", "hello")).stdout == "You said: hello\n"
    assert (project / "bundle.md.backup").is_symlink() == (target is not None)


def test_the_json_says_what_was_chosen_and_why(amplifier: Run) -> None:
    data = json.loads(told(amplifier("init", "deep/folder", "--json")).stdout)
    assert (data["schema"], data["data"]["provider"], data["data"]["remarks"]) == (
        "amplifier/init/1",
        "provider-playbook",
        [],
    )
    assert Path(data["data"]["path"]).is_file()


def test_a_damaged_file_of_keys_is_told_and_stops_nothing(amplifier: Run, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "keys.json").write_text("{")
    done = told(amplifier("init"))
    assert "keys.json: is not JSON. Repair it, or remove it" in done.stderr


@pytest.mark.parametrize("command", ["init", "init --force", "bundle new"])
def test_a_bundle_that_cannot_be_trusted_is_not_written(
    command: str, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "trust").touch()
    if command == "init --force":
        (project / "bundle.md").write_text("of before")
    assert invoke(command.split()) == exits.TRY_AGAIN
    assert f"amplifier: {home / 'trust'}: is a file, where a folder is needed" in capsys.readouterr().err
    assert [each.read_text() for each in project.iterdir()] == ["of before"] * (command == "init --force")
    (home / "trust").unlink()
    assert invoke(command.split()) == exits.OK
