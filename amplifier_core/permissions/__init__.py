"""Decide which tool calls a session may make: rules, modes, layers, and the gate ahead of every `tool:pre` handler.

    policy = Policy([parse_permissions({"mode": "ask", "allow": ["read_file(src/**)"]}, "user settings")])
    policy.decide(Call.of("write_file", {"path": ".git/config"}, Path.cwd())).effect  # "deny"

Every layer decides for itself, and the strictest decision counts: a layer can only tighten the others. A name is
imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .calls import Access, Call
    from .gate import Grants, PermissionGate
    from .hosts import is_internal_address, is_internal_host
    from .own_python import find_own_python
    from .policy import Decision, Layer, Mode, PermissionsError, Policy, parse_permissions
    from .protected import is_secret, what_obeys
    from .repositories import find_named_by_git, read_regular
    from .rules import Effect, PermissionRuleError, Rule, narrowest_rule, parse_rule

_HOMES = {
    ".calls": "Access Call",
    ".gate": "Grants PermissionGate",
    ".hosts": "is_internal_address is_internal_host",
    ".own_python": "find_own_python",
    ".policy": "Decision Layer Mode PermissionsError Policy parse_permissions",
    ".protected": "is_secret what_obeys",
    ".repositories": "find_named_by_git read_regular",
    ".rules": "Effect PermissionRuleError Rule narrowest_rule parse_rule",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Access",
    "Call",
    "Decision",
    "Effect",
    "Grants",
    "Layer",
    "Mode",
    "PermissionGate",
    "PermissionRuleError",
    "PermissionsError",
    "Policy",
    "Rule",
    "find_named_by_git",
    "find_own_python",
    "is_internal_address",
    "is_internal_host",
    "is_secret",
    "narrowest_rule",
    "parse_permissions",
    "parse_rule",
    "read_regular",
    "what_obeys",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value
