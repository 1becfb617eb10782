"""Convert problems to SARIF 2.1.0, the format of code hosts and editors for findings of checkers."""

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
    """Return a SARIF log of one run; `version` is this program's.

    Files below the current folder are relative, others `file:` URIs; columns count characters.
    """
    rules = [{"id": code, "shortDescription": {"text": meaning}} for code, meaning in CODES.items()]
    driver = {"name": "amplifier", "version": version, "rules": rules}
    results = []
    for problem in problems:
        file = Path(problem.file)
        uri = file.as_uri() if file.is_absolute() else quote(file.as_posix())
        location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}}}
        if problem.line:
            location["physicalLocation"]["region"] = {"startLine": problem.line, "startColumn": problem.column}
        if problem.path:
            location["logicalLocations"] = [{"fullyQualifiedName": problem.path}]
        result = {"ruleId": problem.code, "ruleIndex": list(CODES).index(problem.code), "level": problem.severity}
        results.append({**result, "message": {"text": problem.message}, "locations": [location]})
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
