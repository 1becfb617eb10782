"""Describe the input of each tool as JSON Schema, and check an input against it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from .failures import InvalidInput

_TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}


def _schema(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _number(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": 1, **more}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description, "default": False}


_FILE = _text("The file, relative to the working folder.", minLength=1)
_BELOW = _text("The folder to look in, relative to the working folder.", minLength=1, default=".")
_GLOB = "Without '/', a pattern fits names at any depth; '**' stands for any folders, '{a,b}' for alternatives."

DESCRIPTIONS = {
    "read_file": (
        "Read a file of the working folder: text, an image (PNG, JPEG, GIF, WebP), or the cells of a Jupyter notebook. "
        "A long file comes in pieces: 'truncated' if it goes on."
    ),
    "write_file": "Create a file, or replace all of its content. Missing folders are created.",
    "edit_file": "Replace one exact piece of text in a file; it must be there exactly once unless replace_all is set.",
    "edit_notebook": "Replace, insert or delete one cell of a Jupyter notebook (.ipynb); outputs of the old cell go.",
    "glob": f"List the files that fit a pattern, sorted by path. {_GLOB}",
    "grep": "Search the lines of text files with a Python regular expression.",
}

SCHEMAS = {
    "read_file": _schema(
        ("file_path",),
        file_path=_FILE,
        offset=_number("The first line to read, counted from 1; the first cell of a notebook.", default=1),
        limit=_number("The most lines to read; the most cells of a notebook."),
    ),
    "write_file": _schema(("file_path", "content"), file_path=_FILE, content=_text("All of the new content.")),
    "edit_file": _schema(
        ("file_path", "old_string", "new_string"),
        file_path=_FILE,
        old_string=_text("The exact text to replace, with enough around it to be unique.", minLength=1),
        new_string=_text("The new text."),
        replace_all=_flag("Replace every occurrence."),
    ),
    "edit_notebook": _schema(
        ("file_path", "cell"),
        file_path=_FILE,
        cell=_text("The cell's number, counted from 1, or its id. A new cell comes after it; 0 is before the first."),
        mode=_text("What to do with the cell.", enum=["replace", "insert", "delete"], default="replace"),
        source=_text("The new source of the cell, for replace and insert."),
        cell_type=_text("The new type of the cell; without it, as before, or code.", enum=["code", "markdown", "raw"]),
    ),
    "glob": _schema(
        ("pattern",),
        pattern=_text(f"The pattern, relative to 'path'. {_GLOB}", minLength=1),
        path=_BELOW,
        max_results=_number("The most files to list.", maximum=10_000, default=1_000),
    ),
    "grep": _schema(
        ("pattern",),
        pattern=_text("The regular expression, searched in each line.", minLength=1),
        path=_text("The folder or file to search, relative to the working folder.", minLength=1, default="."),
        files=_text(f"Only files that fit this pattern. {_GLOB}", minLength=1, default="**"),
        ignore_case=_flag("Ignore upper and lower case."),
        max_results=_number("The most lines to return.", maximum=10_000, default=200),
    ),
}


def check(schema: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return the input with its defaults. Raises `InvalidInput` with the name of the field.

    A tool with `file_path` takes `path` for it too.
    """
    if not isinstance(given, dict):
        raise InvalidInput(f"the input must be an object, not {type(given).__name__}")
    fields = schema["properties"]
    if "path" not in fields and "file_path" not in given and "path" in given:
        given = {"file_path" if key == "path" else key: value for key, value in given.items()}
    for name in schema["required"]:
        if name not in given:
            raise InvalidInput(f"'{name}' is missing")
    for name, value in given.items():
        if name not in fields:
            close = get_close_matches(str(name), fields, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(fields)}"
            raise InvalidInput(f"unknown field '{name}'; {hint}")
        if name == "cell" and type(value) is int:
            given = {**given, name: str(value)}
        else:
            _check_value(name, value, fields[name])
    return {**{name: field["default"] for name, field in fields.items() if "default" in field}, **given}


def _check_value(name: str, value: Any, field: dict[str, Any]) -> None:
    wanted = _TYPES[field["type"]]
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise InvalidInput(f"'{name}' must be of type {field['type']}, not {type(value).__name__}")
    if isinstance(value, str) and len(value) < field.get("minLength", 0):
        raise InvalidInput(f"'{name}' must not be empty")
    if value not in field.get("enum", (value,)):
        raise InvalidInput(f"'{name}' must be one of {', '.join(field['enum'])}, not {value!r}")
    if wanted is int and not field["minimum"] <= value <= field.get("maximum", value):
        limit = (
            f"from {field['minimum']} to {field['maximum']}" if "maximum" in field else f"{field['minimum']} or more"
        )
        raise InvalidInput(f"'{name}' must be {limit}, not {value}")
