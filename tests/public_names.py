"""List everything that others build on, and compare it with the list of the last release.

The list is public_names.json beside this file: `released` is that of the last release, `added` has come since. After a
change, `python -m tests.public_names` writes what is added. `--accept NAME …` takes released names that were removed or
changed on purpose; `--release` begins a new version, with everything as it is.
"""

from __future__ import annotations

import enum
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType, UnionType
from typing import Any

import click
import pluggy
from pydantic import BaseModel

import amplifier_core
from amplifier_core import __version__, hookspecs, loader
from amplifier_foundation.bundle.json_schema import bundle_schema
from amplifier_foundation.cli import COMMAND_GROUP, cli, exits
from amplifier_foundation.settings.schema import SettingsFile

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".json")
PAGE = ROOT / "amplifier_core" / "docs" / "stability.md"
REQUIRED = "required"
"""Begins what is said of a parameter, or a method of a protocol, that others have to give."""
COMMAND = "python -m tests.public_names"

Names = dict[str, str]
"""What is said of each public name."""


def public_modules() -> list[str]:
    """Return the modules that the page about stability lists."""
    rows = re.findall(r"^\| (`amplifier_.*?) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]


def find_names() -> Names:
    """Return everything public as it is now."""
    found: Names = {}
    homes: dict[int, str] = {}
    for module in public_modules():
        for name, value in members_of(import_module(module)):
            path = f"{module}.{name}"
            home = homes.setdefault(id(value), path) if callable(value) else path
            found.update(describe(path, value) if home == path else [(path, f"is {home}")])
    found.update(describe_commands(cli, "amplifier"))
    found.update({f"exit code {code}": meaning for code, meaning in exits.MEANINGS.items()})
    found.update({f"entry points {group}": "group" for group in find_groups()})
    found.update({f"bundle key {path}": told for path, told in keys_of(bundle_schema())})
    found.update({f"setting {path}": told for path, told in keys_of(SettingsFile.model_json_schema())})
    found.update({f"JSON {name}": number for name, number in find_schemas()})
    return dict(sorted(found.items()))


def members_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the public names of a module: its `__all__`, else what is defined in it."""
    for name in getattr(module, "__all__", None) or [name for name in vars(module) if is_own(module, name)]:
        yield name, getattr(module, name)


def is_own(module: ModuleType, name: str) -> bool:
    """Return whether a name without an underscore is defined in this module, and no type alias or type variable."""
    value = vars(module)[name]
    if name.startswith("_") or isinstance(value, ModuleType) or name == "annotations":
        return False
    if isinstance(value, type | FunctionType):
        return value.__module__ == module.__name__
    return name.isupper() or isinstance(value, pluggy.HookimplMarker | pluggy.HookspecMarker)


def describe(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield a name, and everything below it: parameters, methods, members."""
    if isinstance(value, type) and issubclass(value, enum.Enum):
        yield path, "enum"
        yield from ((f"{path}.{member.name}", repr(member.value)) for member in value)
    elif isinstance(value, type):
        yield path, "class"
        yield from ((f"{path} is a {base.__name__}", "base") for base in value.__mro__ if is_public_base(value, base))
        yield from describe_class(path, value)
    elif callable(value) and hasattr(value, "__qualname__"):
        yield from describe_function(path, value, "function")
    elif isinstance(value, UnionType):
        yield path, "UnionType"  # `Union` since Python 3.14
    else:
        yield path, shorten(repr(value)) if isinstance(value, str | int | float | None) else type(value).__name__


def is_public_base(kind: type, base: type) -> bool:
    """Return whether others may rely on a base of a class: it is built in, or has a public name."""
    if base in (kind, object):
        return False
    return base.__module__ == "builtins" or base.__name__ in amplifier_core.__all__


def describe_class(path: str, kind: type) -> Iterator[tuple[str, str]]:
    """Yield the parameters, the methods and the constants of a class."""
    is_protocol = bool(getattr(kind, "_is_protocol", False))
    if issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            told = REQUIRED if field.is_required() else f"default {shorten(repr(field.get_default()))}"
            yield f"{path}({field.alias or name})", told
    elif not is_protocol:
        yield from parameters_of(path, kind)
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if isinstance(inner, FunctionType):
            yield from describe_function(f"{path}.{name}", inner, f"{REQUIRED} method" if is_protocol else "method")
        elif isinstance(member, property):
            yield f"{path}.{name}", f"{REQUIRED} property" if is_protocol else "property"


def describe_function(path: str, function: Any, kind: str) -> Iterator[tuple[str, str]]:
    """Yield a function with its colour, and its parameters."""
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    yield path, f"{kind}, async" if is_async else kind
    yield from parameters_of(path, function)


def parameters_of(path: str, function: Any) -> Iterator[tuple[str, str]]:
    """Yield each parameter with its default, and its place where it can be given without its name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # an exception without a constructor of its own
        return
    for place, parameter in enumerate(each for each in parameters if each.name not in ("self", "cls", "mcs")):
        told = REQUIRED if parameter.default is parameter.empty else f"default {shorten(repr(parameter.default))}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            told = parameter.kind.description
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            told += f", place {place}"
        yield f"{path}({parameter.name})", told


def describe_commands(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yield the commands below one, with their options and arguments."""
    for parameter in command.params:
        if "--help" in parameter.opts:
            continue
        if isinstance(parameter, click.Argument):
            told = f"{REQUIRED} argument" if parameter.required else "argument"
            yield f"{path} {parameter.human_readable_name.upper()}", told
        else:
            told = f"{REQUIRED} option" if parameter.required else "option"
            yield from ((f"{path} {name}", told) for name in (*parameter.opts, *parameter.secondary_opts))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield f"{path} {name}", "command"
            yield from describe_commands(below, f"{path} {name}")


def keys_of(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys of a JSON Schema as paths, each with its default."""
    definitions = schema.get("$defs", {})

    def walk(part: Mapping[str, Any], path: str, above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            if name not in above:
                yield from walk(definitions[name], path, (*above, name))
            return
        for each in (*part.get("anyOf", ()), *part.get("allOf", ())):
            yield from walk(each, path, above)
        for key, below in part.get("properties", {}).items():
            name = f"{path}.{key}".lstrip(".")
            required = key in part.get("required", ())
            yield name, REQUIRED if required else f"default {json.dumps(below.get('default'))}"
            yield from walk(below, name, above)
        for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(part.get(key), Mapping):
                yield from walk(part[key], path + mark, above)

    yield from walk(schema, "", ())


def find_groups() -> list[str]:
    """Return the groups of entry points that packages use."""
    return [hookspecs.GROUP, loader.GROUP, COMMAND_GROUP, f"{hookspecs.GROUP}.hookspecs"]


def find_schemas() -> Iterator[tuple[str, str]]:
    """Yield the name and the number of each JSON document that a command prints, as the sources write them."""
    folders = [ROOT / "amplifier_foundation", *ROOT.glob("plugins/*/amplifier_*")]
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        yield from re.findall(r'"(?:amplifier/)?([a-z_]+(?:\.[a-z_]+)*)/(\d+)"', path.read_text(encoding="utf-8"))


def shorten(text: str) -> str:
    """Return a representation without addresses, and of one line."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)[:200]


def find_breaks(released: Names, now: Names) -> dict[str, str]:
    """Return what no longer works for somebody who uses a released name, with a sentence on what to do."""
    found: dict[str, str] = {}
    for name, told in released.items():
        if name not in now:
            remedy = "Bring it back as deprecated (amplifier_core.deprecation), and let it end a minor version later"
            found[name] = f"is removed. {remedy}"
        elif now[name] != told and not is_wider(told, now[name]):
            found[name] = f"was {told!r} and is {now[name]!r}. Keep it, and add a new name beside it"
    for name, told in now.items():
        owner = name.partition("(")[0] if "(" in name else name.rpartition(".")[0]
        if name not in released and told.startswith(REQUIRED) and owner in released:
            remedy = "Give it a default, or put it into a protocol of its own"
            found[name] = f"is new, and everybody who uses {owner} lacks it. {remedy}"
    return found


def is_wider(before: str, after: str) -> bool:
    """Return whether a change takes nothing away: a parameter that had to be given has a default now."""
    place = re.compile(r"^(?:required|default .*?)(, place \d+)?$")
    old, new = place.match(before), place.match(after)
    return bool(before.startswith(REQUIRED) and after.startswith("default") and old and new and old[1] == new[1])


def read() -> dict[str, Any]:
    """Return the stored lists."""
    stored: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return stored


def write(version: str, released: Names, now: Names) -> None:
    """Store the list of a release, and what has come since."""
    added = {name: told for name, told in now.items() if name not in released}
    lists = {"version": version, "released": dict(sorted(released.items())), "added": added}
    FILE.write_text(json.dumps(lists, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write the lists, and return the exit code."""
    now = find_names()
    if arguments[:1] == ["--release"]:
        write(__version__, now, now)
        return 0
    stored = read()
    released, accepted = stored["released"], set(arguments[1:]) if arguments[:1] == ["--accept"] else set()
    breaks = {name: text for name, text in find_breaks(released, now).items() if name not in accepted}
    for name, text in breaks.items():
        print(f"{name} {text}; if this release ends it: {COMMAND} --accept '{name}'", file=sys.stderr)  # noqa: T201
    for name in accepted & (released.keys() | now.keys()):
        released.pop(name, None)
        released.update({name: now[name]} if name in now else {})
    write(stored["version"], released, now)
    return 1 if breaks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
