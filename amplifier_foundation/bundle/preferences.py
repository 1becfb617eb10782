"""Choose the provider and the model of a session by preference, and write the choice into a mount plan."""

from __future__ import annotations

import logging
import re
from copy import deepcopy
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_core.coordinator import ModuleCoordinator

logger = logging.getLogger(__name__)

LIST_TIME_LIMIT = 10.0
"""Seconds that a provider may take to list its models."""
USUAL_PRIORITY = 100
"""The priority of a provider whose config says none; the lowest number is the highest priority."""

KEY = "provider_preferences"
"""The member of a plan's `session` with the preferences of its session, and of an agent with its own."""

_KEYS = ("provider", "model", "config")
_PREFIX = "provider-"
_DATE = re.compile(r"(?<!\d)(?:(?:19|20)\d\d-?)?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])(?!\d)")
_SIZE = re.compile(r"\d+(?:\.\d+)?[bkm](?![a-z\d])")
_LATEST_DATE = 99_999_999
_OPERATORS_OWN = re.compile(
    r"(key|secret|password|token|credential|url|host|endpoint|proxy|ca_bundle)$|^verify|_verify$"
)
"""Keys of a provider's config that no preference sets: with them, a key could be sent to another server."""


@frozen
class ProviderPreference:
    """A wish for a provider, and for a model of it.

    `provider` is an instance id or a module, with or without `provider-`. `model` is a model's id or a glob pattern;
    None keeps the model of the provider's config. `config` is merged into that config, without keys for credentials
    and addresses.
    """

    provider: str
    model: str | None = None
    config: dict[str, Any] = field(default_factory=dict, hash=False)

    def to_dict(self) -> dict[str, Any]:
        """Return `{provider, model}`, with a `config` that is not empty."""
        written: dict[str, Any] = {"provider": self.provider, "model": self.model}
        return {**written, "config": dict(self.config)} if self.config else written

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read `{provider, model}`, both required, and an optional `config`. Raises `ValueError`.

        Keys of other programs are ignored, misspelt ones are not.
        """
        preference = cls._read(data)
        if "model" not in data:
            raise ValueError("a provider preference has no 'model'; write {provider: anthropic, model: claude-*}")
        return preference

    @classmethod
    def of(cls, given: Self | Mapping[str, Any]) -> Self:
        """Return a preference itself, or read the mapping of a bundle or a tool call; there, `model` may be missing."""
        return given if isinstance(given, cls) else cls._read(given)

    @classmethod
    def _read(cls, data: Any) -> Self:
        if not isinstance(data, dict):
            raise ValueError(f"a provider preference must be a mapping with 'provider', not {type(data).__name__}")
        _refuse_misspelt(data)
        if "provider" not in data:
            raise ValueError("a provider preference has no 'provider'; write {provider: anthropic, model: claude-*}")
        config = data.get("config") or {}
        if not isinstance(config, dict):
            raise ValueError(f"'config' of a provider preference must be a mapping, not {config!r}")
        model = data.get("model")
        return cls(_read_text(data, "provider"), None if model is None else _read_text(data, "model"), dict(config))


@frozen
class ModelResolutionResult:
    """The outcome of resolving a model's name or pattern.

    `resolved_model` is None when no model of the provider matches. The rest is None for a name without a pattern.
    """

    resolved_model: str | None
    pattern: str | None = None
    available_models: list[str] | None = None
    matched_models: list[str] | None = None


def is_glob_pattern(text: str) -> bool:
    """Return whether `text` names models by a pattern (`*`, `?` or `[`)."""
    return any(sign in text for sign in "*?[")


async def resolve_model_pattern(
    model_hint: str, provider_name: str, coordinator: ModuleCoordinator
) -> ModelResolutionResult:
    """Ask a mounted provider for its models and return the newest match of a pattern, in any case of letters.

    The newest has the highest version numbers, then the latest date, then the shortest name; a date counts as no
    version, nor does a size such as `70b`. The provider is named by its instance id or its type; of several instances
    of a type, the one with the highest priority is asked. A name without a pattern is returned as it is. A provider
    has no models when it is not mounted, fails, or takes longer than `LIST_TIME_LIMIT` seconds; a warning says so.
    """
    if not is_glob_pattern(model_hint):
        return ModelResolutionResult(model_hint)
    available = await _list_models(provider_name, coordinator)
    wanted = model_hint.lower()
    matched = [each for each in available if each.lower() == wanted or fnmatchcase(each.lower(), wanted)]
    newest = model_hint if model_hint in matched else max(matched, key=_recency, default=None)
    return ModelResolutionResult(newest, model_hint, available, matched)


def apply_provider_preferences(
    mount_plan: Mapping[str, Any], preferences: Sequence[ProviderPreference | Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Return a copy of the plan for the first preference with a provider of the plan.

    The preferred provider stands first with `priority` 0, the others have at least 1; an orchestrator with a
    `default_provider` gets this one. Its `default_model` becomes the preferred model, but never a pattern: no service
    has a model of such a name. The copy shares nothing with the plan, and is equal to it when no preference fits.
    Raises `ValueError` for an unreadable preference.
    """
    plan = deepcopy(dict(mount_plan))
    for preference in map(ProviderPreference.of, preferences or ()):
        entry = find_entry(plan, preference.provider)
        if entry is not None:
            model = preference.model
            _promote(plan, entry, None if model is None or is_glob_pattern(model) else model, preference.config)
            break
    return plan


def read_preferences(plan: Mapping[str, Any]) -> list[ProviderPreference]:
    """Return the preferences in the `session` of a plan. Raises `ValueError` for an unreadable one."""
    return [ProviderPreference.of(each) for each in (plan.get("session") or {}).get(KEY) or ()]


async def apply_provider_preferences_with_resolution(
    mount_plan: Mapping[str, Any],
    preferences: Sequence[ProviderPreference | Mapping[str, Any]] | None,
    coordinator: ModuleCoordinator,
) -> dict[str, Any]:
    """Do the same as `apply_provider_preferences`, with patterns resolved by the providers mounted on `coordinator`.

    A preference with a pattern that matches no model is passed over.
    """
    wanted = [ProviderPreference.of(each) for each in preferences or ()]
    return (await _choose(mount_plan, wanted, coordinator))[0]


async def prefer_providers_with_resolution(
    mount_plan: Mapping[str, Any],
    preferences: Sequence[ProviderPreference | Mapping[str, Any]],
    coordinator: ModuleCoordinator,
) -> dict[str, Any]:
    """Do the same, and write the chosen preference and those after it into the plan's `session`, for its fallback."""
    plan, rest = await _choose(mount_plan, [ProviderPreference.of(each) for each in preferences], coordinator)
    if rest:
        plan["session"] = {**(plan.get("session") or {}), KEY: [each.to_dict() for each in rest]}
    return plan


async def _choose(
    mount_plan: Mapping[str, Any], preferences: Sequence[ProviderPreference], coordinator: ModuleCoordinator
) -> tuple[dict[str, Any], list[ProviderPreference]]:
    """Return the plan for the first preference that fits, and this one with a model for its pattern and the rest."""
    plan = deepcopy(dict(mount_plan))
    for position, preference in enumerate(preferences):
        entry, model = find_entry(plan, preference.provider), preference.model
        if entry is None:
            continue
        if model is not None and is_glob_pattern(model):
            mounted = coordinator.get("providers") or {}
            name = _mount_name(entry)
            asked = name if name in mounted else _bare(str(entry["module"]))  # another instance has the same models
            model = (await resolve_model_pattern(model, asked, coordinator)).resolved_model
            if model is None:
                continue
        _promote(plan, entry, model, preference.config)
        return plan, [replace(preference, model=model), *preferences[position + 1 :]]
    return plan, []


def _refuse_misspelt(data: Mapping[str, Any]) -> None:
    from difflib import get_close_matches

    for key in data:
        close = get_close_matches(str(key), _KEYS, n=1)
        if key not in _KEYS and close:
            raise ValueError(f"a provider preference has no key '{key}'; did you mean '{close[0]}'?")


def _read_text(data: Mapping[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"'{key}' of a provider preference must be a text that is not empty, not {value!r}")
    return value.strip()


def find_entry(plan: Mapping[str, Any], provider: str) -> dict[str, Any] | None:
    """Return the provider's entry: by its instance id, else by its module, first of all the entry without an id."""
    entries = [each for each in plan.get("providers") or () if _is_sound(each)]
    named = [each for each in entries if provider in (each.get("instance_id"), each.get("id"))]
    same = [each for each in entries if _bare(str(each.get("module"))) == _bare(provider)]
    return named[0] if named else min(same, key=lambda each: bool(each.get("instance_id")), default=None)


def find_first(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the entry of the provider that answers.

    It is a preferred one, else the orchestrator's `default_provider`, else that of the highest priority.
    """
    entries = [each for each in plan.get("providers") or () if _is_sound(each)]
    found = (find_entry(plan, name) for name in list_preferred(plan))
    return next((entry for entry in found if entry is not None), min(entries, key=priority_of, default=None))


def list_preferred(plan: Mapping[str, Any]) -> list[str]:
    """Return the names of the providers that a plan asks rather than the one of the highest priority."""
    session = plan.get("session") or {}
    defaults = (config.get("default_provider") for config in _orchestrator_configs(plan))
    return [*(str(each["provider"]) for each in session.get(KEY) or ()), *(str(name) for name in defaults if name)]


def _orchestrator_configs(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the configs of the orchestrator; one stands beside the session section where that only names a module."""
    for holder in (plan.get("session"), plan):
        section = holder.get("orchestrator") if isinstance(holder, dict) else None
        config = section.get("config") if isinstance(section, dict) else None
        if isinstance(config, dict):
            yield config


def _is_sound(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("config") or {}, dict)


def _bare(name: str) -> str:
    return name.removeprefix(_PREFIX)


def _mount_name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("instance_id") or _bare(str(entry["module"])))


def priority_of(entry: Mapping[str, Any]) -> float:
    """Return the priority in an entry of `providers`; the lowest number is the highest priority."""
    value = (entry.get("config") or {}).get("priority")
    return value if isinstance(value, int | float) else USUAL_PRIORITY


def _promote(plan: dict[str, Any], chosen: dict[str, Any], model: str | None, extra: Mapping[str, Any]) -> None:
    others = [each for each in plan["providers"] if each is not chosen]
    plan["providers"] = [chosen, *others]
    allowed = {key: value for key, value in extra.items() if not _OPERATORS_OWN.search(str(key).lower())}
    config = chosen["config"] = {**(chosen.get("config") or {}), **allowed, "priority": 0}
    if model is not None:
        config["default_model"] = model
    for entry in filter(_is_sound, others):
        if priority_of(entry) < 1:
            entry["config"]["priority"] = 1
    for orchestrator in _orchestrator_configs(plan):
        if "default_provider" in orchestrator:
            orchestrator["default_provider"] = _mount_name(chosen)


def find_mounted(name: str, coordinator: ModuleCoordinator) -> str | None:
    """Return the name of the provider mounted as `name`, else of its instance with the highest priority, or None."""
    mounted: Mapping[str, Any] = coordinator.get("providers") or {}
    for each in (name, _bare(name)):
        if each in mounted:
            return each
    entries = [entry for entry in (coordinator.config or {}).get("providers") or () if _is_sound(entry)]
    same = [entry for entry in entries if _bare(str(entry.get("module"))) == _bare(name)]
    found = min((entry for entry in same if _mount_name(entry) in mounted), key=priority_of, default=None)
    return None if found is None else _mount_name(found)


async def _list_models(name: str, coordinator: ModuleCoordinator) -> list[str]:
    """Return the ids of a provider's models.

    A plain `list_models` runs in a thread: a slow one must not hold up the event loop.
    """
    import asyncio
    from inspect import iscoroutinefunction

    mounted = find_mounted(name, coordinator)
    if mounted is None:
        logger.warning("provider '%s' cannot be asked for its models: it is not mounted", name)
        return []
    provider = coordinator.get("providers")[mounted]
    try:
        async with asyncio.timeout(LIST_TIME_LIMIT) as limit:
            own_thread = not iscoroutinefunction(provider.list_models)
            models = await (asyncio.to_thread(provider.list_models) if own_thread else provider.list_models())
            listed = await models if hasattr(models, "__await__") else models
            found = (each.get("id") if isinstance(each, dict) else getattr(each, "id", each) for each in listed)
            return list(dict.fromkeys(each for each in found if isinstance(each, str)))
    except Exception as error:
        late = f"it took longer than {LIST_TIME_LIMIT:g} s"
        cause = late if limit.expired() else f"{type(error).__name__}: {error}"
        logger.warning("provider '%s' did not list its models: %s", name, cause)
        return []


def _recency(model: str) -> tuple[tuple[int, ...], int, int, str]:
    name = model.lower()
    dates = [int(date.replace("-", "")) for date in _DATE.findall(name)]
    if "latest" in name:
        dates.append(_LATEST_DATE)
    version = tuple(map(int, re.findall(r"\d+", _SIZE.sub("", _DATE.sub("", name)))))
    return version, max(dates, default=0), -len(name), name
