"""The tree of errors as it is drawn, and what each error says."""

from __future__ import annotations

import ast
import builtins
import inspect
import pickle
import re
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import errors
from amplifier_core.errors import AmplifierError, NameTaken, PluginLoadFailed, PluginRefused, SessionError, UnknownName

Drawn = dict[str, tuple[str | None, str | None]]
"""Each error's name, the one it hangs below, and the built-in that it also is."""


def drawn() -> Drawn:
    found: Drawn = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"    ([│├└─ ]*)([A-Z]\w+)(?: \((\w+)\))?", line)
        if match:
            depth = len(match[1]) // 4
            above[depth:] = [match[2]]
            found[match[2]] = (above[depth - 1] if depth else None, match[3])
    return found


def real() -> Drawn:
    found: Drawn = {}
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if error.__module__ == errors.__name__:
            ours = [base.__name__ for base in error.__bases__ if issubclass(base, AmplifierError)]
            theirs = [base.__name__ for base in error.__bases__ if hasattr(builtins, base.__name__)]
            found[name] = (ours[0], theirs[0] if theirs else None) if ours else (None, None)
    return found


def test_the_tree_is_what_is_drawn() -> None:
    assert drawn() == real()
    assert len(drawn()) > 20


@pytest.mark.parametrize(("name", "facts"), drawn().items())
def test_each_error_also_is_the_built_in_that_a_caller_would_catch(
    name: str, facts: tuple[str | None, str | None]
) -> None:
    error, (parent, builtin) = getattr(errors, name), facts
    assert issubclass(error, AmplifierError)
    assert parent is None or issubclass(error, getattr(errors, parent))
    assert builtin is None or issubclass(error, getattr(builtins, builtin))


SEVEN = datetime(2026, 1, 31, 7, tzinfo=UTC)

MADE: list[tuple[AmplifierError, dict[str, Any], str]] = [
    (
        PluginRefused("trigger-x", "amplifier-trigger-x 1.2", "you have disabled it"),
        {"name": "trigger-x", "dist": "amplifier-trigger-x 1.2", "cause": "you have disabled it", "is_fault": False},
        "'trigger-x' of amplifier-trigger-x 1.2 is not loaded: you have disabled it",
    ),
    (
        PluginLoadFailed("trigger-x", "amplifier-trigger-x", "1.2", "SyntaxError: bad"),
        {"plugin": "trigger-x", "dist": "amplifier-trigger-x", "version": "1.2", "cause": "SyntaxError: bad"},
        "plugin 'trigger-x' of amplifier-trigger-x 1.2 was not loaded: SyntaxError: bad. "
        "Update or remove amplifier-trigger-x, or start with AMPLIFIER_BLOCK_PLUGINS=trigger-x",
    ),
    (
        NameTaken("trigger", "trigger-x", ("one 1.0", "two 2.0")),
        {"kind": "trigger", "name": "trigger-x", "owners": ("one 1.0", "two 2.0")},
        "trigger 'trigger-x' is registered by both one 1.0 and two 2.0; neither is used. "
        "Uninstall one of them, or block its plugin with AMPLIFIER_BLOCK_PLUGINS",
    ),
    (
        NameTaken("module", "tool-x", ("one 1.0", "two 2.0")),
        {"kind": "module"},
        "module 'tool-x' is registered by both one 1.0 and two 2.0; neither is used. Uninstall one of them",
    ),
    (
        NameTaken("plugin", "same", ("one 1.0", "two 2.0")),
        {"kind": "plugin"},
        "plugin 'same' is registered by both one 1.0 and two 2.0; the first is used. Uninstall one of them",
    ),
    (
        NameTaken("trigger", "trigger-x", ("one 1.0", "one 1.0")),
        {"owners": ("one 1.0", "one 1.0")},
        "trigger 'trigger-x' is registered twice by one 1.0, and is not used. "
        "Update or remove it, or block its plugin with AMPLIFIER_BLOCK_PLUGINS",
    ),
    (
        UnknownName("trigger", "trigger-tmer", ["trigger-timer", "trigger-file-watcher"]),
        {"kind": "trigger", "name": "trigger-tmer", "known": ("trigger-file-watcher", "trigger-timer")},
        "unknown trigger 'trigger-tmer'; did you mean 'trigger-timer'? Installed: trigger-file-watcher, trigger-timer",
    ),
    (
        UnknownName("storage", "storage-sqlite", []),
        {"known": ()},
        "unknown storage 'storage-sqlite'. Installed: none",
    ),
    (
        errors.SessionNotFound("s"),
        {"session_id": "s"},
        "no session 's'",
    ),
    (
        errors.SessionExists("s"),
        {"session_id": "s"},
        "session 's' exists already; choose another id",
    ),
    (errors.SessionConflict("s", "it was written meanwhile"), {"session_id": "s"}, "it was written meanwhile"),
    (
        errors.ForkRefused("s", "too deep"),
        {"session_id": "s", "reason": "too deep"},
        "fork of session 's' refused: too deep",
    ),
    (
        errors.SpawnRefused("s", "quiet hours"),
        {"session_id": "s", "reason": "quiet hours", "not_before": None, "final": False},
        "spawn from session 's' refused: quiet hours",
    ),
    (
        errors.SpawnRefused("s", "quiet hours", not_before=SEVEN),
        {"not_before": SEVEN, "final": False},
        "spawn from session 's' refused until 2026-01-31T07:00:00+00:00: quiet hours",
    ),
    (
        errors.SpawnRefused("s", "not allowed here", final=True),
        {"not_before": None, "final": True},
        "spawn from session 's' refused for good: not allowed here",
    ),
    (
        errors.SpawnTimeout("s", 2.5),
        {"session_id": "s", "seconds": 2.5, "partial": ""},
        "session 's' was stopped after 2.5 s",
    ),
    (
        errors.BudgetExceeded("s", Decimal("0.5"), Decimal("0.62")),
        {"session_id": "s", "limit": Decimal("0.5"), "spent": Decimal("0.62")},
        "session 's' and those below it cost $0.62 of $0.5, and no request begins beyond that. "
        "Allow more in the bundle: 'spawn: {max_cost_usd: …}'",
    ),
    (
        errors.StoreUnavailable(Path("state.db"), "the disk is full"),
        {"path": "state.db", "errno": None},
        "state.db: the disk is full",
    ),
    (errors.StoreDamaged("state.db", "no database"), {"path": "state.db"}, "state.db: no database"),
    (
        errors.DeliveryNotFound("d-1"),
        {"delivery_id": "d-1"},
        "no delivery 'd-1'",
    ),
    (
        errors.StaleEpoch("d-1", 3),
        {"delivery_id": "d-1", "epoch": 3},
        "delivery d-1 was taken over by another worker (epoch 3 is over)",
    ),
    (errors.TriggerError("trigger-x", "it broke"), {"trigger": "trigger-x"}, "trigger-x: it broke"),
    (
        errors.TriggerConfigError("trigger-x", "every", "must be more than 0"),
        {"trigger": "trigger-x", "key": "every"},
        "trigger-x: every: must be more than 0",
    ),
    (errors.TriggerConfigError("trigger-x", "", "say when"), {"key": ""}, "trigger-x: say when"),
]


@pytest.mark.parametrize(("error", "facts", "text"), MADE, ids=lambda value: type(value).__name__)
def test_an_error_carries_its_facts_and_builds_its_own_line(
    error: AmplifierError, facts: dict[str, Any], text: str
) -> None:
    assert {name: getattr(error, name) for name in facts} == facts
    assert str(error) == text


@pytest.mark.parametrize("error", [error for error, _, _ in MADE], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("copied", [deepcopy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_an_error_reaches_another_process_with_its_text_and_its_facts(
    error: AmplifierError, copied: Callable[[AmplifierError], AmplifierError]
) -> None:
    there = copied(error)
    assert (type(there), str(there), vars(there)) == (type(error), str(error), vars(error))


def test_no_text_of_the_kernel_names_a_command_of_the_command_line() -> None:
    command = r"\bamplifier (run|up|session|trigger|plugin|bundle|store|why|ps|logs|stop)\b"
    named = [
        f"{path.name}:{node.lineno} {node.value}"
        for path in Path(errors.__file__).parent.rglob("*.py")
        if path.name != "pytest_plugin.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        # secrets are looked for after the options of all programs
        if re.search(command if path.parent.name == "utils" else rf"{command}|--[a-z]+", node.value)
    ]
    assert named == []


def test_a_refusal_until_a_time_without_a_zone_is_an_error() -> None:
    with pytest.raises(ValueError, match="not_before must have a time zone: 2026-01-31 07:00:00"):
        errors.SpawnRefused("s", "quiet hours", not_before=SEVEN.replace(tzinfo=None))


@pytest.mark.parametrize("name", drawn())
def test_a_base_class_ends_in_error_and_another_may_name_a_state(name: str) -> None:
    has_others_below = any(above == name for above, _ in drawn().values())
    assert name.endswith("Error") or not has_others_below


def test_an_owner_without_a_version_leaves_no_gap() -> None:
    assert "of this program was not loaded" in str(PluginLoadFailed("x", "this program", "", "broken"))


def test_an_error_of_a_session_says_which() -> None:
    assert SessionError("s", "text").session_id == "s"
    assert errors.InvalidSessionId(7).session_id == "7"
