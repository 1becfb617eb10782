"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AliasChoices, Field

from amplifier_providers.config import BaseSettings, Model, Tokens, expand

KEY_VARIABLE = "OPENAI_API_KEY"
ADDRESS_VARIABLE = "OPENAI_BASE_URL"


class Settings(BaseSettings):
    """The configuration of the provider; times in seconds."""

    module: ClassVar = "provider-openai"
    short_names: ClassVar = {"fast": "gpt-6-luna", "strong": "gpt-6.1-sol"}

    api_key: Annotated[
        str | None,
        Field(description=f"The API key, or ${{NAME}} for a variable; without base_url, ${{{KEY_VARIABLE}}}."),
    ] = None
    base_url: Annotated[str | None, Field(description="The address of another service with one of the APIs.")] = None
    api: Annotated[
        Literal["responses", "chat"] | None,
        Field(description="The API: responses, or chat for Chat Completions; without it, chat if there is a base_url."),
    ] = None
    default_model: Model = "gpt-6.1-terra"
    max_output_tokens: Annotated[
        Tokens | None,
        Field(
            validation_alias=AliasChoices("max_output_tokens", "max_tokens"),
            description="The longest answer, reasoning included; without it, the model's own limit.",
        ),
    ] = None
    context_window: Annotated[Tokens | None, Field(description="The tokens that the model reads, if unknown.")] = None
    effort: Annotated[
        Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None,
        Field(
            validation_alias=AliasChoices("effort", "reasoning_effort"),
            description="The effort of the model's reasoning, unless the request names one. Also `reasoning_effort`.",
        ),
    ] = None
    reasoning_summary: Annotated[
        Literal["auto", "concise", "detailed"] | None,
        Field(description="Ask for a summary of the model's reasoning; the service may want a verified account."),
    ] = None

    vision: Annotated[
        bool, Field(description="Whether the model sees images; false sends a text in place of a tool's images.")
    ] = True

    def find_address(self) -> str | None:
        """Return the address of another service; None for OpenAI's own."""
        return expand(self.base_url) or expand(f"${{{ADDRESS_VARIABLE}}}")

    def find_key(self) -> str | None:
        """Return the API key; that of the environment is OpenAI's, and goes to no address of a bundle by itself."""
        return expand(self.api_key if self.api_key or self.base_url else f"${{{KEY_VARIABLE}}}")
