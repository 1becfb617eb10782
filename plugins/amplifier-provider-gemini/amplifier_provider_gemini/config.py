"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AliasChoices, Field

from amplifier_providers.config import BaseSettings, Model, Tokens, expand

KEY_VARIABLE = "GEMINI_API_KEY"
OTHER_KEY_VARIABLE = "GOOGLE_API_KEY"
ADDRESS_VARIABLE = "GOOGLE_GEMINI_BASE_URL"


class Settings(BaseSettings):
    """The configuration of the provider; times in seconds."""

    module: ClassVar = "provider-gemini"
    short_names: ClassVar = {"fast": "gemini-3.5-flash-lite", "strong": "gemini-3.1-pro-preview"}

    api_key: Annotated[
        str | None,
        Field(description=f"The API key, or ${{NAME}} for a variable; without base_url, ${{{KEY_VARIABLE}}}."),
    ] = None
    base_url: Annotated[str | None, Field(description="The address of the service, or of a gateway to it.")] = None
    default_model: Model = "gemini-3.8-flash"
    max_output_tokens: Annotated[
        Tokens | None,
        Field(
            validation_alias=AliasChoices("max_output_tokens", "max_tokens"),
            description="The longest answer, thinking included; without it, the model's own limit.",
        ),
    ] = None
    context_window: Annotated[Tokens | None, Field(description="The tokens that the model reads, if unknown.")] = None
    effort: Annotated[
        Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None,
        Field(description="How much the model thinks, unless the request names an effort."),
    ] = None
    thoughts: Annotated[
        bool | None, Field(description="Whether a summary of the thinking is shown; without it, if the model thinks.")
    ] = None

    def resolve_model(self, name: str | None) -> str:
        """Return the model of an alias, or the name itself; the default model without a name."""
        return super().resolve_model(name).removeprefix("models/")

    def find_address(self) -> str | None:
        """Return the address of a gateway; None for Google's own."""
        return expand(self.base_url) or expand(f"${{{ADDRESS_VARIABLE}}}")

    def find_key(self) -> str | None:
        """Return the API key; that of the environment is Google's, and goes to no address of a bundle by itself."""
        if self.api_key or self.base_url:
            return expand(self.api_key)
        return expand(f"${{{KEY_VARIABLE}}}") or expand(f"${{{OTHER_KEY_VARIABLE}}}")
