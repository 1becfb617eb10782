"""The tree of errors as it is drawn, and what each error says."""

from __future__ import annotations

import builtins
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import errors
from amplifier_core.errors import AmplifierError, NameTaken, PluginLoadFailed, SessionError, UnknownName

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


MADE: list[tuple[AmplifierError, dict[str, Any], str]] = [
    (
        PluginLoadFailed("trigger-x", "amplifier-trigger-x", "1.2", "SyntaxError: bad"),
        {"plugin": "trigger-x", "dist": "amplifier-trigger-x", "version": "1.2", "cause": "SyntaxError: bad"},
        "plugin 'trigger-x' of amplifier-trigger-x 1.2 was not loaded: SyntaxError: bad. "
        "Update or remove amplifier-trigger-x, or start with AMPLIFIER_BLOCK_PLUGINS=trigger-x",
    ),
    (
        NameTaken("trigger", "trigger-x", ("one 1.0", "two 2.0")),
        {"kind": "trigger", "name": "trigger-x", "owners": ("one 1.0", "two 2.0")},
        "trigger 'trigger-x' is registered by both one 1.0 and two 2.0. "
        "Uninstall one of them, or block its plugin with AMPLIFIER_BLOCK_PLUGINS",
    ),
    (
        NameTaken("module", "tool-x", ("one 1.0", "two 2.0")),
        {"kind": "module"},
        "module 'tool-x' is registered by both one 1.0 and two 2.0. Uninstall one of them",
    ),
    (
        UnknownName("trigger", "trigger-tmer", ["trigger-timer", "trigger-file-watcher"]),
        {"kind": "trigger", "name": "trigger-tmer", "known": ("trigger-file-watcher", "trigger-timer")},
        "unknown trigger 'trigger-tmer'; did you mean 'trigger-timer'? "
        "Installed: trigger-file-watcher, trigger-timer. Install it with: pip install amplifier-trigger-tmer",
    ),
    (
        UnknownName("storage", "storage-sqlite", []),
        {"known": ()},
        "unknown storage 'storage-sqlite'. Installed: none. Install it with: pip install amplifier-storage-sqlite",
    ),
    (
        errors.SessionNotFound("s"),
        {"session_id": "s"},
        "no session 's'. See: amplifier session list --all",
    ),
    (
        errors.SessionExists("s"),
        {"session_id": "s"},
        "session 's' exists already. Resume it with --resume, or choose another id",
    ),
    (errors.SessionConflict("s", "it was written meanwhile"), {"session_id": "s"}, "it was written meanwhile"),
    (
        errors.ForkRefused("s", "too deep"),
        {"session_id": "s", "reason": "too deep"},
        "fork of session 's' refused: too deep",
    ),
    (
        errors.SpawnRefused("s", "quiet hours"),
        {"session_id": "s", "reason": "quiet hours"},
        "spawn from session 's' refused: quiet hours",
    ),
    (
        errors.SpawnTimeout("s", 2.5),
        {"session_id": "s", "seconds": 2.5},
        "session 's' was stopped after 2.5 s. Go on with: amplifier run --resume s",
    ),
    (
        errors.StoreUnavailable(Path("state.db"), "the disk is full"),
        {"path": "state.db", "errno": None},
        "state.db: the disk is full",
    ),
    (errors.StoreDamaged("state.db", "no database"), {"path": "state.db"}, "state.db: no database"),
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


def test_an_owner_without_a_version_leaves_no_gap() -> None:
    assert "of this program was not loaded" in str(PluginLoadFailed("x", "this program", "", "broken"))


def test_an_error_of_a_session_says_which() -> None:
    assert SessionError("s", "text").session_id == "s"
    assert errors.InvalidSessionId(7).session_id == "7"
