"""The JSON Schema of a bundle's front matter, for editors. Importing this imports pydantic."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from ..background import config as background
from ..background.config import MODULE_ID, trigger_module
from . import schema as sections
from .names import KINDS
from .schema import BundleFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT_OR_NUMBER = ["string", "number"]

Schema = dict[str, Any]


def bundle_schema(
    *,
    modules: Collection[str] = (),
    triggers: Collection[str] = (),
    configs: Mapping[str, Mapping[str, Any]] | None = None,
) -> Schema:
    """Return the schema; unknown sections are allowed, as they are ignored.

    `modules` and `triggers` are names to propose; others are as good. `configs` are JSON Schemas of the `config:` of
    modules and triggers, by name.
    """
    whole = BundleFile.model_json_schema()
    definitions = whole.pop("$defs")
    _say_what_keys_mean(whole, definitions)
    _accept_other_spellings(whole, definitions)
    _propose(definitions, whole, modules, triggers)
    for name, config in sorted((configs or {}).items()):
        kind = "TriggerConfig" if name in triggers else "ModuleEntry"
        then = _moved_in(dict(config), name, definitions)
        rule = {"if": _names_it(name, kind), "then": {"properties": {"config": _or_null(then)}}}
        definitions[kind].setdefault("allOf", []).append(rule)
    return {"$schema": DIALECT, **whole, "title": "bundle.md", "$defs": dict(sorted(definitions.items()))}


def _say_what_keys_mean(whole: Schema, definitions: Schema) -> None:
    for model in _models():
        described = whole if model is BundleFile else definitions.get(model.__name__)
        for name, text in _docs_of(model) if described else ():
            described["properties"][name].setdefault("description", text)  # type: ignore[index]


def _models() -> Iterator[type[BaseModel]]:
    from pydantic import BaseModel

    for module in (sections, background):
        for value in vars(module).values():
            if inspect.isclass(value) and issubclass(value, BaseModel) and value.__module__ == module.__name__:
                yield value


def _docs_of(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield the keys of a model whose fields a docstring follows."""
    try:
        [made] = ast.parse(dedent(inspect.getsource(model))).body
    except (OSError, ValueError):  # installed without its sources
        return
    body = getattr(made, "body", [])
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _is_text(after):
            name = field.target.id
            yield model.model_fields[name].alias or name, inspect.cleandoc(after.value.value)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str)


def _accept_other_spellings(whole: Schema, definitions: Schema) -> None:
    """Add what is accepted before models see it: names for mappings, numbers for text, `type` for `module`."""
    name = {"type": "string", "pattern": MODULE_ID}
    for key in ("orchestrator", "context"):
        definitions["SessionSection"]["properties"][key]["anyOf"].insert(0, name)
    included = _alternative(whole["properties"]["includes"], "array")
    included["items"] = {"anyOf": [{"type": "string", "minLength": 1}, included["items"]]}
    about = definitions["BundleSection"]["properties"]
    about["name"].update(type=_TEXT_OR_NUMBER, minLength=1, maxLength=128, pattern=r"^[^:/\\]+$")
    about["version"]["type"] = _TEXT_OR_NUMBER
    trigger = definitions["TriggerConfig"]
    trigger["properties"]["type"] = {"type": "string", "description": "`timer` is `module: trigger-timer`."}
    trigger["properties"]["config"] = {"anyOf": [trigger["properties"]["config"], {"type": "null"}]}
    trigger.pop("required")
    trigger["oneOf"] = [{"required": ["module"]}, {"required": ["type"]}]


def _alternative(schema: Schema, kind: str) -> Schema:
    found: Schema = next(each for each in schema["anyOf"] if each.get("type") == kind)
    return found


def _propose(definitions: Schema, whole: Schema, modules: Collection[str], triggers: Collection[str]) -> None:
    """Have editors propose the names that are installed, in the sections where they make sense."""
    for section in ("providers", "tools", "hooks"):
        entries = _alternative(whole["properties"][section], "array")
        names = _or_another(name for name in modules if name.startswith(KINDS[section][1]))
        entries["items"] = {"allOf": [entries["items"], {"properties": {"module": names}}]}
    for key in ("orchestrator", "context"):
        names = _or_another(name for name in modules if name.startswith(KINDS[key][1]))
        definitions["SessionSection"]["properties"][key]["anyOf"][0] = names
    properties = definitions["TriggerConfig"]["properties"]
    properties["module"] = {**properties["module"], **_or_another(triggers)}


def _or_another(names: Any) -> Schema:
    known, other = sorted(names), {"type": "string", "pattern": MODULE_ID}
    return {"anyOf": [{"enum": known}, other]} if known else other


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _names_it(name: str, kind: str) -> Schema:
    by_module: Schema = {"properties": {"module": {"const": name}}, "required": ["module"]}
    if kind != "TriggerConfig":
        return by_module
    short = name.removeprefix("trigger-")
    spellings = {short, short.replace("-", "_"), *(["file_change"] if trigger_module("file_change") == name else [])}
    return {"anyOf": [by_module, {"properties": {"type": {"enum": sorted(spellings)}}, "required": ["type"]}]}


def _moved_in(config: Schema, owner: str, definitions: Schema) -> Schema:
    """Return a schema as a part of the whole: its own definitions are put among those of the whole, under its name."""
    own = config.pop("$defs", {})
    config.pop("$schema", None)
    references = {f"#/$defs/{name}": f"#/$defs/{owner}.{name}" for name in own}
    for name, definition in own.items():
        definitions[f"{owner}.{name}"] = _referring(definition, references)
    moved: Schema = _referring(config, references)
    return moved


def _referring(schema: Any, references: Mapping[str, str]) -> Any:
    if isinstance(schema, dict):
        return {
            key: references.get(str(value), value) if key == "$ref" else _referring(value, references)
            for key, value in schema.items()
        }
    return [_referring(each, references) for each in schema] if isinstance(schema, list) else schema
