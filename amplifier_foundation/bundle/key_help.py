"""Explain the keys of a bundle by its schema: what each means, takes and defaults to, with an example."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

from .json_schema import bundle_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .json_schema import Schema

NAME = "NAME"
"""Stands in a path for a name that people choose."""
_SAMPLES: Mapping[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}
_EXAMPLES: Mapping[str, Any] = {
    "name": "reviewer",
    "type": "timer",
    "source": "./mine.py",
    "orchestrator_source": "./mine.py",
    "context_source": "./mine.py",
    "includes": ["./team.md"],
    "includes.bundle": "./team.md",
    "background_sessions.bundle": "./team.md",
    "session.orchestrator": "loop-basic",
    "session.context": "context-simple",
    "budget.per": "day",
    "fork_from": "last",
    "runner": "subprocess",
    "workflow": "release",
    "workflows": {"release": {"steps": [{"id": "notes", "agent": "self", "prompt": "Write the release notes."}]}},
    "triggers": [{"module": "trigger-timer"}],
    "if": "data.exit_code != 0",
    "tracker": "issue",
    "tracker.name": "issue",
    "providers.module": "provider-playbook",
    "tools.module": "tool-filesystem",
    "hooks.module": "hooks-logging",
    "triggers.module": "trigger-timer",
    "orchestrator.module": "loop-basic",
    "context.module": "context-simple",
}
"""Examples by the end of a path, where one made from the schema would mean nothing; the longest end counts."""


@frozen
class KeyHelp:
    """One key of a bundle: its path without the positions in lists, and what its schema says."""

    path: str
    description: str
    type: str
    default: Any
    """None where the key has none."""
    allowed: tuple[Any, ...]
    """The only values; () for others, too."""
    example: dict[str, Any]
    """A front matter with the key."""

    @property
    def where(self) -> str:
        """The key that it stands in; '' for a section of the bundle."""
        return self.path.rpartition(".")[0]


def explain_keys() -> dict[str, KeyHelp]:
    """Return the help of every key by its path."""
    whole = bundle_schema()
    return {path: _explain(path, schemas, whole["$defs"]) for path, schemas in _walk(whole, whole["$defs"], ())}


_Steps = tuple[tuple[str, "Schema"], ...]


def _walk(schema: Schema, definitions: Schema, above: _Steps) -> Iterator[tuple[str, _Steps]]:
    """Yield the path of each key with the schemas down to it; a definition within itself is left out."""
    for form in _forms(schema, definitions):
        for name, below in [*form.get("properties", {}).items(), (NAME, form.get("additionalProperties"))]:
            if not isinstance(below, dict) or (name == NAME and not _forms_with_keys(below, definitions)):
                continue
            steps = (*above, (name, below))
            yield ".".join(name for name, _ in steps), steps
            titles = [form.get("title") for form in _forms(below, definitions)]
            if not any(title and title in _titles(above, definitions) for title in titles):
                yield from _walk(below, definitions, steps)


def _titles(steps: _Steps, definitions: Schema) -> set[str]:
    forms = [form for _, schema in steps for form in _forms(schema, definitions)]
    return {str(form.get("title")) for form in forms if "properties" in form}


def _forms_with_keys(schema: Schema, definitions: Schema) -> bool:
    return any("properties" in form for form in _forms(schema, definitions))


def _forms(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """Yield the alternatives of a value, with those of the items of its lists."""
    if "$ref" in schema:
        yield from _forms(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return
    alternatives = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())[:1]]
    for each in alternatives:
        yield from _forms(each, definitions)
    if isinstance(schema.get("items"), dict):
        yield {"type": "array"}
        yield from ({**form, "in_list": True} for form in _forms(schema["items"], definitions))
    elif not alternatives or "properties" in schema:
        yield schema


def _explain(path: str, steps: _Steps, definitions: Schema) -> KeyHelp:
    own = steps[-1][1]
    forms = [form for form in _forms(own, definitions) if form.get("type") != "null"]
    described = [own.get("description"), *(form.get("description") for form in forms)]
    values = [value for form in forms for value in form.get("enum", [form["const"]] if "const" in form else [])]
    types = dict.fromkeys(_type_name(form) for form in forms)
    is_closed = values and all("enum" in form or "const" in form for form in forms)
    return KeyHelp(
        path=path,
        description=next(filter(None, described), ""),
        type=" or ".join(filter(None, types)) or "any value",
        default=own.get("default"),
        allowed=tuple(values) if is_closed else (),
        example=_example(path, steps, definitions),
    )


def _type_name(form: Schema) -> str:
    name = form.get("type", "")
    name = " or ".join(name) if isinstance(name, list) else str(name)
    name = {"object": "mapping", "array": "list", "string": "text"}.get(name, name)
    return f"list of {name}s" if form.get("in_list") and name else name


def _example(path: str, steps: _Steps, definitions: Schema) -> dict[str, Any]:
    value = _sample(path, steps[-1][1], definitions)
    for depth in range(len(steps) - 1, 0, -1):
        above = ".".join(name for name, _ in steps[:depth])
        name, parent = steps[depth][0], steps[depth - 1][1]
        form = next(each for each in _forms(parent, definitions) if _has(each, name))
        needed = _needed(above, form, definitions)
        if above.endswith("triggers") and name != "type":
            needed["module"] = "trigger-timer"
        elif above.endswith("budget") and name == "per":
            needed["usd"] = 5
        value = {**needed, "reviewer" if name == NAME else name: value}
        value = [value] if form.get("in_list") else value
    beside = {"workflows": _EXAMPLES["workflows"]} if path.endswith(".workflow") else {}
    return {"bundle": {"name": "mine"}, **beside, steps[0][0]: value}


def _has(form: Schema, name: str) -> bool:
    return name in form.get("properties", {}) or (name == NAME and "additionalProperties" in form)


def _needed(above: str, form: Schema, definitions: Schema) -> dict[str, Any]:
    """Return examples of the keys without which a mapping is not valid."""
    required = {name: form["properties"][name] for name in form.get("required", ())}
    return {name: _sample(f"{above}.{name}", schema, definitions) for name, schema in required.items()}


def _sample(path: str, schema: Schema, definitions: Schema) -> Any:
    """Return a valid value: that of `_EXAMPLES`, the default, the first allowed one, or one of the type."""
    words = path.split(".")
    for start in range(len(words)):
        if (end := ".".join(words[start:])) in _EXAMPLES:
            return _EXAMPLES[end]
    if schema.get("default") not in (None, [], {}):
        return schema["default"]
    forms = [each for each in _forms(schema, definitions) if each.get("type") not in ("null", "array")]
    form = forms[0] if forms else {"type": "array"}
    kind = form.get("type", "string")
    if "properties" in form:
        value: Any = _needed(path, form, definitions)
    elif "enum" in form:
        value = form["enum"][0]
    else:
        value = _SAMPLES[kind if isinstance(kind, str) else kind[0]]
    return [value] if form.get("in_list") else value
