"""Kept keys reach the modules of a session, and nothing that is stored, logged or raised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import converse, load_bundle, spawn_bundle
from amplifier_foundation.settings.keys import keep_key

KEY = "kept-key-of-the-tests-0123456789"
PROVIDER = """
import os
from amplifier_core import ChatResponse, ProviderInfo, TextBlock
from amplifier_core.llm_errors import AuthenticationError

DECLARED

class Service:
    name = "house"
    def __init__(self, config): self.config = config
    def get_info(self): return ProviderInfo(id="house", display_name="House")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        key = self.config.get("api_key") or os.environ.get("HOUSE_API_KEY") or "none"
        if request.messages[-1].content == "fail":
            raise AuthenticationError(f"wrong key {key}", provider="house")
        return ChatResponse(content=[TextBlock(text=f"{len(key)} {key[:4]}")], metadata={"sent": f"with {key}"})

async def mount(coordinator, config):
    if config.get("refuse"):
        raise ValueError(f"cannot use {config['api_key']} and {config.get('more')}")
    await coordinator.mount("providers", Service(config))
"""
KNOWN = f"{len(KEY)} kept"


@pytest.fixture(autouse=True)
def _no_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOUSE_API_KEY", raising=False)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path)


def write_bundle(folder: Path, config: str = "{}", declared: str = "") -> Path:
    (folder / "house.py").write_text(PROVIDER.replace("DECLARED", declared), encoding="utf-8")
    path = folder / "bundle.md"
    path.write_text(
        "---\nbundle: {name: b}\nproviders:\n"
        f"  - {{module: provider-house, source: ./house.py, config: {config}}}\n---\n",
        encoding="utf-8",
    )
    return path


async def answer(path: Path, store: DurableStore, plugins: Plugins, prompt: str = "hi") -> str:
    turn = await converse(await load_bundle(str(path)), prompt, store, plugins, working_dir=path.parent)
    return turn.output


async def test_a_provider_without_a_key_gets_the_kept_one(bundle: Path, store: DurableStore, plugins: Plugins) -> None:
    assert await answer(bundle, store, plugins) == "4 none"
    keep_key("HOUSE_API_KEY", KEY)
    assert await answer(bundle, store, plugins) == KNOWN


async def test_the_package_may_name_its_key(tmp_path: Path, store: DurableStore, plugins: Plugins) -> None:
    bundle = write_bundle(tmp_path, declared='credential_env_vars = ("MY_KEY", "MY_OLD_KEY")')
    keep_key("HOUSE_API_KEY", "not-this-one-0123456789")
    assert await answer(bundle, store, plugins) == "4 none"
    keep_key("MY_OLD_KEY", KEY)
    assert await answer(bundle, store, plugins) == KNOWN


async def test_the_bundle_comes_first_then_the_environment_then_the_kept_key(
    tmp_path: Path, store: DurableStore, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    monkeypatch.setenv("HOUSE_API_KEY", "environment")
    assert await answer(write_bundle(tmp_path), store, plugins) == "11 envi"
    keep_key("OTHER_KEY", "other-key-0123456789")
    referring = write_bundle(tmp_path, '{api_key: "secret://OTHER_KEY"}')
    assert await answer(referring, store, plugins) == "20 othe"


async def test_a_kept_key_goes_to_no_address_of_a_bundle_by_itself(
    tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    elsewhere = write_bundle(tmp_path, '{base_url: "http://127.0.0.1:9"}')
    assert await answer(elsewhere, store, plugins) == "4 none"
    meant = write_bundle(tmp_path, '{base_url: "http://127.0.0.1:9", api_key: "secret://HOUSE_API_KEY"}')
    assert await answer(meant, store, plugins) == KNOWN


async def test_the_record_holds_the_reference_and_no_key(tmp_path: Path, store: DurableStore, plugins: Plugins) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    bundle = write_bundle(tmp_path, '{api_key: "secret://HOUSE_API_KEY", more: ["secret://HOUSE_API_KEY"]}')
    assert await answer(bundle, store, plugins) == KNOWN
    (record,) = await store.sessions()
    assert record.config["providers"][0]["config"]["api_key"] == "secret://HOUSE_API_KEY"
    assert KEY not in str(record.config) + json.dumps(await store.read(record.session_id))


async def test_a_session_of_a_session_gets_the_key_and_stores_the_reference(
    tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    bundle = write_bundle(tmp_path, '{api_key: "secret://HOUSE_API_KEY"}')
    prepared = await (await load_bundle(str(bundle))).prepare()
    async with await prepared.create_session(session_cwd=tmp_path, plugins=plugins) as parent:
        result = await spawn_bundle(str(bundle), "hi", parent, session_storage=store)
        fork = await parent.fork()
        assert await fork.execute("hi") == KNOWN
    assert result.output == KNOWN
    record = await store.get(result.session_id)
    assert record.config["providers"][0]["config"]["api_key"] == "secret://HOUSE_API_KEY"


async def test_errors_name_no_kept_key(
    tmp_path: Path, store: DurableStore, plugins: Plugins, caplog: pytest.LogCaptureFixture
) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    with pytest.raises(Exception, match=r"wrong key \[REDACTED\]"):
        await answer(write_bundle(tmp_path), store, plugins, "fail")
    refusing = '{refuse: true, api_key: "secret://HOUSE_API_KEY", more: "secret://HOUSE_API_KEY"}'
    with pytest.raises(RuntimeError, match=r"cannot use \[REDACTED\] and \[REDACTED\]"):
        await answer(write_bundle(tmp_path, refusing), store, plugins)
    assert KEY not in caplog.text
    assert all(KEY not in (record.error or "") for record in await store.sessions())


async def test_a_reference_to_no_key_is_told_with_the_command(
    tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    bundle = write_bundle(tmp_path, '{api_key: "secret://NO_SUCH_KEY"}')
    with pytest.raises(RuntimeError, match="there is no key NO_SUCH_KEY: .*amplifier auth login NO_SUCH_KEY"):
        await answer(bundle, store, plugins)


async def test_a_damaged_file_of_keys_stops_no_session_that_needs_none(
    bundle: Path, store: DurableStore, plugins: Plugins, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    (home / "keys.json").write_text("{")
    assert await answer(bundle, store, plugins) == "4 none"
    assert "keys.json: is not JSON" in caplog.text


async def test_a_reference_is_no_secret_in_a_bundle(tmp_path: Path) -> None:
    assert (await load_bundle(str(write_bundle(tmp_path, '{api_key: "secret://HOUSE_API_KEY"}')))).problems == []
    [problem] = (await load_bundle(str(write_bundle(tmp_path, "{api_key: something-secret}")))).problems
    assert "keep it with 'amplifier auth login', and write secret://NAME" in problem.message


async def test_a_secret_in_a_trigger_gets_the_remedy_that_a_trigger_takes(tmp_path: Path) -> None:
    triggers = "[{module: trigger-webhook, config: {secret: something-secret}}]"
    sessions = f"background_sessions: [{{name: w, triggers: {triggers}}}]"
    (tmp_path / "bundle.md").write_text(f"---\nbundle: {{name: b}}\n{sessions}\n---\n")
    [problem] = (await load_bundle(str(tmp_path / "bundle.md"))).problems
    assert problem.message.startswith("a secret is written here; put it into an environment variable, and name that")
