"""One bundle, whole: a workflow with forks, reviewers side by side and a verdict, on services that enforce schemas."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.wire.server import Answer, Request, WireServer
from tests.wire.services import SERVICES, Service

BUNDLE = """---
bundle: {name: builders}
providers: [PROVIDER]
agents:
  planner: {description: Plans., instruction: You plan.}
  coder: {description: Codes., instruction: You code., tools: [{module: tool-filesystem}]}
  critic: {description: Reviews., instruction: You review.}
workflows:
  feature:
    input: {goal: greet}
    steps:
      - {id: plan, agent: planner, prompt: "Plan: {input.goal}"}
      - {id: implement, agent: coder, fork: plan, prompt: Implement it.}
      - id: verify
        agent: coder
        fork: implement
        prompt: Verify it.
        output_schema: {type: object, properties: {passed: {type: boolean}}, required: [passed]}
      - parallel:
          - {id: security, agent: critic, fork: plan, prompt: Review the security., output_schema: LIST}
          - {id: style, agent: critic, fork: plan, prompt: Review the style., output_schema: LIST}
      - loop:
          - {id: mend, agent: coder, fork: verify, prompt: "Mend it, round {iteration}."}
          - id: review
            agent: critic
            fork: mend
            prompt: "Judge round {iteration}."
            output_schema:
              type: object
              properties: {done: {type: boolean}, left: {type: integer, minimum: 0}}
              required: [done, left]
        until: review.done
        max_iterations: 4
---
You build.
""".replace("LIST", "{type: array, items: {type: string}}")
VALUES = {
    "Verify it.": {"passed": True},
    "Review the security.": [],
    "Review the style.": ["Name it better."],
    "Judge round 1.": {"done": False, "left": -1},
    "$.left: -1 is less than the minimum": {"done": False, "left": 2},
    "Judge round 2.": {"done": True, "left": 0},
}
"""What the model finds; its first verdict fits the types, but not the schema."""


class Model:
    """A model that writes a file, and says what it finds as JSON when that is enforced, else in a sentence."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.asked: list[tuple[str, bool, Any, list[str]]] = []
        """Of each request: the prompt, whether it had tools, its schema, and the prompts before."""

    def answer(self, request: Request) -> Answer:
        """Answer a request."""
        body, reading = request.json, self.service.read(request.json)
        assert reading.find_fault() is None
        prompts = [str(message.content) for message in reading.messages if message.role == "user"]
        schema = self.service.find_schema(body)
        self.asked.append((prompts[-1], bool(body.get("tools")), schema, prompts[:-1]))
        return self._say(prompts[-1], reading.messages[-1].role, schema)

    def _say(self, prompt: str, role: str, schema: Any) -> Answer:
        if prompt == "Implement it." and role == "user":
            given = {"file_path": "greeting.txt", "content": "Hello\n"}
            return self.service.say([], [("call_1", "write_file", given)])
        found = [value for part, value in VALUES.items() if part in prompt]
        if not found:
            return self.service.say([f"I have done this: {prompt}"], [])
        if schema is None:
            return self.service.say([f"I find {json.dumps(found[0])}, all in all."], [])
        value = {"answer": found[0]} if "answer" in schema["properties"] else found[0]
        return self.service.say([json.dumps(value)], [])


@pytest.fixture
def folder(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return project


async def amplifier(*arguments: str) -> Any:
    """Give a command to a process of its own, and return the data that it prints."""
    done = await asyncio.to_thread(forks.run, (*arguments, "--json"), imports=forks.SDKS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


@pytest.mark.parametrize("name", SERVICES)
async def test_a_workflow_plans_builds_and_judges_by_what_the_service_enforces(folder: Path, name: str) -> None:
    model = Model(SERVICES[name])
    async with WireServer(model.answer) as server:
        provider = {"module": f"provider-{model.service.provider}", "config": model.service.configure(server.url)}
        (folder / "bundle.md").write_text(BUNDLE.replace("PROVIDER", json.dumps(provider)))
        done = await amplifier("flow", "run")
    assert (folder / "greeting.txt").read_text() == "Hello\n"
    assert (done["status"], done["outputs"]["verify"], done["outputs"]["review"]) == (
        "completed", {"passed": True}, {"done": True, "left": 0}
    )  # fmt: skip
    assert (done["outputs"]["security"], done["outputs"]["style"]) == ([], ["Name it better."])

    said = {prompt: before for prompt, _, _, before in model.asked}
    plan, built = ["Plan: greet"], ["Plan: greet", "Implement it.", "Verify it."]
    assert said["Verify it."] == built[:2]
    assert said["Review the security."] == said["Review the style."] == plan
    assert said["Judge round 2."] == [*built, "Mend it, round 2."]
    [corrected] = [prompt for prompt in said if "does not fit" in prompt]
    assert said[corrected] == [*built, "Mend it, round 1.", "Judge round 1."]

    takes_both = name not in ("chat", "ollama")
    for prompt, has_tools, schema, _ in model.asked:
        wants = bool(re.match("Verify|Review|Judge|Your answer", prompt))
        assert has_tools is bool(re.match("Implement|Verify|Mend", prompt)), prompt
        assert (schema is not None) is (wants and (takes_both or not has_tools)), prompt

    tasks = (await amplifier("flow", "show", done["run"]))["tasks"]
    assert [task["task"] for task in tasks][-4:] == ["mend", "review"] * 2
    shown = await amplifier("session", "show", tasks[-3]["session"])
    assert [message["role"] for message in shown["messages"]][-4:] == ["user", "assistant"] * 2
