"""What modules import and call, compared name by name with the sheet beside this file."""

from __future__ import annotations

import abc
import ast
import builtins
import datetime
import decimal
import enum
import importlib
import inspect
import re
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pydantic
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHEET = Path(__file__).with_name("api_sheet.txt").read_text(encoding="utf-8")
FACTORY, READABLE = object(), object()
"""What `factory` and `property` stand for in the sheet."""


class Entry(NamedTuple):
    """One name of the sheet: the module it is imported from, and what the sheet says of it."""

    module: str
    name: str
    said: ast.stmt

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


class Names(dict[str, Any]):
    """The names that the sheet uses, those of the module it speaks of first."""

    def __init__(self, module: object) -> None:
        super().__init__(factory=FACTORY, property=READABLE, BaseModel=pydantic.BaseModel)
        self._homes = (module, typing, datetime, decimal, enum, abc, builtins)

    def __missing__(self, name: str) -> Any:
        for home in self._homes:
            if hasattr(home, name):
                return getattr(home, name)
        raise KeyError(name)

    def value_of(self, node: ast.expr) -> Any:
        return eval(ast.unparse(node), {}, self)

    def parameters_of(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[inspect.Parameter]:
        return parameters(eval(f"lambda {ast.unparse(function.args)}: None", {}, self))


def sections() -> dict[str, str]:
    _, *parts = re.split(r"^\[([\w.]+)\]$", SHEET, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def entries() -> Iterator[Entry]:
    for module, stub in sections().items():
        if module == "differences":
            continue
        for said in ast.parse(stub).body:
            for name in names_in(said):
                yield Entry(module, name, said)


def names_in(said: ast.stmt) -> list[str]:
    match said:
        case ast.ImportFrom():
            return [alias.name for alias in said.names]
        case ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [said.name]
    raise AssertionError(f"the sheet says what nobody compares: {ast.unparse(said)}")


def differences() -> dict[str, list[str]]:
    """Return what differs on purpose, by name; each line of it is followed by an indented one, the reason."""
    found: dict[str, list[str]] = {}
    for line, reason in re.findall(r"^(\S.*)\n((?:    .*\n)*)", sections()["differences"], flags=re.MULTILINE):
        path, _, difference = line.partition(": ")
        assert reason.strip(), f"{line}: without a reason"
        found.setdefault(path, []).append(difference)
    return found


# what differs


def differences_of(entry: Entry) -> list[str]:
    module = importlib.import_module(entry.module)
    if not hasattr(module, entry.name):
        return ["is missing"]
    found, names = getattr(module, entry.name), Names(module)
    match entry.said:
        case ast.ImportFrom(module=str(source)):
            same = found is getattr(importlib.import_module(source), entry.name)
            return [] if same else [f"is not {source}.{entry.name}"]
        case ast.ClassDef():
            return [*bases(found, entry.said, names), *members(found, entry.said, names)]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return list(calls(found, entry.said, names))
        case ast.Assign():
            return list(values(found, names.value_of(entry.said.value)))
    raise AssertionError(entry)


def values(found: Any, published: Any) -> Iterator[str]:
    if found == published:
        return
    if isinstance(published, list) and [each for each in found if each in published] == published:
        yield f"also has {', '.join(each for each in found if each not in published)}"
    else:
        yield f"is {found!r}, not {published!r}"


def bases(found: type, said: ast.ClassDef, names: Names) -> Iterator[str]:
    for base in said.bases:
        if names.value_of(base) not in found.__mro__:
            yield f"is no {ast.unparse(base)}"


def members(found: type, said: ast.ClassDef, names: Names) -> Iterator[str]:
    for member in said.body:
        match member:
            case ast.AnnAssign(target=ast.Name(id=name)):
                differing: Iterable[str] = fields(found, name, member, names)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                differing = attributes(found, name, names.value_of(value))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                differing = calls(getattr(found, name, None), member, names)
            case _:
                raise AssertionError(f"the sheet says what nobody compares: {ast.unparse(member)}")
        yield from (f"{name} {difference}" for difference in differing)


def fields(found: type, name: str, said: ast.AnnAssign, names: Names) -> Iterator[str]:
    annotation, published = typing.get_type_hints(found, localns=names).get(name), names.value_of(said.annotation)
    if annotation != published:
        yield f"is {annotation}, not {published}"
    elif issubclass(found, pydantic.BaseModel):
        field = found.model_fields[name]
        default = FACTORY if field.default_factory else ... if field.is_required() else field.default
        yield from values(default, ... if said.value is None else names.value_of(said.value))


def attributes(found: type, name: str, published: Any) -> Iterator[str]:
    if published is not READABLE:
        value = getattr(found, name, None)
        yield from values(value.value if isinstance(value, enum.Enum) else value, published)
    elif not hasattr(found, name) and not hasattr(found(), name):
        yield "is missing"


def calls(found: Any, said: ast.FunctionDef | ast.AsyncFunctionDef, names: Names) -> Iterator[str]:
    if found is None:
        yield "is missing"
        return
    if inspect.iscoroutinefunction(found) != isinstance(said, ast.AsyncFunctionDef):
        yield "must be awaited" if inspect.iscoroutinefunction(found) else "cannot be awaited"
    ours, published = parameters(found), names.parameters_of(said)
    if ours == published:
        return
    added = ours[len(published) :]
    if ours[: len(published)] == published and all(map(is_optional, added)):
        yield f"also takes {', '.join(map(str, added))}"
    else:
        yield f"takes ({', '.join(map(str, ours))}), not ({', '.join(map(str, published))})"


def parameters(function: Any) -> list[inspect.Parameter]:
    """Return the parameters as a caller sees them, without the object that a method is called on."""
    found = [as_callers_see_it(each) for each in inspect.signature(function).parameters.values()]
    found.sort(key=lambda each: (each.kind, each.name if each.kind is each.KEYWORD_ONLY else ""))
    return found[1:] if found and found[0].name in ("self", "cls") else found


def as_callers_see_it(parameter: inspect.Parameter) -> inspect.Parameter:
    names: dict[Any, str] = {parameter.VAR_POSITIONAL: "args", parameter.VAR_KEYWORD: "kwargs"}
    return parameter.replace(name=names.get(parameter.kind, parameter.name), annotation=parameter.empty)


def is_optional(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty or parameter.kind in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


@pytest.mark.parametrize("entry", list(entries()), ids=lambda entry: entry.path)
def test_a_published_name_is_what_modules_know_it_as(entry: Entry) -> None:
    assert differences_of(entry) == differences().get(entry.path, [])


def test_only_a_name_of_the_sheet_can_differ() -> None:
    assert differences().keys() <= {entry.path for entry in entries()}
