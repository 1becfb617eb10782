"""Find out which key a provider lacks, and notice a broken one before a request fails for it."""

from __future__ import annotations

import os
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VARIABLE = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN|SECRET)"
_BROKEN = "has a line break or another control character in it; set it again without"


class KeyUnusable(ValueError):
    """No request can carry the key of a provider."""

    lacks_key = True


def describe_missing(module_id: str, mount: Any) -> str:
    """Return why a provider's module mounted no provider, with the environment variables that its `mount` reads."""
    names = sorted(set(_find_variables(getattr(mount, "__code__", None))))
    unset = [name for name in names if not os.environ.get(name)]
    if not unset:
        return f"{module_id}: it mounted no provider and does not say why; is its key missing?"
    return f"{module_id}: {' and '.join(unset)} {'is' if len(unset) == 1 else 'are'} not set"


def find_broken_key(provider: Any, config: Mapping[str, Any], mount: Any) -> str | None:
    """Return what is wrong with the key of a mounted provider: no request can carry a control character.

    The variables of keys are those declared beside `mount`, else those of `provider.get_info()`.
    """
    key = config.get("api_key")
    if isinstance(key, str) and key:
        return None if key.isprintable() else f"'api_key' {_BROKEN}"
    names = getattr(sys.modules.get(mount.__module__), "credential_env_vars", None)
    if not isinstance(names, list | tuple):
        try:
            names = list(provider.get_info().credential_env_vars)
        except Exception:  # it is the code of others; a check of the provider reports it
            return None
    if not names:
        return None
    broken = next((name for name in names if not os.environ.get(str(name), "").isprintable()), None)
    return f"{broken} {_BROKEN}" if broken is not None else None


def _find_variables(code: CodeType | None) -> Iterator[str]:
    import re

    for constant in code.co_consts if code is not None else ():
        if isinstance(constant, CodeType):
            yield from _find_variables(constant)
        elif isinstance(constant, str) and re.fullmatch(_VARIABLE, constant):
            yield constant
