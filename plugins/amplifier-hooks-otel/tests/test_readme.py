"""The tables of the README name what the code has, and the names of the conventions are published ones."""

from __future__ import annotations

import re
from pathlib import Path

from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    messaging_attributes,
)
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from amplifier_hooks_otel.config import make_model
from amplifier_hooks_otel.records import METRICS

FOLDER = Path(__file__).parents[1]
README = (FOLDER / "README.md").read_text(encoding="utf-8")
CODE = {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / "amplifier_hooks_otel").glob("*.py")}
_NAME = re.compile(r"((?:gen_ai|messaging|error|amplifier)\.[a-z_.]+)")


def table(heading: str) -> list[list[str]]:
    """Return the rows of a table by the first of its headings."""
    lines = README[README.index(f"| {heading} |") :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def used_names() -> set[str]:
    """Return the attributes of the code: the texts of this form besides metrics, loggers and channels."""
    found = {name for text in CODE.values() for name in re.findall(rf'"{_NAME.pattern}"', text)}
    of_deliveries = {"amplifier.delivery.attempts"}  # a metric and an attribute
    return {each for each in found if each not in METRICS and each != "amplifier.otel"} | of_deliveries


def test_the_attributes_are_those_of_the_code() -> None:
    of_metrics = {"gen_ai.token.type", "amplifier.session.status"}
    told = {name for row in table("attribute") for name in quoted(row[0])}
    assert told == used_names() - of_metrics
    assert of_metrics <= {name for row in table("metric") for name in quoted(row[3])}


def test_the_metrics_are_those_of_the_code() -> None:
    rows = {quoted(row[0])[0]: (row[1], quoted(row[2])[0]) for row in table("metric")}
    assert rows == {name: (metric.kind, metric.unit) for name, metric in METRICS.items()}


def test_the_keys_are_those_of_the_configuration() -> None:
    assert [quoted(row[0])[0] for row in table("key")] == list(make_model().model_fields)


def test_the_variables_are_those_that_the_code_reads() -> None:
    read = set(re.findall(r'"(OTEL_[A-Z_]+)"', "".join(CODE.values()))) - {"OTEL_"}
    told = set(re.findall(r"OTEL_[A-Z_]+", README))
    assert read - {"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} <= told


def test_names_of_the_conventions_are_published() -> None:
    modules = (error_attributes, gen_ai_attributes, messaging_attributes, gen_ai_metrics)
    published = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    conventions = {name for name in used_names() | METRICS.keys() if not name.startswith("amplifier.")}
    assert conventions <= published
