"""Tell a function by the syntax of its source: it is the same on each Python, unlike its bytecode."""

from __future__ import annotations

import ast
import json
import linecache
import sys
import warnings
from functools import cache, lru_cache
from hashlib import sha256
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from types import FunctionType

LEFT_OUT = {"annotation", "ctx", "kind", "returns", "type_comment"}
"""Fields of syntax without meaning for a call."""


def hash_source(function: FunctionType) -> str | None:
    """Return a hash of the parameters and the body of a function; None for a function of unknown source.

    A source of other code, after a change since its import, is not the function's.
    """
    code = function.__code__
    linecache.checkcache(code.co_filename)
    return _hash(code.co_filename, "".join(linecache.getlines(code.co_filename, function.__globals__)), code)


@cache
def _hash(file: str, text: str, code: CodeType) -> str | None:
    try:
        definitions, codes = _parse(file, text)
        found = definitions.get((code.co_name, code.co_firstlineno), []) if code in codes else []
        if len(found) > 1:  # lambdas of one line: the innermost around all places of the code
            places = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
            found = [
                each
                for each in found
                if places
                and (each.body.lineno, each.body.col_offset) <= min(places)
                and max(places) < (each.body.end_lineno, each.body.end_col_offset)
            ]
        if not found:
            return None
        syntax = _to_json([type(found[-1]).__name__, found[-1].args, found[-1].body])
    except (SyntaxError, ValueError, RecursionError):
        return None
    return sha256(json.dumps(syntax).encode()).hexdigest()


@lru_cache(maxsize=16)
def _parse(file: str, text: str) -> tuple[Mapping[tuple[str, int], list[Any]], Container[CodeType]]:
    """Return the definitions in a module by name and first line, the outer ones first, and all its code.

    Raises `SyntaxError`, `ValueError`, `RecursionError`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import has shown them
        tree: Any = compile(
            text, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True, optimize=0
        )  # all of it, with -OO too
        codes = [compile(tree, file, "exec", dont_inherit=True, optimize=sys.flags.optimize)]
    for code in codes:  # it grows meanwhile
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    definitions: dict[tuple[str, int], list[Any]] = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            line = min([each.lineno, *(decorator.lineno for decorator in each.decorator_list)])
            definitions.setdefault((each.name, line), []).append(each)
        elif isinstance(each, ast.Lambda):
            definitions.setdefault(("<lambda>", each.lineno), []).append(each)
    return definitions, frozenset(codes)


def _to_json(syntax: Any) -> Any:
    if isinstance(syntax, list):
        return [_to_json(each) for each in syntax]
    if not isinstance(syntax, ast.AST):
        return syntax if syntax is None else ascii(syntax)
    if isinstance(syntax, ast.JoinedStr):  # Python 3.12 ends the format of a value with an empty text
        return ["JoinedStr", [_to_json(each) for each in syntax.values if getattr(each, "value", None) != ""]]
    fields = {name: value for name, value in ast.iter_fields(syntax) if value not in (None, [])}
    return [type(syntax).__name__, {name: _to_json(value) for name, value in fields.items() if name not in LEFT_OUT}]
