"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, Field, field_validator

from amplifier_providers.config import BaseSettings, Model, Seconds, Tokens, expand

KEY_VARIABLE = "ANTHROPIC_API_KEY"
ADDRESS_VARIABLE = "ANTHROPIC_BASE_URL"


class Settings(BaseSettings):
    """The configuration of the provider; times in seconds."""

    module: ClassVar = "provider-anthropic"
    short_names: ClassVar = {"fast": "claude-haiku-5-5", "strong": "claude-opus-5-5"}

    api_key: Annotated[
        str | None,
        Field(description=f"The API key, or ${{NAME}} for a variable; without base_url, ${{{KEY_VARIABLE}}}."),
    ] = None
    base_url: Annotated[str | None, Field(description="The address of the service, or of a gateway to it.")] = None
    default_model: Model = "claude-sonnet-5-5"
    max_output_tokens: Annotated[
        Tokens | None,
        Field(
            validation_alias=AliasChoices("max_output_tokens", "max_tokens"),
            description="The longest answer; without it 32,000, or the model's own limit if that is lower.",
        ),
    ] = None
    context_window: Annotated[
        Tokens | None, Field(description="The tokens that the model reads, if it is unknown.")
    ] = None
    thinking: Annotated[
        Literal["adaptive", "between_tools", "disabled"] | Annotated[int, Field(ge=1024)] | None,
        Field(description="How the model thinks; a number of tokens for older models. Without it, adaptive if it can."),
    ] = None
    effort: Annotated[
        Literal["low", "medium", "high", "xhigh", "max"] | None,
        Field(description="The effort of the model, unless the request names one."),
    ] = None
    prompt_cache: Annotated[
        Literal["5m", "1h", "none"], Field(description="How long the service keeps the beginning of a conversation.")
    ] = "5m"
    first_token_timeout: Annotated[Seconds, Field(description="Seconds until the answer begins.")] = 120
    idle_timeout: Annotated[Seconds, Field(description="Seconds of silence within an answer.")] = 120

    @field_validator("prompt_cache", mode="before")
    @classmethod
    def _read_off(cls, value: Any) -> Any:
        """Take `off` and `no`, false in YAML, for none."""
        return "none" if value is False else value

    def find_address(self) -> str | None:
        """Return the address of a gateway; None for Anthropic's own."""
        return expand(self.base_url) or expand(f"${{{ADDRESS_VARIABLE}}}")

    def find_key(self) -> str | None:
        """Return the API key; that of the environment is Anthropic's, and goes to no address of a bundle by itself."""
        return expand(self.api_key if self.api_key or self.base_url else f"${{{KEY_VARIABLE}}}")
