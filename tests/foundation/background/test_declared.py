"""What a bundle may say of a background session: taken as it is meant, or refused with the place where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation import BackgroundSessionConfig
from amplifier_foundation.bundle import InvalidBundle, load_bundle_sync

HEAD = "---\nbundle: {name: demo}\nbackground_sessions:\n  - name: queue\n"


def written(folder: Path, lines: str) -> str:
    indented = "".join(f"    {line}\n" for line in lines.splitlines())
    (folder / "bundle.md").write_text(f"{HEAD}{indented}---\nDo it.\n")
    return str(folder / "bundle.md")


@pytest.mark.parametrize(
    ("lines", "field", "value"),
    [
        ("mode: parallel", "mode", "parallel"),
        ("mode: single", "mode", "single"),
        ("key: '{file_path}'", "key", "{file_path}"),
        ("priority: -3", "priority", -3),
        ("if: data.n > 1", "condition", "data.n > 1"),
        ("catch_up: latest", "catch_up", "latest"),
        ("max_depth: 3", "max_depth", 3),
        ("restart_window: 90", "restart_window", 90),
        ("restart_window: 5m", "restart_window", 300),
        ("timeout: 1h30m", "timeout", 5400),
        ("instruction_template: 'Look at {file_path}'", "instruction_template", "Look at {file_path}"),
        ("runner: runner-inprocess", "runner", "runner-inprocess"),
        ("fork_from: last", "fork_from", "last"),
        ("start_on_parent_start: false", "start_on_parent_start", False),
        ("stop_on_parent_stop: false", "stop_on_parent_stop", False),
        ("timeout: null", "timeout", None),
    ],
)
def test_each_field_is_taken_from_a_bundle(tmp_path: Path, lines: str, field: str, value: Any) -> None:
    [config] = load_bundle_sync(written(tmp_path, lines)).background_sessions
    assert getattr(config, field) == value


def test_durations_are_numbers_of_seconds_or_text(tmp_path: Path) -> None:
    lines = (
        "debounce: {period: 200ms, timeout: 1.5, key: '{file_path}'}\n"
        "throttle: {limit: 2, period: 1m}\n"
        "rate_limit: {limit: 9, period: 1h}\n"
        "retry: {delay: 2s, max_delay: 15m}"
    )
    [config] = load_bundle_sync(written(tmp_path, lines)).background_sessions
    assert config.debounce is not None
    assert (config.debounce.period, config.debounce.timeout, config.debounce.key) == (0.2, 1.5, "{file_path}")
    assert config.throttle is not None
    assert (config.throttle.limit, config.throttle.period) == (2, 60)
    assert (config.rate_limit.limit, config.rate_limit.period) == (9, 3600)
    assert (config.retry.delay, config.retry.max_delay) == (2, 900)


def test_a_longer_duration_counts_as_a_hundred_years() -> None:
    config = BackgroundSessionConfig(name="s", debounce={"period": 1e30, "timeout": 10**30}, timeout="36526 days")
    assert config.debounce is not None
    assert {config.debounce.period, config.debounce.timeout, config.timeout} == {36_525 * 86_400}


@pytest.mark.parametrize(
    ("lines", "place", "what"),
    [
        ("mode: paralel", "5:11", "'queued', 'parallel', 'single' or 'restart'"),
        ("pool_size: 0", "5:16", "must be at least 1"),
        ("pool_size: 65", "5:16", "must be at most 64"),
        ("priority: high", "5:15", "whole number, not text"),
        ("key: '{file_path'", "5:10", "braces hold a name"),
        ("mode: parallel\nkey: '{file_path}'", "4:5", "keep one of them"),
        ("if: data.n >", "5:9", "not the end"),
        ("catch_up: newest", "5:15", "'all', 'latest' or 'skip'"),
        ("max_depth: 0", "5:16", "must be at least 1"),
        ("debounce: {period: soon}", "5:24", "soon"),
        ("debounce: {period: 0}", "5:24", "must be more than 0"),
        ("debounce:\n  timeout: 1", "6:7", "this key is required"),
        ("debounce: {period: 1, key: '{'}", "5:32", "braces hold a name"),
        ("throttle: {limit: 0, period: 1m}", "5:23", "must be at least 1"),
        ("rate_limit: {limit: 1, period: -1}", "5:36", "-1"),
        ("retry: {delays: 2}", "5:13", "delays"),
        ("retry:\n  delay: 0", "6:14", "must be more than 0"),
        ("restart_window: 0", "5:21", "must be more than 0"),
        ("max_attempts: 0", "5:19", "must be at least 1"),
        ("fork_from: ''", "5:16", "must not be empty"),
        ("fork_from: my session!", "5:16", "not a session id: 'my session!'. Use 1 to 128 letters"),
        ('fork_from: "a\\0b"', "5:16", "not a session id"),
        (f"fork_from: {'x' * 129}", "5:16", "not a session id"),
        ("runner: 'run it'", "5:13", "runner"),
        ("instruction: a\ninstruction_template: b", "4:5", "not both"),
        ("start_on_parent_start: maybe", "5:28", "true or false, not text"),
        ("timeout: 0", "5:14", "must be more than 0"),
        ("pool_sizes: 2", "5:5", "pool_size"),
        ("triggers:\n  - {type: timer, self_trigger: true}", "6:23", "unknown key"),
        ("triggers:\n  - {type: timer, module: trigger-timer}", "6:9", "the same meaning"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_stands(tmp_path: Path, lines: str, place: str, what: str) -> None:
    path = written(tmp_path, lines)
    with pytest.raises(InvalidBundle) as refusal:
        load_bundle_sync(path)
    assert str(refusal.value).startswith(f"{path}:{place}: error[AMP10")
    assert what in str(refusal.value)


def test_names_of_background_sessions_are_unique_in_a_bundle(tmp_path: Path) -> None:
    path = written(tmp_path, "pool_size: 1")
    Path(path).write_text(Path(path).read_text().replace("---\nDo it", "  - name: queue\n---\nDo it"))
    with pytest.raises(InvalidBundle, match=r"bundle\.md:6:11: .*queue"):
        load_bundle_sync(path)


def test_every_field_of_the_model_is_described() -> None:
    schema = BackgroundSessionConfig.model_json_schema(by_alias=True)
    assert {"if", "mode", "debounce", "catch_up", "fork_from", "retry"} <= set(schema["properties"])
