"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

import os
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field

from amplifier_providers.config import BaseSettings, Model, Seconds, Tokens, expand

KEY_VARIABLE = "OLLAMA_API_KEY"
ADDRESS_VARIABLE = "OLLAMA_HOST"
LOCAL_ADDRESS = "http://127.0.0.1:11434"


class Settings(BaseSettings):
    """The configuration of the provider; times in seconds."""

    module: ClassVar = "provider-ollama"
    short_names: ClassVar = {"fast": "qwen3:4b", "strong": "gpt-oss:20b"}

    base_url: Annotated[
        str | None, Field(description=f"The address of Ollama; without it {ADDRESS_VARIABLE}, or {LOCAL_ADDRESS}.")
    ] = None
    api_key: Annotated[
        str | None,
        Field(description=f"A key, or ${{NAME}} for a variable; a local server wants none. {KEY_VARIABLE} by itself "
              f"goes to the address in {ADDRESS_VARIABLE} only."),
    ] = None  # fmt: skip
    default_model: Model = "qwen3:8b"
    context_window: Annotated[
        Tokens, Field(description="The tokens that the model reads (num_ctx); more of them need more memory.")
    ] = 32_768
    max_output_tokens: Annotated[
        Tokens | None,
        Field(
            validation_alias=AliasChoices("max_output_tokens", "max_tokens"),
            description="The longest answer (num_predict); without it, what is left of context_window.",
        ),
    ] = None
    thinking: Annotated[
        bool | Literal["low", "medium", "high"] | None,
        Field(description="Whether the model thinks, or how much; without it, as the model does by itself."),
    ] = None
    keep_alive: Annotated[
        float | str | None, Field(description="How long the model stays in memory: seconds, or a text such as 30m.")
    ] = None
    options: dict[str, Any] = Field({}, description="More options of the model: seed, top_k, num_gpu, …")
    first_token_timeout: Annotated[
        Seconds, Field(description="Seconds until the answer begins; the model is loaded meanwhile.")
    ] = 600
    idle_timeout: Annotated[Seconds, Field(description="Seconds of silence within an answer.")] = 300

    @classmethod
    def check_address(cls, address: str) -> None:
        """Raise `ValueError` for an address that is none of a service; Ollama's may be without a scheme and a host."""
        local = "127.0.0.1" if address.startswith(":") else ""
        super().check_address(address if "://" in address else f"http://{local}{address}")

    def find_address(self) -> str:
        """Return the address of the server; 0.0.0.0, where a server listens, is this machine."""
        given = expand(self.base_url) or expand(f"${{{ADDRESS_VARIABLE}}}") or LOCAL_ADDRESS
        return given.replace("0.0.0.0", "127.0.0.1", 1)

    def find_key(self) -> str | None:
        """Return the key for the address; that of the environment is for the address of the environment only."""
        if self.api_key or self.base_url or not os.environ.get(ADDRESS_VARIABLE):
            return expand(self.api_key)
        return expand(f"${{{KEY_VARIABLE}}}")


def read_host(address: str) -> str:
    """Return the host of an address in one of Ollama's forms: `http://host:1`, `host:1`, `:1`. Raises `ValueError`."""
    return urlsplit(address if "://" in address else f"//{address}").hostname or "127.0.0.1"
