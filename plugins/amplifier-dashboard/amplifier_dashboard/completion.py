"""Collect what the editor proposes: the keys of a bundle with their help, and the configuration of modules."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.plugins import Plugins

KINDS = ("TriggerConfig", "ModuleEntry", "ProviderEntry", "ToolEntry")
"""The parts of the schema with rules for the `config:` of a module."""


@lru_cache(maxsize=1)
def collect_keys(plugins: Plugins) -> dict[str, Any]:
    """Return `keys` by their paths, the `configs` of modules by name, and the names of `modules` and `triggers`.

    Each key has `description`, `type`, `default` and `allowed`. Blocks: modules with a schema are imported, once.
    """
    from amplifier_foundation.bundle.check import names_of_modules
    from amplifier_foundation.bundle.key_help import explain_keys
    from amplifier_foundation.cli.bundles.schema import schema_here

    keys = {
        path: {"description": each.description, "type": each.type, "default": each.default, "allowed": each.allowed}
        for path, each in explain_keys().items()
    }
    return {
        "keys": keys,
        "configs": find_configs(schema_here(plugins)["$defs"]),
        "modules": sorted(names_of_modules()),
        "triggers": sorted(plugins.triggers),
    }


def find_configs(definitions: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the keys of the `config:` of each module in the parts of a schema."""
    configs: dict[str, dict[str, Any]] = {}
    for rule in (rule for kind in KINDS for rule in definitions[kind].get("allOf", ())):
        condition = rule["if"].get("anyOf", [rule["if"]])[0]
        module = condition.get("properties", {}).get("module", {}).get("const")
        config = rule["then"]["properties"]["config"]["anyOf"][0]
        if module:
            configs[module] = {
                name: {
                    "description": each.get("description", ""),
                    "type": each.get("type", ""),
                    "default": each.get("default"),
                    "allowed": each.get("enum", ()),
                }
                for name, each in config.get("properties", {}).items()
            }
    return configs
