"""The pytest plugin for the tests of modules: it finds the module under test and mounts it.

    from amplifier_core.validation.behavioral import ToolBehaviorTests

    class TestUpper(ToolBehaviorTests):
        \"\"\"Inherits the tests of every tool.\"\"\"

The module is found from the folder of the test (`pyproject.toml`, or the name of its package), or named by
`--module-path`. This plugin is loaded in every test run of an environment that amplifier is installed in: until one of
its fixtures is asked for, it looks at no folder and imports nothing of the kernel.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from .testing import EventRecorder, MockContextManager, MockCoordinator, MockTool
    from .validation.doubles import AnsweringProvider
    from .validation.locating import ModuleUnderTest

    Deps = tuple[MockContextManager, dict[str, AnsweringProvider], dict[str, MockTool], EventRecorder]

SUITES = ("amplifier_core.validation.behavioral", "amplifier_core.validation.structural")


class AmplifierModulePlugin:
    """What the command line, the ini file and the folders say of the module under test."""

    def __init__(self) -> None:
        self.module_path: Path | None = None
        self.module_type: str | None = None

    def detect(self, config: Any) -> None:
        """Set `module_path` and `module_type` to the module of the run's root folder, None where there is none."""
        found = self.locate(config, Path(config.rootpath))
        self.module_path, self.module_type = (found.path, found.type) if found else (None, None)

    def locate(self, config: Any, start: Path, wanted: str | None = None) -> ModuleUnderTest | None:
        """Return the module that a test in the folder `start` is of; what was named by option or ini wins."""
        from .validation.locating import ModuleUnderTest, module_at, module_near, modules_in

        path, kind = _named_path(config), _named_type(config)
        if path is None:
            found = module_near(start, kind or wanted)
        else:
            found = next(iter(modules_in(path)), None) or module_at(path)
        return ModuleUnderTest(found.path, kind) if found and kind else found


PLUGIN = pytest.StashKey[AmplifierModulePlugin]()


def pytest_addoption(parser: Any) -> None:
    """Add the options that name the module under test, and their ini keys."""
    group = parser.getgroup("amplifier", "modules of amplifier")
    group.addoption(
        "--amplifier-module-path", default=None, metavar="PATH", help="package folder of the module under test"
    )
    group.addoption(
        "--amplifier-module-type", default=None, metavar="TYPE", help="provider, tool, hook, orchestrator or context"
    )
    parser.addini("amplifier_module_path", "package folder of the module under test, from the root folder", default="")
    parser.addini("amplifier_module_type", "type of the module under test, when nothing else tells", default="")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: Any) -> Generator[None, Any, Any]:
    """Add `--module-path`, the published spelling, unless a project's own conftest has an option of that name."""
    outcome = yield
    with suppress(ValueError):
        parser.addoption("--module-path", dest="amplifier_module_path", metavar="PATH", help="--amplifier-module-path")
    return outcome


def pytest_configure(config: Any) -> None:
    """Offer the fixtures that mount a module, where something can run them."""
    config.addinivalue_line("markers", "module_validation: a test of whether a module keeps the contract")
    config.stash[PLUGIN] = AmplifierModulePlugin()
    if config.pluginmanager.hasplugin("asyncio"):
        from .validation import fixtures

        config.pluginmanager.register(fixtures, "amplifier_module_fixtures")


def pytest_collection_modifyitems(session: Any, config: Any, items: list[Any]) -> None:
    """Refuse to run the suites where no plugin awaits them. Raises `pytest.UsageError`."""
    if config.pluginmanager.hasplugin("asyncio"):
        return
    for item in items:
        if _is_of_suite(item):
            raise pytest.UsageError(f"{item.nodeid} is async. Install what runs it with: pip install pytest-asyncio")


def _is_of_suite(item: Any) -> bool:
    classes = getattr(getattr(item, "cls", None), "__mro__", ())
    return any(each.__module__.startswith(SUITES) for each in classes)


def _named_path(config: Any) -> Path | None:
    if option := config.getoption("amplifier_module_path"):
        return Path(config.invocation_params.dir, option)
    if line := config.getini("amplifier_module_path"):
        return Path(config.rootpath, line)
    return None


def _named_type(config: Any) -> str | None:
    return config.getoption("amplifier_module_type") or config.getini("amplifier_module_type") or None


def _module_under_test(request: Any) -> ModuleUnderTest | None:
    plugin: AmplifierModulePlugin = request.config.stash[PLUGIN]
    return plugin.locate(request.config, request.path.parent, getattr(request.cls, "module_kind", None))


@pytest.fixture
def module_path(request: pytest.FixtureRequest) -> Path | None:
    """Return the package folder of the module under test, None where there is none."""
    found = _module_under_test(request)
    return found.path if found else None


@pytest.fixture
def module_type(request: pytest.FixtureRequest) -> str | None:
    """Return what the module under test is (provider, tool, hook, orchestrator, context), None if nothing tells."""
    found = _module_under_test(request)
    return found.type if found else None


@pytest.fixture
def is_module_context(module_path: Path | None) -> bool:
    """Return whether there is a module under test."""
    return module_path is not None


@pytest.fixture
def coordinator(tmp_path: Path) -> MockCoordinator:
    """Return a coordinator with nothing mounted, whose session works in an empty folder."""
    from .validation.validator import coordinator_for_tests

    coordinator = coordinator_for_tests()
    coordinator.register_capability("session.working_dir", str(tmp_path))
    return coordinator


@pytest.fixture
def mock_deps() -> Deps:
    """Return what an orchestrator is run with: context, providers, tools, hooks."""
    from .testing import EventRecorder, MockContextManager, MockTool
    from .validation.doubles import AnsweringProvider

    return MockContextManager(), {"default": AnsweringProvider()}, {"test_tool": MockTool("test_tool")}, EventRecorder()
