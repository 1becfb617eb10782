"""A function is told by its source: each Python tells it alike."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from amplifier_foundation.flows.description import describe_workflow
from amplifier_foundation.flows.function_sources import hash_source
from amplifier_foundation.flows.tasks import Task, Workflow

SOURCE = '''
import asyncio
LIMIT = 3
def doubled(function):
    return lambda inputs: function(inputs) * 2
@doubled
def plain(inputs): return len(inputs)
def count(inputs: dict, most: int = 2, *rest, by=None, **more) -> int:
    """Count the words."""
    assert inputs, "nothing"
    total, text = 0, f"{most!r:>{LIMIT}} {total=} " "and é"
    try:
        for word in inputs["plan"].split():
            if word in {"x", "y"} or not word: continue
            total += -len(word) if word != "z" else 1_0
    except (ValueError, KeyError) as error:
        raise RuntimeError(text) from error
    finally:
        del text
    match inputs:
        case {"a": [1, *_]} | None: return total
        case _: pass
    class Kept(dict, metaclass=type):
        word: str = "a"
        @property
        def own(self): return self.word
    return [*(x ** 2 for x in range(total) if x % 2), Kept().own, most, by, rest, more, ..., b"\\x00", 1.5, 2j]
async def waits(inputs):
    async with asyncio.timeout(None):
        await asyncio.sleep(0)
    return {key: (yes := value) for key, value in inputs.items()}
first, second, third = lambda inputs: inputs["n"], lambda inputs: inputs["m"], lambda inputs: (lambda given: given)
'''
HASHES = {
    "plain": "c04ff820",
    "count": "fa957a86",
    "waits": "d0a83eb9",
    "first": "e8b60958",
    "second": "374d7466",
    "third": "c6e60efb",
}
"""As Python 3.11, 3.12, 3.13 and 3.14 have them: stored runs have been described so."""


def load(file: Path, source: str = SOURCE) -> ModuleType:
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(function: Any) -> Any:
    [step] = describe_workflow(Workflow("work", Task("a", compute=function)))["steps"]
    return step


def test_each_python_has_the_same_hash_of_a_function(tmp_path: Path) -> None:
    module = load(tmp_path / "work.py")
    assert {name: str(hash_source(getattr(module, name)))[:8] for name in HASHES} == HASHES


def test_a_python_that_leaves_out_asserts_and_docstrings_describes_it_alike(tmp_path: Path) -> None:
    load(tmp_path / "work.py")
    code = (
        "import json, work\n"
        "from amplifier_foundation.flows.description import describe_workflow\n"
        "from amplifier_foundation.flows.tasks import Task, Workflow\n"
        "print(json.dumps(describe_workflow(Workflow('w', Task('a', compute=work.count, value=[work.plain])))))"
    )
    told = {
        subprocess.run(
            [sys.executable, *how, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        for how in ([], ["-OO"])
    }
    assert len(told) == 1


def test_functions_of_one_line_are_told_apart(tmp_path: Path) -> None:
    module = load(tmp_path / "work.py")
    inner = module.third({})
    hashes = [hash_source(each) for each in (module.first, module.second, module.third, inner)]
    assert None not in hashes
    assert len(set(hashes)) == 4


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("return total\n", "return  total  # here\n", True),
        ("def count", "\n\ndef count", True),
        ("inputs: dict", "inputs: list", True),
        ("1_0", "10", True),
        ("1_0", "11", False),
        ("most: int = 2", "most: int = 3", False),
        ("@property", "@staticmethod", False),
        ('{"x", "y"}', '{"x"}', False),
        ("by=None", "of=None", False),
    ],
)
def test_what_a_function_does_changes_its_description_and_its_form_does_not(
    tmp_path: Path, old: str, new: str, is_same: bool
) -> None:
    before, after = load(tmp_path / "a.py"), load(tmp_path / "b.py", SOURCE.replace(old, new))
    assert SOURCE.count(old) == 1
    assert (described(before.count) == described(after.count)) is is_same


def test_a_source_that_was_changed_since_its_import_is_not_the_functions(tmp_path: Path) -> None:
    module = load(tmp_path / "work.py", "def work(inputs):\n    return 1\n")
    known = described(module.work)
    (tmp_path / "work.py").write_text("def work(inputs):\n    return 2000\n", encoding="utf-8")
    assert hash_source(module.work) is None
    assert described(module.work) != known
    assert described(load(tmp_path / "same.py", "def work(inputs):\n    return 1\n").work) == known


def test_a_function_without_a_source_is_described_by_its_bytecode() -> None:
    space: dict[str, Any] = {}
    exec("def one(inputs): return 1\ndef two(inputs): return 2", space)
    assert hash_source(space["one"]) is None
    assert described(space["one"])["compute"]["code"] != described(space["two"])["compute"]["code"]
