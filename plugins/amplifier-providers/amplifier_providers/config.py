"""Read what the `config:` of all these modules has in common."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1)]
Model = Annotated[
    str,
    Field(
        min_length=1,
        validation_alias=AliasChoices("default_model", "model"),
        description="The model, or an alias: fast, strong, or one of `aliases`. Also spelled `model`.",
    ),
]

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


class BaseSettings(BaseModel):
    """The configuration of a provider; times in seconds. A subclass has the `default_model`, too."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    module: ClassVar[str]
    """The name of the module, for errors."""
    short_names: ClassVar[Mapping[str, str]]
    """The models of the aliases `fast` and `strong`."""

    default_model: Model
    aliases: Annotated[dict[str, str], Field(description="Names for models, besides fast and strong.")] = {}
    connect_timeout: Annotated[Seconds, Field(description="Seconds for the connection.")] = 10
    first_token_timeout: Annotated[Seconds, Field(description="Seconds until the answer begins.")] = 300
    idle_timeout: Annotated[Seconds, Field(description="Seconds of silence within an answer.")] = 300
    timeout: Annotated[Seconds, Field(description="Seconds for a whole answer, retries included.")] = 1800
    max_retries: Annotated[int, Field(ge=0, description="Further attempts after a failure of the service.")] = 2
    min_retry_delay: Annotated[float, Field(ge=0, description="Seconds before the first further attempt.")] = 1
    max_retry_delay: Annotated[
        Seconds, Field(description="The longest pause; a service that asks for a longer one gets no further attempt.")
    ] = 30
    priority: Annotated[int, Field(description="The provider with the lowest number answers.")] = 100

    @field_validator("base_url", check_fields=False)
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        comes_later = (value or "").startswith("secret://") or _find_unset(value or "")
        if (address := expand(value)) is not None and not comes_later:
            cls.check_address(address)
        return value

    @classmethod
    def check_address(cls, address: str) -> None:
        """Raise `ValueError` for an address that is none of a service."""
        try:
            parts = urlsplit(address)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # the brackets of a host, or the port
            is_valid = False
        if not is_valid or re.search(r"\s", address):
            raise ValueError(
                "must begin with http:// or https://, and name a host; without blanks, and with a port of 1 to 65535, "
                "if any"
            )

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Return the checked configuration. Raises `ValueError`, as in `provider-x: timeout: …`."""
        try:
            return cls.model_validate({key: value for key, value in config.items() if value is not None})
        except ValidationError as error:
            problems = error.errors(include_input=False, include_url=False)
            key = problems[0]["loc"][0]  # a key that takes values of several types has a problem for each
            first, *others = dict.fromkeys(each["msg"] for each in problems if each["loc"][0] == key)
            message = first.removeprefix("Value error, ")
            more = "".join(f", or {each.removeprefix('Input should be ')}" for each in others)
            raise ValueError(f"{cls.module}: {key}: {message}{more}") from None

    @classmethod
    def check(cls, config: Mapping[str, Any]) -> list[str]:
        """Return a warning for each unknown key: it may be for other programs.

        Raises `ValueError` for a configuration that cannot work, or with a key that looks mistyped.
        """
        cls.read(config)
        known = set(cls.model_fields)
        for field in cls.model_fields.values():
            if isinstance(field.validation_alias, AliasChoices):
                known.update(map(str, field.validation_alias.choices))
        unknown = [str(key) for key in config if key not in known]
        for key in unknown:
            if close := get_close_matches(key, sorted(known), n=1, cutoff=0.85):
                raise ValueError(f"{cls.module}: {key}: unknown key; did you mean '{close[0]}'?")
        return [f"{key}: unknown key without effect; known are {', '.join(sorted(known))}" for key in unknown]

    def find_unset(self) -> tuple[str, str] | None:
        """Return `api_key` or `base_url` and a variable in it that is not in the environment; None without one."""
        for key in ("api_key", "base_url"):
            for name in _find_unset(getattr(self, key, None) or ""):
                return key, name
        return None

    def name_key(self, variable: str) -> str:
        """Return the names of the variables with the API key, `variable` where the provider's config has none."""
        given = getattr(self, "api_key", None) or f"${{{variable}}}"
        return " and ".join(_PLACEHOLDER.findall(given)) or "api_key in the provider's config"

    def resolve_model(self, name: str | None) -> str:
        """Return the model of an alias, or the name itself; the default model without a name."""
        chosen = name or self.default_model
        return {**self.short_names, **self.aliases}.get(chosen, chosen)


def _find_unset(text: str) -> list[str]:
    return [name for name in _PLACEHOLDER.findall(text) if name not in os.environ]


def expand(value: str | None) -> str | None:
    """Return the text, each `${NAME}` replaced by that variable of the environment; None if nothing is left."""
    return _PLACEHOLDER.sub(lambda found: os.environ.get(found[1], ""), value or "").strip() or None
