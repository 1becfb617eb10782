"""The module: its configuration, its key, and what it imports when."""

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
from amplifier_core.message_models import ChatRequest
from amplifier_core.validation.behavioral import ProviderBehaviorTests
from amplifier_provider_anthropic import check_config, config_schema, mount
from tests.wire import anthropic as wire
from tests.wire.server import show_error


class TestBehaviour(ProviderBehaviorTests):
    @pytest.fixture
    async def provider_module(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        coordinator = ModuleCoordinator(session_id="test")
        await mount(coordinator, {})
        return coordinator.get("providers", "anthropic")


async def test_the_installed_entry_point_mounts_it() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    mounted = await ModuleLoader().load("provider-anthropic", {}, coordinator=coordinator)
    await mounted(coordinator)
    provider = coordinator.get("providers", "anthropic")
    assert isinstance(provider, Provider)
    info = provider.get_info()
    assert (info.id, info.credential_env_vars) == ("anthropic", ["ANTHROPIC_API_KEY"])


# the key


async def test_without_a_key_the_first_request_names_the_variable(serve: Any) -> None:
    service = await serve(api_key=None)
    with pytest.raises(AuthenticationError) as caught:
        await service.ask()
    assert show_error(caught.value).startswith("there is no API key. Set ANTHROPIC_API_KEY")
    with pytest.raises(AuthenticationError) as caught:
        await service.provider.count_tokens(ChatRequest(messages=[]))
    assert show_error(caught.value).startswith("there is no API key. Set ANTHROPIC_API_KEY")
    assert service.server.requests == []
    assert "claude-sonnet-5-5" in [model.id for model in await service.provider.list_models()]


async def test_the_key_of_the_environment_goes_to_no_address_of_a_bundle(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-from-there")
    service = await serve(wire.says("ok"), api_key=None)
    with pytest.raises(AuthenticationError):
        await service.ask()
    assert service.server.requests == []


async def test_the_key_of_the_environment_goes_to_the_address_of_the_environment(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = await serve(wire.says("ok"))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", elsewhere.server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-from-there\n")
    service = await serve(api_key=None, base_url=None)
    await service.ask()
    assert "sk-ant-from-there" in elsewhere.server.requests[0].headers["authorization"]


@pytest.mark.parametrize("written", ["${MY_KEY}", "  ${MY_KEY}\n"])
async def test_a_key_comes_from_the_environment(serve: Any, monkeypatch: pytest.MonkeyPatch, written: Any) -> None:
    monkeypatch.setenv("MY_KEY", "sk-ant-from-there\n")
    service = await serve(wire.says("ok"), api_key=written)
    await service.ask()
    assert "sk-ant-from-there" in service.server.requests[0].headers["authorization"]


@pytest.mark.parametrize("key", ["two\nlines", "with a space", "naïve", "\x00"])
async def test_a_key_that_cannot_be_sent_is_told_without_it(serve: Any, key: str) -> None:
    service = await serve(api_key=key)
    with pytest.raises(AuthenticationError) as caught:
        await service.ask()
    assert show_error(caught.value) == "the API key has odd characters. Check api_key in the provider's config."


async def test_other_credentials_on_the_machine_are_not_used(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-another-program")
    service = await serve(wire.says("ok"))
    await service.ask()
    assert "token-of-another-program" not in str(service.server.requests[0].headers)


async def test_the_address_comes_from_the_environment(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = await serve(wire.says("from the gateway"))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", gateway.server.url)
    service = await serve(base_url=None)
    assert (await service.ask()).content[0].text == "from the gateway"


async def test_an_address_of_the_environment_without_a_scheme_is_no_outage(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "127.0.0.1:4929")
    service = await serve(base_url=None)
    with pytest.raises(ConfigurationError, match=r"the address 127\.0\.0\.1:4929 cannot be used: must begin with http"):
        await service.ask()


# the configuration


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"timeout": float("inf")}, "timeout: Input should be a finite number"),
        ({"effort": "huge"}, "effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'"),
        ({"prompt_cache": "2h"}, "prompt_cache: Input should be '5m', '1h' or 'none'"),
        ({"thinking": 10}, "'between_tools' or 'disabled', or greater than or equal to 1024"),
        ({"max_retries": -1}, "max_retries: Input should be greater than or equal to 0"),
        ({"model": ""}, "model: String should have at least 1 character"),
        ({"aliases": ["fast"]}, "aliases: Input should be a valid dictionary"),
        ({"base_url": "127.0.0.1:4929/v1"}, "base_url: must begin with http:// or https://, and name a host"),
        ({"base_url": "https:///v1"}, "base_url: must begin with http:// or https://, and name a host"),
        ({"base_url": "https://h h/"}, "and name a host; without blanks, and with a port of 1 to 65535, if any"),
        ({"base_url": "https://127.0.0.1:99999/v1"}, "with a port of 1 to 65535"),
        ({"base_url": "https://127.0.0.1:abc/"}, "with a port of 1 to 65535"),
        ({"base_url": "https://[::1/"}, "base_url: must begin with http:// or https://, and name a host"),
        ({"time_out": 5}, "time_out: unknown key; did you mean 'timeout'?"),
        ({"default_modell": "x"}, "default_modell: unknown key; did you mean 'default_model'?"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match="^provider-anthropic: ") as caught:
        check_config(config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_address_may_be_kept_as_a_key_or_in_a_variable() -> None:
    check_config({"base_url": "secret://MY_GATEWAY"})
    check_config({"base_url": "${NO_SUCH_GATEWAY}"})


def test_a_wrong_key_is_not_shown() -> None:
    with pytest.raises(ValueError, match="api_key: Input should be a valid string") as caught:
        check_config({"api_key": ["sk-ant-secret"]})
    assert "sk-ant-secret" not in str(caught.value)


def test_keys_of_other_programs_are_warnings() -> None:
    config = {"debug": True, "model": "fast", "max_tokens": 8000, "timeout": None, "api_key": "${ANY}"}
    (warning,) = check_config(config)
    assert warning.startswith("debug: unknown key without effect; known are aliases, api_key, ")


def test_the_schema_describes_every_key() -> None:
    properties = config_schema()["properties"]
    assert {"api_key", "base_url", "default_model", "thinking", "timeout", "priority"} <= set(properties)
    assert all(about["description"] for about in properties.values())
    json.dumps(config_schema())


# what is imported when


def test_importing_the_package_loads_neither_pydantic_nor_the_sdk() -> None:
    code = (
        "import sys, amplifier_provider_anthropic; "
        "print([name for name in ('anthropic', 'pydantic', 'asyncio', 'amplifier_core') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_checking_a_configuration_does_not_load_the_sdk() -> None:
    code = (
        "import sys; from amplifier_provider_anthropic import check_config, config_schema; "
        "check_config({'model': 'fast'}); config_schema(); print('anthropic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_sdk_is_imported_beforehand_by_a_kernel_that_asks_for_it() -> None:
    code = "import sys, amplifier_provider_anthropic as package; package.preload(); print('anthropic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.long
def test_the_sdk_is_imported_in_a_thread_while_the_session_begins() -> None:
    code = """
import asyncio, sys, threading
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_provider_anthropic import mount

async def main():
    coordinator = ModuleCoordinator(session_id="test")
    await mount(coordinator, {"api_key": "k"})
    importing = [thread.name for thread in threading.enumerate() if thread.name.startswith("import-anthropic")]
    print(len(importing))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("1", "")
