"""Name the keys of modules, and put kept keys into their configurations.

The key of the module `provider-NAME` is called `NAME_API_KEY`, as its environment variable. A package with another name
for it declares its names beside `mount`, the first one for the kept key: `credential_env_vars = ("MY_KEY",)`; an empty
tuple means that it needs no key.
"""

from __future__ import annotations

import logging
import marshal
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.utils import REFERENCE

from ..documents.local_paths import is_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

logger = logging.getLogger(__name__)

DECLARATION = "credential_env_vars"
PREFIX = "provider-"
_ADDRESS = re.compile(r"(url|host|endpoint|proxy)$")
"""Keys of a configuration with an address: a kept key goes to no address of a bundle by itself."""


def key_names(module_id: str, declared: Any = None) -> tuple[str, ...]:
    """Return the names of a provider's key: the declared ones, else the one of its name; () for other modules."""
    if isinstance(declared, list | tuple):
        return tuple(map(str, declared))
    name = module_id.removeprefix(PREFIX)
    return () if name == module_id else (f"{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}_API_KEY",)


def find_key_names(module_id: str) -> tuple[str, ...]:
    """Return the names of an installed provider's key, read in its source: nothing is imported."""
    declared = _find_declared(module_id)
    return key_names(module_id) if declared is None else declared


def find_missing_key(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the key that a provider's entry needs, and that is nowhere on this machine; else ().

    A provider that does not declare its key may need none, and so may a server at an address of its configuration.
    Code of the bundle is not read: its key is unknown.
    """
    from ..settings.keys import KeysUnreadable, list_kept

    module, config, source = str(entry.get("module")), entry.get("config") or {}, entry.get("source")
    if isinstance(source, str) and is_path(source):
        return ()
    if _is_complete(config, key_names(module)):
        return ()
    names = _find_declared(module) or ()
    if any(os.environ.get(each) or os.environ.get(each.replace("_API_KEY", "_BASE_URL")) for each in names):
        return ()
    with suppress(KeysUnreadable):  # mounting reports it
        return () if list_kept().keys() & set(names) else names
    return ()


def _find_declared(module_id: str) -> tuple[str, ...] | None:
    """Return the declared names of a key; None without a declaration."""
    import ast

    for node in ast.parse(module_source(module_id)).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(getattr(target, "id", "") == DECLARATION for target in targets):
            try:
                return key_names(module_id, ast.literal_eval(node.value))  # type: ignore[attr-defined]  # it assigns
            except ValueError:
                break
    return None


def module_source(module_id: str) -> str:
    """Return the text of a module's package, of a folder of `AMPLIFIER_MODULES` or installed; "" without one."""
    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.loader import GROUP, find_package, modules_in_folders

    folder = modules_in_folders().get(module_id)
    try:
        if folder is not None:
            return (find_package(module_id, folder) / "__init__.py").read_text(encoding="utf-8")
        return next((package_source(entry.module) for entry in find_entry_points(GROUP, module_id)), "")
    except Exception:  # a broken package: mounting reports the cause
        return ""


def package_source(package: str) -> str:
    """Return the text of a package's `__init__`; "" for a package within another, which would be imported."""
    from importlib.util import find_spec

    if "." in package:
        return ""
    spec = find_spec(package)
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""


def locate_first_key(module_id: str) -> tuple[str, str] | None:
    """Return the name and the place of a provider's key, or None without one; a damaged file of keys has none."""
    from ..settings.keys import KeysUnreadable, locate_key

    for name in find_key_names(module_id):
        try:
            place = locate_key(name)
        except KeysUnreadable as error:
            logger.warning("%s", error)
            return None
        if place is not None:
            return name, place
    return None


def describe_key(module_id: str) -> str:
    """Return ` Its key is there: …` for a provider with a key, else ``."""
    found = locate_first_key(module_id)
    return f" Its key is there: {found[0]} ({found[1]})." if found else ""


async def complete_provider(module_id: str, declared: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Return a provider's configuration with its kept key.

    The configuration itself comes first, then the environment, read by the provider, then the kept key. An unreadable
    one is a warning: the provider reports the missing key.
    """
    names = key_names(module_id, declared)
    if not names:
        return config
    if _is_complete(config, names):
        return config
    from ..settings.keys import KeyNotFound, KeysUnreadable, find_key, list_kept

    try:
        kept = list_kept()
        name = next((name for name in names if name in kept), None)
        return config if name is None else {**config, "api_key": await _run_beside(find_key, name)}
    except (KeyNotFound, KeysUnreadable) as error:
        logger.warning("%s: %s", module_id, error)
        return config


def _is_complete(config: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Return whether a configuration needs no kept key: it has one or an address, or the environment has one."""
    has_address = any(value and _ADDRESS.search(str(key)) for key, value in config.items())
    return bool(config.get("api_key")) or has_address or any(map(os.environ.get, names))


def has_references(config: Any) -> bool:
    """Return whether a configuration may have a `secret://NAME`."""
    try:
        return b"secret://" in marshal.dumps(config, 2)
    except ValueError:  # a value of another kind than JSON has
        return True


async def expand_references(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with the key in place of each `secret://NAME`.

    Raises `KeyNotFound` and `KeysUnreadable`.
    """
    names = set(_find_references(config))
    if not names:
        return config
    from ..settings.keys import find_key

    keys = {name: await _run_beside(find_key, name) for name in sorted(names)}
    expanded: dict[str, Any] = _replace_references(config, keys)
    return expanded


def expand_references_now(config: dict[str, Any]) -> dict[str, Any]:
    """Do as `expand_references` does in the calling thread, which may have to wait for a keyring."""
    names = set(_find_references(config))
    if not names:
        return config
    from ..settings.keys import find_key

    expanded: dict[str, Any] = _replace_references(config, {name: find_key(name) for name in sorted(names)})
    return expanded


async def _run_beside(function: Any, name: str) -> str:
    """Call a function in a thread: a keyring may wait for a person."""
    import asyncio

    key: str = await asyncio.to_thread(function, name)
    return key


def _find_references(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        found = REFERENCE.fullmatch(value)
        if found:
            yield found[1]
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _find_references(each)


def _replace_references(value: Any, keys: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _replace_references(each, keys) for key, each in value.items()}
    if isinstance(value, list):
        return [_replace_references(each, keys) for each in value]
    found = REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return keys[found[1]] if found else value
