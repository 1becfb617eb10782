"""The contract checks of storages, runners and providers: good ones pass, and a broken rule is named."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.hook_data import RunResult
from amplifier_core.llm_errors import RateLimitError
from amplifier_core.message_models import ChatRequest, ChatResponse, Message, TextBlock, ToolCall, Usage
from amplifier_core.models import ModelInfo, ProviderInfo
from amplifier_core.testing import check_provider, check_runner, check_storage
from amplifier_core.testing.storage_checks import STORAGE_CHECKS
from amplifier_foundation.spawning.runners import InProcessRunner
from amplifier_provider_playbook.config import read_config
from amplifier_provider_playbook.provider import PlaybookProvider

# storages


class Shelf(dict[str, Any]):
    """A storage that is a dictionary."""

    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        self[session_id] = deepcopy((transcript, metadata))

    def load(self, session_id: str) -> Any:
        return deepcopy(self[session_id])

    def exists(self, session_id: str) -> bool:
        return session_id in self


class Folder:
    """A storage that is a folder of files, and refuses ids that are no names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def path(self, session_id: str) -> Path:
        if not session_id.replace("-", "").replace("_", "").isascii() or not session_id[:1].isalnum():
            raise ValueError(session_id)
        if any(character in "/. %" for character in session_id):
            raise ValueError(session_id)
        return self.folder / f"{session_id}.json"

    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        self.path(session_id).write_text(json.dumps([transcript, metadata]))

    def load(self, session_id: str) -> Any:
        transcript, metadata = json.loads(self.path(session_id).read_text())
        return transcript, metadata

    def exists(self, session_id: str) -> bool:
        return self.path(session_id).exists()


def test_storages_that_keep_the_contract_pass(tmp_path: Path) -> None:
    check_storage(Shelf)
    numbers = count()
    check_storage(lambda: Folder(tmp_path / str(next(numbers))))


class WithoutExists:
    save = Shelf.save
    load = Shelf.load


class Waiting(Shelf):
    async def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:  # type: ignore[override]
        """Be saved by nobody who does not wait."""


class Hoarding(Shelf):
    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        self[session_id] = (transcript, metadata)


class Lending(Hoarding):
    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        self[session_id] = deepcopy((transcript, metadata))

    def load(self, session_id: str) -> Any:
        return self[session_id]


class Agreeable(Shelf):
    def load(self, session_id: str) -> Any:
        return deepcopy(self.get(session_id, ([], {})))


class Confused(Shelf):
    def load(self, session_id: str) -> Any:
        if session_id not in self:
            raise RuntimeError(session_id)
        return super().load(session_id)


class Single(Shelf):
    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        self.clear()
        super().save(session_id, transcript, metadata)


class Growing(Shelf):
    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        older, about = self.get(session_id, ([], {}))
        super().save(session_id, older + transcript, {**about, **metadata})


class Forgetful(Shelf):
    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        super().save(session_id, transcript, {})


class Short(Shelf):
    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        super().save(session_id, transcript[-500:], metadata)


class Particular(Shelf):
    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        if transcript:
            super().save(session_id, transcript, metadata)


class Flattening(Shelf):
    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        super().save(session_id.replace("/", "_"), transcript, metadata)

    def load(self, session_id: str) -> Any:
        return super().load(session_id.replace("/", "_"))

    def exists(self, session_id: str) -> bool:
        return session_id.replace("/", "_") in self


class Rude(Shelf):
    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        if not session_id[0].isalnum():
            raise OSError(session_id)
        super().save(session_id, transcript, metadata)


class Lone(Shelf):
    def load(self, session_id: str) -> Any:
        return super().load(session_id)[0]


class Truthful(Shelf):
    def exists(self, session_id: str) -> Any:
        return self.get(session_id)


@pytest.mark.parametrize(
    ("storage", "rule"),
    [
        (WithoutExists, "missing: exists"),
        (Waiting, "these methods are async: save"),
        (Hoarding, "09.* as it was saved last"),
        (Lending, "09.* as it was saved last"),
        (Agreeable, "load of an unknown id must raise LookupError or FileNotFoundError"),
        (Confused, "FileNotFoundError, not RuntimeError"),
        (Single, "06.*exists must return True for 'session-0'"),
        (Growing, "05.* must return the transcript of 'one'"),
        (Forgetful, "must return the metadata of 'one'"),
        (Short, "08.* must return the transcript of 'long'"),
        (Particular, "03.*exists must return True for 'empty'"),
        (Flattening, "07.* must return the transcript of"),
        (Rude, "refuse it with ValueError, not OSError"),
        (Lone, r"must return a pair, \(transcript, metadata\)"),
        (Truthful, "exists must return (False|True) for"),
    ],
)
def test_a_storage_that_breaks_a_rule_is_told_which(storage: type[Any], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_storage(storage)


def test_the_checks_of_a_storage_are_numbered_without_a_gap() -> None:
    numbers = [getattr(check, "__name__", "")[6:8] for check in STORAGE_CHECKS]
    assert numbers == [f"{number:02}" for number in range(1, len(STORAGE_CHECKS) + 1)]


# runners


async def test_the_runner_of_this_process_keeps_the_contract() -> None:
    await check_runner(InProcessRunner)


class Mute(InProcessRunner):
    async def run(self, request: Any, build: Any) -> Any:
        await super().run(request, build)


class Deaf:
    async def run(self, request: Any, build: Any) -> str:
        async with build(request) as session:
            answer: str = await session.execute("something else")
        return answer


class Inventive:
    async def run(self, request: Any, build: Any) -> str:
        return f"Done: {request.instruction}"


class Repeating(InProcessRunner):
    async def run(self, request: Any, build: Any) -> Any:
        await super().run(request, build)
        return await super().run(request, build)


class Leaving:
    async def run(self, request: Any, build: Any) -> Any:
        self.session = build(request)
        return await (await self.session.__aenter__()).execute(request.instruction)


class Mixing:
    def __init__(self) -> None:
        self.request: Any = None

    async def run(self, request: Any, build: Any) -> RunResult:
        self.request = request
        await asyncio.sleep(0)
        return await InProcessRunner().run(self.request, build)


class Soothing(InProcessRunner):
    async def run(self, request: Any, build: Any) -> Any:
        with suppress(RuntimeError):
            return await super().run(request, build)
        return "it will be fine"


class Renaming(InProcessRunner):
    async def run(self, request: Any, build: Any) -> RunResult:
        try:
            return await super().run(request, build)
        except RuntimeError:
            raise OSError("it did not work") from None


class Unimpressed(InProcessRunner):
    async def run(self, request: Any, build: Any) -> Any:
        try:
            return await super().run(request, build)
        except asyncio.CancelledError:
            return "cancelled, perhaps"


class Stubborn(InProcessRunner):
    async def run(self, request: Any, build: Any) -> Any:
        async with build(request) as session:
            turn = asyncio.ensure_future(session.execute(request.instruction))
            with suppress(asyncio.CancelledError):
                await asyncio.shield(turn)
            return await turn


class Deafened(InProcessRunner):
    async def stop(self, session_id: str) -> bool:
        return True


class Forgetting(InProcessRunner):
    async def stop(self, session_id: str) -> bool:
        await super().stop(session_id)
        return False


class Boasting(InProcessRunner):
    async def stop(self, session_id: str) -> bool:
        await super().stop(session_id)
        return True


class Endless:
    async def run(self, request: Any, build: Any) -> RunResult:
        return await InProcessRunner().run(request, build)


class Idle(InProcessRunner):
    async def run(self, request: Any, build: Any) -> Any:
        await asyncio.Event().wait()
        return ""


@pytest.mark.parametrize(
    ("runner", "rule"),
    [
        (object, "must return an object with run"),
        (Mute, "must return a RunResult or the session's final text, not NoneType"),
        (Deaf, "must return the final text of its own request's session"),
        (Inventive, "must execute the request's instruction once, in its session; it did: \\[\\]"),
        (Repeating, "must execute the request's instruction once"),
        (Leaving, "must leave the session before it ends"),
        (Mixing, "must return the final text of its own request's session"),
        (Soothing, "must raise the session's own error; it returned 'it will be fine'"),
        (Renaming, "must raise the session's own error, not OSError"),
        (Unimpressed, "must raise CancelledError: it returned 'cancelled, perhaps'"),
        (Stubborn, "must end promptly when it is cancelled"),
        (Idle, "run must end; it did not within"),
        (Deafened, "stop must ask the session to end"),
        (Forgetting, "stop must return True for a session that the runner runs"),
        (Boasting, "stop must return False for a session that it does not run"),
        (Endless, "must return an object with stop"),
    ],
)
async def test_a_runner_that_breaks_a_rule_is_told_which(runner: type[Any], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check_runner(runner, patience=0.3)


class Elsewhere:
    """A runner that makes the session in a process of its own."""

    script = """
import asyncio, json, sys
from amplifier_core import AmplifierSession

async def run():
    async with AmplifierSession(json.loads(sys.argv[1]), session_id=sys.argv[2]) as session:
        print(await session.execute(sys.argv[3]), end="")

asyncio.run(run())
"""

    async def run(self, request: Any, build: Any) -> str:
        arguments = ("-c", self.script, json.dumps(request.config), request.session_id, request.instruction)
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        return output.decode()

    async def stop(self, session_id: str) -> bool:
        return False


async def test_a_runner_elsewhere_is_checked_with_a_plan_and_the_answer_it_leads_to() -> None:
    plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-playbook", "config": {"rules": [{"when": {"user": "yes"}, "say": "Yes."}]}}],
    }
    await check_runner(Elsewhere, config=plan, instruction="Say yes", answer="Yes.", patience=30)
    with pytest.raises(AssertionError, match="'No.', not 'Yes.'"):
        await check_runner(Elsewhere, config=plan, instruction="Say yes", answer="No.", patience=30)


# providers


class Yes:
    """A provider that keeps the contract."""

    name = "yes"

    def get_info(self) -> Any:
        return ProviderInfo(id="yes", display_name="Yes")

    async def list_models(self) -> Any:
        return [ModelInfo(id="yes-1", display_name="Yes", context_window=100, max_output_tokens=10)]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
        return ChatResponse(content=[TextBlock(text="Yes.")], usage=usage)

    def parse_tool_calls(self, response: ChatResponse) -> Any:
        return list(response.tool_calls or [])


async def test_providers_that_keep_the_contract_pass() -> None:
    async def connect() -> Yes:
        return Yes()

    for provider in (Yes(), Yes, lambda: Yes(), connect):
        await check_provider(provider)
    await check_provider(PlaybookProvider(read_config({"otherwise": {"say": "Yes."}}), None))


async def test_a_provider_is_asked_what_its_author_wants_asked() -> None:
    asked = []

    class Listening(Yes):
        async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
            asked.append([message.content for message in request.messages][-1])
            return await super().complete(request)

    await check_provider(Listening, request=ChatRequest(messages=[Message(role="user", content="My question")]))
    assert asked == ["My question", "Buy milk."]


class Nameless(Yes):
    name = ""


class Incomplete:
    name = "x"
    complete = Yes.complete


class Informal(Yes):
    def get_info(self) -> Any:
        return {"id": "yes"}


class Async(Yes):
    async def get_info(self) -> Any:
        return super().get_info()


class Blank(Yes):
    def get_info(self) -> Any:
        return ProviderInfo(id="", display_name="")


class Prompt(Yes):
    def list_models(self) -> Any:
        return []


class Lazy(Yes):
    async def list_models(self) -> Any:
        return None


class Texts(Yes):
    async def list_models(self) -> Any:
        return ["yes-1"]


class Double(Yes):
    async def list_models(self) -> Any:
        return 2 * await super().list_models()


class Blind(Yes):
    def parse_tool_calls(self, response: ChatResponse) -> Any:
        return []


class Absent(Yes):
    def parse_tool_calls(self, response: ChatResponse) -> Any:
        return response.tool_calls


class Late(Yes):
    async def parse_tool_calls(self, response: ChatResponse) -> Any:
        return []


class Dicts(Yes):
    def parse_tool_calls(self, response: ChatResponse) -> Any:
        return [call.model_dump() for call in response.tool_calls or []]


class Blocking(Yes):
    def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        return ChatResponse(content=[])


class Plain(Yes):
    async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        return "Yes."


class Crashing(Yes):
    async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        return {}["answer"]


class Meddling(Yes):
    async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        request.messages.append(Message(role="system", content="Say yes"))
        return await super().complete(request)


class Easygoing(Yes):
    async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        return ChatResponse(content=[], tool_calls=[ToolCall(id="", name="read_file", arguments={})])


class Generous(Yes):
    async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        return ChatResponse(content=[], usage=Usage(input_tokens=-1, output_tokens=0, total_tokens=-1))


class Frugal(Yes):
    async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        usage = Usage(input_tokens=3, output_tokens=1, total_tokens=4, cache_read_tokens=2, cache_write_tokens=5)
        return ChatResponse(content=[], usage=usage)


class NoTools(Yes):
    async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        if any(message.role == "tool" for message in request.messages):
            raise ValueError("no tools here")
        return await super().complete(request)


@pytest.mark.parametrize(
    ("provider", "rule"),
    [
        (Nameless, "name must be a text that is not empty"),
        (Incomplete, "missing: get_info, list_models, parse_tool_calls"),
        (Informal, "get_info must return ProviderInfo, not dict"),
        (Async, "get_info must return ProviderInfo, not coroutine"),
        (Blank, "an id and a display name"),
        (Prompt, "list_models must be async"),
        (Lazy, "list_models must return a list, not NoneType"),
        (Texts, "list_models must list ModelInfo, not str"),
        (Double, "list a model once: yes-1, yes-1"),
        (Blind, "must return the calls of the response"),
        (Absent, "must return a list at once, not NoneType"),
        (Late, "must return a list at once, not coroutine"),
        (Dicts, "must list ToolCall, not dict"),
        (Blocking, "complete must be async"),
        (Plain, "complete must return ChatResponse, not str"),
        (Crashing, "complete must raise an LLMError, not KeyError"),
        (Meddling, "complete must not change the request"),
        (Easygoing, "must have an id and a name"),
        (Generous, "must not be counted below zero"),
        (Frugal, "input_tokens must count cached tokens, too: 7 are more than 3"),
        (NoTools, "not ValueError: no tools here"),
    ],
)
async def test_a_provider_that_breaks_a_rule_is_told_which(provider: type[Any], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check_provider(provider)


async def test_an_answer_that_cannot_be_had_is_raised_as_the_provider_raised_it() -> None:
    class Busy(Yes):
        async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
            raise RateLimitError("too many", retry_after=3)

    with pytest.raises(RateLimitError, match="too many"):
        await check_provider(Busy)


def test_the_checks_need_no_test_runner() -> None:
    script = """
import asyncio, copy, sys
sys.modules["pytest"] = None
from amplifier_core.testing import check_provider, check_runner, check_storage
print(check_provider.__name__, check_runner.__name__, check_storage.__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["check_provider", "check_runner", "check_storage"]
