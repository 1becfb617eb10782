"""Problems in SARIF 2.1.0, the format in which code hosts and editors take the findings of checkers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .problems import CODES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .problems import Problem

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_sarif(problems: Iterable[Problem], version: str) -> dict[str, Any]:
    """Return a SARIF log of one run; `version` is that of this program.

    Files below the current folder are relative, others `file:` URIs; columns count characters.
    """
    rules = [{"id": code, "shortDescription": {"text": meaning}} for code, meaning in CODES.items()]
    driver = {"name": "amplifier", "version": version, "rules": rules}
    results = [_result(problem) for problem in problems]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(problem: Problem) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(problem.file)}}
    if problem.line:
        physical["region"] = {"startLine": problem.line, "startColumn": problem.column}
    location: dict[str, Any] = {"physicalLocation": physical}
    if problem.path:
        location["logicalLocations"] = [{"fullyQualifiedName": problem.path}]
    return {
        "ruleId": problem.code,
        "ruleIndex": list(CODES).index(problem.code),
        "level": problem.severity,
        "message": {"text": problem.message},
        "locations": [location],
    }


def _uri(file: str) -> str:
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
