"""While a provider is out, the next preference of the session answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.interfaces import Provider
from amplifier_core.llm_errors import (
    AuthenticationError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    NetworkError,
    NotFoundError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitError,
)
from amplifier_core.message_models import ChatRequest, ChatResponse, ResponseFormatJson, TextBlock
from amplifier_core.models import ModelInfo, ProviderInfo
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import converse, load_bundle
from amplifier_foundation.bundle.fallback import Choice, FallbackProvider
from amplifier_foundation.spawning.agents import AgentSpawner

SERVICE = """
import json
from pathlib import Path
from amplifier_core import ChatResponse, ProviderInfo, TextBlock
from amplifier_core.llm_errors import ProviderUnavailableError

class Service:
    def __init__(self, config):
        self.name, self.config, self.priority = config["name"], config, config.get("priority", 100)
    def get_info(self): return ProviderInfo(id=self.name, display_name=self.name)
    async def list_models(self): return ["small-1", "large-1", "large-2"]
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        if Path(__file__).with_name(f"{self.name}.out").exists():
            raise ProviderUnavailableError("529 overloaded", provider=self.name, retry_after=30)
        model = request.model or self.config.get("default_model") or "default"
        return ChatResponse(content=[TextBlock(text=f"{self.name} {model}")])

async def mount(coordinator, config):
    service = Service(config)
    await coordinator.mount("providers", service, name=service.name)
"""
BUNDLE = """---
bundle: {{name: b}}
session: {{{session}}}
providers:
  - {{module: provider-one, source: ./service.py, config: {{name: one}}}}
  - {{module: provider-two, source: ./service.py, config: {{name: two}}}}
{more}
---
"""
BOTH = "provider_preferences: [{provider: two, model: strong}, {provider: one, model: large-*}]"


class Service:
    """A provider that fails as the test says, and answers otherwise."""

    def __init__(self, name: str, *errors: Exception) -> None:
        self.name = name
        self.errors = list(errors)
        self.asked: list[str | None] = []

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name=self.name.title())

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        self.asked.append(request.model)
        if self.errors:
            raise self.errors.pop(0)
        return ChatResponse(content=[TextBlock(text=self.name)], metadata={"id": "r1"})

    def parse_tool_calls(self, response: ChatResponse) -> list[Any]:
        return [self.name]


class Bench:
    """A fallback over services, with a clock and the announced events."""

    def __init__(self, *services: Service) -> None:
        self.seconds = 0.0
        self.events: list[dict[str, Any]] = []
        coordinator = ModuleCoordinator(session_id="s")
        coordinator.hooks.register("provider:fallback", self._hear)
        choices = [Choice(each.name, each, None) for each in services]
        self.provider: Any = FallbackProvider(choices, coordinator, lambda: self.seconds)

    async def _hear(self, event: str, data: dict[str, Any]) -> None:
        self.events.append({name: data[name] for name in ("from", "provider", "reason")})

    async def ask(self, **parts: Any) -> ChatResponse:
        response: ChatResponse = await self.provider.complete(ChatRequest(messages=[], **parts))
        return response


@pytest.mark.parametrize(
    "error",
    [ProviderUnavailableError("overloaded"), NetworkError("no route"), RateLimitError("429"), QuotaExceededError("0")],
)
async def test_the_next_preference_answers_and_the_answer_says_so(error: LLMError) -> None:
    bench = Bench(Service("one", error), Service("two"))
    response = await bench.ask()
    told = {"from": "one", "provider": "two", "reason": f"{type(error).__name__}: {error}"}
    assert (response.content[0].text, bench.events) == ("two", [told])
    assert response.metadata == {"id": "r1", "fallback": told}
    assert bench.provider.parse_tool_calls(response) == ["two"]


async def test_a_mistake_is_no_outage() -> None:
    bench = Bench(Service("one", AuthenticationError("401")), Service("two"))
    with pytest.raises(AuthenticationError):
        await bench.ask()
    assert bench.events == []


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (ProviderUnavailableError("529"), 60),
        (RateLimitError("429", retry_after=300), 300),
        (QuotaExceededError("spent"), 3600),
    ],
)
async def test_a_provider_that_is_out_is_asked_again_later(error: LLMError, seconds: float) -> None:
    one, two = Service("one", error), Service("two")
    bench = Bench(one, two)
    await bench.ask()
    bench.seconds = seconds - 1
    second = await bench.ask()
    assert (second.metadata or {})["fallback"]["reason"] == "it was out before"
    assert len(one.asked) == 1
    bench.seconds = seconds
    third = await bench.ask()
    assert (third.content[0].text, third.metadata) == ("one", {"id": "r1"})


async def test_when_all_are_out_the_error_that_may_pass_is_raised_and_all_are_asked_again() -> None:
    quota, busy = QuotaExceededError("spent"), ProviderUnavailableError("busy", retry_after=5)
    one, two = Service("one", quota, quota), Service("two", busy, busy)
    bench = Bench(one, two)
    for _ in range(2):
        with pytest.raises(ProviderUnavailableError, match="busy"):
            await bench.ask()
    assert (len(one.asked), len(two.asked)) == (2, 2)


@pytest.mark.parametrize("error", [NotFoundError("404: no such model"), ValueError("odd")])
async def test_the_outage_counts_when_a_stand_in_cannot_answer(error: Exception) -> None:
    one, two = Service("one", *(RateLimitError("busy", retry_after=9) for _ in range(2))), Service("two", error, error)
    bench = Bench(one, two)
    for _ in range(2):  # the first one is asked again, as no other answers
        with pytest.raises(RateLimitError) as raised:
            await bench.ask()
        assert (str(raised.value), raised.value.retry_after) == (f"busy (two: {error})", 9)
        assert raised.value.__cause__ is None
    assert (await bench.ask()).content[0].text == "two"
    assert (len(one.asked), len(two.asked)) == (2, 3)


async def test_a_stand_in_that_cannot_answer_leaves_it_to_the_next_and_to_the_first() -> None:
    services = Service("one", RateLimitError("busy")), Service("two", *[NotFoundError("404")] * 2), Service("three")
    bench = Bench(*services)
    assert (await bench.ask()).content[0].text == "three"
    services[2].errors.append(RateLimitError("busy, too"))
    assert (await bench.ask()).content[0].text == "one"


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (ContextLengthError("long"), {}),
        (InvalidRequestError("no formats"), {"response_format": ResponseFormatJson()}),
    ],
)
async def test_a_refusal_by_a_stand_in_that_the_loop_can_answer_is_raised_and_may_pass(
    error: LLMError, parts: dict[str, Any]
) -> None:
    one, two = Service("one", RateLimitError("busy")), Service("two", error)
    with pytest.raises(type(error)) as raised:
        await Bench(one, two).ask(**parts)
    assert (str(raised.value), raised.value.retryable) == (f"{error.args[0]}", True)
    assert str(raised.value).endswith("(one: busy)")
    refused = type(error)("no")
    with pytest.raises(type(error)):
        await Bench(Service("one", refused), Service("two")).ask(**parts)
    assert not refused.retryable


async def test_it_describes_the_one_that_is_asked_next() -> None:
    bench = Bench(Service("one", RateLimitError("busy", retry_after=9)), Service("two"))
    await bench.ask()
    assert bench.provider.get_info().id == "two"
    bench.seconds = 9
    assert bench.provider.get_info().id == "one"


def test_it_is_a_provider_and_the_first_one_in_all_else() -> None:
    provider = Bench(Service("one"), Service("two")).provider
    assert isinstance(provider, Provider)
    assert (provider.name, provider.get_info().id, provider.priority, provider.asked) == ("one", "one", 0, [])


# in sessions


@pytest.fixture
def bundle(tmp_path: Path, home: Path) -> Callable[..., Path]:
    (tmp_path / "service.py").write_text(SERVICE, encoding="utf-8")

    def write(session: str = BOTH, more: str = "") -> Path:
        path = tmp_path / "bundle.md"
        path.write_text(BUNDLE.format(session=session, more=more), encoding="utf-8")
        return path

    return write


async def answer(path: Path, store: DurableStore, plugins: Plugins) -> tuple[str, dict[str, Any]]:
    turn = await converse(await load_bundle(str(path)), "hi", store, plugins, working_dir=path.parent)
    stored = await store.read(turn.session_id)
    return turn.output, dict(stored[-1].get("metadata") or {})


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
async def test_a_bundle_prefers_a_provider_and_falls_back_to_the_next(
    bundle: Callable[..., Path], store: DurableStore, plugins: Plugins, loop: str
) -> None:
    path = bundle(f"{BOTH}, orchestrator: {loop}")
    assert (await answer(path, store, plugins))[0] == "two strong"
    path.with_name("two.out").touch()
    output, metadata = await answer(path, store, plugins)
    assert output == "one large-2"
    assert metadata["fallback"] == {
        "from": "two",
        "provider": "one",
        "model": "large-2",
        "reason": "ProviderUnavailableError: 529 overloaded",
    }


async def test_without_preferences_nobody_stands_in(
    bundle: Callable[..., Path], store: DurableStore, plugins: Plugins
) -> None:
    path = bundle("")
    path.with_name("one.out").touch()
    with pytest.raises(ProviderUnavailableError):
        await answer(path, store, plugins)


async def test_a_missing_preference_is_passed_over(
    bundle: Callable[..., Path], store: DurableStore, plugins: Plugins
) -> None:
    path = bundle("provider_preferences: [{provider: three}, {provider: two}]")
    assert (await answer(path, store, plugins))[0] == "two default"


async def test_an_agent_has_preferences_of_its_own_and_a_call_may_have_others(
    bundle: Callable[..., Path], store: DurableStore, plugins: Plugins
) -> None:
    agent = (
        "agents: {small: {description: a, provider_preferences: [{provider: one, model: small-1}, {provider: two}]}}"
    )
    path = bundle(more=agent)
    prepared = await (await load_bundle(str(path))).prepare()
    spawner = AgentSpawner(prepared, store, plugins=plugins)
    async with await prepared.create_session(session_cwd=path.parent, plugins=plugins) as session:
        spawner.take(session)
        assert (await spawner.spawn("small", "hi"))["output"] == "one small-1"
        path.with_name("one.out").touch()
        assert (await spawner.spawn("small", "hi"))["output"] == "two strong"  # the parent's model
        wanted = [{"provider": "one", "model": "small-*"}, {"provider": "two", "model": "large-1"}]
        made = await spawner.spawn("small", "hi", provider_preferences=wanted)
        assert made["output"] == "two large-1"
        path.with_name("one.out").unlink()
        path.with_name("two.out").touch()
        assert (await spawner.resume(made["session_id"], "hi"))["output"] == "one small-1"
    record = await store.get(made["session_id"])
    resumed = await converse(await load_bundle(str(path)), "again", store, plugins, resume=record)
    assert resumed.output == "one small-1"


# windows


READER = """
import json
from pathlib import Path
from amplifier_core import ChatResponse, ProviderInfo, TextBlock
from amplifier_core.llm_errors import ContextLengthError, ProviderUnavailableError

class Reader:
    def __init__(self, name, window, reads):
        self.name, self.window, self.reads = name, window, reads
    def get_info(self):
        limits = {"model": self.name, "context_window": self.window}
        return ProviderInfo(id=self.name, display_name=self.name, defaults=limits)
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        if Path(__file__).with_name(f"{self.name}.out").exists():
            raise ProviderUnavailableError("529 overloaded", retry_after=30)
        texts = [str(each.content) for each in request.messages]
        if sum(map(len, texts)) > 4 * self.reads:
            raise ContextLengthError("prompt is too long")
        with Path(__file__).with_name(f"{self.name}.log").open("a") as log:
            log.write(json.dumps(texts) + "\\n")
        return ChatResponse(content=[TextBlock(text=self.name)])

async def mount(coordinator, config):
    for name, window, reads in (("large", 1_000_000, 1_000_000), ("small", 2_000, config["reads"])):
        await coordinator.mount("providers", Reader(name, window, reads), name=name)
"""
WINDOWS = """---
bundle: {{name: b}}
session: {{orchestrator: {loop}, provider_preferences: [{{provider: large}}, {{provider: small}}]}}
providers:
  - {{module: provider-reader, source: ./reader.py, config: {{reads: {reads}}}}}
hooks:
  - {{module: hooks-reminder, source: ./reminder.py}}
---
Be brief.
"""
REMINDER = """
from amplifier_core.models import HookResult

async def mount(coordinator, config):
    async def remind(event, data):
        return HookResult(action="inject_context", context_injection="now only", ephemeral=True)

    coordinator.hooks.register("provider:request", remind)
"""


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
@pytest.mark.parametrize("reads", [2_000, 900])  # it reads what it says, or less
async def test_each_request_is_fitted_to_the_window_of_the_one_that_is_asked(
    tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins, loop: str, reads: int
) -> None:
    (tmp_path / "reader.py").write_text(READER, encoding="utf-8")
    (tmp_path / "reminder.py").write_text(REMINDER, encoding="utf-8")
    (tmp_path / "bundle.md").write_text(WINDOWS.format(loop=loop, reads=reads), encoding="utf-8")
    bundle = await load_bundle(str(tmp_path / "bundle.md"))

    async def ask(record: Any, number: int) -> tuple[Any, list[str]]:
        prompt = f"{number} " + "word " * 400
        turn = await converse(bundle, prompt, store, plugins, resume=record, working_dir=tmp_path)
        asked = (tmp_path / f"{turn.output}.log").read_text(encoding="utf-8").splitlines()
        return await store.get(turn.session_id), json.loads(asked[-1])

    record = None
    for number in range(8):
        record, _ = await ask(record, number)
    (tmp_path / "large.out").touch()
    for number in (8, 9):
        record, asked = await ask(record, number)
        assert asked[0] == "Be brief."
        assert asked[-2].startswith(f"{number} ")
        assert asked[-1] == "now only"
        assert sum(map(len, asked)) < 4 * reads
    (tmp_path / "large.out").unlink()
    _, asked = await ask(record, 10)
    assert [text.split()[0] for text in asked[1:-1:2]] == [str(number) for number in range(11)]


# images


LOOKERS = """
import json
from pathlib import Path
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolCall
from amplifier_core.llm_errors import ProviderUnavailableError
from amplifier_core.message_models import ImageBlock, ToolCallBlock
from amplifier_core.models import ToolResult

class Looker:
    def __init__(self, name, capabilities): self.name, self.capabilities = name, capabilities
    def get_info(self): return ProviderInfo(id=self.name, display_name=self.name, capabilities=self.capabilities)
    async def list_models(self): return []
    def parse_tool_calls(self, response): return response.tool_calls or []
    async def complete(self, request, **kwargs):
        last = request.messages[-1]
        if self.name == "first" and (last.role == "tool" or Path(__file__).with_name("out").exists()):
            Path(__file__).with_name("out").touch()
            raise ProviderUnavailableError("529 overloaded", retry_after=3000)
        results = [each.content for each in request.messages if each.role == "tool"]
        if not results:
            return ChatResponse(content=[ToolCallBlock(id="c", name="look", input={})],
                                tool_calls=[ToolCall(id="c", name="look", arguments={})])
        return ChatResponse(content=[TextBlock(text=json.dumps(
            [each if isinstance(each, str) else [block.type for block in each] for each in results]))])

class Look:
    name, description, input_schema = "look", "Look.", {"type": "object"}
    async def execute(self, input):
        source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        return ToolResult(content=[ImageBlock(source=source)], output="a.png")

async def mount(coordinator, config):
    for name in ("first", "second"):
        await coordinator.mount("providers", Looker(name, config[name]), name=name)
    await coordinator.mount("tools", Look(), name="look")
"""


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
@pytest.mark.parametrize("first", ["tools", "vision"])
@pytest.mark.parametrize("second", ["tools", "vision"])
@pytest.mark.parametrize("hint", ["", "more"])  # a hook's addition to the result
async def test_a_stand_in_gets_an_image_only_if_it_sees_images(
    tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins, loop: str, first: str, second: str, hint: str
) -> None:
    (tmp_path / "lookers.py").write_text(LOOKERS, encoding="utf-8")
    appended = REMINDER.replace("ephemeral=True", "ephemeral=True, append_to_last_tool_result=True")
    (tmp_path / "reminder.py").write_text(appended, encoding="utf-8")
    config = {"first": [first], "second": [second]}
    plan = {
        "bundle": {"name": "b"},
        "session": {"orchestrator": loop, "provider_preferences": [{"provider": "first"}, {"provider": "second"}]},
        "providers": [{"module": "provider-lookers", "source": "./lookers.py", "config": config}],
        "hooks": [{"module": "hooks-reminder", "source": "./reminder.py"}] if hint else [],
    }
    (tmp_path / "bundle.md").write_text(f"---\n{json.dumps(plan)}\n---\n", encoding="utf-8")
    bundle = await load_bundle(str(tmp_path / "bundle.md"))
    turn = await converse(bundle, "go", store, plugins, working_dir=tmp_path)
    unseen = "a.png\n[An image is left out here: the model sees no images.]"
    (now,) = json.loads(turn.output)
    if isinstance(now, str):
        assert now.startswith(unseen)
    assert isinstance(now, str) == ("tools" in (first, second))
    turn = await converse(
        bundle, "again", store, plugins, resume=await store.get(turn.session_id), working_dir=tmp_path
    )
    (later,) = json.loads(turn.output)
    assert later == unseen if second == "tools" else later == ["text", "image"]


# aliases


async def test_the_settings_name_models(
    bundle: Callable[..., Path], store: DurableStore, plugins: Plugins, home: Path
) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "settings.yaml").write_text("models: {strong: {two: huge-2, provider-one: huge-1}, quick: tiny}\n")
    path = bundle()
    assert (await answer(path, store, plugins))[0] == "two huge-2"
    path.with_name("two.out").touch()
    bundle("provider_preferences: [{provider: two}, {provider: one, model: quick}]")
    assert (await answer(path, store, plugins))[0] == "one tiny"
    bundle("provider_preferences: [{provider: one, model: unknown}]")
    assert (await answer(path, store, plugins))[0] == "one unknown"


async def test_damaged_settings_leave_the_model(
    bundle: Callable[..., Path], store: DurableStore, plugins: Plugins, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "settings.yaml").write_text("models: [\n")
    assert (await answer(bundle(), store, plugins))[0] == "two strong"
    assert "the aliases of models are not read: settings.yaml" in caplog.text.replace(f"{home}/", "")
