"""Webhooks on the whole program: what is answered with 202 is handled once, and nothing else is.

`ATTACKS` is how many requests are forged, replayed and oversized.
"""

from __future__ import annotations

import asyncio
import hmac
import http.client
import json
import os
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from amplifier_core import load_plugins
from amplifier_core.storage import DurableStore
from amplifier_core.triggers import TriggerContext
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke
from tests import forks

pytestmark = pytest.mark.slow

ATTACKS = int(os.environ.get("ATTACKS", "1000"))
SEED = int(os.environ.get("SEED", "20261121"))
SECRET = "a secret of the tests"
MOST = 2000

BUNDLE = """---
bundle: {name: hooked}
providers:
  - module: provider-playbook
    config: {otherwise: {say: "Done: {prompt}"}}
background_sessions:
  - name: hook
    triggers:
      - module: trigger-webhook
        config: {port: 0, secret_env: HOOK_SECRET}
  - name: notes
    triggers:
      - module: trigger-manual
        instruction_template: Release {version}
---
Answer.
"""


def signed(body: bytes, delivery: str, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, "sha256").hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": delivery}


class Client:
    """Posts over one connection, which it opens again when the server has closed it."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._path = address.path
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=120)

    def post(self, body: bytes, headers: dict[str, str]) -> int:
        self._connection.request("POST", self._path, body, headers)
        response = self._connection.getresponse()
        response.read()
        return response.status

    def close(self) -> None:
        self._connection.close()


def attacks(genuine: bytes, chance: random.Random) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Yield requests of which none may become an event: forged, oversized, and the genuine one again."""
    for number in range(ATTACKS):
        delivery = f"attack-{number}"
        body = genuine + b" " * chance.randrange(1, 50)
        good, bad = signed(genuine, delivery), signed(body, delivery, "another secret")
        header = good["X-Hub-Signature-256"]
        at = chance.randrange(7, len(header))
        other = header[:at] + chance.choice("0123456789abcdef".replace(header[at], "")) + header[at + 1 :]
        yield chance.choice(
            [
                (body, {}),
                (body, bad),
                (body, good),
                (genuine, {**good, "X-Hub-Signature-256": other}),
                (genuine, {**good, "X-Hub-Signature-256": header[:at]}),
                (genuine, {**good, "X-Hub-Signature-256": header.upper()}),
                (genuine, good),
                (genuine, signed(genuine, "genuine")),
                (b"x" * (MOST + chance.randrange(1, 10_000)), signed(b"x" * MOST, delivery)),
                (large := b"y" * (MOST + 1), signed(large, delivery)),
            ]
        )


async def test_nothing_forged_replayed_or_oversized_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    plugins = load_plugins(environ={})
    store: DurableStore = open_inbox(plugins, path=tmp_path / "amplifier.db")
    trigger = plugins.triggers.get("trigger-webhook")()
    trigger.bind(TriggerContext("system/hook#1"))  # type: ignore[attr-defined]
    trigger.configure({"port": 0, "secret_env": "HOOK_SECRET", "max_bytes": MOST, "rate": None})

    async def accept() -> None:
        async for event in trigger.watch():
            await store.enqueue("p", "queue", "system/hook#1", event)

    def attack(client: Client) -> Counter[int]:
        genuine = b'{"n": 1}'
        assert client.post(genuine, signed(genuine, "genuine")) == 202
        answers = Counter(client.post(*each) for each in attacks(genuine, random.Random(SEED)))
        client.close()
        return answers

    async with asyncio.TaskGroup() as group:
        group.create_task(accept())
        await trigger.ready()  # type: ignore[attr-defined]
        answers = await asyncio.to_thread(attack, Client(trigger.url))  # type: ignore[attr-defined]
        await trigger.stop()

    [delivery] = await store.deliveries()
    await store.close()
    assert delivery.event.dedupe_key == "system/hook#1 genuine"
    assert set(answers) == {202, 401, 413}  # 202 for what is stored already
    assert sum(answers.values()) == ATTACKS


def test_what_was_answered_with_202_survives_a_kill_and_is_handled_once(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    command = ["up"]
    with forks.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first_line = process.stderr.readline()
        listens = re.search(r"listens at (\S+)", first_line)
        assert listens is not None, first_line
        assert invoke(["trigger", "fire", "notes", "--data", '{"version": "1.2"}']) == exits.OK
        assert any("Done: Release 1.2" in line for line in process.stdout)  # by the process that runs
        client = Client(listens[1])
        accepted = [n for n in range(5) if client.post(b"%d" % n, signed(b"%d" % n, f"d-{n}")) == 202]
        process.send_signal(signal.SIGKILL)
        client.close()

    assert invoke(["up", "--once"]) == exits.OK
    assert accepted == [0, 1, 2, 3, 4]
    assert asyncio.run(handled(home / "amplifier.db")) == dict.fromkeys(accepted, "done")


async def handled(path: Path) -> dict[int, str]:
    store: DurableStore = open_inbox(load_plugins(environ={}), path=path)
    try:
        deliveries = [each for each in await store.deliveries() if each.queue == "hooked/hook"]
    finally:
        await store.close()
    assert len({each.session_id for each in deliveries}) == len(deliveries)
    return {json.loads(each.event.data["body"]): each.state for each in sorted(deliveries, key=lambda d: d.created)}
