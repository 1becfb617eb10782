"""Problems in SARIF, checked against what the published schema requires."""

from __future__ import annotations

import re
from typing import Any

from amplifier_foundation.documents.positions import Place
from amplifier_foundation.documents.problems import CODES, error_at, warning_at
from amplifier_foundation.documents.sarif import as_sarif

PROBLEMS = [
    error_at(Place("sub dir/bündle.md", 8, 5, "tools[0].module"), "AMP110", "unknown tool"),
    warning_at(Place("/elsewhere/bundle.md"), "AMP106", "unknown section"),
]


def check_sarif(log: dict[str, Any]) -> None:
    """Check the members that SARIF 2.1.0 requires, their kinds, and that all references are to something."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(set(ids)) == len(ids)
        assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
        for result in run["results"]:
            check_result(result, ids)


def check_result(result: dict[str, Any], ids: list[str]) -> None:
    assert result["message"]["text"]
    assert result["level"] in ("none", "note", "warning", "error")
    assert ids[result["ruleIndex"]] == result["ruleId"]
    for location in result["locations"]:
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9/:._~%@-]+", uri), uri
        region = location["physicalLocation"].get("region")
        assert region is None or (region["startLine"] >= 1 and region["startColumn"] >= 1)


def test_a_log_is_valid_and_its_rules_are_the_codes() -> None:
    log = as_sarif(PROBLEMS, "1.0")
    check_sarif(log)
    [run] = log["runs"]
    assert {rule["id"]: rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"]} == CODES


def test_a_result_says_where_it_stands_and_one_without_a_line_has_no_region() -> None:
    first, second = as_sarif(PROBLEMS, "1.0")["runs"][0]["results"]
    assert (first["ruleId"], first["level"], first["message"]["text"]) == ("AMP110", "error", "unknown tool")
    [location] = first["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "sub%20dir/b%C3%BCndle.md"},
        "region": {"startLine": 8, "startColumn": 5},
    }
    assert location["logicalLocations"] == [{"fullyQualifiedName": "tools[0].module"}]
    assert second["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "file:///elsewhere/bundle.md"}}}]
