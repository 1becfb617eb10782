"""Find and mount the module under test: the pytest plugin for the tests of modules.

    from amplifier_core.validation.behavioral import ToolBehaviorTests

    class TestUpper(ToolBehaviorTests):
        \"\"\"Inherits the tests of every tool.\"\"\"

The module is found from the folder of the test (`pyproject.toml`, or the name of its package), or named by
`--module-path`. Further fixtures are for all plugins: `plugins_with`, `virtual_clock`, `simulated_files`, `playbook`,
`run_session` and `crash_points`. `--amplifier-replay DIR` plays back recorded sessions as tests. Every test run in an
environment with amplifier loads this plugin: before a test asks for one of its fixtures, it looks at no folder and
imports nothing of the kernel.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from .plugins import Plugins
    from .testing import (
        EventRecorder,
        MockContextManager,
        MockCoordinator,
        MockTool,
        SessionRun,
        SimulatedFiles,
        VirtualClock,
    )
    from .validation.doubles import AnsweringProvider
    from .validation.locating import ModuleUnderTest

    Deps = tuple[MockContextManager, dict[str, AnsweringProvider], dict[str, MockTool], EventRecorder]

SUITES = ("amplifier_core.validation.behavioral", "amplifier_core.validation.structural")


class AmplifierModulePlugin:
    """The module under test, named by the command line, the ini file or the folders."""

    def __init__(self) -> None:
        self.module_path: Path | None = None
        self.module_type: str | None = None

    def detect(self, config: Any) -> None:
        """Set `module_path` and `module_type` to the module of the run's root folder, or to None."""
        found = self.locate(config, Path(config.rootpath))
        self.module_path, self.module_type = (found.path, found.type) if found else (None, None)

    def locate(self, config: Any, start: Path, wanted: str | None = None) -> ModuleUnderTest | None:
        """Return the module of a test in the folder `start`; an option or ini key wins."""
        from .validation.locating import ModuleUnderTest, module_at, module_near, modules_in

        path = _named_path(config)
        kind = config.getoption("amplifier_module_type") or config.getini("amplifier_module_type") or None
        if path is None:
            found = module_near(start, kind or wanted)
        else:
            found = next(iter(modules_in(path)), None) or module_at(path)
        return ModuleUnderTest(found.path, kind) if found and kind else found


PLUGIN = pytest.StashKey[AmplifierModulePlugin]()


def pytest_addoption(parser: Any) -> None:
    """Add the options and ini keys for the module under test."""
    group = parser.getgroup("amplifier", "modules of amplifier")
    group.addoption(
        "--amplifier-module-path", default=None, metavar="PATH", help="package folder of the module under test"
    )
    group.addoption(
        "--amplifier-module-type", default=None, metavar="TYPE", help="provider, tool, hook, orchestrator or context"
    )
    group.addoption(
        "--amplifier-replay",
        action="append",
        default=[],
        metavar="DIR",
        help="play back a recorded session, or each recording in a folder, as a test; repeatable",
    )
    parser.addini("amplifier_module_path", "package folder of the module under test, from the root folder", default="")
    parser.addini("amplifier_module_type", "type of the module under test, when nothing else tells", default="")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: Any) -> Generator[None, Any, Any]:
    """Add `--module-path`, the published spelling, unless a project's own conftest has this option."""
    outcome = yield
    with suppress(ValueError):
        parser.addoption("--module-path", dest="amplifier_module_path", metavar="PATH", help="--amplifier-module-path")
    return outcome


def pytest_configure(config: Any) -> None:
    """Offer the fixtures of modules if a plugin for async tests is there."""
    config.addinivalue_line("markers", "module_validation: a test of whether a module keeps the contract")
    config.stash[PLUGIN] = AmplifierModulePlugin()
    if config.pluginmanager.hasplugin("asyncio"):
        from .validation import fixtures

        config.pluginmanager.register(fixtures, "amplifier_module_fixtures")


def pytest_collection_modifyitems(session: Any, config: Any, items: list[Any]) -> None:
    """Add the recordings to play back. Raises `pytest.UsageError` for suites without a plugin for async tests."""
    for folder in config.getoption("amplifier_replay"):
        path = Path(config.invocation_params.dir, folder)
        items += [
            ReplayItem.from_parent(session, name=f"replay[{each.name}]", folder=each) for each in find_recordings(path)
        ]
    if config.pluginmanager.hasplugin("asyncio"):
        return
    for item in items:
        classes = getattr(getattr(item, "cls", None), "__mro__", ())
        if any(each.__module__.startswith(SUITES) for each in classes):
            raise pytest.UsageError(f"{item.nodeid} is async. Install its runner with: pip install pytest-asyncio")


class ReplayFailed(Exception):
    """A recording was not played back as recorded; the text is the program's."""


class ReplayItem(pytest.Item):
    """A recorded session as a test: the program plays it back, in a process and with a data folder of its own."""

    def __init__(self, *, folder: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = folder

    def runtest(self) -> None:
        """Play the recording back. Raises `ReplayFailed`."""
        import os
        import subprocess
        import sys
        from tempfile import TemporaryDirectory

        command = [sys.executable, "-m", "amplifier_foundation", "session", "replay", str(self.folder)]
        with TemporaryDirectory() as home:
            run = subprocess.run(
                command, env={**os.environ, "AMPLIFIER_HOME": home}, capture_output=True, text=True, check=False
            )
        if run.returncode:
            raise ReplayFailed(run.stderr)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Return the difference alone."""
        return str(excinfo.value) if isinstance(excinfo.value, ReplayFailed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the folder as the place of the test."""
        return self.folder, None, f"replay of {self.folder.name}"


def find_recordings(folder: Path) -> list[Path]:
    """Return a folder with a recording, or those in it. Raises `pytest.UsageError` without one."""
    found = [each for each in (folder, *sorted(folder.glob("*"))) if any(each.glob("*.jsonl"))]
    if not found:
        raise pytest.UsageError(f"--amplifier-replay: there is no recording in {folder}")
    return found[:1] if found[0] == folder else found


def _named_path(config: Any) -> Path | None:
    if option := config.getoption("amplifier_module_path"):
        return Path(config.invocation_params.dir, option)
    if line := config.getini("amplifier_module_path"):
        return Path(config.rootpath, line)
    return None


def _module_under_test(request: Any) -> ModuleUnderTest | None:
    plugin: AmplifierModulePlugin = request.config.stash[PLUGIN]
    return plugin.locate(request.config, request.path.parent, getattr(request.cls, "module_kind", None))


@pytest.fixture
def module_path(request: pytest.FixtureRequest) -> Path | None:
    """Return the package folder of the module under test, or None."""
    found = _module_under_test(request)
    return found.path if found else None


@pytest.fixture
def module_type(request: pytest.FixtureRequest) -> str | None:
    """Return the type of the module under test (provider, tool, hook, orchestrator, context), or None."""
    found = _module_under_test(request)
    return found.type if found else None


@pytest.fixture
def is_module_context(module_path: Path | None) -> bool:
    """Return whether there is a module under test."""
    return module_path is not None


@pytest.fixture
def coordinator(tmp_path: Path) -> MockCoordinator:
    """Return a coordinator with nothing mounted, for a session in an empty folder."""
    from .validation.validator import coordinator_for_tests

    coordinator = coordinator_for_tests()
    coordinator.register_capability("session.working_dir", str(tmp_path))
    return coordinator


@pytest.fixture
def mock_deps() -> Deps:
    """Return the arguments of an orchestrator: context, providers, tools, hooks."""
    from .testing import EventRecorder, MockContextManager, MockTool
    from .validation.doubles import AnsweringProvider

    return MockContextManager(), {"default": AnsweringProvider()}, {"test_tool": MockTool("test_tool")}, EventRecorder()


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """Return a clock that only the test moves: `await virtual_clock.advance(3600)`."""
    from .testing import VirtualClock

    return VirtualClock()


@pytest.fixture
def simulated_files(tmp_path: Path, virtual_clock: VirtualClock) -> SimulatedFiles:
    """Return the files of `tmp_path`; each change of one returns the event of a watcher of files."""
    from .testing import SimulatedFiles

    return SimulatedFiles(tmp_path, virtual_clock)


@pytest.fixture
def plugins_with() -> Callable[..., Plugins]:
    """Return a function that registers the given plugins, modules or objects, and no installed one."""
    from .plugins import load_plugins

    def register(*given: object) -> Plugins:
        plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": ""})  # with the hooks that others specify
        for plugin in given:
            plugins.register(plugin)
        return plugins

    return register


@pytest.fixture
def playbook() -> Callable[..., dict[str, Any]]:
    """Return a function from rules to the entry of a provider that answers by them."""
    from .testing import playbook

    return playbook


@pytest.fixture
def run_session(tmp_path: Path) -> Callable[..., Awaitable[SessionRun]]:
    """Return a function that runs a turn of a real session in `tmp_path`, with the tools and modules under test."""
    from functools import partial

    from .testing import run_session

    return partial(run_session, working_dir=tmp_path)


@pytest.fixture
def crash_points() -> Callable[..., Iterator[int]]:
    """Return a function that kills work at each of its steps on disk, one process for each."""
    from .testing import crash_points

    return crash_points
