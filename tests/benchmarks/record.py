"""The figures of a run as JSON, to compare a later run with."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from .measure import Row

Record: TypeAlias = dict[str, Row]
"""Lines by their area and what they measure."""

RELEASE = tuple(sorted(Path(__file__).with_name("release").glob("*.json")))
"""The runs of the last release: several, because two runs of one program differ."""


def write_record(path: Path, record: Record) -> None:
    """Write a run: the machine, the version, and each line with the values of all its rounds."""
    head = {
        "version": version("amplifier"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
    }
    lines = {
        name: {
            "ours": float(each.ours),
            "limit": None if each.limit is None else float(each.limit),
            "unit": each.unit,
            "values": [float(f"{value:.4g}") for value in each.values],
            "allowed": each.at_most_ratio,
            "exponent": each.is_exponent,
            "verdict": each.verdict,
        }
        for name, each in record.items()
    }
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in lines.items())
    text = json.dumps(head, indent=1)[:-2] + f',\n "lines": {{\n{body}\n }}\n}}\n'
    path.write_text(text, encoding="utf-8")


def read_record(*paths: Path) -> Record:
    """Return the lines of one run or of several, pooled."""
    record: Record = {}
    for path in paths:
        for name, each in json.loads(path.read_text(encoding="utf-8"))["lines"].items():
            found = Row(
                what=name,
                ours=each["ours"],
                limit=each["limit"],
                unit=each["unit"],
                values=tuple(each["values"]),
                at_most_ratio=each["allowed"],
                is_exponent=each["exponent"],
            )
            record[name] = record[name].pooled(found) if name in record else found
    return record
