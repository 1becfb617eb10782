"""What a provider says is stored without secrets: its errors, and the metadata of its responses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import converse, load_bundle

KEY = "key-of-the-house-0123456789"
PROVIDER = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock
from amplifier_core.llm_errors import AuthenticationError

class Leaky:
    name = "leaky"
    def __init__(self, key): self.key = key
    def get_info(self): return ProviderInfo(id="leaky", display_name="Leaky")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        if request.messages[-1].content == "fail":
            raise AuthenticationError(f"wrong key {self.key}", provider="leaky") from OSError(f"sent {self.key}")
        sent = {"headers": {"Authorization": f"Bearer {self.key}"}, "log": f"asked with {self.key}"}
        return ChatResponse(content=[TextBlock(text="hello")], metadata={"id": "r1", "request": sent})

async def mount(coordinator, config):
    if config["api_key"].startswith("refused"):
        raise ValueError(f"cannot use {config['api_key']}")
    await coordinator.mount("providers", Leaky(config["api_key"]))
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "leaky.py").write_text(PROVIDER)
    path = tmp_path / "bundle.md"
    path.write_text(
        "---\nbundle: {name: b}\nproviders:\n"
        f"  - {{module: provider-leaky, source: ./leaky.py, config: {{api_key: {KEY}}}}}\n---\n"
    )
    return path


async def test_the_error_of_a_provider_is_stored_and_raised_without_its_key(
    bundle: Path, store: DurableStore, plugins: Plugins, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="wrong key") as raised:
        await converse(await load_bundle(str(bundle)), "fail", store, plugins, working_dir=tmp_path)
    (record,) = await store.sessions()
    assert KEY not in f"{raised.value} {raised.value.__cause__} {record.error}"
    assert "wrong key [REDACTED]" in (record.error or "")


async def test_the_metadata_of_a_response_is_stored_without_keys(
    bundle: Path, store: DurableStore, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKY_API_KEY", KEY)
    turn = await converse(await load_bundle(str(bundle)), "hi", store, plugins, working_dir=tmp_path)
    stored = await store.read(turn.session_id)
    assert KEY not in json.dumps(stored)
    assert stored[-1]["metadata"]["id"] == "r1"


async def test_the_error_of_a_mount_is_told_without_the_key(
    bundle: Path, store: DurableStore, plugins: Plugins, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle.write_text(bundle.read_text().replace(KEY, f"refused-{KEY}"))
    with pytest.raises(RuntimeError, match=r"cannot use \[REDACTED\]"):
        await converse(await load_bundle(str(bundle)), "hi", store, plugins, working_dir=tmp_path)
    assert KEY not in caplog.text
