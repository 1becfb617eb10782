"""Which provider and model a session should have rather, and the mount plan that gives it them."""

from __future__ import annotations

import logging
import re
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amplifier_core.coordinator import ModuleCoordinator

logger = logging.getLogger(__name__)

LIST_TIME_LIMIT = 10.0
"""Seconds that a provider may take to list its models."""

_KEYS = ("provider", "model")
_PREFIX = "provider-"
_DATE = re.compile(r"(?<!\d)(?:(?:19|20)\d\d-?)?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])(?!\d)")
_SIZE = re.compile(r"\d+(?:\.\d+)?[bkm](?![a-z\d])")
_LATEST_DATE = 99_999_999


@dataclass(frozen=True, slots=True)
class ProviderPreference:
    """One wish: a provider, and a model of it.

    `provider` is an instance id or a module, with or without `provider-`. `model` is a model's id or a glob pattern;
    None: the one that the provider has already.
    """

    provider: str
    model: str | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what a bundle or a tool call writes as `{provider, model}`.

        Raises `ValueError` that says what is wrong. Keys of other programs are ignored, misspelt ones are not.
        """
        if not isinstance(data, dict):
            raise ValueError(f"a provider preference must be a mapping with 'provider', not {type(data).__name__}")
        _refuse_misspelt(data)
        if "provider" not in data:
            raise ValueError("a provider preference has no 'provider'; write {provider: anthropic, model: claude-*}")
        model = data.get("model")
        return cls(_text(data, "provider"), None if model is None else _text(data, "model"))


@dataclass(frozen=True, slots=True)
class ModelResolutionResult:
    """What became of a model pattern: `resolved_model` is None when no model of the provider fits it."""

    resolved_model: str | None
    pattern: str
    available: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()


def is_glob_pattern(text: str) -> bool:
    """Return whether `text` names models by a pattern (`*`, `?` or `[`)."""
    return any(sign in text for sign in "*?[")


async def resolve_model_pattern(
    pattern: str, provider_name: str, coordinator: ModuleCoordinator
) -> ModelResolutionResult:
    """Ask a mounted provider for its models and return the newest that fits `pattern`, whatever the case of letters.

    The newest has the highest version numbers, then the latest date, then the shortest name; a date counts as no
    version, nor does a size such as `70b`. A text without a pattern is returned as it is, and nobody is asked. A
    provider that is not mounted, fails, or takes longer than `LIST_TIME_LIMIT` seconds has no models; that is logged.
    """
    if not is_glob_pattern(pattern):
        return ModelResolutionResult(pattern, pattern)
    available = await _models_of(provider_name, coordinator)
    wanted = pattern.lower()
    matched = tuple(each for each in available if each.lower() == wanted or fnmatchcase(each.lower(), wanted))
    exact = pattern if pattern in matched else None
    return ModelResolutionResult(exact or max(matched, key=_recency, default=None), pattern, available, matched)


def apply_provider_preferences(
    mount_plan: Mapping[str, Any], preferences: Sequence[ProviderPreference | Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Return a copy of the plan in which the first preference whose provider it has is the one to use.

    That provider stands first with `priority` 0, the others have at least 1; an orchestrator that names a
    `default_provider` names this one. Its `default_model` is the preferred model; a pattern, which no service knows as
    a model, leaves it. The copy shares nothing with the plan; it is equal to it when no preference fits. Raises
    `ValueError` for a preference that `ProviderPreference.from_dict` refuses.
    """
    plan = deepcopy(dict(mount_plan))
    for preference in _read(preferences):
        entry = _entry_of(plan, preference.provider)
        if entry is not None:
            model = preference.model
            _promote(plan, entry, None if model is None or is_glob_pattern(model) else model)
            break
    return plan


async def apply_provider_preferences_with_resolution(
    mount_plan: Mapping[str, Any],
    preferences: Sequence[ProviderPreference | Mapping[str, Any]] | None,
    coordinator: ModuleCoordinator,
) -> dict[str, Any]:
    """Do what `apply_provider_preferences` does, with patterns resolved by the providers mounted on `coordinator`.

    A preference whose pattern fits no model is passed over.
    """
    plan = deepcopy(dict(mount_plan))
    for preference in _read(preferences):
        entry = _entry_of(plan, preference.provider)
        if entry is None:
            continue
        model = await _resolved(preference.model, entry, coordinator)
        if model is not None or preference.model is None:
            _promote(plan, entry, model)
            break
    return plan


def _refuse_misspelt(data: Mapping[str, Any]) -> None:
    from difflib import get_close_matches

    for key in data:
        close = get_close_matches(str(key), _KEYS, n=1)
        if key not in _KEYS and close:
            raise ValueError(f"a provider preference has no key '{key}'; did you mean '{close[0]}'?")


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"'{key}' of a provider preference must be a text that is not empty, not {value!r}")
    return value.strip()


def _read(preferences: Sequence[ProviderPreference | Mapping[str, Any]] | None) -> list[ProviderPreference]:
    return [
        each if isinstance(each, ProviderPreference) else ProviderPreference.from_dict(each)
        for each in preferences or ()
    ]


def _entry_of(plan: Mapping[str, Any], provider: str) -> dict[str, Any] | None:
    """Return the provider's entry: by its instance id, else by its module, of which one without an id comes first."""
    entries = [each for each in plan.get("providers") or () if _is_sound(each)]
    named = [each for each in entries if provider in (each.get("instance_id"), each.get("id"))]
    same = [each for each in entries if _bare(str(each.get("module"))) == _bare(provider)]
    return named[0] if named else min(same, key=lambda each: bool(each.get("instance_id")), default=None)


def _is_sound(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("config") or {}, dict)


def _bare(name: str) -> str:
    return name.removeprefix(_PREFIX)


def _mount_name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("instance_id") or _bare(str(entry["module"])))


def _promote(plan: dict[str, Any], chosen: dict[str, Any], model: str | None) -> None:
    others = [each for each in plan["providers"] if each is not chosen]
    plan["providers"] = [chosen, *others]
    config = chosen["config"] = {**(chosen.get("config") or {}), "priority": 0}
    if model is not None:
        config["default_model"] = model
    for entry in filter(_is_sound, others):
        _step_back(entry.get("config") or {})
    for orchestrator in _orchestrator_configs(plan):
        if "default_provider" in orchestrator:
            orchestrator["default_provider"] = _mount_name(chosen)


def _step_back(config: dict[str, Any]) -> None:
    priority = config.get("priority")
    if isinstance(priority, int | float) and priority < 1:
        config["priority"] = 1


def _orchestrator_configs(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the orchestrator's config, which stands beside the session section where that only names a module."""
    for holder in (plan.get("session"), plan):
        section = holder.get("orchestrator") if isinstance(holder, dict) else None
        config = section.get("config") if isinstance(section, dict) else None
        if isinstance(config, dict):
            yield config


async def _resolved(model: str | None, entry: Mapping[str, Any], coordinator: ModuleCoordinator) -> str | None:
    if model is None or not is_glob_pattern(model):
        return model
    mounted = coordinator.get("providers") or {}
    instance = _mount_name(entry)
    name = instance if instance in mounted else _bare(str(entry["module"]))  # another instance has the same models
    return (await resolve_model_pattern(model, name, coordinator)).resolved_model


async def _models_of(name: str, coordinator: ModuleCoordinator) -> tuple[str, ...]:
    import asyncio

    mounted = coordinator.get("providers") or {}
    provider = mounted.get(name, mounted.get(_bare(name)))
    if provider is None:
        logger.warning("provider '%s' cannot be asked for its models: it is not mounted", name)
        return ()
    try:
        async with asyncio.timeout(LIST_TIME_LIMIT) as limit:
            return _ids(await _listed(provider))
    except Exception as error:
        late = f"it took longer than {LIST_TIME_LIMIT:g} s"
        cause = late if limit.expired() else f"{type(error).__name__}: {error}"
        logger.warning("provider '%s' did not list its models: %s", name, cause)
        return ()


async def _listed(provider: Any) -> Iterable[Any]:
    """Await `list_models`; a plain function runs in a thread, so that a slow one does not hold everything up."""
    import asyncio
    from inspect import iscoroutinefunction

    if iscoroutinefunction(provider.list_models):
        return await provider.list_models()  # type: ignore[no-any-return]
    models = await asyncio.to_thread(provider.list_models)
    return await models if hasattr(models, "__await__") else models  # type: ignore[no-any-return]


def _ids(models: Iterable[Any]) -> tuple[str, ...]:
    found = (each.get("id") if isinstance(each, dict) else getattr(each, "id", each) for each in models)
    return tuple(dict.fromkeys(each for each in found if isinstance(each, str)))


def _recency(model: str) -> tuple[tuple[int, ...], int, int, str]:
    name = model.lower()
    dates = [int(date.replace("-", "")) for date in _DATE.findall(name)]
    if "latest" in name:
        dates.append(_LATEST_DATE)
    version = tuple(map(int, re.findall(r"\d+", _SIZE.sub("", _DATE.sub("", name)))))
    return version, max(dates, default=0), -len(name), name
