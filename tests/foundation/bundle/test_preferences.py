"""Which provider a mount plan uses when others are preferred, and which model a pattern means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ModuleCoordinator
from amplifier_core.models import ModelInfo
from amplifier_foundation.bundle import Bundle, preferences
from amplifier_foundation.bundle.preferences import (
    KEY,
    ModelResolutionResult,
    ProviderPreference,
    apply_provider_preferences,
    apply_provider_preferences_with_resolution,
    find_first,
    is_glob_pattern,
    resolve_model_pattern,
)
from amplifier_foundation.bundle.preferring import prefer

from ..conftest import MakeBundle, playbook

SESSION = {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}}
CLAUDES = [
    "claude-sonnet-4-20250514",
    "claude-opus-4-1-20250805",
    "claude-sonnet-4-5-20250929",
    "claude-3-opus-20240229",
]
GPTS = ["gpt-4o", "gpt-4.1", "gpt-4o-mini"]


class Listing:
    """A provider that has models."""

    def __init__(self, *models: Any) -> None:
        self.models = list(models)

    async def list_models(self) -> list[Any]:
        return self.models


def plan(**session: Any) -> dict[str, Any]:
    return {
        "session": {**deepcopy(SESSION), **session},
        "providers": [
            {"module": "provider-anthropic", "config": {"default_model": "claude-3-opus", "priority": 0}},
            {"module": "provider-openai", "config": {"api_key": "…", "priority": 7}},
            {"module": "provider-openai", "instance_id": "azure", "config": {"priority": -2}},
            {"module": "provider-local"},
        ],
    }


def modules(mount_plan: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the providers of a plan in order: what each is called, and its priority."""
    return [
        (each.get("instance_id") or each["module"], (each.get("config") or {}).get("priority"))
        for each in mount_plan["providers"]
    ]


@pytest.fixture
async def coordinator() -> ModuleCoordinator:
    """A coordinator with two providers that list their models."""
    coordinator = ModuleCoordinator(session_id="s")
    await coordinator.mount("providers", Listing(*CLAUDES), name="anthropic")
    await coordinator.mount("providers", Listing(*GPTS), name="openai")
    return coordinator


def test_the_preferred_provider_comes_first_and_the_others_after_it() -> None:
    changed = apply_provider_preferences(plan(), [ProviderPreference("openai", "gpt-5")])
    assert modules(changed) == [
        ("provider-openai", 0),
        ("provider-anthropic", 1),
        ("azure", 1),
        ("provider-local", None),
    ]
    assert changed["providers"][0]["config"] == {"api_key": "…", "priority": 0, "default_model": "gpt-5"}
    assert changed["providers"][1]["config"]["default_model"] == "claude-3-opus"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("anthropic", "provider-anthropic"),
        ("provider-anthropic", "provider-anthropic"),
        ("openai", "provider-openai"),
        ("azure", "azure"),
        ("local", "provider-local"),
    ],
)
def test_a_provider_is_named_by_its_module_or_its_instance(wanted: str, found: str) -> None:
    assert modules(apply_provider_preferences(plan(), [ProviderPreference(wanted)]))[0] == (found, 0)


def test_the_first_preference_whose_provider_is_there_counts() -> None:
    wanted = [{"provider": "gemini", "model": "x"}, {"provider": "local", "model": "y"}, {"provider": "openai"}]
    changed = apply_provider_preferences(plan(), wanted)
    assert changed["providers"][0] == {"module": "provider-local", "config": {"priority": 0, "default_model": "y"}}


@pytest.mark.parametrize("wanted", [None, [], [ProviderPreference("gemini", "x")]])
def test_without_a_preference_that_fits_the_plan_stays_as_it_is(wanted: Any) -> None:
    assert apply_provider_preferences(plan(), wanted) == plan()
    assert apply_provider_preferences({}, wanted) == {}


def test_the_plan_that_was_given_is_never_changed() -> None:
    given = plan()
    for wanted in (ProviderPreference("openai", "gpt-5"), ProviderPreference("nobody")):
        changed = apply_provider_preferences(given, [wanted])
        for entry in changed["providers"]:
            entry.setdefault("config", {})["api_key"] = "changed"
        changed["session"]["orchestrator"]["config"] = {}
        assert given == plan()


def test_a_pattern_that_nobody_resolved_leaves_the_model() -> None:
    changed = apply_provider_preferences(plan(), [ProviderPreference("anthropic", "claude-*")])
    assert changed["providers"][0]["config"] == {"default_model": "claude-3-opus", "priority": 0}


def test_entries_that_are_no_providers_are_left_alone() -> None:
    odd: list[Any] = [None, "provider-openai", {"module": "provider-openai", "config": "none"}, {"config": {}}]
    given = {"providers": [*odd, {"module": "provider-local", "config": None}]}
    assert apply_provider_preferences(given, [ProviderPreference("openai")]) == given
    changed = apply_provider_preferences(given, [ProviderPreference("local")])
    assert changed["providers"] == [{"module": "provider-local", "config": {"priority": 0}}, *odd]


@pytest.mark.parametrize("wanted", ["openai", "azure"])
def test_an_orchestrator_that_names_its_provider_names_the_preferred_one(wanted: str) -> None:
    inside = plan(orchestrator={"module": "loop-basic", "config": {"default_provider": "anthropic"}})
    changed = apply_provider_preferences(inside, [ProviderPreference(wanted)])
    assert changed["session"]["orchestrator"]["config"] == {"default_provider": wanted}
    beside = {**plan(orchestrator="loop-basic"), "orchestrator": {"config": {"default_provider": "anthropic"}}}
    changed = apply_provider_preferences(beside, [ProviderPreference(wanted)])
    assert changed["orchestrator"]["config"] == {"default_provider": wanted}


@pytest.mark.parametrize(
    ("default", "position"), [("local", 3), ("openai", 1), ("provider-openai", 1), ("gone", 2), (None, 2)]
)
def test_the_provider_that_answers_is_the_preferred_one_else_the_default_else_the_first(
    default: str | None, position: int
) -> None:
    given = plan(orchestrator={"module": "loop-basic", "config": {"default_provider": default}})
    assert find_first(given) is given["providers"][position]
    given["session"][KEY] = [{"provider": "gone"}, {"provider": "anthropic"}]
    assert find_first(given) is given["providers"][0]
    assert find_first({}) is None


def test_a_model_alone_is_for_the_default_provider() -> None:
    orchestrator = {"module": "loop-basic", "config": {"default_provider": "local"}}
    bundle = Bundle("one", providers=plan()["providers"], session={"orchestrator": orchestrator})
    prefer(bundle, None, "large")
    assert bundle.session[KEY] == [{"provider": "provider-local", "model": "large"}]


async def test_a_session_is_answered_by_the_provider_that_its_plan_prefers(
    make_bundle: MakeBundle, tmp_path: Path
) -> None:
    [first], [second] = playbook(say="first"), playbook(say="second")
    mount_plan = {"session": SESSION, "providers": [first, {**second, "instance_id": "other"}]}
    answers = []
    for wanted in ("playbook", "other"):
        config = apply_provider_preferences(mount_plan, [ProviderPreference(wanted)])
        async with AmplifierSession(config) as session:
            answers.append(await session.execute("Who are you?"))
    assert answers == ["first", "second"]


async def test_the_first_pattern_that_fits_a_model_counts(coordinator: ModuleCoordinator) -> None:
    wanted = [
        {"provider": "gemini", "model": "*"},
        {"provider": "openai", "model": "o3*"},
        {"provider": "anthropic", "model": "claude-sonnet-*"},
        {"provider": "openai", "model": "gpt-4.1"},
    ]
    given = plan()
    changed = await apply_provider_preferences_with_resolution(given, wanted, coordinator)
    assert modules(changed)[0] == ("provider-anthropic", 0)
    assert changed["providers"][0]["config"]["default_model"] == "claude-sonnet-4-5-20250929"
    assert given == plan()


@pytest.mark.parametrize(
    ("wanted", "model"), [("gpt-9", "gpt-9"), (None, None), ("GPT-4O", "GPT-4O"), ("GPT-4?", "gpt-4o")]
)
async def test_only_patterns_are_asked_for(
    coordinator: ModuleCoordinator, wanted: str | None, model: str | None
) -> None:
    preference = ProviderPreference("openai", wanted)
    changed = await apply_provider_preferences_with_resolution(plan(), [preference], coordinator)
    assert (modules(changed)[0], changed["providers"][0]["config"].get("default_model")) == (
        ("provider-openai", 0),
        model,
    )


async def test_a_pattern_of_an_instance_that_is_not_mounted_is_asked_of_its_module(
    coordinator: ModuleCoordinator,
) -> None:
    changed = await apply_provider_preferences_with_resolution(
        plan(), [ProviderPreference("azure", "gpt-4o*")], coordinator
    )
    assert changed["providers"][0]["instance_id"] == "azure"
    assert changed["providers"][0]["config"] == {"priority": 0, "default_model": "gpt-4o"}


async def test_where_no_pattern_fits_the_plan_stays_as_it_is(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = [ProviderPreference("openai", "o3*"), ProviderPreference("local", "*")]
    assert await apply_provider_preferences_with_resolution(plan(), wanted, coordinator) == plan()
    assert caplog.messages == ["provider 'local' cannot be asked for its models: it is not mounted"]


async def test_a_model_whose_name_looks_like_a_pattern_can_be_preferred(coordinator: ModuleCoordinator) -> None:
    await coordinator.mount("providers", Listing("tuned[1]", "tuned1"), name="local")
    changed = await apply_provider_preferences_with_resolution(
        plan(), [ProviderPreference("local", "tuned[1]")], coordinator
    )
    assert changed["providers"][0]["config"]["default_model"] == "tuned[1]"


@pytest.mark.parametrize(
    ("pattern", "newest"),
    [
        ("claude-*", "claude-opus-4-10"),
        ("claude-sonnet-*", "claude-sonnet-4-5-20250929"),
        ("*haiku*", "claude-3-5-haiku-latest"),
        ("gpt-5*", "gpt-5.2-2025-12-11"),
        ("gpt-5-mini*", "gpt-5-mini"),
        ("gpt-4-*", "gpt-4-0613"),
        ("gpt-[45]", "gpt-5"),
        ("gemini-2.5-pro*", "gemini-2.5-pro-preview-06-05"),
        ("llama-*", "llama-3.3-70b"),
        ("LLAMA-3.1-*", "llama-3.1-405b"),
        ("o?", "o3"),
        ("nothing*", None),
    ],
)
async def test_the_newest_model_that_fits_is_meant(
    coordinator: ModuleCoordinator, pattern: str, newest: str | None
) -> None:
    models = (
        "claude-sonnet-4-20250514 claude-sonnet-4-5-20250929 claude-opus-4-9 claude-opus-4-10 claude-3-5-haiku-latest "
        "claude-3-5-haiku-20241022 gpt-4 gpt-4-0314 gpt-4-0613 gpt-4-32k gpt-5 gpt-5-2025-08-07 gpt-5.2-2025-12-11 "
        "gpt-5-mini gemini-2.5-pro-preview-05-06 gemini-2.5-pro-preview-06-05 o1 o3 "
        "llama-3.1-405b llama-3.3-70b"
    )
    await coordinator.mount("providers", Listing(*models.split()), name="many")
    assert (await resolve_model_pattern(pattern, "many", coordinator)).resolved_model == newest


@pytest.mark.parametrize("name", ["anthropic", "provider-anthropic"])
async def test_a_resolution_tells_what_there_was(coordinator: ModuleCoordinator, name: str) -> None:
    assert await resolve_model_pattern("*SONNET*", name, coordinator) == ModelResolutionResult(
        resolved_model="claude-sonnet-4-5-20250929",
        pattern="*SONNET*",
        available_models=CLAUDES,
        matched_models=["claude-sonnet-4-20250514", "claude-sonnet-4-5-20250929"],
    )


async def test_a_name_without_a_pattern_is_taken_as_it_is(coordinator: ModuleCoordinator) -> None:
    result = await resolve_model_pattern("gpt-9", "nobody", coordinator)
    assert result == ModelResolutionResult("gpt-9")


async def test_a_provider_is_asked_by_its_type_through_the_instance_with_the_highest_priority() -> None:
    providers = [
        {"module": "provider-openai", "instance_id": "second", "config": {"priority": 7}},
        {"module": "provider-openai", "instance_id": "first", "config": {"priority": 3}},
        {"module": "provider-openai", "instance_id": "unmounted", "config": {"priority": 1}},
    ]
    coordinator = AmplifierSession({"session": SESSION, "providers": providers}).coordinator
    await coordinator.mount("providers", Listing("gpt-4"), name="second")
    await coordinator.mount("providers", Listing("gpt-5"), name="first")
    for name in ("openai", "provider-openai", "first"):
        assert (await resolve_model_pattern("GPT-*", name, coordinator)).resolved_model == "gpt-5"
    assert (await resolve_model_pattern("gpt-*", "second", coordinator)).resolved_model == "gpt-4"


class Plain:
    def list_models(self) -> list[Any]:
        return [
            {"id": "b-2"},
            "b-1",
            "b-1",
            ModelInfo(id="b-3", display_name="B", context_window=1, max_output_tokens=1),
            7,
        ]


class Handing:
    def list_models(self) -> Any:
        return Listing("b-3").list_models()


class Failing:
    async def list_models(self) -> list[Any]:
        raise RuntimeError("no network")


class Silent:
    async def list_models(self) -> list[Any]:
        await asyncio.Event().wait()
        return []


@pytest.fixture
async def asked(coordinator: ModuleCoordinator) -> AsyncIterator[Callable[[Any], Any]]:
    """Resolve `b-*` by a provider."""

    async def ask(provider: Any) -> ModelResolutionResult:
        await coordinator.mount("providers", provider, name="b")
        return await resolve_model_pattern("b-*", "b", coordinator)

    yield ask


@pytest.mark.parametrize(("provider", "available"), [(Plain(), ["b-2", "b-1", "b-3"]), (Handing(), ["b-3"])])
async def test_models_may_be_listed_in_the_ways_providers_have(
    asked: Callable[[Any], Any], provider: Any, available: list[str]
) -> None:
    result = await asked(provider)
    assert (result.resolved_model, result.available_models) == ("b-3", available)


@pytest.mark.parametrize(
    ("provider", "cause"),
    [
        (Failing(), "RuntimeError: no network"),
        (Listing, "TypeError: "),
        (object(), "AttributeError: 'object' object has no attribute 'list_models'"),
        (Silent(), "it took longer than 0.001 s"),
    ],
)
async def test_a_provider_that_does_not_list_its_models_has_none(
    asked: Callable[[Any], Any],
    provider: Any,
    cause: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preferences, "LIST_TIME_LIMIT", 0.001 if isinstance(provider, Silent) else 60)
    assert await asked(provider) == ModelResolutionResult(None, "b-*", [], [])
    [message] = caplog.messages
    assert message.startswith(f"provider 'b' did not list its models: {cause}")


def test_a_preference_is_read_as_people_write_it() -> None:
    read = ProviderPreference.from_dict
    assert read({"provider": " anthropic ", "model": "claude-*"}) == ProviderPreference("anthropic", "claude-*")
    assert read({"provider": "a", "model": None, "reason": "cheap"}) == ProviderPreference("a")
    with pytest.raises(ValueError, match="a provider preference has no 'model'"):
        read({"provider": "a"})
    assert ProviderPreference.of({"provider": "a"}) == ProviderPreference("a")


def test_a_preference_is_written_as_it_is_read() -> None:
    for data in ({"provider": "a", "model": "b"}, {"provider": "a", "model": "b", "config": {"effort": "high"}}):
        assert ProviderPreference.from_dict(data).to_dict() == data
    assert ProviderPreference("a", "b").config == {}


def test_the_config_of_a_preference_is_merged_without_keys_and_addresses() -> None:
    config = {"effort": "high", "api_key": "theirs", "base_url": "https://elsewhere", "max_tokens": 9}
    [first, *_] = apply_provider_preferences(plan(), [ProviderPreference("openai", "m", config)])["providers"]
    assert first["config"] == {"api_key": "…", "effort": "high", "max_tokens": 9, "default_model": "m", "priority": 0}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("anthropic", "a provider preference must be a mapping with 'provider', not str"),
        ({}, "a provider preference has no 'provider'; write {provider: anthropic, model: claude-*}"),
        ({"providr": "a"}, "a provider preference has no key 'providr'; did you mean 'provider'?"),
        ({"provider": "a", "models": "b"}, "a provider preference has no key 'models'; did you mean 'model'?"),
        ({"provider": " "}, "'provider' of a provider preference must be a text that is not empty, not ' '"),
        ({"provider": "a", "model": 5}, "'model' of a provider preference must be a text that is not empty, not 5"),
    ],
)
def test_a_preference_that_cannot_be_is_refused_with_the_reason(data: Any, message: str) -> None:
    for refuse in (ProviderPreference.from_dict, lambda data: apply_provider_preferences({}, [data])):
        with pytest.raises(ValueError) as refused:
            refuse(data)
        assert str(refused.value) == message


def test_a_pattern_is_known_by_its_signs() -> None:
    assert [is_glob_pattern(text) for text in ("a*", "a?", "[ab]", "gpt-4.1", "")] == [True, True, True, False, False]
