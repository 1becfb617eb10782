"""Choose the provider of a first bundle by looking around: at the keys, at a local Ollama, else the playbook."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import AmplifierError

from .credentials import PREFIX, describe_key, locate_first_key
from .packages import OURS, requirement_of, suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

PLAYBOOK = f"{PREFIX}playbook"
FIRST = (f"{PREFIX}anthropic", f"{PREFIX}openai")
"""The providers taken first when there are keys for several; the others follow by name."""
OLLAMA = f"{PREFIX}ollama"
OPENAI = f"{PREFIX}openai"
"""The provider for Ollama's other API, that of OpenAI."""
OLLAMA_PORT = 11434
LONGEST_WAIT = 1.0
"""Seconds for the answer of Ollama."""


class Choice(NamedTuple):
    """A provider with its configuration, the reason for it, and remarks about others."""

    module: str
    config: dict[str, Any]
    reason: str
    remarks: tuple[str, ...] = ()


class ProviderMissing(AmplifierError, LookupError):
    """The wanted provider is not installed, or does not run."""


def choose_provider(provider: str | None = None, model: str | None = None) -> Choice:
    """Return the provider for a first bundle: the wanted one, or one with a key, a local Ollama, or the playbook.

    It may ask Ollama at 127.0.0.1, or at `OLLAMA_HOST`. Raises `ProviderMissing` for a wanted one that is not there.
    """
    chosen = _take(provider, model) if provider else _look_around()
    if model and chosen.module == PLAYBOOK:
        chosen = chosen._replace(remarks=(*chosen.remarks, f"{PLAYBOOK} asks no model: '{model}' is not used"))
    return chosen._replace(config={**chosen.config, "default_model": model}) if model else chosen


def installed_providers() -> list[str]:
    """Return the installed providers, those of `FIRST` first, then by name."""
    from .check import names_of_modules

    found = {name for name in names_of_modules() if name.startswith(PREFIX)}
    return sorted(found, key=lambda name: (name not in FIRST, name))


def describe_missing_provider(module: str, installed: list[str]) -> str:
    """Return the message about a provider that is not installed: its key if there is one, and the remedy."""
    requirement = requirement_of(module)
    hint = "" if requirement else suggest("providers", module, installed)
    remedy = f" Install it with: pip install {requirement}" if requirement else ""
    there = f" Installed: {', '.join(installed) or 'none'}."
    return f"provider '{module}' is not installed{hint or '.'}{there}{describe_key(module)}{remedy}"


def _take(provider: str, model: str | None) -> Choice:
    from .check import names_of_modules

    installed = names_of_modules()
    module = PREFIX + provider.removeprefix(PREFIX)
    if module == OLLAMA and not installed.isdisjoint((OLLAMA, OPENAI)):
        models = _list_ollama_models()
        if models or (models is not None and model):
            return _choose_ollama(models, installed)
        if models is not None:
            problem = f"Ollama answers at {_ollama_address()}, and has no model. Get one with: ollama pull MODEL"
            raise ProviderMissing(problem)
        if module not in installed:
            raise ProviderMissing(f"no Ollama answers at {_ollama_address()}. Start it with: ollama serve")
    if module in installed:
        return Choice(module, {}, "you named it")
    raise ProviderMissing(describe_missing_provider(module, installed_providers()))


def _look_around() -> Choice:
    installed = installed_providers()
    found = list(_find_keys(installed))
    if found:
        others = [f"{why}, too: amplifier init --provider {name.removeprefix(PREFIX)}" for name, why in found[1:]]
        return Choice(found[0][0], {}, found[0][1], tuple(others))
    missing = _find_keys([each for each in sorted(OURS) if each.startswith(PREFIX) and each not in installed])
    remarks = [f"{reason}; its provider is missing: pip install {requirement_of(module)}" for module, reason in missing]
    models = _list_ollama_models()
    has_provider = OLLAMA in installed or OPENAI in installed
    if models and has_provider:
        chosen = _choose_ollama(models, installed)
        return chosen._replace(remarks=(*remarks, *chosen.remarks))
    if models is not None:
        lacks = "ollama pull MODEL" if has_provider else f"pip install {requirement_of(OLLAMA)}"
        remarks.append(f"Ollama answers at {_ollama_address()}; to use it: {lacks}")
    reason = "no installed provider has a key, and no Ollama answers; it repeats your words"
    return Choice(PLAYBOOK, {"otherwise": {"say": "You said: {prompt}"}}, reason, tuple(remarks))


def _find_keys(modules: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each module with a key, and the place of the key in words."""
    for module in modules:
        found = locate_first_key(module)
        if found is not None:
            name, place = found
            yield module, f"{name} is in {'the ' if place != 'keys.json' else ''}{place}"


def _choose_ollama(models: list[str], installed: Collection[str]) -> Choice:
    """Return the provider for the Ollama that answers, with its latest model; its own, if that is installed."""
    address = _ollama_address()
    reason, config = f"Ollama answers at {address}", {"default_model": models[0]} if models else {}
    if OLLAMA in installed:  # which finds the address where it was found here
        return Choice(OLLAMA, config, reason)
    better = f"Ollama's own provider is missing: pip install {requirement_of(OLLAMA)}"
    return Choice(OPENAI, {"base_url": f"{address}/v1", **config}, reason, (better,))


def _list_ollama_models() -> list[str] | None:
    """Return the models of the Ollama that answers, the latest one first; None without Ollama."""
    from http.client import HTTPException
    from urllib.request import ProxyHandler, build_opener

    address = _ollama_address()
    try:
        with build_opener(ProxyHandler({})).open(f"{address}/api/tags", timeout=LONGEST_WAIT) as answer:
            listed = json.loads(answer.read(1_000_000))["models"]
            return [str(each["name"]) for each in listed if "embed" not in str(each["name"])]
    except (OSError, ValueError, LookupError, TypeError, HTTPException):
        return None


def _ollama_address() -> str:
    """Return the address in `OLLAMA_HOST`, as Ollama itself reads it, without a slash at its end."""
    from urllib.parse import urlsplit

    given = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/") or "127.0.0.1"
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        host, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        parts, host, port = urlsplit("http://127.0.0.1"), "127.0.0.1", None
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # the address of a server that listens everywhere
    default = OLLAMA_PORT if "://" not in given else {"http": 80, "https": 443}.get(parts.scheme, OLLAMA_PORT)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port or default}{parts.path}"
