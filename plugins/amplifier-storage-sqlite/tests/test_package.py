"""Test the package: the cost of its import, and its README."""

from __future__ import annotations

import ast
import re
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_storage_sqlite import open_sqlite

if TYPE_CHECKING:
    from .conftest import Start

README = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")


async def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    code = compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, {})
    assert isawaitable(running)
    await running
    store = open_sqlite({"path": "store.db"})
    assert await store.read("first") == [{"role": "user", "content": "Hello"}]
    await store.close()


def test_the_keys_of_the_readme_are_those_that_are_known() -> None:
    keys = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)
    with pytest.raises(ValueError, match=f"Known: {', '.join(keys)}$"):
        open_sqlite({"path": "x", "no such key": 1})


def test_importing_the_plugin_imports_neither_sqlite_nor_asyncio(start: Start) -> None:
    script = "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    check = "import sys, amplifier_storage_sqlite; print(sorted({'sqlite3', 'asyncio', 'pydantic'} & set(sys.modules)))"
    assert start(script, check).communicate()[0] == "[]\n"
