"""Modules: where they are found, what counts as one, and what each failure is called."""

from __future__ import annotations

import asyncio
import gc
import importlib
import py_compile
import sys
import threading
import weakref
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import loader as loader_module
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.errors import NameTaken, UnknownName
from amplifier_core.loader import (
    MODULE_FAILURE_REASONS,
    ModuleLoader,
    ModuleValidationError,
    import_from_path,
    installed_modules,
    module_failure_reason,
)
from amplifier_core.module_sources import FileSystemModuleSource, ModuleNotFoundError, ModuleSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.core.conftest import Site

MODULE = """
async def mount(coordinator, config):
    coordinator.register_capability("mounted", {"from": "NAME", "config": config})
"""

MODULES = "amplifier.modules"


def module(name: str) -> str:
    return MODULE.replace("NAME", name)


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return ModuleCoordinator(session_id="s")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for modules; what is imported from it is forgotten afterwards."""
    folder = tmp_path / "modules"
    folder.mkdir()
    yield folder
    for name, imported in list(sys.modules.items()):
        if str(getattr(imported, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class Resolver:
    """Knows the folder of each module; remembers what it was asked."""

    def __init__(self, **folders: Path) -> None:
        self.folders = {name.replace("_", "-"): folder for name, folder in folders.items()}
        self.asked: list[tuple[str, Any]] = []

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> ModuleSource:
        self.asked.append((module_id, source_hint))
        if module_id not in self.folders:
            raise ModuleNotFoundError(f"no source of {module_id}")
        return FileSystemModuleSource(self.folders[module_id])


class AsyncResolver(Resolver):
    async def async_resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> ModuleSource:
        return self.resolve(module_id, source_hint)


async def mounted(loader: ModuleLoader, coordinator: ModuleCoordinator, module_id: str, **options: Any) -> Any:
    """Load and mount the module; return what it says of itself."""
    mount = await loader.load(module_id, coordinator=coordinator, **options)
    await mount(coordinator)
    return coordinator.get_capability("mounted")


# entry points


async def test_an_installed_module_is_mounted_with_its_config(site: Site, coordinator: ModuleCoordinator) -> None:
    site.install("amplifier-tool-x", {MODULES: {"tool-x": "tool_x:mount"}}, {"tool_x.py": module("tool-x")})
    loader = ModuleLoader()
    assert await mounted(loader, coordinator, "tool-x", config={"n": 1}) == {"from": "tool-x", "config": {"n": 1}}
    assert await mounted(loader, coordinator, "tool-x") == {"from": "tool-x", "config": {}}


async def test_nothing_is_imported_before_it_is_asked_for(site: Site, coordinator: ModuleCoordinator) -> None:
    site.install("amplifier-tool-x", {MODULES: {"tool-x": "tool_x:mount"}}, {"tool_x.py": module("tool-x")})
    site.install("amplifier-tool-y", {MODULES: {"tool-y": "tool_y:mount"}}, {"tool_y.py": "raise AssertionError"})
    await mounted(ModuleLoader(), coordinator, "tool-x")
    assert "tool_x" in sys.modules
    assert "tool_y" not in sys.modules


async def test_an_unknown_module_answers_with_the_nearest_one_and_guesses_no_package(site: Site) -> None:
    site.install("amplifier-tool-zebra", {MODULES: {"tool-zebra": "tool_zebra:mount"}}, {})
    with pytest.raises(UnknownName) as unknown:
        await ModuleLoader().load("tool-zebrah")
    assert str(unknown.value).startswith("unknown module 'tool-zebrah'; did you mean 'tool-zebra'? Installed: ")
    assert "pip install" not in str(unknown.value)


async def test_a_module_that_two_dists_offer_is_an_error_that_names_both(site: Site) -> None:
    site.install("dist-one", {MODULES: {"tool-x": "tool_x:mount"}}, {"tool_x.py": module("one")})
    site.install("dist-two", {MODULES: {"tool-x": "tool_y:mount"}}, {"tool_y.py": module("two")}, version="2.0")
    with pytest.raises(NameTaken, match=r"module 'tool-x' is registered by both dist-one 1\.0 and dist-two 2\.0"):
        await ModuleLoader().load("tool-x")


async def test_an_entry_point_that_is_no_function_is_named(site: Site) -> None:
    site.install("amplifier-tool-x", {MODULES: {"tool-x": "tool_x:mount"}}, {"tool_x.py": "mount = 3"})
    with pytest.raises(ModuleValidationError, match="'tool-x': entry point tool_x:mount is not a mount") as failure:
        await ModuleLoader().load("tool-x")
    assert failure.value.reason_code == "invalid_entry_point"


async def test_what_an_import_raises_is_raised_as_it_is(site: Site) -> None:
    site.install("amplifier-tool-x", {MODULES: {"tool-x": "tool_x:mount"}}, {"tool_x.py": "1 / 0"})
    with pytest.raises(ZeroDivisionError):
        await ModuleLoader().load("tool-x")


async def test_installed_modules_are_listed_sorted_and_not_imported(site: Site) -> None:
    entries = {"loop-zz": "zz:mount", "hooks-zz": "zz:mount", "context-zz": "zz:mount", "zz": "zz:mount"}
    site.install("amplifier-zz", {MODULES: entries}, {"zz.py": "raise AssertionError"}, version="3.1")
    found = [each for each in await ModuleLoader().discover() if each.id.endswith("zz")]
    assert [(each.id, each.type, each.mount_point) for each in found] == [
        ("context-zz", "context", "context"),
        ("hooks-zz", "hook", "hooks"),
        ("loop-zz", "orchestrator", "orchestrator"),
        ("zz", "tool", "tools"),
    ]
    assert {(each.version, each.description) for each in found} == {("3.1", "About amplifier-zz")}
    assert [each.id for each in installed_modules()] == sorted(each.id for each in installed_modules())


# folders and sources


async def test_a_search_path_holds_modules_in_the_published_layout(
    folder: Path, coordinator: ModuleCoordinator
) -> None:
    write(folder / "amplifier-module-tool-x" / "amplifier_module_tool_x" / "__init__.py", module("search path"))
    before = list(sys.path)
    loader = ModuleLoader(search_paths=[folder])
    found = await mounted(loader, coordinator, "tool-x")
    assert found["from"] == "search path"
    assert sys.path == [*before, str(folder / "amplifier-module-tool-x")]
    loader.cleanup()
    assert sys.path == before


@pytest.mark.parametrize("package", ["amplifier_module_tool_x", "amplifier_tool_x", "tool_x", "."])
async def test_a_source_folder_may_hold_the_package_under_each_usual_name(
    folder: Path, coordinator: ModuleCoordinator, package: str
) -> None:
    write(folder / "source" / package / "__init__.py", module(package))
    await coordinator.mount("module-source-resolver", Resolver(tool_x=folder / "source"))
    assert (await mounted(ModuleLoader(), coordinator, "tool-x"))["from"] == package


async def test_a_package_imports_its_own_parts(folder: Path, coordinator: ModuleCoordinator) -> None:
    package = folder / "amplifier_module_tool_x"
    write(package / "__init__.py", "from .part import mount\nfrom amplifier_module_tool_x.part import NAME\n")
    write(package / "part.py", module("part") + "NAME = 1\n")
    await coordinator.mount("module-source-resolver", Resolver(tool_x=folder))
    assert (await mounted(ModuleLoader(), coordinator, "tool-x"))["from"] == "part"


async def test_a_source_wins_over_what_is_installed(site: Site, folder: Path, coordinator: ModuleCoordinator) -> None:
    site.install(
        "amplifier-tool-x", {MODULES: {"tool-x": "installed_x:mount"}}, {"installed_x.py": module("installed")}
    )
    write(folder / "tool_x" / "__init__.py", module("source"))
    loader = ModuleLoader()
    assert (await mounted(loader, coordinator, "tool-x"))["from"] == "installed"
    await coordinator.mount("module-source-resolver", Resolver(tool_x=folder))
    assert (await mounted(loader, coordinator, "tool-x"))["from"] == "source"


@pytest.mark.parametrize("kind", [Resolver, AsyncResolver])
async def test_a_resolver_is_asked_with_the_hint_of_the_bundle(
    folder: Path, coordinator: ModuleCoordinator, kind: type[Resolver]
) -> None:
    write(folder / "tool_x" / "__init__.py", module("source"))
    resolver = kind(tool_x=folder)
    await coordinator.mount("module-source-resolver", resolver)
    await mounted(ModuleLoader(), coordinator, "tool-x", source_hint="git+https://example.com/x")
    assert resolver.asked == [("tool-x", "git+https://example.com/x")]


async def test_a_source_that_was_named_and_is_not_there_is_an_error(site: Site, coordinator: ModuleCoordinator) -> None:
    site.install("amplifier-tool-x", {MODULES: {"tool-x": "tool_x:mount"}}, {"tool_x.py": module("installed")})
    await coordinator.mount("module-source-resolver", Resolver())
    assert (await mounted(ModuleLoader(), coordinator, "tool-x"))["from"] == "installed"
    with pytest.raises(ModuleNotFoundError, match="no source of tool-x"):
        await ModuleLoader().load("tool-x", source_hint="./tool-x", coordinator=coordinator)


def test_a_folder_without_the_package_is_named(folder: Path) -> None:
    with pytest.raises(
        ModuleValidationError, match=f"'tool-x': {folder} holds no package amplifier_module_tool_x"
    ) as no:
        import_from_path("tool-x", folder)
    assert no.value.reason_code == "invalid_package_layout"


def test_a_file_without_mount_is_named(folder: Path, coordinator: ModuleCoordinator) -> None:
    write(folder / "amplifier-module-tool-x" / "tool_x" / "__init__.py", "")
    with pytest.raises(ModuleValidationError, match=r"has no function 'mount\(coordinator, config\)'") as no:
        asyncio.run(ModuleLoader(search_paths=[folder]).load("tool-x"))
    assert no.value.reason_code == "invalid_module_metadata"
    assert str(folder) in str(no.value)


def test_a_file_is_imported_once_until_it_changes(folder: Path) -> None:
    file = write(folder / "own_tool.py", module("first"))
    first = import_from_path("tool-own", file)
    assert import_from_path("tool-own", file) is first
    write(file, module("second"))
    second = import_from_path("tool-own", file)
    assert second is not first
    assert first.mount is not second.mount


def test_two_files_of_one_name_do_not_disturb_each_other(folder: Path) -> None:
    one = import_from_path("tool-x", write(folder / "one" / "tool.py", "NAME = 1"))
    two = import_from_path("tool-x", write(folder / "two" / "tool.py", "NAME = 2"))
    same_text = import_from_path("tool-x", write(folder / "three" / "tool.py", "NAME = 2"))
    assert (one.NAME, two.NAME) == (1, 2)
    assert same_text is not two


def test_a_changed_folder_is_imported_anew_and_what_has_the_old_code_keeps_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder / "pk"))
    write(folder / "pk" / "__init__.py", "import neighbour\nfrom .part import NAME")
    write(folder / "pk" / "neighbour.py", "NAME = 'one'")
    part = write(folder / "pk" / "part.py", "NAME = 'one'")
    first = import_from_path("tool-x", folder / "pk")
    assert import_from_path("tool-x", folder / "pk") is first
    write(part, "NAME = 'two'")
    second = import_from_path("tool-x", folder / "pk")
    assert (first.NAME, second.NAME, second.__name__) == ("one", "two", "pk")
    write(folder / "pk" / "neighbour.py", "from pk.added import NAME")
    write(folder / "pk" / "added.py", "NAME = 'three'")
    third = import_from_path("tool-x", folder / "pk")
    assert (second.neighbour.NAME, third.neighbour.NAME) == ("one", "three")
    forgotten = weakref.ref(second)
    del second
    gc.collect()
    assert forgotten() is None


def test_a_changed_folder_that_fails_leaves_the_old_code_and_is_tried_again(folder: Path) -> None:
    write(folder / "pk" / "__init__.py", "from . import part\ndef late():\n    from .part import NAME\n    return NAME")
    part = write(folder / "pk" / "part.py", "NAME = 'one'")
    first = import_from_path("tool-x", folder / "pk")
    write(folder / "pk" / "added.py", "NAME = 'broken'")
    write(part, "from .added import NAME\nraise ValueError('not yet')")
    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            import_from_path("tool-x", folder / "pk")
        assert first.late() == "one"
    write(folder / "pk" / "added.py", "NAME = 'whole'")
    write(part, "from .added import NAME")
    assert import_from_path("tool-x", folder / "pk").late() == "whole"


def test_a_package_that_is_named_like_a_loaded_module_does_not_take_its_place(folder: Path) -> None:
    import json

    package = write(folder / "json" / "__init__.py", module("own")).parent
    imported = import_from_path("tool-json", package)
    assert imported.__file__ == str(package / "__init__.py")
    assert sys.modules["json"] is json


def test_a_package_that_is_named_like_a_library_does_not_take_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(
        str(write(folder / "site" / "library" / "__init__.py", "NAME = 'theirs'").parent.parent)
    )
    write(folder / "tools" / "library" / "part.py", "NAME = 'own'")
    package = write(folder / "tools" / "library" / "__init__.py", "from .part import NAME").parent
    assert import_from_path("tool-x", package).NAME == "own"
    assert importlib.import_module("library").NAME == "theirs"
    assert import_from_path("tool-x", folder / "site" / "library") is sys.modules["library"]
    write(folder / "tools" / "library-v1.2" / "part.py", "NAME = 'later'")
    package = write(folder / "tools" / "library-v1.2" / "__init__.py", "from .part import NAME").parent
    assert import_from_path("tool-x", package).NAME == "later"


def test_two_folders_may_hold_packages_of_one_name_and_each_gets_its_own_parts(folder: Path) -> None:
    for name in ("one", "two"):
        write(folder / name / "amplifier_tool_x" / "__init__.py", "from .part import NAME")
        write(folder / name / "amplifier_tool_x" / "part.py", f"NAME = '{name}'")
    one, two = (import_from_path("tool-x", folder / name) for name in ("one", "two"))
    assert (one.NAME, two.NAME) == ("one", "two")
    assert import_from_path("tool-x", folder / "one") is one
    assert import_from_path("tool-x", folder / "two") is two


def test_a_file_that_fails_is_imported_again_next_time(folder: Path) -> None:
    package = write(folder / "amplifier_module_x" / "__init__.py", "raise ValueError('not yet')").parent
    with pytest.raises(ValueError, match="not yet"):
        import_from_path("x", package)
    assert "amplifier_module_x" not in sys.modules
    write(package / "__init__.py", "NAME = 'now, and longer than before'")
    assert import_from_path("x", package).NAME.startswith("now")


# mounting


async def test_only_what_can_be_called_is_a_clean_up(site: Site, coordinator: ModuleCoordinator) -> None:
    site.install(
        "amplifier-tool-x",
        {MODULES: {"tool-a": "tool_x:instance", "tool-b": "tool_x:cleanup", "tool-c": "tool_x:plain"}},
        {
            "tool_x.py": "async def instance(c, config): return {'not': 'callable'}\n"
            "async def cleanup(c, config): return print\n"
            "def plain(c, config): return print\n"
        },
    )
    outcomes = [await (await ModuleLoader().load(name))(coordinator) for name in ("tool-a", "tool-b", "tool-c")]
    assert outcomes == [None, print, print]


async def test_a_module_that_is_imported_already_can_be_mounted(coordinator: ModuleCoordinator) -> None:
    class Imported:
        @staticmethod
        async def mount(target: ModuleCoordinator, config: dict[str, Any]) -> Any:
            target.register_capability("mounted", config)
            return "the instance"

    assert await ModuleLoader().initialize(Imported, coordinator) is None
    assert coordinator.get_capability("mounted") == {}
    with pytest.raises(ModuleValidationError, match="has no function 'mount"):
        await ModuleLoader().initialize(object(), coordinator)


async def test_a_mount_with_other_parameters_is_told_how_to_write_them(
    site: Site, coordinator: ModuleCoordinator
) -> None:
    files = {"tool_x.py": "async def mount(coordinator): ...\n", "tool_y.py": "def mount(c, config): int(1, 2, 3)\n"}
    site.install("amplifier-tool-x", {MODULES: {"tool-x": "tool_x:mount", "tool-y": "tool_y:mount"}}, files)
    told = r"^mount\(\) takes 1 positional argument but 2 were given: write `async def mount\(coordinator, config\)`$"
    with pytest.raises(ModuleValidationError, match=told):
        await (await ModuleLoader().load("tool-x"))(coordinator)
    with pytest.raises(TypeError, match="int"):
        await (await ModuleLoader().load("tool-y"))(coordinator)


async def test_a_module_that_wants_to_know_when_all_is_mounted_waits_in_the_queue(
    site: Site, coordinator: ModuleCoordinator
) -> None:
    ready = "async def on_session_ready(coordinator): pass\n"
    site.install("amplifier-tool-x", {MODULES: {"tool-x": "tool_x:mount"}}, {"tool_x.py": module("x") + ready})
    loader = ModuleLoader()
    mount = await loader.load("tool-x")
    assert loader.get_on_session_ready_queue() == []
    await mount(coordinator)
    assert [name for name, _ in loader.get_on_session_ready_queue()] == ["tool-x"]
    loader.clear_on_session_ready_queue()
    assert loader.get_on_session_ready_queue() == []


async def test_cleaning_up_may_be_repeated_and_keeps_the_entry_points_known(
    site: Site, coordinator: ModuleCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("amplifier-tool-x", {MODULES: {"tool-x": "tool_x:mount"}}, {"tool_x.py": module("x")})
    loader = ModuleLoader()
    loader.enqueue_on_session_ready("other", print)
    await mounted(loader, coordinator, "tool-x")
    loader.cleanup()
    loader.cleanup()
    assert loader.get_on_session_ready_queue() == []
    searches: list[object] = []
    monkeypatch.setattr(loader_module, "find_entry_points", lambda *wanted: searches.append(wanted))
    assert (await mounted(loader, coordinator, "tool-x"))["from"] == "x"
    assert searches == []


def test_a_second_thread_waits_for_the_whole_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "tests_begun", begun, raising=False)
    monkeypatch.setattr(threading, "tests_go", go, raising=False)
    file = tmp_path / "slow.py"
    file.write_text("import threading\nthreading.tests_begun.set()\nassert threading.tests_go.wait(20)\nwhole = True\n")
    found: list[bool] = []

    def load() -> None:
        found.append(hasattr(import_from_path("tool-slow", file), "whole"))

    threads = [threading.Thread(target=load) for _ in range(2)]
    threads[0].start()
    assert begun.wait(20)
    threads[1].start()
    threads[1].join(0.1)  # time for it to find the half
    go.set()
    for thread in threads:
        thread.join()
    assert found == [True, True]


# what a failure is called


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleValidationError("text"), "validation_failed"),
        (ModuleValidationError("text", reason_code="invalid_entry_point"), "invalid_entry_point"),
        (ModuleValidationError("text", reason_code="made up"), "validation_failed"),
        (UnknownName("module", "x", []), "missing_source"),
        (FileNotFoundError("x"), "missing_source"),
        (ModuleNotFoundError("x"), "missing_source"),
        (ImportError("x"), "unknown"),
        (ValueError("x"), "unknown"),
    ],
    ids=repr,
)
def test_a_failure_has_a_reason_that_programs_can_read(error: Exception, reason: str) -> None:
    assert module_failure_reason(error) == reason
    assert reason in MODULE_FAILURE_REASONS


async def test_a_known_module_is_found_without_loading_unless_something_else_may_have_it(
    site: Site, folder: Path, coordinator: ModuleCoordinator
) -> None:
    site.install("dist-known", {MODULES: {"tool-known": "known:mount"}}, {"known.py": module("known")})
    loader = ModuleLoader()
    assert loader.find_installed("tool-known", {}, None, coordinator) is None
    await mounted(loader, coordinator, "tool-known")
    found = loader.another().find_installed("tool-known", {}, None, coordinator)
    assert found is not None
    assert (found.mount.__module__, found.on_session_ready) == ("known", None)
    searching = ModuleLoader(search_paths=[folder])
    await mounted(searching, coordinator, "tool-known")
    assert searching.find_installed("tool-known", {}, None, coordinator) is None
    await coordinator.mount("module-source-resolver", object())
    assert loader.find_installed("tool-known", {}, None, coordinator) is None


def test_what_the_links_of_a_folder_lead_to_runs_from_its_source(folder: Path) -> None:
    shared, tool = folder / "shared", folder / "tool_linked"
    source = write(shared / "linked_helper.py", "WHAT = 'evil'")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True)
    write(source, "WHAT = 'good'")
    code = "import sys; from pathlib import Path\nsys.path.insert(0, str((Path(__file__).parent / 'lib').resolve()))"
    write(tool / "__init__.py", f"{code}\nfrom linked_helper import WHAT\ndel sys.path[0]")
    (tool / "lib").symlink_to("../shared")
    (tool / "circle").symlink_to(".")
    (tool / "other").symlink_to("circle")
    assert import_from_path("tool-linked", tool).WHAT == "good"


def test_an_archive_in_a_folder_can_be_imported(folder: Path) -> None:
    tool = folder / "tool_zipped"
    tool.mkdir()
    with zipfile.ZipFile(tool / "vendor.zip", "w") as archive:
        archive.writestr("zipped_helper.py", "WHAT = 5")
    code = "import sys; from pathlib import Path\nsys.path.insert(0, str(Path(__file__).with_name('vendor.zip')))"
    write(tool / "__init__.py", f"{code}\nfrom zipped_helper import WHAT\ndel sys.path[0]")
    assert import_from_path("tool-zipped", tool).WHAT == 5


def test_an_environment_in_the_folder_of_a_module_is_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "repository" / "__init__.py", "")
    installed = folder / "repository" / "env" / "site-packages"
    write(installed / "installed_helper.py", "")
    monkeypatch.setattr(sys, "prefix", str(folder / "repository" / "env"))
    import_from_path("tool-repository", folder / "repository")
    monkeypatch.syspath_prepend(str(installed))
    import installed_helper  # type: ignore[import-not-found]

    assert type(installed_helper.__loader__) is SourceFileLoader
