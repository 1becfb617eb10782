"""What others build on: nothing released goes or changes unseen, everything public is listed and described."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import FunctionType
from typing import Any

import pytest

from amplifier_core.errors import AmplifierError
from tests import public_names
from tests.public_names import COMMAND, ROOT, Names, find_breaks, find_names, is_wider, members_of, public_modules, read

KERNEL_MODULES = [name for name in public_modules() if name.startswith("amplifier_core")]
UNIT = re.compile(
    r"\b(?:seconds?|minutes|days|timedelta|bytes|characters|tokens|lines|messages|events|columns|rows)\b", re.IGNORECASE
)
"""What a duration or a size is counted in."""
MEASURED = re.compile(
    r"(?:^|_)(?:timeout|delay|duration|pause|patience|interval|period|seconds|lease|age|size|budget|length|"
    r"width|height)$"
)
"""Parameters that are durations or sizes."""
NUMBER = re.compile(r": .*\b(?:int|float)\b")


@pytest.fixture(scope="module")
def now() -> Names:
    """Everything public as it is now."""
    return find_names()


def test_nothing_that_a_release_had_is_gone_or_changed(now: Names) -> None:
    breaks = find_breaks(read()["released"], now)
    assert breaks == {}, "\n".join(f"{name} {text}" for name, text in breaks.items())


def test_everything_public_is_listed(now: Names) -> None:
    stored = read()
    added = {name: told for name, told in now.items() if name not in stored["released"]}
    assert added == stored["added"], f"new public names: look at them, and list them with: {COMMAND}"


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        ({"a.f": "function"}, {}, {"a.f"}),
        ({"a.f": "function"}, {"a.f": "function, async"}, {"a.f"}),
        ({"a.f(x)": "default 1, place 0"}, {"a.f(x)": "default 2, place 0"}, {"a.f(x)"}),
        ({"a.f(x)": "default 1, place 0"}, {"a.f(x)": "default 1"}, {"a.f(x)"}),
        ({"a.f(x)": "required, place 0"}, {"a.f(x)": "default 1, place 0"}, set()),
        ({"a.f": "function"}, {"a.f": "function", "a.f(x)": "required"}, {"a.f(x)"}),
        ({"a.f": "function"}, {"a.f": "function", "a.f(x)": "default None"}, set()),
        ({"a.P": "class"}, {"a.P": "class", "a.P.m": "required method"}, {"a.P.m"}),
        ({"a.P": "class"}, {"a.P": "class", "a.Q": "class", "a.Q.m": "required method"}, set()),
        ({"amplifier run": "command"}, {"amplifier run": "command", "amplifier run --json": "option"}, set()),
        ({"JSON ps": "3"}, {"JSON ps": "4"}, {"JSON ps"}),
    ],
)
def test_a_break_is_what_no_longer_works_for_others(before: Names, after: Names, broken: set[str]) -> None:
    assert find_breaks(before, after).keys() == broken


def test_a_removed_name_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(public_names, "FILE", tmp_path / "names.json")
    monkeypatch.setattr(public_names, "find_names", lambda: {"a.g": "function"})
    public_names.write("1.0.0", {"a.f": "function"}, {"a.f": "function"})
    assert public_names.main([]) == 1
    told = capsys.readouterr().err
    assert "a.f is removed. Bring it back as deprecated (amplifier_core.deprecation)" in told
    assert f"{COMMAND} --accept 'a.f'" in told
    assert read() == {"version": "1.0.0", "released": {"a.f": "function"}, "added": {"a.g": "function"}}
    assert public_names.main(["--accept", "a.f"]) == 0
    assert read() == {"version": "1.0.0", "released": {}, "added": {"a.g": "function"}}
    assert is_wider("required, place 0", "default 3, place 0")


def test_the_page_about_stability_names_each_group_of_entry_points() -> None:
    page = public_names.PAGE.read_text(encoding="utf-8")
    assert [group for group in public_names.find_groups() if f"`{group}`" not in page] == []


def documented() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, classes and methods of the kernel, each once."""
    seen: set[int] = set()
    for module in KERNEL_MODULES:
        for name, value in members_of(import_module(module)):
            if not isinstance(value, type | FunctionType) or id(value) in seen:
                continue
            seen.add(id(value))
            yield f"{module}.{name}", value
            for inner, member in vars(value).items() if isinstance(value, type) else ():
                function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
                if isinstance(function, FunctionType | property) and not inner.startswith("_"):
                    yield f"{module}.{name}.{inner}", function


def description_of(value: Any) -> str:
    """Return the docstring; that of a class with those of its fields."""
    if not isinstance(value, type):
        return inspect.getdoc(value) or ""
    nodes = ast.walk(ast.parse(dedent(inspect.getsource(value))))
    texts = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return "\n".join(str(text.value) for text in texts)


def test_every_public_name_of_the_kernel_has_a_docstring() -> None:
    assert [path for path, value in documented() if not (getattr(value, "__doc__", "") or "").strip()] == []


def errors_of(function: FunctionType) -> set[str]:
    """Return the names of the errors that a function itself raises, without those of a mistake in the program."""
    raised = [
        node.exc for node in ast.walk(ast.parse(dedent(inspect.getsource(function)))) if isinstance(node, ast.Raise)
    ]
    names = {ast.unparse(getattr(each, "func", each)).rpartition(".")[2] for each in raised if each is not None}
    return {name for name in names if name[0].isupper()} - {"AssertionError", "AttributeError", "NotImplementedError"}


def test_docstrings_name_the_errors_that_a_function_raises() -> None:
    without: dict[str, set[str]] = {}
    for path, value in documented():
        if isinstance(value, FunctionType):
            missing = {name for name in errors_of(value) if name not in (inspect.getdoc(value) or "")}
            without.update({path: missing} if missing else {})
    assert without == {}


def test_durations_and_sizes_have_units() -> None:
    without: dict[str, list[str]] = {}
    for path, value in documented():
        with suppress(TypeError, ValueError):  # what is not called has no parameters
            parameters = inspect.signature(value).parameters.values()
            measured = [each.name for each in parameters if MEASURED.search(each.name) and NUMBER.search(str(each))]
            if measured and not UNIT.search(description_of(value)):
                without[path] = measured
    assert without == {}


def test_every_error_reaches_another_process_with_its_text_and_its_facts() -> None:
    for package in [ROOT / "amplifier_core", ROOT / "amplifier_foundation", *ROOT.glob("plugins/*/amplifier_*")]:
        for path in package.rglob("*.py"):
            if re.search(r"^class \w+\(.*Error\b.*\):", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
                import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    kinds = [AmplifierError]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each.__module__.startswith("amplifier_")]
        error = kind.__new__(kind)
        error.args, error.__dict__["fact"] = ("text",), 7
        there = pickle.loads(pickle.dumps(error))
        assert (type(there), str(there), vars(there)) == (kind, "text", {"fact": 7})
    assert {"FlowError", "EffectsUncertain", "RecordingError"} <= {kind.__name__ for kind in kinds}
