"""Read the `config:` of the module in a bundle, and the standard variables `OTEL_…`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from .redaction import hide_secret, redact_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

NAME = "hooks-otel"
DEFAULT_ENDPOINT = "http://localhost:4318"
DEFAULT_SERVICE = "amplifier"
FLUSH_TIMEOUT = 2.0
_RATIOS = ("traceidratio", "parentbased_traceidratio")
_OFF = ("always_off", "parentbased_always_off")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Settings:
    """Where to export, and what; equal settings share one exporter."""

    endpoint: str | None = None
    """The base URL; None: the standard variables decide."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names and values; a value may name variables as `${NAME}`."""
    service_name: str | None = None
    record_content: bool = False
    sample_ratio: float = 1.0
    exports_traces: bool = True
    exports_metrics: bool = True
    queue_size: int = 2048
    """Spans and measurements that may wait for the exporter."""
    batch_size: int = 512
    delay: float = 5.0
    """Seconds until waiting spans are exported."""
    metric_interval: float = 60.0
    """Seconds between two exports of metrics."""
    flush_timeout: float = field(default=FLUSH_TIMEOUT, compare=False)
    """Seconds that the end of a process waits for the collector."""

    @property
    def address(self) -> str:
        """The endpoint here, or that of the standard variables."""
        named = self.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        return named or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or DEFAULT_ENDPOINT

    @property
    def shown_endpoint(self) -> str:
        """The endpoint for messages."""
        return redact_text(self.address)


def make_model() -> type[BaseModel]:
    """Return the model of the configuration; pydantic is imported for a bundle that has one."""
    from pydantic import BaseModel, ConfigDict, Field, field_validator

    class OtelConfig(BaseModel):
        """Where to export, and what."""

        model_config = ConfigDict(extra="forbid", strict=True)

        endpoint: Annotated[
            str | None, Field(description="The base URL of an OTLP/HTTP collector: `http://localhost:4318`.")
        ] = None
        headers: Annotated[
            dict[str, str],
            Field(description="Headers of each request; name secrets as `${NAME}`, a variable of the environment."),
        ] = {}
        service_name: Annotated[str | None, Field(description="`service.name` of the resource.")] = None
        record_content: Annotated[
            bool, Field(description="Whether to record prompts, answers, and arguments and results of tools.")
        ] = False
        sample_ratio: Annotated[
            float | None, Field(strict=False, ge=0, le=1, description="The share of traces to export; default: all.")
        ] = None

        flush_timeout: Annotated[
            float,
            Field(
                strict=False, gt=0, le=3600, description="Seconds that the end of a process waits for the collector."
            ),
        ] = FLUSH_TIMEOUT

        @field_validator("endpoint")
        @classmethod
        def _check_endpoint(cls, endpoint: str | None) -> str | None:
            if endpoint is not None and not endpoint.startswith(("http://", "https://")):
                raise ValueError("must begin with http:// or https://")
            return endpoint

    return OtelConfig


def read_config(config: Mapping[str, Any]) -> Settings:
    """Return the settings of a bundle and the environment. Raises `ValueError` with the key."""
    return read_environment(_validate(config) if config else {})


def _validate(config: Mapping[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    model = make_model()
    try:
        return model.model_validate(dict(config)).model_dump(exclude_none=True)
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        key, message = str(problem["loc"][0]), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            close = get_close_matches(key, model.model_fields, n=1)
            known = ", ".join(model.model_fields)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {known}")
        raise ValueError(f"{NAME}: {key}: {message}") from None


def read_environment(config: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a checked configuration; it comes before the standard variables."""
    environ = os.environ if environ is None else environ
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"

    def exports(signal: str) -> bool:
        named = environ.get(f"OTEL_{signal}_EXPORTER", "").split(",")
        return not disabled and "none" not in [each.strip().lower() for each in named]

    ratio = config.get("sample_ratio")
    return Settings(
        endpoint=config.get("endpoint"),
        headers=tuple(sorted(config.get("headers", {}).items())),
        service_name=config.get("service_name"),
        record_content=bool(config.get("record_content")),
        sample_ratio=_read_ratio(environ) if ratio is None else float(ratio),
        exports_traces=exports("TRACES"),
        exports_metrics=exports("METRICS"),
        queue_size=int(_read_number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", 2048)),
        batch_size=int(_read_number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)),
        delay=_read_number(environ, "OTEL_BSP_SCHEDULE_DELAY", 5000) / 1000,
        metric_interval=_read_number(environ, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000,
        flush_timeout=float(config.get("flush_timeout", FLUSH_TIMEOUT)),
    )


def expand_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return headers with the variable of the environment in place of each `${NAME}`.

    The values of the variables are hidden in texts from now on. Raises `ValueError` for one that is not set.
    """
    for header, text in headers:
        for name in _VARIABLE.findall(text):
            if not os.environ.get(name):
                raise ValueError(
                    f"{NAME}: headers: {header}: the environment has no {name}. Set it, or write secret://{name} for a "
                    "kept key"
                )
            hide_secret(os.environ[name])
    return tuple((header, _VARIABLE.sub(lambda found: os.environ[found[1]], text)) for header, text in headers)


def _read_ratio(environ: Mapping[str, str]) -> float:
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if sampler in _OFF:
        return 0.0
    if sampler not in _RATIOS:
        return 1.0
    try:
        return min(1.0, max(0.0, float(environ.get("OTEL_TRACES_SAMPLER_ARG", "1"))))
    except ValueError:
        return 1.0


def _read_number(environ: Mapping[str, str], name: str, default: float) -> float:
    """Return a positive number of the environment; the specification wants the default for anything else."""
    try:
        value = float(environ.get(name, ""))
    except ValueError:
        return default
    return value if 0 < value < 1e9 else default
