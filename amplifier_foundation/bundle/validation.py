"""Check a bundle's document, or an agent's, against its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..documents.dicts import at_path
from ..documents.positions import Positions
from ..documents.problems import InvalidBundle
from ..documents.validation import unknown_keys, validation_problems
from .schema import AgentFile, BackgroundSessions, BundleFile
from .sections import FIELD_SPELLING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from ..documents.document import Document
    from ..documents.positions import KeyPath
    from ..documents.problems import Problem
    from .background_config import BackgroundSessionConfig


def check_schema(document: Document) -> tuple[list[BackgroundSessionConfig], list[Problem]]:
    """Return the background sessions of a document, and its problems with the schema."""
    data, positions = document.data or {}, document.positions
    whole, problems = _validate(data, BundleFile, positions)
    configs: list[BackgroundSessionConfig] = list(getattr(whole, "background_sessions", None) or ())
    elsewhere = at_path(data, FIELD_SPELLING)
    if elsewhere is not None:
        also, found = _validate({"background_sessions": elsewhere}, BackgroundSessions, positions, FIELD_SPELLING[:-1])
        configs += getattr(also, "background_sessions", None) or ()
        problems += found
    return configs, [*unknown_keys(data, positions, BundleFile), *problems]


def check_pools(config: dict[str, Any], positions: Positions) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Return the background sessions for the pools in an orchestrator's config, and the problems of the pools."""
    from .worker_pools import ForemanPools

    pools, problems = _validate(config, ForemanPools, positions, FIELD_SPELLING[:-1])
    return (pools.entries() if isinstance(pools, ForemanPools) else []), problems


def check_agent(document: Document) -> list[Problem]:
    """Return the problems of an agent's file with its schema."""
    data, positions = document.data or {}, document.positions
    return [*unknown_keys(data, positions, AgentFile), *_validate(data, AgentFile, positions)[1]]


def read_background_sessions(declared: Sequence[Any]) -> list[BackgroundSessionConfig]:
    """Return the background sessions declared by a program, as configs or mappings. Raises `InvalidBundle`."""
    data = [each if isinstance(each, dict) else each.model_dump(exclude_unset=True, by_alias=True) for each in declared]
    whole, problems = _validate({"background_sessions": data}, BackgroundSessions, Positions("bundle"))
    if problems:
        raise InvalidBundle(problems)
    configs: list[BackgroundSessionConfig] = list(getattr(whole, "background_sessions", None) or ())
    return configs


def _validate(
    data: dict[str, Any], model: type[BaseModel], positions: Positions, prefix: KeyPath = ()
) -> tuple[BaseModel | None, list[Problem]]:
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, validation_problems(error, model, positions, prefix)
