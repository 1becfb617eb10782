"""Build the JSON Schema of a bundle's front matter for editors. Importing this imports pydantic."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ..documents.fields import MODULE_ID, Section
from . import background_config, schema
from .background_config import OTHER_TYPES, trigger_module
from .schema import BundleFile
from .sections import DEFAULT_SESSION, KINDS, MODULE_LISTS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT_OR_NUMBER = ["string", "number"]

Schema = dict[str, Any]


def bundle_schema(
    *,
    modules: Collection[str] = (),
    triggers: Collection[str] = (),
    configs: Mapping[str, Mapping[str, Any]] | None = None,
) -> Schema:
    """Return the schema; unknown sections are allowed, because they are ignored.

    `modules` and `triggers` are names to propose; others are valid too. `configs` are JSON Schemas of the `config:` of
    modules and triggers, by name.
    """
    whole = BundleFile.model_json_schema()
    definitions = whole.pop("$defs")
    for module in (schema, background_config):
        for model in vars(module).values():
            if inspect.isclass(model) and issubclass(model, BaseModel) and model.__name__ in definitions:
                _describe_keys(model, definitions[model.__name__]["properties"])
    _accept_other_spellings(whole, definitions)
    _propose(definitions, whole, modules, triggers)
    for name, config in sorted((configs or {}).items()):
        kinds = ("TriggerConfig",) if name in triggers else ("ModuleEntry", "ProviderEntry", "ToolEntry")
        embedded = {"properties": {"config": _embed(config, name, definitions)}}
        for kind in kinds:
            definitions[kind].setdefault("allOf", []).append({"if": _match_name(name, kind), "then": embedded})
    return {"$schema": DIALECT, **whole, "title": "bundle.md", "$defs": dict(sorted(definitions.items()))}


def _describe_keys(model: type[BaseModel], properties: Schema) -> None:
    """Describe the keys of a model, and of the models above it, by the docstrings after its fields."""
    try:
        [source] = ast.parse(dedent(inspect.getsource(model))).body
    except (OSError, ValueError):  # installed without its sources
        return
    for above in model.__bases__:
        if issubclass(above, BaseModel) and above not in (BaseModel, Section):
            _describe_keys(above, properties)
    for field, after in pairwise(getattr(source, "body", [])):
        text = getattr(after.value, "value", None) if isinstance(after, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, str):
            name = model.model_fields[field.target.id].alias or field.target.id
            properties[name].setdefault("description", inspect.cleandoc(text))


def _accept_other_spellings(whole: Schema, definitions: Schema) -> None:
    """Add the forms accepted before validation: names for mappings, numbers for text, `type` for `module`."""
    name = {"type": "string", "pattern": MODULE_ID}
    for key in DEFAULT_SESSION:
        definitions["SessionSection"]["properties"][key]["anyOf"].insert(0, name)
    included = _list_form(whole["properties"]["includes"])
    included["items"] = {"anyOf": [{"type": "string", "minLength": 1}, included["items"]]}
    about = definitions["BundleSection"]["properties"]
    about["name"].update(type=_TEXT_OR_NUMBER, minLength=1, maxLength=128, pattern=r"^[^:/\\]+$")
    about["version"]["type"] = _TEXT_OR_NUMBER
    trigger = definitions["TriggerConfig"]
    trigger["properties"]["type"] = {"type": "string", "description": "`timer` is `module: trigger-timer`."}
    trigger["properties"]["config"] = {"anyOf": [trigger["properties"]["config"], {"type": "null"}]}
    trigger.pop("required")
    trigger["oneOf"] = [{"required": ["module"]}, {"required": ["type"]}]


def _list_form(schema: Schema) -> Schema:
    found: Schema = next(each for each in schema["anyOf"] if each.get("type") == "array")
    return found


def _propose(definitions: Schema, whole: Schema, modules: Collection[str], triggers: Collection[str]) -> None:
    """Propose the installed names of its kind in each section."""
    for section in MODULE_LISTS:
        entries = _list_form(whole["properties"][section])
        names = _open_enum(name for name in modules if name.startswith(KINDS[section].prefixes))
        entries["items"] = {"allOf": [entries["items"], {"properties": {"module": names}}]}
    for key in DEFAULT_SESSION:
        names = _open_enum(name for name in modules if name.startswith(KINDS[key].prefixes))
        definitions["SessionSection"]["properties"][key]["anyOf"][0] = names
    properties = definitions["TriggerConfig"]["properties"]
    properties["module"] = {**properties["module"], **_open_enum(triggers)}


def _open_enum(names: Any) -> Schema:
    known, other = sorted(names), {"type": "string", "pattern": MODULE_ID}
    return {"anyOf": [{"enum": known}, other]} if known else other


def _match_name(name: str, kind: str) -> Schema:
    by_module: Schema = {"properties": {"module": {"const": name}}, "required": ["module"]}
    if kind != "TriggerConfig":
        return by_module
    short = name.removeprefix("trigger-")
    spellings = {short, short.replace("-", "_"), *(each for each in OTHER_TYPES if trigger_module(each) == name)}
    return {"anyOf": [by_module, {"properties": {"type": {"enum": sorted(spellings)}}, "required": ["type"]}]}


def _embed(config: Mapping[str, Any], owner: str, definitions: Schema) -> Schema:
    """Return a config's schema, or null, as a part of the whole; its definitions join `definitions` under its name."""
    own = config.get("$defs", {})
    references = {f"#/$defs/{name}": f"#/$defs/{owner}.{name}" for name in own}
    for name, definition in own.items():
        definitions[f"{owner}.{name}"] = _rename(definition, references)
    rest = {key: value for key, value in config.items() if key not in ("$defs", "$schema")}
    return {"anyOf": [_rename(rest, references), {"type": "null"}]}


def _rename(schema: Any, references: Mapping[str, str]) -> Any:
    if isinstance(schema, dict):
        return {
            key: references.get(str(value), value) if key == "$ref" else _rename(value, references)
            for key, value in schema.items()
        }
    return [_rename(each, references) for each in schema] if isinstance(schema, list) else schema
