"""The module: its configuration, its address and key, and what it imports when."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from amplifier_core import Provider
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.llm_errors import AuthenticationError, ConfigurationError
from amplifier_core.loader import ModuleLoader
from amplifier_core.validation.behavioral import ProviderBehaviorTests
from amplifier_provider_ollama import check_config, config_schema
from amplifier_provider_ollama.config import Settings
from tests.wire import ollama as wire
from tests.wire.server import json_answer, show_error

SECRET = "key-of-the-environment"


class TestBehaviour(ProviderBehaviorTests):
    @pytest.fixture
    async def provider_module(self, serve: Any) -> Any:
        return (await serve(wire.models())).provider


async def test_the_installed_entry_point_mounts_it() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    mounted = await ModuleLoader().load("provider-ollama", {}, coordinator=coordinator)
    await mounted(coordinator)
    provider = coordinator.get("providers", "ollama")
    assert isinstance(provider, Provider)
    info = provider.get_info()
    assert (info.id, info.credential_env_vars) == ("ollama", [])


# the address and the key


@pytest.mark.parametrize(
    ("config", "environment", "key"),
    [
        ({}, {}, None),
        ({}, {"OLLAMA_HOST": "my-server:11434"}, SECRET),
        ({"base_url": "http://elsewhere"}, {}, None),
        ({"base_url": "http://elsewhere"}, {"OLLAMA_HOST": "my-server:11434"}, None),
        ({"base_url": "https://ollama.com", "api_key": "${OLLAMA_API_KEY}"}, {}, SECRET),
    ],
)
def test_the_key_of_the_environment_goes_to_no_address_that_the_user_does_not_name(
    monkeypatch: pytest.MonkeyPatch, config: Any, environment: dict[str, str], key: str | None
) -> None:
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    monkeypatch.setenv("OLLAMA_API_KEY", SECRET)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Settings.read(config).find_key() == key


async def test_the_sdk_sends_no_key_by_itself(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", SECRET)
    service = await serve(wire.says("ok"))
    await service.ask()
    assert SECRET not in str(service.server.requests[0].headers)


async def test_a_key_goes_to_the_address_of_the_environment_and_not_on_to_others(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await serve(wire.says("from elsewhere"))
    moved = json_answer({}, 307, location=f"{other.server.url}/api/chat")
    own = await serve(wire.says("ok"), moved)
    monkeypatch.setenv("OLLAMA_API_KEY", f"{SECRET}\n")
    monkeypatch.setenv("OLLAMA_HOST", own.server.url.removeprefix("http://"))
    service = await serve(base_url=None)
    await service.ask()
    with pytest.raises(ConfigurationError, match="it sends requests on to"):
        await service.ask()
    assert [each.headers["authorization"] for each in own.server.requests] == [f"Bearer {SECRET}"] * 2
    assert other.server.requests == []


async def test_a_key_that_cannot_be_sent_is_told_without_it(serve: Any) -> None:
    service = await serve(api_key="two\nlines")
    with pytest.raises(AuthenticationError) as caught:
        await service.ask()
    assert show_error(caught.value) == "the API key has odd characters. Check api_key in the provider's config."


async def test_an_address_that_is_none_is_told(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://host:99999999")
    service = await serve(base_url=None)
    with pytest.raises(ConfigurationError, match="the address http://host:99999999 cannot be used"):
        await service.ask()


async def test_no_proxy_stands_between_this_machine_and_itself(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = await serve(wire.says("from the proxy"))
    monkeypatch.setenv("HTTP_PROXY", proxy.server.url)
    service = await serve(wire.says("from here"))
    assert (await service.ask()).content[0].text == "from here"
    remote = await serve(base_url="http://ollama.example.test")
    assert (await remote.ask()).content[0].text == "from the proxy"


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:11435/v1", ":11435"])
def test_an_address_may_be_without_a_scheme_as_ollama_writes_it(address: str) -> None:
    check_config({"base_url": address})


def test_the_address_where_a_server_listens_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "0.0.0.0:11435")
    assert Settings.read({}).find_address() == "127.0.0.1:11435"


# the configuration


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"thinking": "huge"}, "thinking: Input should be"),
        ({"context_window": 0}, "context_window: Input should be greater than or equal to 1"),
        ({"model": ""}, "model: String should have at least 1 character"),
        ({"options": "seed"}, "options: Input should be a valid dictionary"),
        ({"base_url": "ftp://127.0.0.1:4929"}, "base_url: must begin with http:// or https://, and name a host"),
        ({"base_url": "h h"}, "and name a host; without blanks, and with a port of 1 to 65535, if any"),
        ({"base_url": "localhost:99999"}, "with a port of 1 to 65535"),
        ({"base_url": ":0"}, "with a port of 1 to 65535"),
        ({"base_url": "http://127.0.0.1:abc/"}, "with a port of 1 to 65535"),
        ({"time_out": 5}, "time_out: unknown key; did you mean 'timeout'?"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match="^provider-ollama: ") as caught:
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
    assert {"base_url", "default_model", "context_window", "thinking", "timeout", "priority"} <= set(properties)
    assert all(about["description"] for about in properties.values())
    json.dumps(config_schema())


# what is imported when


def test_the_sdk_is_imported_when_it_is_needed_and_in_a_thread() -> None:
    code = """
import sys
import amplifier_provider_ollama as package

print([name for name in ("ollama", "pydantic", "asyncio", "amplifier_core") if name in sys.modules])
package.check_config({"model": "fast"}), package.config_schema()
print("ollama" in sys.modules)

import asyncio, threading
from amplifier_core.coordinator import ModuleCoordinator

async def main():
    await package.mount(ModuleCoordinator(session_id="test"), {})
    print(len([each for each in threading.enumerate() if each.name.startswith("import-ollama")]))

asyncio.run(main())
package.preload()
print("ollama" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["[]", "False", "1", "True"], "")
