"""Measure bundles that are loaded and checked, beside a bare parser of the same YAML, and by their includes."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING
from unittest.mock import patch

import yaml

from amplifier_foundation.bundle import problems_of
from amplifier_foundation.bundle.load import read_bundle

from .measure import LINEAR, Row, called, curve, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .measure import Sample

INCLUDES = 5
SIZES, NEW_SIZES = (1, 8, 64, 500), (1, 6, 40, 240)
"""Includes, for a curve of unchanged files and one of new files."""
KEYS = 5_000
WARM_AT_MOST, COLD_AT_MOST = 3.5, 12.0  # goal: times the parser alone
KEYS_AT_MOST = 10.0  # goal: times the parser alone
CALLS, ROUNDS = 20, 15

FRONT = """\
bundle: {{name: {name}, version: 1.0.0, description: One of several}}
session: {{orchestrator: {{module: loop-basic, config: {{max_iterations: 40}}}}, context: {{module: context-simple}}}}
providers: [{{module: provider-{name}, config: {{default_model: m, temperature: 0.2, rules: [{{when: a, say: b}}]}}}}]
tools:
  - module: tool-filesystem
    config: {{root: ., read_only: true}}
  - module: tool-{name}
agents: {{{name}-helper: {{description: Helps, tools: [{{module: tool-{name}}}]}}}}
background_sessions:
  - name: {name}-worker
    triggers: [{{module: trigger-file-watcher, config: {{patterns: ["*.txt"], debounce_ms: 200}}}}]
"""
ENTRY = "  - module: tool-{0}\n    instance_id: number-{0}\n    config: {{limit: {0}, strict: true}}\n"
KEYS_OF_AN_ENTRY = 5

IN_NEW_PROCESS = """
import sys
from pathlib import Path
from time import perf_counter

import yaml
import amplifier_foundation.bundle.agents
import amplifier_foundation.bundle.background_config
import amplifier_foundation.bundle.build
import amplifier_foundation.sources
from amplifier_foundation.bundle.load import read_bundle

def parse(path):
    texts = [each.read_text() for each in sorted(Path(path).parent.glob("*.yaml"))]
    return [yaml.load(text, yaml.CSafeLoader) for text in texts]

work = {"read": read_bundle, "parse": parse}[sys.argv[1]]
start = perf_counter()
work(sys.argv[2])
print(perf_counter() - start)
"""


async def loads() -> AsyncIterator[Row]:
    """Load a bundle with all that it includes, again and for the first time."""
    with TemporaryDirectory(prefix="amplifier-bench-") as name:
        bundle, texts = _with_includes(Path(name), INCLUDES)
        warm, parsed = await in_turns(_again(lambda: read_bundle(bundle)), _again(_parser(texts)), rounds=ROUNDS)
        cold, bare = await in_turns(_first("read", bundle), _first("parse", bundle), rounds=ROUNDS)
    what = f"a bundle with {INCLUDES} includes"
    yield Row(f"load {what}, unchanged files / yaml.load", warm, parsed, at_most_ratio=WARM_AT_MOST)
    yield Row(f"load {what}, first in its process / yaml.load", cold, bare, at_most_ratio=COLD_AT_MOST)


async def keys() -> AsyncIterator[Row]:
    """Validate a long bundle."""
    with TemporaryDirectory(prefix="amplifier-bench-") as name:
        long, lines = await in_turns(_validated(Path(name, "long.yml")), called(_parser([_long()]), 1), rounds=ROUNDS)
    yield Row(f"validate {KEYS:,} keys, a new file / yaml.load", long, lines, at_most_ratio=KEYS_AT_MOST)


async def growth() -> AsyncIterator[Row]:
    """Load and validate bundles with more and more includes."""
    with TemporaryDirectory(prefix="amplifier-bench-") as name, patch.dict(os.environ, AMPLIFIER_HOME=f"{name}/home"):
        Path(name, "home").mkdir()
        bundles = [_with_includes(Path(name, str(size)), size)[0] for size in SIZES]
        loaded = await in_turns(*(called(partial(read_bundle, each), 1) for each in bundles), rounds=7)
        checked = await in_turns(*(called(partial(problems_of, each), 1) for each in bundles), rounds=7)
        bundles = [_with_includes(Path(name, f"new-{size}"), size)[0] for size in NEW_SIZES]
        changed = await in_turns(*map(_changed, bundles), rounds=5)
    for what, sizes, figures in (
        ("load a bundle by its includes, unchanged files", SIZES, loaded),
        ("validate a bundle by its includes, unchanged files", SIZES, checked),
        ("load a bundle by its includes, new files", NEW_SIZES, changed),
    ):
        yield curve(what, list(zip(sizes, figures, strict=True)), at_most=LINEAR)


PARTS = (loads, keys, growth)


def _changed(bundle: Path) -> Sample:
    """Return what loading takes when each file is another one, of which nothing is remembered."""
    numbers = count()

    async def sample() -> float:
        for each in bundle.parent.glob("*.yaml"):
            text = each.read_text(encoding="utf-8").partition("# ")[0]
            each.write_text(f"{text}# {next(numbers)}\n", encoding="utf-8")
        start = perf_counter()
        read_bundle(bundle)
        return perf_counter() - start

    return sample


def _with_includes(folder: Path, includes: int) -> tuple[Path, list[str]]:
    """Write a bundle and those that it includes; return its file, and the text of each."""
    folder.mkdir(exist_ok=True)
    names = [f"part-{number}" for number in range(includes)]
    listed = "includes: [" + ", ".join(f"./{name}.yaml" for name in names) + "]\n"
    texts = {name: FRONT.format(name=name) for name in names} | {"whole": FRONT.format(name="whole") + listed}
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "whole.yaml", list(texts.values())


def _again(work: Callable[[], object]) -> Sample:
    return called(work, CALLS)


def _parser(texts: list[str]) -> Callable[[], object]:
    return lambda: [yaml.load(text, yaml.CSafeLoader) for text in texts]  # the fastest that the parser offers


def _first(work: str, bundle: Path) -> Sample:
    """Return what something takes in a new process, whose imports are done."""

    async def sample() -> float:
        command = (sys.executable, "-c", IN_NEW_PROCESS, work, str(bundle))
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return sample


def _long() -> str:
    entries = map(ENTRY.format, range(KEYS // KEYS_OF_AN_ENTRY))
    return "bundle: {name: long}\ntools:\n" + "".join(entries)


def _validated(path: Path) -> Sample:
    """Return what validating takes; each time the file is another one, of which nothing is remembered."""
    text, numbers = _long(), count()

    async def sample() -> float:
        path.write_text(f"{text}# {next(numbers)}\n", encoding="utf-8")
        start = perf_counter()
        found = problems_of(path)
        spent = perf_counter() - start
        if found:
            raise AssertionError(found)
        return spent

    return sample
