"""Packages that change under a running process are told, until they are what they were."""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.testing import VirtualClock
from amplifier_foundation.background.package_upkeep import LOOK_EVERY, looking_at_packages

if TYPE_CHECKING:
    from pathlib import Path


def install(folder: Path, name: str, version: str) -> Path:
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"[amplifier.modules]\ntool-{name} = {name}:mount\n")
    return about


async def look(clock: VirtualClock, reported: list[str]) -> str:
    before = len(reported)
    await clock.until_sleeping()
    await clock.advance(LOOK_EVERY)
    async with asyncio.timeout(60):
        while len(reported) == before:
            await asyncio.sleep(0.01)  # the look is in a thread
    return reported[-1]


async def test_a_package_that_is_upgraded_or_removed_is_told_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    first, _ = install(tmp_path, "weather", "1.0"), install(tmp_path, "wind", "1.0")
    clock, reported = VirtualClock(), list[str]()
    async with looking_at_packages(clock, reported.append):
        assert await look(clock, reported) == ""
        shutil.rmtree(first)
        text = "packages changed since this process began: weather 1.0 is gone. Restart it"
        assert await look(clock, reported) == text
        second = install(tmp_path, "weather", "2.0")
        assert await look(clock, reported) == text.replace("is gone", "is 2.0 now")
        shutil.rmtree(second)
        install(tmp_path, "weather", "1.0")
        install(tmp_path, "rain", "1.0")
        assert await look(clock, reported) == ""


async def test_an_edited_file_of_an_imported_module_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    install(tmp_path, "fog", "1.0")
    (tmp_path / "fog").mkdir()
    early, late, unused = (tmp_path / "fog" / f"{name}.py" for name in ("early", "late", "unused"))
    for path in (early, late, unused):
        path.write_text("text = 'old'\n")
    clock, reported = VirtualClock(), list[str]()
    try:
        importlib.import_module("fog.early")
        async with looking_at_packages(clock, reported.append):
            await clock.until_sleeping()
            unused.write_text("text = 'edited'\n")
            os.utime(early, (1, 1))
            importlib.import_module("fog.late")
            assert await look(clock, reported) == ""
            for path in (early, late):
                path.write_text("text = 'edited'\n")
                text = f"packages changed since this process began: fog 1.0 has an edited {path}. Restart it"
                assert await look(clock, reported) == text
            for path in (early, late):
                path.write_text("text = 'old'\n")
            assert await look(clock, reported) == ""
            early.write_text("text = 'edited'\n")
            shutil.rmtree(tmp_path / "fog-1.0.dist-info")
            assert (await look(clock, reported)).endswith("began: fog 1.0 is gone. Restart it")
    finally:
        for name in ("fog", "fog.early", "fog.late"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("edited", ["a", "b"])
async def test_an_edited_file_is_told_for_its_own_distribution_of_a_shared_namespace(
    edited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    for name in ("a", "b"):
        about = install(tmp_path, f"corp_{name}", "1.0")
        (about / "entry_points.txt").write_text(f"[amplifier.modules]\ntool-{name} = corp.{name}.tool:mount\n")
        (tmp_path / "corp" / name).mkdir(parents=True)
        for file in ("__init__", "tool", "helper"):
            (tmp_path / "corp" / name / f"{file}.py").touch()
    clock, reported = VirtualClock(), list[str]()
    try:
        for name in ("a", "b"):
            importlib.import_module(f"corp.{name}.helper")
        async with looking_at_packages(clock, reported.append):
            assert await look(clock, reported) == ""
            path = tmp_path / "corp" / edited / "helper.py"
            path.write_text("text = 'edited'\n")
            assert (await look(clock, reported)).endswith(f"began: corp_{edited} 1.0 has an edited {path}. Restart it")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "corp"]:
            del sys.modules[name]


async def test_an_edited_file_of_the_kernel_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "added.py"
    path.touch()
    added = types.ModuleType("amplifier_core.added")
    added.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "amplifier_core.added", added)
    clock, reported = VirtualClock(), list[str]()
    async with looking_at_packages(clock, reported.append):
        assert await look(clock, reported) == ""
        path.write_text("text = 'edited'\n")
        assert (await look(clock, reported)).endswith(f" has an edited {path}. Restart it")


async def test_a_lazy_module_is_not_imported_by_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise ImportError("a lazy module was imported")

    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    install(tmp_path, "mist", "1.0")
    path = tmp_path / "mist.py"
    path.write_text("text = 'old'\n")
    monkeypatch.setitem(sys.modules, "elsewhere", Lazy("elsewhere"))
    lazy = Lazy("mist")
    vars(types.ModuleType)["__dict__"].__get__(lazy)["__file__"] = str(path)
    monkeypatch.setitem(sys.modules, "mist", lazy)
    clock, reported = VirtualClock(), list[str]()
    async with looking_at_packages(clock, reported.append):
        assert await look(clock, reported) == ""
        path.write_text("text = 'edited'\n")
        assert (await look(clock, reported)).endswith(f"began: mist 1.0 has an edited {path}. Restart it")


async def test_a_look_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, reported = VirtualClock(), list[str]()
    async with looking_at_packages(clock, reported.append):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", lack_thread)  # from the first look on: no thread is there to reuse
            await clock.until_sleeping()
            await clock.advance(LOOK_EVERY)
            await clock.until_sleeping()
        assert reported == []
        assert await look(clock, reported) == ""


def lack_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
