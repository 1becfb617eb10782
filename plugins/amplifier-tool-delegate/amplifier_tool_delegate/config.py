"""The module's configuration: every mistake is a `ValueError` that names its key."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

DEFAULT_SELF_DEPTH = 3

_KEYS = (
    "agents", "bundles", "uris", "exclude_tools", "inherit_tools", "exclude_hooks", "inherit_hooks", "timeout",
    "max_self_depth",
)  # fmt: skip
_SECTIONS = ("features", "settings")
_FEATURES = {
    "self_delegation": ("enabled",),
    "session_resume": ("enabled",),
    "context_inheritance": ("enabled", "max_turns"),
    "provider_selection": ("enabled",),
    "provider_preferences": ("enabled",),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Which agents may be asked, and what is said to whoever runs them."""

    agents: tuple[str, ...] | None = None
    """The only ones; None: every agent of the session."""
    bundles: bool = True
    """Whether a bundle may be named in place of an agent."""
    uris: bool = False
    """Whether that bundle may be fetched from elsewhere."""
    tool_inheritance: dict[str, list[str]] | None = None
    hook_inheritance: dict[str, list[str]] | None = None
    timeout: float | None = None
    """Seconds; None: no limit of this tool's."""
    max_self_depth: int = DEFAULT_SELF_DEPTH
    """How often `self` may be delegated to between a first session and the last one below it."""
    resumes: bool = True
    """Whether an agent's session may be gone on with."""
    context: bool = True
    """Whether an agent may be told what was said here."""
    max_turns: int | None = None
    """Turns of it that it may be told at most; None: any number."""
    preferences: bool = True
    """Whether the call may choose provider and model."""


def read_config(config: Mapping[str, Any]) -> Settings:
    """Return the settings; `settings` is read as the keys of this level, which count before it.

    What `features` and `settings` hold that is not known here is left out with a warning.
    """
    _require_known(config)
    given = {**_nested(config), **{key: value for key, value in config.items() if key in _KEYS}}
    features = _features(config)
    agents = _agents(given.get("agents"))
    has_self = _feature(features, "self_delegation")
    return Settings(
        agents=agents,
        bundles=_flag("bundles", given.get("bundles", agents is None)),
        uris=_flag("uris", given.get("uris", False)),
        tool_inheritance=_inheritance(given, "tools"),
        hook_inheritance=_inheritance(given, "hooks"),
        timeout=_seconds(given.get("timeout")),
        max_self_depth=_count("max_self_depth", given.get("max_self_depth", DEFAULT_SELF_DEPTH)) if has_self else 0,
        resumes=_feature(features, "session_resume"),
        context=_feature(features, "context_inheritance"),
        max_turns=_max_turns(features),
        preferences=_feature(features, "provider_selection") and _feature(features, "provider_preferences"),
    )


def _require_known(config: Mapping[str, Any]) -> None:
    known = (*_KEYS, *_SECTIONS)
    for key in config:
        if key not in known:
            close = get_close_matches(str(key), known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(known)}"
            _fail(str(key), f"unknown key; {hint}")


def _nested(config: Mapping[str, Any]) -> dict[str, Any]:
    return _known("settings", _mapping("settings", config.get("settings")), _KEYS)


def _features(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = _known("features", _mapping("features", config.get("features")), tuple(_FEATURES))
    sections = {name: _mapping(f"features.{name}", value) for name, value in found.items()}
    return {name: _known(f"features.{name}", section, _FEATURES[name]) for name, section in sections.items()}


def _known(where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    left_out = [str(key) for key in given if key not in known]
    if left_out:
        logger.warning("tool-delegate: %s: not known here, left out: %s", where, ", ".join(left_out))
    return {key: value for key, value in given.items() if key in known}


def _feature(features: Mapping[str, Mapping[str, Any]], name: str) -> bool:
    return _flag(f"features.{name}.enabled", features.get(name, {}).get("enabled", True))


def _max_turns(features: Mapping[str, Mapping[str, Any]]) -> int | None:
    value = features.get("context_inheritance", {}).get("max_turns")
    return None if value is None else _count("features.context_inheritance.max_turns", value, least=1)


def _agents(value: Any) -> tuple[str, ...] | None:
    """Read the words that an agent's own file may say too."""
    if value is None or value == "all":
        return None
    return () if value == "none" else tuple(_names("agents", value))


def _inheritance(given: Mapping[str, Any], kind: str) -> dict[str, list[str]] | None:
    keys = [key for key in (f"exclude_{kind}", f"inherit_{kind}") if given.get(key) is not None]
    return {key: _names(key, given[key]) for key in keys} or None


def _names(key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        _fail(key, "must be a list of names")
    return list(value)


def _mapping(key: str, value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        _fail(key, "must be a mapping")
    return value or {}


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _fail(key, "must be true or false")
    return value


def _count(key: str, value: Any, *, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        _fail(key, f"must be a whole number from {least} on")
    return value


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        _fail("timeout", "must be a number of seconds above 0; without it there is no limit")
    return value


def _fail(key: str, message: str) -> NoReturn:
    raise ValueError(f"tool-delegate: {key}: {message}")
