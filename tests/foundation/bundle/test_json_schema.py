"""The JSON Schema of a bundle, against bundles that load and bundles that do not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.bundle.json_schema import bundle_schema
from amplifier_foundation.documents.files import parse_frontmatter

ROOT = Path(__file__).parents[3]
KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}


def accepts(schema: Any, value: Any, root: dict[str, Any]) -> bool:
    """Whether `schema` allows `value`: the part of JSON Schema that ours is made of."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and not accepts(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root):
        return False
    rules = [
        not set(schema.get("type", [])) or any(is_of(kind, value) for kind in listed(schema["type"])),
        value in schema["enum"] if "enum" in schema else True,
        value == schema["const"] if "const" in schema else True,
        all(accepts(each, value, root) for each in schema.get("allOf", [])),
        any(accepts(each, value, root) for each in schema["anyOf"]) if "anyOf" in schema else True,
        sum(accepts(each, value, root) for each in schema["oneOf"]) == 1 if "oneOf" in schema else True,
        accepts(schema["then"], value, root) if "if" in schema and accepts(schema["if"], value, root) else True,
    ]
    return all(rules) and accepts_content(schema, value, root)


def accepts_content(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        return set(schema.get("required", [])) <= set(value) and all(
            accepts(known.get(key, others), each, root) for key, each in value.items()
        )
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(
            accepts(schema.get("items", True), each, root) for each in value
        )
    if isinstance(value, str):
        return bool(re.search(schema.get("pattern", ""), value)) and len(value) >= schema.get("minLength", 0)
    if isinstance(value, int | float) and not isinstance(value, bool):
        below, above = schema.get("minimum", value), schema.get("maximum", value)
        return bool(below <= value <= above and value > schema.get("exclusiveMinimum", value - 1))
    return True


def listed(kind: str | list[str]) -> list[str]:
    return [kind] if isinstance(kind, str) else kind


def is_of(kind: str, value: Any) -> bool:
    return isinstance(value, KINDS[kind]) and (not isinstance(value, bool) or kind == "boolean")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    triggers = load_plugins(environ={}).triggers
    configs: dict[str, Any] = {name: triggers.get(name).config_schema() for name in triggers}  # type: ignore[attr-defined]
    return bundle_schema(modules=["tool-filesystem", "loop-basic"], triggers=list(triggers), configs=configs)


def front_matter(text: str) -> dict[str, Any]:
    return parse_frontmatter(f"---\nbundle: {{name: x}}\n{text}---\n")[0]


def test_it_says_which_dialect_it_is_and_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert (schema["type"], schema["required"]) == ("object", ["bundle"])
    references = set(re.findall(r"'\$ref': '#/\$defs/([^']+)'", repr(schema)))
    assert references == set(schema["$defs"])


def test_bundles_of_the_readmes_are_accepted(schema: dict[str, Any]) -> None:
    readmes = [*ROOT.glob("amplifier_*/README.md"), ROOT / "README.md", *ROOT.glob("plugins/*/README.md")]
    found = [
        parse_frontmatter(text)[0]
        for path in readmes
        for text in re.findall(r"^```(?:yaml|markdown)\n(---\n.*?)^```$", path.read_text(), flags=re.M | re.S)
    ]
    assert len(found) >= len(readmes) - 1  # the kernel's has none
    for data in (each for each in found if "meta" not in each):  # that is an agent's
        assert set(data) <= set(schema["properties"])
        assert accepts(schema, data, schema), data


@pytest.mark.parametrize(
    "text",
    [
        "session: {orchestrator: loop-of-others, context: {module: context-simple, config: }}\n",
        "includes: [./base.md, {bundle: foundation}]\n",
        "background_sessions: [{name: a, triggers: [{type: timer, config: {interval_seconds: 5}}]}]\n",
        "background_sessions: [{name: a, triggers: [{type: file_change, config: {patterns: ['*.txt']}}]}]\n",
        "background_sessions: [{name: a, triggers: [{module: trigger-of-others, config: {anything: 1}}]}]\n",
        "agents: {include: [other:agent], inline: {tools: []}}\ncontext: {include: [a.md], named: b.md}\n",
        "tools:\nhooks: []\nsomething_new: {a: 1}\n",
    ],
)
def test_what_loads_is_accepted(text: str, schema: dict[str, Any]) -> None:
    assert accepts(schema, front_matter(text), schema)


@pytest.mark.parametrize(
    "text",
    [
        "session: {orchestratr: loop-basic}\n",
        "includes: [{bundel: x}]\n",
        "tools: [{config: {}}]\n",
        "tools: [tool-filesystem]\n",
        "background_sessions: [{name: a, pool_sizes: 3}]\n",
        "background_sessions: [{name: a, pool_size: 0}]\n",
        "background_sessions: [{name: a, triggers: [{module: trigger-timer, config: {intervals: 5}}]}]\n",
        "background_sessions: [{name: a, triggers: [{type: timer, config: {interval_seconds: often}}]}]\n",
        "background_sessions: [{name: a, triggers: [{type: timer, module: trigger-timer}]}]\n",
        "background_sessions: [{name: a, triggers: [{type: file_change, config: {paths: x}}]}]\n",
    ],
)
def test_what_does_not_load_is_refused(text: str, schema: dict[str, Any]) -> None:
    assert not accepts(schema, front_matter(text), schema)


def test_names_that_yaml_takes_for_numbers_are_accepted_where_they_load(schema: dict[str, Any]) -> None:
    assert accepts(schema, {"bundle": {"name": 7, "version": 1.10}}, schema)
    assert not accepts(schema, {"bundle": {"name": "a:b"}}, schema)


def test_keys_say_what_they_mean_and_names_that_are_installed_are_proposed(schema: dict[str, Any]) -> None:
    session = schema["$defs"]["BackgroundSessionConfig"]["properties"]
    assert session["pool_size"]["description"] == "Events handled at the same time, on each host."
    assert "'enum': ['tool-filesystem']" in repr(schema["properties"]["tools"])
    assert "'enum': ['loop-basic']" in repr(schema["$defs"]["SessionSection"]["properties"]["orchestrator"])
    assert "trigger-timer" in repr(schema["$defs"]["TriggerConfig"]["properties"]["module"])


def test_definitions_of_a_config_do_not_get_in_the_way_of_ours() -> None:
    config = {
        "$defs": {"Include": {"type": "integer"}, "Deep": {"items": {"$ref": "#/$defs/Include"}, "type": "array"}},
        "properties": {"numbers": {"$ref": "#/$defs/Deep"}},
    }
    schema = bundle_schema(configs={"tool-x": config})
    assert set(schema["$defs"]) >= {"Include", "tool-x.Include", "tool-x.Deep"}
    for numbers, wanted in (([1], True), (["a"], False)):
        data = {"bundle": {"name": "x"}, "tools": [{"module": "tool-x", "config": {"numbers": numbers}}]}
        assert accepts(schema, data, schema) is wanted
    assert "$defs" in config
