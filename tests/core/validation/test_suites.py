"""The suites that modules inherit: they pass for a module that keeps the contract, and fail for one that does not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from amplifier_core.validation import behavioral, structural

if TYPE_CHECKING:
    from .conftest import Outcome, Workshop

pytestmark = pytest.mark.slow

PUBLISHED = {
    "ProviderBehaviorTests": {
        "test_mount_succeeds": ["provider_module"],
        "test_get_info_returns_valid_provider_info": ["provider_module"],
        "test_list_models_returns_list": ["provider_module"],
        "test_provider_has_name_attribute": ["provider_module"],
        "test_parse_tool_calls_returns_list": ["provider_module"],
    },
    "ToolBehaviorTests": {
        "test_mount_succeeds": ["tool_module"],
        "test_tool_has_name": ["tool_module"],
        "test_tool_has_description": ["tool_module"],
        "test_tool_has_execute_method": ["tool_module"],
        "test_execute_returns_tool_result": ["tool_module"],
        "test_tool_result_has_required_fields": ["tool_module"],
        "test_invalid_input_returns_error_result": ["tool_module"],
    },
    "HookBehaviorTests": {
        "test_mount_succeeds": ["hook_cleanup", "coordinator"],
        "test_handler_returns_hook_result": ["coordinator"],
        "test_hook_result_has_valid_action": ["coordinator"],
        "test_cleanup_is_callable_if_present": ["hook_cleanup"],
        "test_cleanup_does_not_raise": ["hook_cleanup"],
        "test_handler_does_not_crash_on_malformed_data": ["coordinator"],
        "test_handler_does_not_crash_on_empty_data": ["coordinator"],
    },
    "ContextBehaviorTests": {
        "test_mount_succeeds": ["context_module"],
        "test_context_has_required_methods": ["context_module"],
        "test_message_round_trip": ["context_module"],
        "test_multiple_messages": ["context_module"],
        "test_clear_removes_messages": ["context_module"],
        "test_get_messages_for_request_returns_messages": ["context_module"],
        "test_internal_should_compact_returns_bool": ["context_module"],
        "test_internal_compact_does_not_crash": ["context_module"],
        "test_add_invalid_message_does_not_crash": ["context_module"],
        "test_get_messages_never_returns_none": ["context_module"],
    },
    "OrchestratorBehaviorTests": {
        "test_mount_succeeds": ["orchestrator_module"],
        "test_orchestrator_has_execute_method": ["orchestrator_module"],
        "test_execute_returns_string": ["orchestrator_module", "mock_deps"],
        "test_execute_with_empty_prompt": ["orchestrator_module", "mock_deps"],
        "test_orchestrator_uses_provider": ["orchestrator_module", "mock_deps"],
        "test_orchestrator_updates_context": ["orchestrator_module", "mock_deps"],
    },
}
"""The tests that modules inherit, and the fixtures that they take."""

SUITE_OF = dict(zip(("provider", "tool", "hooks", "context", "loop"), PUBLISHED, strict=True))
"""The suite of a module, by the prefix of its id."""

STRUCTURE = "test_structural_validation"
EVERY = "every test"


class Defect(NamedTuple):
    """One change to a good module, the tests that must not pass then, and what they must say."""

    module: str
    name: str
    old: str
    new: str
    caught_by: tuple[str, ...]
    saying: str

    @property
    def module_id(self) -> str:
        return f"{self.module}-{self.name}"


def provider(name: str, old: str, new: str, caught_by: tuple[str, ...], saying: str) -> Defect:
    return Defect("provider-yes", name, old, new, caught_by, saying)


def tool(name: str, old: str, new: str, caught_by: tuple[str, ...], saying: str) -> Defect:
    return Defect("tool-shout", name, old, new, caught_by, saying)


def hooks(name: str, old: str, new: str, caught_by: tuple[str, ...], saying: str) -> Defect:
    return Defect("hooks-guard", name, old, new, caught_by, saying)


def context(name: str, old: str, new: str, caught_by: tuple[str, ...], saying: str) -> Defect:
    return Defect("context-list", name, old, new, caught_by, saying)


def loop(name: str, old: str, new: str, caught_by: tuple[str, ...], saying: str) -> Defect:
    return Defect("loop-once", name, old, new, caught_by, saying)


INFO, MODELS, NAME, PARSING = (
    "test_get_info_returns_valid_provider_info",
    "test_list_models_returns_list",
    "test_provider_has_name_attribute",
    "test_parse_tool_calls_returns_list",
)
RESULT, FIELDS, INVALID, EXECUTE, DESCRIPTION = (
    "test_execute_returns_tool_result",
    "test_tool_result_has_required_fields",
    "test_invalid_input_returns_error_result",
    "test_tool_has_execute_method",
    "test_tool_has_description",
)
ANSWER, ACTION, UNDO, MALFORMED, EMPTY = (
    "test_handler_returns_hook_result",
    "test_hook_result_has_valid_action",
    "test_cleanup_does_not_raise",
    "test_handler_does_not_crash_on_malformed_data",
    "test_handler_does_not_crash_on_empty_data",
)
METHODS, ROUND_TRIP, ORDER, CLEAR, REQUEST, ODD, NEVER_NONE = (
    "test_context_has_required_methods",
    "test_message_round_trip",
    "test_multiple_messages",
    "test_clear_removes_messages",
    "test_get_messages_for_request_returns_messages",
    "test_add_invalid_message_does_not_crash",
    "test_get_messages_never_returns_none",
)
TEXT, EMPTY_PROMPT, ASKS, REMEMBERS = (
    "test_execute_returns_string",
    "test_execute_with_empty_prompt",
    "test_orchestrator_uses_provider",
    "test_orchestrator_updates_context",
)
TURNS = (TEXT, EMPTY_PROMPT, ASKS, REMEMBERS)

DEFECTS = [
    provider("is-no-python", "import ChatResponse", "import import", (EVERY,), "SyntaxError"),
    provider(
        "lacks-a-package",
        "from amplifier_core import",
        "import not_here\nfrom amplifier_core import",
        (EVERY,),
        "No module named 'not_here'",
    ),
    provider("has-no-mount", "async def mount(", "async def mnt(", (EVERY,), "has no function mount"),
    provider(
        "mount-is-not-async",
        "async def mount(coordinator: ModuleCoordinator, config=None):",
        "def mount(coordinator, config=None):\n    return None\n\n\nasync def unused(coordinator, config):",
        (EVERY,),
        "must be async",
    ),
    provider("mount-takes-no-config", ", config=None):", "):", (EVERY,), "must take 2 parameters"),
    provider(
        "mount-fails",
        "    provider = Yes",
        "    raise OSError('no key')\n    provider = Yes",
        (EVERY,),
        "OSError: no key",
    ),
    provider(
        "mounts-nothing",
        "    await coordinator.mount",
        "    return None\n    await coordinator.mount",
        (EVERY,),
        "No provider was mounted",
    ),
    provider(
        "is-mounted-as-a-tool", '"providers", provider', '"tools", provider', (EVERY,), "mounted nothing at providers"
    ),
    provider("says-it-is-a-tool", '= "provider"', '= "tool"', (STRUCTURE,), "must be 'provider'"),
    provider("says-it-is-a-gizmo", '= "provider"', '= "gizmo"', (STRUCTURE,), "must be one of orchestrator, provider"),
    provider("clean-up-fails", "self.is_open = False", "raise OSError('still busy')", (EVERY,), "OSError: still busy"),
    provider(
        "is-ready-at-once",
        "async def mount(",
        "def on_session_ready(coordinator):\n    pass\n\n\nasync def mount(",
        (STRUCTURE,),
        "on_session_ready must be async",
    ),
    provider(
        "is-ready-for-nobody",
        "async def mount(",
        "async def on_session_ready():\n    pass\n\n\nasync def mount(",
        (STRUCTURE,),
        "must take the coordinator",
    ),
    provider("has-no-name", '    name = "yes"\n', "", (NAME, STRUCTURE), "has no name"),
    provider(
        "has-an-empty-name", 'name = "yes"\n', 'name = ""\n', (NAME, STRUCTURE), "name must be a text that is not empty"
    ),
    provider(
        "describes-itself-in-a-dict",
        'ProviderInfo(id="yes", display_name="Yes")',
        '{"id": "yes"}',
        (INFO, STRUCTURE),
        "must return ProviderInfo, not dict",
    ),
    provider("describes-itself-as-nothing", 'id="yes"', 'id=""', (INFO,), "an id and a display name"),
    provider(
        "cannot-describe-itself",
        "return ProviderInfo",
        "raise OSError('who am I') or ProviderInfo",
        (INFO,),
        "who am I",
    ),
    provider(
        "lists-models-at-once",
        "async def list_models",
        "def list_models",
        (MODELS, STRUCTURE),
        "list_models() must be async",
    ),
    provider(
        "lists-no-list",
        "return [ModelInfo",
        "return None and [ModelInfo",
        (MODELS,),
        "must return a list, not NoneType",
    ),
    provider("lists-texts", "return [ModelInfo", "return ['yes-1'] or [ModelInfo", (MODELS,), "must list ModelInfo"),
    provider(
        "answers-at-once",
        "async def complete(self, request, **kwargs):\n        await ",
        "def complete(self, request, **kwargs):\n        ",
        (STRUCTURE,),
        "complete() must be async",
    ),
    provider(
        "takes-no-request",
        "complete(self, request, **kwargs)",
        "complete(self)",
        (STRUCTURE,),
        "complete() must take request",
    ),
    provider(
        "parses-to-nothing",
        "return list(response.tool_calls or [])",
        "return response.tool_calls",
        (PARSING,),
        "must return a list, not NoneType",
    ),
    provider(
        "parses-to-dicts", "return list(response.tool_calls or [])", "return [{}]", (PARSING,), "must list ToolCall"
    ),
    provider("parses-later", "def parse_tool_calls", "async def parse_tool_calls", (PARSING,), "not coroutine"),
    provider("parses-nothing", "def parse_tool_calls", "def parse", (PARSING, STRUCTURE), "has no parse_tool_calls"),
    tool(
        "returns-text",
        'return ToolResult(success=False, error={"message": "\'text\' is required"})',
        "return 'no text'",
        (RESULT, FIELDS, INVALID),
        "must return ToolResult, not str",
    ),
    tool(
        "raises",
        "return ToolResult(success=False",
        "raise KeyError('text') or ToolResult(success=False",
        (RESULT, FIELDS, INVALID),
        "it raised KeyError",
    ),
    tool(
        "succeeds-without-input",
        "return ToolResult(success=False, error",
        "return ToolResult(output",
        (INVALID,),
        "the schema requires ['text']",
    ),
    tool("fails-without-a-word", ', error={"message": "\'text\' is required"}', "", (FIELDS,), "must say why"),
    tool("has-no-description", "    description =", "    about =", (DESCRIPTION, STRUCTURE), "has no description"),
    tool(
        "has-an-empty-description",
        '"Return a text in capital letters"',
        '" "',
        (DESCRIPTION,),
        "description must be a text",
    ),
    tool(
        "has-an-empty-name", 'name = "shout"\n', 'name = ""\n', ("test_tool_has_name", STRUCTURE), "name must be a text"
    ),
    tool(
        "executes-at-once",
        "async def execute",
        "def execute",
        (EXECUTE, RESULT, FIELDS, INVALID, STRUCTURE),
        "execute() must be async",
    ),
    tool(
        "takes-no-input",
        "execute(self, input):",
        "execute(self):\n        input = {}",
        (EXECUTE, RESULT, FIELDS, INVALID, STRUCTURE),
        "execute() must take input",
    ),
    hooks(
        "returns-text",
        "return HookResult()\n\n    async def note",
        "return 'yes'\n\n    async def note",
        (ANSWER, ACTION),
        "must return HookResult, not str",
    ),
    hooks(
        "explodes",
        'HookResult(action="deny", reason=path)\n        return HookResult()',
        'None\n        return {"action": "explode"}',
        (ACTION,),
        "asks for 'explode'",
    ),
    hooks("raises", 'data["prompt"]', 'data["text"]', (ANSWER, ACTION), "must not raise on a prompt:submit"),
    hooks("ends-the-process", 'data["prompt"]', "exit(3)", (ANSWER, ACTION), "must not raise on a"),
    hooks(
        "takes-the-event-alone",
        "guard(event, data)",
        "guard(event)",
        (ANSWER, ACTION, STRUCTURE),
        "must take (event, data), and these do not: guard (tool:pre)",
    ),
    hooks(
        "returns-many-clean-ups",
        "return undo\n",
        "return [undo_guard, undo_note]\n",
        ("test_cleanup_is_callable_if_present",),
        "not a list of them",
    ),
    hooks(
        "clean-up-fails",
        "        undo_guard()\n",
        "        raise OSError('stuck')\n",
        (EVERY,),
        "must not raise; it raised OSError: stuck",
    ),
    hooks("mount-fails", "    notes = []", "    raise OSError('no disk')", (EVERY,), "no disk"),
    hooks(
        "replaces-the-hooks",
        "    notes = []",
        "    notes = []\n    coordinator.hooks = type(coordinator.hooks)()",
        ("test_mount_succeeds",),
        "not replace the hooks",
    ),
    context(
        "returns-none",
        "async def get_messages(self):\n        return list(self.messages)",
        "async def get_messages(self):\n        return None",
        (ROUND_TRIP, ORDER, CLEAR, ODD, NEVER_NONE, "test_internal_compact_does_not_crash"),
        "must return a list, not None",
    ),
    context(
        "returns-at-once",
        "async def get_messages(self)",
        "def get_messages(self)",
        (ROUND_TRIP, ORDER, CLEAR, ODD, NEVER_NONE, "test_internal_compact_does_not_crash", STRUCTURE),
        "get_messages() must be async",
    ),
    context(
        "sends-none",
        "provider=None):\n        return list(self.messages)",
        "provider=None):\n        return None",
        (REQUEST,),
        "must return a list, not None",
    ),
    context(
        "sends-nothing",
        "provider=None):\n        return list(self.messages)",
        "provider=None):\n        return []",
        (REQUEST,),
        "must return the message that was added",
    ),
    context(
        "knows-no-budget", "token_budget=None, provider=None", "", (STRUCTURE,), "must take token_budget=, provider="
    ),
    context(
        "forgets", "self.messages.append(message)", "self.messages = [message]", (ORDER,), "messages in their order"
    ),
    context(
        "adds-nothing",
        "self.messages.append(message)",
        "pass",
        (ROUND_TRIP, ORDER, REQUEST, ODD),
        "the message that was added",
    ),
    context("sets-nothing", "self.messages = list(messages)", "pass", (ROUND_TRIP,), "must replace the messages"),
    context(
        "cannot-be-set",
        "async def set_messages",
        "async def put_messages",
        (METHODS, ROUND_TRIP, STRUCTURE),
        "has no set_messages",
    ),
    context(
        "clears-nothing",
        "clear(self):\n        self.messages = []",
        "clear(self):\n        pass",
        (CLEAR,),
        "must remove every message",
    ),
    context(
        "ends-the-process",
        "self.messages.append(message)",
        "self.messages.append(message if message else exit(3))",
        (ODD,),
        "must not end the process",
    ),
    context(
        "compacts-perhaps",
        "return len(self.messages) > 100",
        "return 'perhaps'",
        ("test_internal_should_compact_returns_bool",),
        "true or false, not 'perhaps'",
    ),
    context(
        "cannot-compact",
        "del self.messages[:-100]",
        "raise OSError('full')",
        ("test_internal_compact_does_not_crash",),
        "full",
    ),
    loop(
        "answers-none",
        "        return text\n",
        "        return None\n",
        (TEXT, EMPTY_PROMPT),
        "must return text, not NoneType",
    ),
    loop(
        "takes-no-coordinator",
        "hooks, **kwargs",
        "hooks",
        (*TURNS, STRUCTURE),
        "must take prompt=, context=, providers=, tools=, hooks=, coordinator=",
    ),
    loop(
        "cannot-take-silence",
        "        await hooks.emit(EXECUTION_START",
        "        prompt[0]\n        await hooks.emit(EXECUTION_START",
        (EMPTY_PROMPT,),
        "raised IndexError",
    ),
    loop(
        "asks-nobody",
        "await self.ask(context, next(iter(providers.values())))",
        "'a guess'",
        (ASKS,),
        "must call complete",
    ),
    loop("remembers-nothing", "await context.add_message(", "dict(", (REMEMBERS,), "must add messages to the context"),
    loop(
        "has-no-execute",
        "async def execute",
        "async def run",
        ("test_orchestrator_has_execute_method", *TURNS, STRUCTURE),
        "has no execute",
    ),
    loop(
        "is-not-mounted",
        '    await coordinator.mount("orchestrator", OnceOrchestrator())',
        "    return OnceOrchestrator()",
        (EVERY,),
        "is not enough",
    ),
]


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, open_workshop: Callable[..., Workshop], sources: dict[str, str]
) -> dict[str, list[Outcome]]:
    """How the tests of every defective module ended, all of them in one run."""
    workshop = open_workshop(tmp_path_factory.mktemp("defective"))
    for defect in DEFECTS:
        source = sources[defect.module]
        assert source.count(defect.old) >= 1, f"{defect.module_id}: nothing to change"
        workshop.write(defect.module_id, source.replace(defect.old, defect.new))
    return workshop.outcomes()


@pytest.mark.long
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.module_id)
def test_a_defect_is_caught_and_named(defect: Defect, outcomes: dict[str, list[Outcome]]) -> None:
    found = outcomes[defect.module_id]
    bad = [outcome for outcome in found if outcome.verdict in ("failed", "error")]
    every = {outcome.test for outcome in found}
    assert {outcome.test for outcome in bad} == (every if EVERY in defect.caught_by else set(defect.caught_by))
    assert any(defect.saying in outcome.message for outcome in bad), [outcome.message for outcome in bad]


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_a_module_that_keeps_the_contract_passes(
    mode: str, tmp_path: Path, open_workshop: Callable[..., Workshop], sources: dict[str, str]
) -> None:
    workshop = open_workshop(tmp_path, mode)
    for module_id, source in sources.items():
        workshop.write(module_id, source)
    outcomes = workshop.outcomes()
    assert {module_id: {outcome.verdict for outcome in found} for module_id, found in outcomes.items()} == {
        module_id: {"passed"} for module_id in sources
    }
    for module_id, found in outcomes.items():
        suite = SUITE_OF[module_id.partition("-")[0]]
        assert {outcome.test for outcome in found} == {STRUCTURE, *PUBLISHED[suite]}


@pytest.mark.parametrize("suite", PUBLISHED)
def test_a_suite_has_the_published_tests_and_takes_the_published_fixtures(suite: str) -> None:
    tests = {name: test for name, test in vars(getattr(behavioral, suite)).items() if name.startswith("test_")}
    assert {name: list(inspect.signature(test).parameters)[1:] for name, test in tests.items()} == PUBLISHED[suite]


@pytest.mark.parametrize("suite", PUBLISHED)
def test_every_kind_has_a_structural_suite_of_one_test(suite: str) -> None:
    kind = getattr(structural, suite.replace("Behavior", "Structural"))
    assert [name for name in dir(kind) if name.startswith("test_")] == [STRUCTURE]
    assert list(inspect.signature(kind.test_structural_validation).parameters) == ["self", "module_path"]
