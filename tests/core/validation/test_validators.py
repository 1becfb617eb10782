"""The validators: what they look at, what they leave behind, and how they are told where a module is."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import validation
from amplifier_core.validation import (
    ContextValidator,
    HookValidator,
    OrchestratorValidator,
    ProviderValidator,
    ToolValidator,
    ValidationCheck,
    ValidationResult,
)
from amplifier_core.validation.base import check_on_session_ready, import_module_from_path

if TYPE_CHECKING:
    from .conftest import Workshop

VALIDATORS: dict[str, type[Any]] = {
    "provider": ProviderValidator,
    "tool": ToolValidator,
    "hooks": HookValidator,
    "context": ContextValidator,
    "loop": OrchestratorValidator,
}
COMMON = ["module_importable", "module_type", "mount_exists", "mount_signature", "protocol_compliance"]
CHECKS = {
    "provider-yes": [
        "provider_name",
        "provider_get_info",
        "provider_list_models",
        "provider_complete",
        "provider_parse_tool_calls",
    ],
    "tool-shout": ["tool_name", "tool_description", "tool_input_schema", "tool_execute"],
    "hooks-guard": [],
    "context-list": [
        "context_add_message",
        "context_get_messages_for_request",
        "context_get_messages",
        "context_set_messages",
        "context_clear",
    ],
    "loop-once": ["orchestrator_execute"],
}
OWN = ("amplifier_loop_basic", "amplifier_context_simple", "amplifier_provider_playbook", "amplifier_tool_filesystem")

LOGGING_TOOL = """
__amplifier_module_type__ = "tool"

from amplifier_core import ToolResult

log = []


class Silent:
    description = "Say nothing"

    def __init__(self, name):
        self.name = name

    async def execute(self, input):
        log.append("executed")
        return ToolResult(output="")


async def mount(coordinator, config=None):
    log.append(f"mounted with {config}")
    await coordinator.mount("tools", Silent("one"))
    await coordinator.mount("tools", Silent("two"))
    coordinator.register_cleanup(lambda: log.append("coordinator cleaned up"))
    return lambda: log.append("cleaned up")


async def mount_other(coordinator, config=None):
    log.append("mounted otherwise")
"""


@pytest.fixture(autouse=True)
def _modules_are_forgotten() -> Any:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("amplifier_module_", "_amplifier_source_")):
            del sys.modules[name]


def package_of(project: Path) -> Path:
    return next(path.parent for path in project.glob("amplifier_module_*/__init__.py"))


@pytest.mark.parametrize("module_id", CHECKS)
async def test_a_good_module_passes_every_check_of_its_kind(
    module_id: str, workshop: Workshop, sources: dict[str, str]
) -> None:
    package = package_of(workshop.write(module_id, sources[module_id]))
    result = await VALIDATORS[module_id.partition("-")[0]]().validate(package)
    assert [check.name for check in result.checks] == COMMON + CHECKS[module_id]
    assert (result.passed, result.errors, result.warnings) == (True, [], [])
    assert result.module_path == str(package)
    assert result.summary() == f"PASSED: {len(result.checks)}/{len(result.checks)} checks passed (0 errors, 0 warnings)"


@pytest.mark.parametrize("module_id", CHECKS)
async def test_a_module_is_no_valid_module_of_another_kind(
    module_id: str, workshop: Workshop, sources: dict[str, str]
) -> None:
    package = package_of(workshop.write(module_id, sources[module_id]))
    for prefix, validator in VALIDATORS.items():
        result = await validator().validate(package)
        assert result.passed is (prefix == module_id.partition("-")[0]), result.checks


@pytest.mark.parametrize("package", OWN)
async def test_our_own_modules_are_valid(package: str) -> None:
    folder = Path(str(importlib.import_module(package).__file__)).parent
    validator = VALIDATORS[package.split("_")[1]]
    for place in (folder, folder / "__init__.py", package):
        result = await validator().validate(place)
        assert (result.errors, result.warnings) == ([], [])


def test_our_own_modules_pass_the_suites(tmp_path: Path, open_workshop: Callable[..., Workshop]) -> None:
    workshop = open_workshop(tmp_path)
    kinds = {"loop": "Orchestrator", "context": "Context", "provider": "Provider", "tool": "Tool"}
    for package in OWN:
        kind = kinds[package.split("_")[1]]
        (tmp_path / f"test_{package}.py").write_text(
            f"from pathlib import Path\n\nimport pytest\nimport {package}\n"
            f"from amplifier_core.validation.behavioral import {kind}BehaviorTests\n"
            f"from amplifier_core.validation.structural import {kind}StructuralTests\n\n\n"
            "@pytest.fixture\ndef module_path():\n"
            f"    return Path({package}.__file__).parent\n\n\n"
            f"class TestBehavior({kind}BehaviorTests):\n    pass\n\n\n"
            f"class TestStructure({kind}StructuralTests):\n    pass\n"
        )
    outcomes = workshop.outcomes()
    assert sorted(outcomes) == sorted(f"test_{package}" for package in OWN)
    assert [outcome for found in outcomes.values() for outcome in found if outcome.verdict != "passed"] == []
    assert sum(map(len, outcomes.values())) == 28 + len(OWN)


async def test_a_module_is_mounted_once_with_its_config_and_cleaned_up_and_nothing_of_it_is_executed(
    workshop: Workshop,
) -> None:
    package = package_of(workshop.write("tool-log", LOGGING_TOOL))
    result = await ToolValidator().validate(package, config={"volume": 11})
    log = import_module_from_path(package).log
    assert log == ["mounted with {'volume': 11}", "cleaned up", "coordinator cleaned up"]
    assert [check.name for check in result.checks].count("tool_execute") == 2, "every tool is looked at"


async def test_an_entry_point_names_the_function_that_mounts(workshop: Workshop) -> None:
    package = package_of(workshop.write("tool-log", LOGGING_TOOL))
    other = await ToolValidator().validate(package, "amplifier_module_tool_log:mount_other")
    assert import_module_from_path(package).log == ["mounted otherwise"]
    assert [check.name for check in other.errors] == ["protocol_compliance"]
    missing = await ToolValidator().validate(package, "amplifier_module_tool_log:install")
    assert [check.message for check in missing.errors] == [
        "no function install(): write `async def mount(coordinator, config=None)`"
    ]
    named = await ToolValidator().validate(package, "tool-log")
    assert named.passed, "the name of an entry point does not name a function"


async def test_a_module_that_does_not_say_what_it_is_is_warned_of(workshop: Workshop, sources: dict[str, str]) -> None:
    source = sources["tool-shout"].replace('__amplifier_module_type__ = "tool"', "")
    result = await ToolValidator().validate(package_of(workshop.write("tool-mute", source)))
    assert result.passed
    assert [(check.name, check.severity) for check in result.warnings] == [("module_type", "warning")]
    assert "add `__amplifier_module_type__ = 'tool'`" in result.warnings[0].message


async def test_whatever_a_module_raises_is_a_check_that_failed(workshop: Workshop) -> None:
    for number, source in enumerate(("1 / 0", "exit(3)", "async def mount(coordinator, config):\n    exit(3)")):
        result = await ToolValidator().validate(package_of(workshop.write(f"tool-bad-{number}", source)))
        assert not result.passed
        assert result.errors[-1].message.endswith(("ZeroDivisionError: division by zero", "SystemExit: 3"))


def test_a_module_is_imported_under_its_own_name_and_the_import_path_stays(
    workshop: Workshop, sources: dict[str, str]
) -> None:
    project, before = workshop.write("tool-shout", sources["tool-shout"]), list(sys.path)
    module = import_module_from_path(project / "amplifier_module_tool_shout")
    assert module is sys.modules["amplifier_module_tool_shout"]
    assert import_module_from_path(str(project)) is module
    assert import_module_from_path(project / "amplifier_module_tool_shout" / "__init__.py") is module
    assert import_module_from_path("amplifier_module_tool_shout") is module
    assert sys.path == before


def test_a_single_file_is_a_module(tmp_path: Path, sources: dict[str, str]) -> None:
    (tmp_path / "shout.py").write_text(sources["tool-shout"])
    assert import_module_from_path(tmp_path / "shout.py").ShoutTool.name == "shout"


def test_a_place_with_no_module_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="name its package folder"):
        import_module_from_path(tmp_path / "nowhere")
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        import_module_from_path("not_installed_anywhere")


async def async_ready(coordinator: object) -> None:
    """Be what a module should have."""


async def ready_for_nobody() -> None:
    """Take no coordinator."""


async def ready_for_anybody(coordinator: object = None) -> None:
    """Take a coordinator, or none."""


@pytest.mark.parametrize(
    ("ready", "fault"),
    [
        (None, None),
        (async_ready, None),
        (lambda coordinator: None, "must be async"),
        (ready_for_nobody, "must take the coordinator"),
        (ready_for_anybody, "without a default"),
        (5, "must be async"),
    ],
)
def test_on_session_ready_is_async_and_takes_the_coordinator(ready: Any, fault: str | None) -> None:
    class Module:
        on_session_ready = staticmethod(ready) if callable(ready) else ready

    check = check_on_session_ready(Module())
    assert (check is None) is (fault is None)
    if check is not None:
        assert (check.name, check.passed, check.severity) == ("on_session_ready_async", False, "error")
        assert str(fault) in check.message


async def test_on_session_ready_is_looked_at_after_mount(workshop: Workshop, sources: dict[str, str]) -> None:
    source = sources["tool-shout"] + "\n\nasync def on_session_ready(coordinator=None):\n    pass\n"
    result = await ToolValidator().validate(package_of(workshop.write("tool-ready", source)))
    names = [check.name for check in result.checks]
    assert names[names.index("mount_signature") + 1] == "on_session_ready_async"
    assert [check.name for check in result.errors] == ["on_session_ready_async"]


@pytest.mark.parametrize(
    ("validator", "source", "name", "words"),
    [
        (ToolValidator, "async def mount(coordinator):\n    pass\n", "mount_signature", "2 parameters"),
        (
            ToolValidator,
            "async def mount(coordinator, config):\n    pass\n",
            "protocol_compliance",
            "No tool was mounted",
        ),
        (
            ProviderValidator,
            "async def mount(coordinator, config):\n    pass\n",
            "protocol_compliance",
            "No provider was mounted",
        ),
    ],
)
async def test_a_message_has_the_words_that_tools_look_for(
    workshop: Workshop, validator: type[Any], source: str, name: str, words: str
) -> None:
    result = await validator().validate(package_of(workshop.write("tool-odd", source)))
    assert [words in check.message for check in result.errors if check.name == name] == [True]


async def test_a_folder_without_init_is_told_so(tmp_path: Path) -> None:
    result = await ToolValidator().validate(tmp_path)
    assert [(check.name, "__init__.py" in check.message) for check in result.errors] == [("module_importable", True)]


def test_only_errors_keep_a_result_from_passing() -> None:
    result = ValidationResult("tool", "somewhere")
    assert (result.passed, result.summary()) == (True, "PASSED: 0/0 checks passed (0 errors, 0 warnings)")
    result.add(ValidationCheck("told", True, "it is told", "info"))
    result.add(ValidationCheck("described", False, "it is not described", "warning"))
    assert (result.passed, [check.name for check in result.warnings]) == (True, ["described"])
    result.add(ValidationCheck("async", False, "it is not async", "error"))
    assert (result.passed, [check.name for check in result.errors]) == (False, ["async"])
    assert result.summary() == "FAILED: 1/3 checks passed (1 errors, 1 warnings)"


def test_the_names_of_the_package_can_all_be_imported() -> None:
    assert validation.__all__ == sorted(validation.__all__)
    assert {name: getattr(validation, name).__name__ for name in validation.__all__} == {
        name: name for name in validation.__all__
    }
    assert set(validation.__all__) <= set(dir(validation))
    with pytest.raises(AttributeError, match="no attribute 'AgentValidator'"):
        validation.AgentValidator  # noqa: B018 - looking it up is the test


def test_validation_needs_no_test_runner(workshop: Workshop, sources: dict[str, str]) -> None:
    package = package_of(workshop.write("provider-yes", sources["provider-yes"]))
    script = f"""
import asyncio, sys
sys.modules["pytest"] = None
from amplifier_core.validation import MountPlanValidator, ProviderValidator
print(asyncio.run(ProviderValidator().validate({str(package)!r})).passed)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
