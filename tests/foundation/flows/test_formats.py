"""What a service is asked to enforce for a task with a schema, and what is read of its answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pydantic import BaseModel, RootModel

from amplifier_foundation.flows.formats import CAPABILITY, wish
from amplifier_foundation.flows.outputs import Shape
from amplifier_foundation.flows.runs import run_workflow
from amplifier_foundation.flows.tasks import Sequence, Step, Task, Workflow
from tests.wire.authorities import one_authority  # noqa: F401  # a fixture
from tests.wire.server import Answer, Request, WireServer
from tests.wire.services import SERVICES, Service

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_foundation.flows.runs import RunResult

COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CLOSED = {**COUNT, "additionalProperties": False}
NAMES = {"type": "array", "items": {"type": "string"}}


class Verdict(BaseModel):
    """An answer as a model."""

    mark: Literal["good", "bad"]
    reasons: list[str] = []


class Words(RootModel[list[str]]):
    """An answer that is a list."""


# the wish


def asked(schema: Any) -> Any:
    """Return the schema that a service is asked for."""
    wanted = wish(schema)[CAPABILITY]
    assert wanted["type"] == "json_schema"
    return wanted["json_schema"]["schema"]


def in_answer(schema: Any, **more: Any) -> Any:
    properties = {"answer": schema}
    closed = {"type": "object", "properties": properties, "required": ["answer"], "additionalProperties": False}
    return {**closed, **more}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (COUNT, CLOSED),
        ({"properties": {"n": {}}, "required": ["n"]}, {**CLOSED, "properties": {"n": {}}}),
        ({"required": ["done"]}, {"type": "object", "required": ["done"]}),
        ({**COUNT, "required": ["m"]}, {**COUNT, "required": ["m"]}),
        ({**COUNT, "additionalProperties": True}, {**COUNT, "additionalProperties": True}),
        ({**COUNT, "patternProperties": {"^x": {}}}, {**COUNT, "patternProperties": {"^x": {}}}),
        ({**COUNT, "anyOf": [COUNT]}, {**COUNT, "anyOf": [COUNT]}),
        ({"type": "object", "allOf": [COUNT]}, {"type": "object", "allOf": [COUNT]}),
        ({"type": "array", "items": COUNT}, in_answer({"type": "array", "items": CLOSED})),
        ({"enum": ["a", "b"]}, in_answer({"enum": ["a", "b"]})),
        ({"type": ["string", "null"]}, in_answer({"type": ["string", "null"]})),
        ({"oneOf": [COUNT, {"type": "null"}]}, in_answer({"oneOf": [CLOSED, {"type": "null"}]})),
        ({"$ref": "#/$defs/c", "$defs": {"c": COUNT}}, in_answer({"$ref": "#/$defs/c"}, **{"$defs": {"c": CLOSED}})),
    ],
)
def test_a_service_is_asked_for_an_object_without_unnamed_members(schema: Any, told: Any) -> None:
    before = json.dumps(schema)
    assert asked(schema) == told
    assert json.dumps(schema) == before


@pytest.mark.parametrize("schema", [None, {}, {"description": "anything"}])
def test_nothing_is_wished_for_without_a_schema_that_says_something(schema: Any) -> None:
    assert wish(schema) == {}


def test_a_model_is_asked_for_by_its_schema() -> None:
    told = asked(Verdict)
    assert (told["additionalProperties"], [*told["properties"]]) == (False, ["mark", "reasons"])
    assert asked(Words)["properties"]["answer"]["items"] == {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "said", "output", "has_problem"),
    [
        (NAMES, '{"answer": ["a"]}', ["a"], False),
        (NAMES, 'Here: ["a"]', ["a"], False),
        (NAMES, '{"answer": [1]}', [1], True),
        (NAMES, '{"answer": ["a"], "more": 1}', {"answer": ["a"], "more": 1}, True),
        (Words, '{"answer": ["a"]}', ["a"], False),
        ({"enum": ["a"]}, '{"answer": "a"}', "a", False),
        ({"anyOf": [{"properties": {"answer": {"type": "integer"}}}]}, '{"answer": 1}', {"answer": 1}, False),
        ({"type": "object", "required": ["n"]}, '{"answer": {"n": 1}}', {"answer": {"n": 1}}, True),
        (COUNT, '{"n": 1, "more": 2}', {"n": 1, "more": 2}, False),
    ],
)
def test_a_value_is_read_with_or_without_the_object_around_it(
    schema: Any, said: str, output: Any, has_problem: bool
) -> None:
    value, problems = Shape(schema).read(said)
    assert (value, bool(problems)) == (output, has_problem)


# on the wire


Run = Any


class Scripted:
    """A model behind a service: it says these texts in turn, or answers as a function of the schema does."""

    def __init__(self, service: Service, *texts: str, choose: Callable[[Any], Answer | str] | None = None) -> None:
        self.service = service
        self._texts = list(texts)
        self._choose = choose
        self.schemas: list[Any] = []
        self.lengths: list[int] = []

    def answer(self, request: Request) -> Answer:
        """Answer a request, and note the schema in it and the number of messages."""
        schema = self.service.find_schema(request.json)
        self.schemas.append(schema)
        reading = self.service.read(request.json)
        assert reading.find_fault() is None
        self.lengths.append(len(reading.messages))
        said = self._texts.pop(0) if self._choose is None else self._choose(schema)
        return self.service.say([said], []) if isinstance(said, str) else said


def task(name: str, schema: Any = None, **options: Any) -> Task:
    return Task(name, agent="self", prompt=name, output_schema=schema, retries=0, **options)


@pytest.fixture
def run(
    make_bundle: Any, store: DurableStore, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run a step with agents that ask a scripted model."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)

    async def run(step: Step, model: Scripted, **sections: Any) -> RunResult:
        async with WireServer(model.answer) as server:
            provider = {"module": f"provider-{model.service.provider}", "config": model.service.configure(server.url)}
            prepared = make_bundle("flows", **{"providers": [provider], **sections})
            return await run_workflow(Workflow("work", step), prepared, store, plugins, working_dir=tmp_path)

    return run


protocols = pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))


@protocols
async def test_the_schema_of_a_task_is_on_the_wire_and_a_wrong_answer_is_corrected_in_its_session(
    run: Run, store: DurableStore, service: Service
) -> None:
    model = Scripted(service, "Good day.", '{"n": "one"}', '{"n": 1}', '{"answer": ["a", "b"]}')
    result = await run(Sequence(task("greet"), task("count", COUNT), task("names", NAMES)), model)
    assert result.error is None
    assert result.outputs == {"greet": "Good day.", "count": {"n": 1}, "names": ["a", "b"]}
    assert model.schemas == [None, CLOSED, CLOSED, in_answer(NAMES)]
    assert model.lengths == [1, 1, 3, 1]
    assert (await store.get(f"{result.run_id}-count-1")).message_count == 4


REFUSALS = [
    *((service, 400, "Invalid schema for the answer.") for service in SERVICES.values()),
    *((SERVICES[name], 500, "invalid JSON schema in format") for name in ("chat", "ollama")),  # as Ollama says it
]


@pytest.mark.parametrize(
    ("service", "status", "words"), REFUSALS, ids=[f"{each[0].name}-{each[1]}" for each in REFUSALS]
)
async def test_a_service_that_refuses_the_schema_answers_in_prose(
    run: Run, service: Service, status: int, words: str
) -> None:
    def choose(schema: Any) -> Answer | str:
        return 'It is {"n": 1}.' if schema is None else service.fail(status, words)

    model = Scripted(service, choose=choose)
    result = await run(task("count", COUNT), model)
    assert (result.error, result.outputs) == (None, {"count": {"n": 1}})
    assert model.schemas == [CLOSED, None]


async def test_a_schema_crosses_to_a_process_of_its_own(run: Run) -> None:
    model = Scripted(SERVICES["responses"], '{"n": 1}')
    result = await run(task("count", COUNT, runner="subprocess"), model)
    assert (result.error, result.outputs) == (None, {"count": {"n": 1}})
    assert model.schemas == [CLOSED]


async def test_a_session_below_that_of_a_task_is_asked_for_no_format(run: Run) -> None:
    service = SERVICES["responses"]
    delegate = ("call_1", "delegate", {"agent": "self", "instruction": "Look."})
    answers = [service.say([], [delegate]), "I have looked.", '{"n": 1}']
    model = Scripted(service, choose=lambda schema: answers.pop(0))
    result = await run(task("count", COUNT), model, tools=[{"module": "tool-delegate"}])
    assert (result.error, result.outputs) == (None, {"count": {"n": 1}})
    assert model.schemas == [CLOSED, None, CLOSED]


async def test_a_provider_in_the_place_of_another_is_asked_for_the_schema(run: Run) -> None:
    chat, anthropic = SERVICES["chat"], SERVICES["anthropic"]
    model = Scripted(chat, '{"n": 1}')
    async with WireServer(lambda request: anthropic.fail(529, "Overloaded")) as busy, WireServer(model.answer) as calm:
        sections = {
            "providers": [
                {"module": "provider-anthropic", "config": anthropic.configure(busy.url, max_retries=0)},
                {"module": "provider-openai", "config": chat.configure(calm.url)},
            ],
            "session": {"provider_preferences": [{"provider": "anthropic"}, {"provider": "openai"}]},
        }
        result = await run(task("count", COUNT), model, **sections)
    assert (result.error, result.outputs) == (None, {"count": {"n": 1}})
    assert anthropic.find_schema(busy.requests[0].json) == model.schemas[0] == CLOSED


LOOP = """
from amplifier_core import ChatRequest, Message

class Loop:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        await context.add_message({"role": "user", "content": prompt})
        request = ChatRequest(messages=[Message(**each) for each in await context.get_messages()])
        response = await next(iter(providers.values())).complete(request)
        text = "".join(block.text for block in response.content)
        await context.add_message({"role": "assistant", "content": text})
        return text

async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Loop())
"""


async def test_a_loop_that_knows_no_wish_goes_on_in_prose(run: Run, tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    session = {"orchestrator": {"module": "loop-own", "source": str(tmp_path / "loop.py")}, "context": "context-simple"}
    model = Scripted(SERVICES["responses"], "One.", 'It is {"n": 1}.')
    result = await run(task("count", COUNT), model, session=session)
    assert (result.error, result.outputs) == (None, {"count": {"n": 1}})
    assert model.schemas == [None, None]
