"""An image from a file to the model of each service, and again from the stored history."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.wire import ollama
from tests.wire.server import Answer, Request, WireServer
from tests.wire.services import SERVICES

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c636000000002000148afa471"
    "0000000049454e44ae426082"
)
BUNDLE = """---
bundle: {name: looker}
providers: [PROVIDER]
tools: [{module: tool-filesystem}]
---
You look.
"""


async def run(*arguments: str) -> Any:
    """Run a turn in a process of its own, and return what it prints."""
    done = await asyncio.to_thread(forks.run, ("run", *arguments, "--json"), imports=forks.SDKS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


@pytest.mark.parametrize(("name", "sees"), [*((name, True) for name in SERVICES), ("ollama", False), ("chat", False)])
async def test_the_model_sees_an_image_that_it_reads_also_when_the_session_is_resumed(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, name: str, sees: bool
) -> None:
    service = SERVICES[name]
    for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
        monkeypatch.delenv(proxy.lower(), raising=False)
    seen = []

    def answer(request: Request) -> Answer:
        if request.target.endswith("/api/show"):
            return ollama.shows("completion", "tools", *(["vision"] if sees else []))
        text = json.dumps(request.json).replace("-", "+").replace("_", "/")  # one SDK writes base64 for addresses
        if b64encode(PNG).decode() in text:
            seen.append("image")
        elif "the model sees no images" in text.replace("+", "-").replace("/", "_"):
            seen.append("text")
        else:
            return service.say([], [("call_1", "read_file", {"file_path": "a.png"})])
        return service.say(["I have looked."], [])

    (project / "a.png").write_bytes(PNG)
    async with WireServer(answer) as server:
        config = {**service.configure(server.url), **({"vision": False} if name == "chat" and not sees else {})}
        provider = {"module": f"provider-{service.provider}", "config": config}
        (project / "bundle.md").write_text(BUNDLE.replace("PROVIDER", json.dumps(provider)))
        first = await run("look at a.png")
        second = await run("--resume", first["session_id"], "and again")
    assert [first["output"], second["output"]] == ["I have looked."] * 2
    assert seen == ["image" if sees else "text"] * 2
