"""The pytest plugin: what it offers to the tests of modules, and that it leaves every other project alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core.pytest_plugin import AmplifierModulePlugin

if TYPE_CHECKING:
    from .conftest import Workshop

pytestmark = pytest.mark.slow

SHOW = """
def test_show(module_path, module_type, is_module_context):
    print(f"<{module_path and module_path.name}|{module_type}|{is_module_context}>")
"""
FOREIGN = """
import sys
import warnings


def test_nothing_of_the_kernel_is_loaded(pytestconfig):
    loaded = {name for name in sys.modules if name.startswith("amplifier_core.")}
    print(sorted(loaded))
    assert loaded <= {
        "amplifier_core.pytest_plugin",
        "amplifier_core.validation",
        "amplifier_core.validation.fixtures",
    }
    assert not {"pydantic", "tomllib"} & set(sys.modules)
    assert pytestconfig.pluginmanager.hasplugin("amplifier_module")
"""


def foreign_project(workshop: Workshop, **files: str) -> None:
    """Make the workshop a project that has never heard of modules."""
    (workshop.folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\naddopts = -p no:cacheprovider\n")
    for name, text in files.items():
        (workshop.folder / f"{name}.py").write_text(text)


@pytest.mark.parametrize("arguments", [("-p", "no:asyncio"), ("-o", "asyncio_default_fixture_loop_scope=function")])
def test_a_foreign_project_pays_nothing_and_hears_nothing(arguments: tuple[str, ...], workshop: Workshop) -> None:
    foreign_project(workshop, test_foreign=FOREIGN)
    done = workshop.run(*arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "warning" not in done.stdout


def test_a_foreign_project_may_have_fixtures_and_options_of_the_same_names(workshop: Workshop) -> None:
    conftest = """
import pytest


def pytest_addoption(parser):
    parser.addoption("--module-path", default="theirs")


@pytest.fixture
def coordinator(request):
    return request.config.getoption("--module-path")
"""
    foreign_project(
        workshop,
        conftest=conftest,
        test_it="def test_it(coordinator):\n    assert coordinator in ('theirs', 'given')\n",
    )
    for arguments in ((), ("--module-path", "given")):
        done = workshop.run("-p", "no:asyncio", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_module_is_that_of_the_test(workshop: Workshop, sources: dict[str, str]) -> None:
    for module_id, source in sources.items():
        (workshop.write(module_id, source) / "tests" / "test_module.py").write_text(SHOW)
    (workshop.folder / "test_none.py").write_text(SHOW)
    shown = [line for line in workshop.run("-s").stdout.replace(".", "").splitlines() if line.startswith("<")]
    assert sorted(shown) == [
        "<None|None|False>",
        "<amplifier_module_context_list|context|True>",
        "<amplifier_module_hooks_guard|hook|True>",
        "<amplifier_module_loop_once|orchestrator|True>",
        "<amplifier_module_provider_yes|provider|True>",
        "<amplifier_module_tool_shout|tool|True>",
    ]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--module-path", "amplifier-module-tool-shout/amplifier_module_tool_shout"), "|tool|True>"),
        (("--module-path", "amplifier-module-tool-shout"), "|tool|True>"),
        (("--amplifier-module-path", "amplifier-module-tool-shout"), "|tool|True>"),
        (("-o", "amplifier_module_path=amplifier-module-tool-shout"), "|tool|True>"),
        (("--module-path", "amplifier-module-tool-shout", "--amplifier-module-type", "hook"), "|hook|True>"),
        (("--module-path", "amplifier-module-tool-shout", "-o", "amplifier_module_type=hook"), "|hook|True>"),
    ],
)
def test_the_module_can_be_named(
    arguments: tuple[str, ...], shown: str, workshop: Workshop, sources: dict[str, str]
) -> None:
    workshop.write("tool-shout", sources["tool-shout"])
    (workshop.folder / "test_show.py").write_text(SHOW)
    assert f"<amplifier_module_tool_shout{shown}" in workshop.run("-s", "test_show.py", *arguments).stdout


def test_the_suites_are_skipped_where_there_is_no_module(workshop: Workshop, sources: dict[str, str]) -> None:
    tests = workshop.write("tool-shout", sources["tool-shout"]) / "tests" / "test_module.py"
    tests.rename(workshop.folder / "test_module.py")
    done = workshop.run("-rs", "test_module.py")
    assert "8 skipped" in done.stdout
    assert "No module path detected" in done.stdout


def test_suites_that_nothing_would_await_are_refused(workshop: Workshop, sources: dict[str, str]) -> None:
    (workshop.folder / "pytest.ini").write_text("[pytest]\n")
    workshop.write("tool-shout", sources["tool-shout"])
    done = workshop.run("-p", "no:asyncio")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "is async. Install its runner with: pip install pytest-asyncio" in done.stdout + done.stderr


def test_a_module_s_own_tests_use_the_fixtures_and_override_them(workshop: Workshop, sources: dict[str, str]) -> None:
    tests = workshop.write("tool-shout", sources["tool-shout"]) / "tests"
    (tests / "test_more.py").write_text("""
from pathlib import Path

import pytest
import pytest_asyncio
from amplifier_core.testing import MockCoordinator, MockTool
from amplifier_core.validation.behavioral import ToolBehaviorTests


@pytest.mark.asyncio
async def test_the_tool_is_the_one_that_is_mounted(tool_module, coordinator):
    assert coordinator.get("tools") == {"shout": tool_module}
    assert (await tool_module.execute({"text": "hey"})).output == "HEY"


def test_the_session_works_in_an_empty_folder(coordinator):
    assert isinstance(coordinator, MockCoordinator)
    assert list(Path(coordinator.get_capability("session.working_dir")).iterdir()) == []
    assert coordinator.config["session"]["orchestrator"]


def test_an_orchestrator_is_given_four_things(mock_deps):
    context, providers, tools, hooks = mock_deps
    assert (list(providers), list(tools)) == (["default"], ["test_tool"])
    assert hooks.get_events() == context.messages == []


@pytest_asyncio.fixture
async def my_tool():
    return MockTool("mine", description="My own tool")


class TestMine(ToolBehaviorTests):
    example_input = {"text": "an example"}

    @pytest.fixture
    def tool_module(self, my_tool):
        return my_tool

    def teardown_class(cls):
        assert cls.example_input == {"text": "an example"}
""")
    done = workshop.run("-rf", str(tests / "test_more.py"))
    assert "10 passed" in done.stdout, done.stdout


def test_an_example_input_is_executed_by_the_suite(workshop: Workshop, sources: dict[str, str]) -> None:
    source = sources["tool-shout"].replace("ToolResult(output=text.upper())", "text.upper()")
    tests = workshop.write("tool-shout", source) / "tests" / "test_module.py"
    assert {outcome.verdict for outcome in workshop.outcomes()["tool-shout"]} == {"passed"}
    tests.write_text(tests.read_text() + '\n\nTestBehavior.example_input = {"text": "hey"}\n')
    failed = {outcome.test: outcome.message for outcome in workshop.outcomes()["tool-shout"] if outcome.message}
    assert set(failed) == {"test_execute_returns_tool_result", "test_tool_result_has_required_fields"}
    assert "execute() must return ToolResult, not str" in failed["test_execute_returns_tool_result"]


def test_a_clean_up_that_a_test_called_is_not_called_again(workshop: Workshop, sources: dict[str, str]) -> None:
    source = sources["hooks-guard"].replace("        undo_guard()\n", "        undo_guard()\n        notes.pop()\n")
    source = source.replace("    notes = []", "    notes = ['only one']")
    tests = workshop.write("hooks-guard", source) / "tests"
    assert "8 passed" in workshop.run(str(tests)).stdout


def test_the_plugin_detects_the_module_of_a_root_folder(pytestconfig: pytest.Config) -> None:
    plugin = AmplifierModulePlugin()
    assert (plugin.module_path, plugin.module_type) == (None, None)
    plugin.detect(pytestconfig)
    assert (plugin.module_path, plugin.module_type) == (None, None), "this project's root folder holds no module"
    here = Path(__file__).parents[3] / "plugins" / "amplifier-loop-basic" / "tests"
    found = plugin.locate(pytestconfig, here)
    assert found is not None
    assert (found.path.name, found.type) == ("amplifier_loop_basic", "orchestrator")


def test_the_plugin_is_installed_with_the_kernel() -> None:
    from importlib.metadata import entry_points

    assert [entry.value for entry in entry_points(group="pytest11", name="amplifier_module")] == [
        "amplifier_core.pytest_plugin"
    ]
    assert "amplifier_core.pytest_plugin" in sys.modules
