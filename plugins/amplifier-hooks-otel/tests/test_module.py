"""Test the contract of hook modules by its suites, the configuration, and what the package imports when."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.validation.behavioral import HookBehaviorTests
from amplifier_core.validation.structural import HookStructuralTests
from amplifier_hooks_otel import check_config, config_schema, mount
from amplifier_hooks_otel.config import Settings, read_config, read_environment
from amplifier_hooks_otel.ids import Place, read_traceparent
from amplifier_hooks_otel.sampling import is_sampled


class TestBehavior(HookBehaviorTests):
    pass


class TestStructure(HookStructuralTests):
    pass


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"endpont": "x"}, "hooks-otel: endpont: unknown key; did you mean 'endpoint'?"),
        ({"endpoint": "collector:4318"}, "hooks-otel: endpoint: must begin with http:// or https://"),
        ({"sample_ratio": 2}, "hooks-otel: sample_ratio: Input should be less than or equal to 1"),
        ({"record_content": "yes"}, "hooks-otel: record_content: Input should be a valid boolean"),
        ({"headers": "a=b"}, "hooks-otel: headers: Input should be a valid dictionary"),
        ({1: 2}, "hooks-otel: 1: Keys should be strings"),
    ],
)
def test_a_configuration_that_cannot_work_is_an_error_with_its_key(config: dict[Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match="hooks-otel: ") as error:
        check_config(config)
    assert str(error.value).startswith(message)


def test_the_bundle_comes_before_the_environment() -> None:
    environ = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    assert read_environment({}, environ).sample_ratio == 0.25
    assert read_environment({"sample_ratio": 0.5}, environ).sample_ratio == 0.5


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        ({"OTEL_SDK_DISABLED": "True"}, "exports_traces", False),
        ({"OTEL_TRACES_EXPORTER": "none"}, "exports_traces", False),
        ({"OTEL_TRACES_EXPORTER": "none"}, "exports_metrics", True),
        ({"OTEL_METRICS_EXPORTER": "none"}, "exports_metrics", False),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "sample_ratio", 0.0),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, "sample_ratio", 1.0),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "x"}, "sample_ratio", 1.0),
        ({"OTEL_BSP_SCHEDULE_DELAY": "250"}, "delay", 0.25),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "queue_size", 2048),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "nan"}, "metric_interval", 60.0),
    ],
)
def test_the_standard_variables_are_read(environ: dict[str, str], field: str, value: object) -> None:
    assert getattr(read_environment({}, environ), field) == value


def test_an_empty_configuration_needs_no_pydantic_and_mounting_no_sdk() -> None:
    program = """
import asyncio, sys
from amplifier_core.coordinator import ModuleCoordinator
import amplifier_hooks_otel, amplifier_hooks_otel.plugin
before = "pydantic" in sys.modules
asyncio.run(amplifier_hooks_otel.mount(ModuleCoordinator(session_id="s"), {}))
print(sorted({name.partition(".")[0] for name in sys.modules} & {"opentelemetry", "requests", "google"}))
print(before == ("pydantic" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nTrue\n"


def test_the_schema_names_every_key() -> None:
    assert list(config_schema()["properties"]) == [
        "endpoint",
        "headers",
        "service_name",
        "record_content",
        "sample_ratio",
        "flush_timeout",
    ]


async def test_nothing_listens_with_the_sdk_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    coordinator = ModuleCoordinator(session_id="s")
    assert await mount(coordinator, {}) is None
    assert coordinator.hooks.list_handlers() == {}


def test_a_password_in_the_endpoint_is_not_shown() -> None:
    assert "hunter2" not in read_config({"endpoint": "http://ann:hunter2hunter2@collector:4318"}).shown_endpoint
    assert Settings(endpoint="http://collector:4318").shown_endpoint == "http://collector:4318"


@pytest.mark.parametrize(
    "text", ["", None, 7, "00-0-0-01", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", "ff-" + "1" * 50]
)
def test_a_traceparent_that_is_none_is_none(text: object) -> None:
    assert read_traceparent(text) is None


def test_a_traceparent_is_read_as_it_was_written() -> None:
    place = Place(2**127 + 1, 3)
    assert read_traceparent(place.traceparent) == place


def test_a_share_of_the_traces_is_sampled_by_their_ids() -> None:
    ids = [number * 0x9E3779B97F4A7C15 % 2**64 for number in range(10_000)]
    assert 4_900 < sum(is_sampled(each, 0.5) for each in ids) < 5_100
    assert all(is_sampled(each, 1.0) for each in ids)
    assert not any(is_sampled(each, 0.0) for each in ids)
