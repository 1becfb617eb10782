"""Modules as others write them, one of each kind, under `amplifier run`."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests import forks

ECOSYSTEM = Path(__file__).parents[1] / "ecosystem"

BUNDLE = """---
bundle: {{name: tidy}}
session:
  orchestrator: {{module: loop-stream, source: ./modules/amplifier-module-loop-stream}}
  context: {{module: context-memory, source: ./modules/amplifier-module-context-memory}}
providers:
  - module: provider-cloud
    source: ./modules/amplifier-module-provider-cloud
    config: {{base_url: "{url}", min_retry_delay: 0, default_model: large}}
tools:
  - {{module: tool-files, source: ./modules/amplifier-module-tool-files}}
  - {{module: tool-tasks, source: ./modules/amplifier-module-tool-tasks}}
hooks:
  - {{module: hooks-log, source: ./modules/amplifier-module-hooks-log, config: {{path: log/events.jsonl}}}}
---
You tidy.
"""


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ECOSYSTEM / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def amplifier(*arguments: str) -> tuple[int | None, str, str]:
    done = await asyncio.to_thread(forks.run, arguments)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.usefixtures("home")
async def test_they_run_unchanged_and_their_session_is_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = load("cloud")
    monkeypatch.setenv("CLOUD_API_KEY", "key-of-the-cloud")
    shutil.copytree(ECOSYSTEM / "modules", project / "modules", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "notes.md").write_text("b\na\n", encoding="utf-8")
    (project / "log").mkdir()
    script = [
        cloud.says(cloud.text("I will look."), cloud.calls("1", "read_file", path="notes.md")),
        cloud.says(cloud.text("Sorted.")),
    ]
    async with cloud.Cloud(script) as service:
        (project / "bundle.md").write_text(BUNDLE.format(url=service.url), encoding="utf-8")
        code, out, err = await amplifier("run", "--json", "Tidy my notes")
    assert code == 0, err
    turn = json.loads(out)["data"]
    assert (turn["output"], turn["status"]) == ("Sorted.", "completed")
    assert len(service.requests) == 2
    assert "You tidy." in json.dumps(service.requests[0])

    code, out, err = await amplifier("session", "show", "--json", turn["session_id"])
    assert code == 0, err
    messages = json.loads(out)["data"]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert "key-of-the-cloud" not in out
    logged = [json.loads(line)["event"] for line in (project / "log" / "events.jsonl").read_text().splitlines()]
    assert logged[0] == "session:start"
    assert logged[-1] == "session:end"


BACKGROUND = """---
bundle: {name: counting}
providers:
  - {module: provider-playbook, config: {otherwise: {say: "Counted."}}}
background_sessions:
  - {name: counter, triggers: [{module: trigger-count, config: {count: 2}}]}
---
"""
COUNTS = """
import asyncio
from amplifier_core import TriggerEvent, TriggerType

class CountTrigger:
    def configure(self, config):
        self.count = config["count"]
    async def watch(self):
        for n in range(self.count):
            yield TriggerEvent(TriggerType.CUSTOM, "count", data={"n": n}, dedupe_key=str(n))
        await asyncio.Event().wait()
    async def stop(self):
        pass

async def mount(coordinator, config=None):
    trigger = CountTrigger()
    trigger.configure(config)
    await coordinator.mount("trigger", trigger)
"""


@pytest.mark.usefixtures("home")
async def test_a_trigger_in_a_folder_of_modules_wakes_a_background_session(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "modules" / "amplifier-module-trigger-count" / "amplifier_module_trigger_count"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(COUNTS, encoding="utf-8")
    (project / "bundle.md").write_text(BACKGROUND, encoding="utf-8")
    code, _, err = await amplifier("up", "--dry-run", "bundle.md")
    assert (code, "unknown trigger 'trigger-count'" in err) == (4, True)
    monkeypatch.setenv("AMPLIFIER_MODULES", str(tmp_path / "modules"))
    code, out, err = await amplifier("up", "--once", "bundle.md")
    assert code == 0, err
    assert out.count("Counted.") == 2
    code, _, err = await amplifier("trigger", "simulate")
    assert code == 0, err
