"""The module: its configuration, its key, and what it imports when."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from amplifier_core import Provider
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.llm_errors import AuthenticationError
from amplifier_core.loader import ModuleLoader
from amplifier_core.message_models import ChatRequest
from amplifier_core.validation.behavioral import ProviderBehaviorTests
from amplifier_provider_gemini import check_config, config_schema, mount
from tests.wire import gemini as wire
from tests.wire.server import show_error

SECRET = "AIzaOfTheEnvironment"


class TestBehaviour(ProviderBehaviorTests):
    @pytest.fixture
    async def provider_module(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        coordinator = ModuleCoordinator(session_id="test")
        await mount(coordinator, {})
        return coordinator.get("providers", "gemini")


async def test_the_installed_entry_point_mounts_it() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    mounted = await ModuleLoader().load("provider-gemini", {}, coordinator=coordinator)
    await mounted(coordinator)
    provider = coordinator.get("providers", "gemini")
    assert isinstance(provider, Provider)
    info = provider.get_info()
    assert (info.id, info.credential_env_vars) == ("gemini", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])


# the key


async def test_without_a_key_the_first_request_names_the_variable(serve: Any) -> None:
    service = await serve(api_key=None, base_url=None)
    for asked in (service.ask(), service.provider.count_tokens(ChatRequest(messages=[]))):
        with pytest.raises(AuthenticationError) as caught:
            await asked
        assert show_error(caught.value).startswith("there is no API key. Set GEMINI_API_KEY")
    assert "gemini-3.8-flash" in [model.id for model in await service.provider.list_models()]


async def test_the_key_of_the_environment_goes_to_no_address_of_a_bundle(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", SECRET)
    monkeypatch.setenv("GOOGLE_API_KEY", SECRET)
    service = await serve(wire.says("ok"), wire.says("ok"), api_key=None)
    with pytest.raises(AuthenticationError):
        await service.ask()
    assert service.server.requests == []
    service = await serve(wire.says("ok"), api_key="another-key")
    await service.ask()
    assert SECRET not in str(service.server.requests[0].headers)
    assert service.server.requests[0].headers["x-goog-api-key"] == "another-key"


@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
async def test_the_key_of_the_environment_goes_to_the_address_of_the_environment(
    serve: Any, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    gateway = await serve(wire.says("from the gateway"))
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", gateway.server.url)
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv(variable, f"{SECRET}\n")
    service = await serve(base_url=None, api_key=None)
    assert (await service.ask()).content[0].text == "from the gateway"
    assert gateway.server.requests[0].headers["x-goog-api-key"] == SECRET


@pytest.mark.parametrize("key", ["two\nlines", "naïve"])
async def test_a_key_that_cannot_be_sent_is_told_without_it(serve: Any, key: str) -> None:
    service = await serve(api_key=key)
    with pytest.raises(AuthenticationError) as caught:
        await service.ask()
    assert show_error(caught.value) == "the API key has odd characters. Check api_key in the provider's config."


# the configuration


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"effort": "huge"}, "effort: Input should be 'none', 'minimal'"),
        ({"model": ""}, "model: String should have at least 1 character"),
        ({"aliases": ["fast"]}, "aliases: Input should be a valid dictionary"),
        ({"base_url": "127.0.0.1:4929/v1"}, "base_url: must begin with http:// or https://, and name a host"),
        ({"base_url": "https:///v1"}, "base_url: must begin with http:// or https://, and name a host"),
        ({"base_url": "https://h h/"}, "and name a host; without blanks, and with a port of 1 to 65535, if any"),
        ({"base_url": "https://127.0.0.1:99999/v1"}, "with a port of 1 to 65535"),
        ({"base_url": "https://127.0.0.1:abc/"}, "with a port of 1 to 65535"),
        ({"base_url": "https://[::1/"}, "base_url: must begin with http:// or https://, and name a host"),
        ({"time_out": 5}, "time_out: unknown key; did you mean 'timeout'?"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match="^provider-gemini: ") as caught:
        check_config(config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_address_may_be_kept_as_a_key_or_in_a_variable() -> None:
    check_config({"base_url": "secret://MY_GATEWAY"})
    check_config({"base_url": "${NO_SUCH_GATEWAY}"})


def test_a_wrong_key_is_not_shown() -> None:
    with pytest.raises(ValueError, match="api_key: Input should be a valid string") as caught:
        check_config({"api_key": ["hidden"]})
    assert "hidden" not in str(caught.value)


def test_keys_of_other_programs_are_warnings() -> None:
    config = {"debug": True, "model": "fast", "max_tokens": 8000, "timeout": None, "api_key": "${ANY}"}
    (warning,) = check_config(config)
    assert warning.startswith("debug: unknown key without effect; known are aliases, api_key, ")


def test_the_schema_describes_every_key() -> None:
    properties = config_schema()["properties"]
    assert {"api_key", "base_url", "default_model", "effort", "timeout", "priority"} <= set(properties)
    assert all(about["description"] for about in properties.values())
    json.dumps(config_schema())


# what is imported when


def test_the_sdk_is_imported_when_it_is_needed_and_in_a_thread() -> None:
    code = """
import sys
import amplifier_provider_gemini as package

print([name for name in ("google.genai", "pydantic", "asyncio", "amplifier_core") if name in sys.modules])
package.check_config({"model": "fast"}), package.config_schema()
print("google.genai" in sys.modules)

import asyncio, threading
from amplifier_core.coordinator import ModuleCoordinator

async def main():
    close = await package.mount(ModuleCoordinator(session_id="test"), {"api_key": "k"})
    print(len([each for each in threading.enumerate() if each.name.startswith("import-gemini")]))
    await close()

asyncio.run(main())
package.preload()
print("google.genai" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["[]", "False", "1", "True"], "")
