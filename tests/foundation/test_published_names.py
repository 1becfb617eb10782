"""The names that programs import, from the places where they look for them."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import amplifier_foundation

PLACES = {
    "bundle": "Bundle PreparedBundle",
    "spawn": "SessionStorage SpawnResult spawn_bundle",
    "events": "EventRouter SessionEmitter SessionEvent",
    "triggers": "TriggerEvent TriggerSource TriggerType",
    "background": "BackgroundSessionConfig BackgroundSessionManager BackgroundSessionState",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_name_is_the_same_in_its_module_and_in_the_package(place: str) -> None:
    module = import_module(f"amplifier_foundation.{place}")
    for name in PLACES[place].split():
        assert getattr(module, name) is getattr(amplifier_foundation, name), name
        assert name in amplifier_foundation.__all__


def test_every_public_name_of_the_package_can_be_imported() -> None:
    for name in amplifier_foundation.__all__:
        assert getattr(amplifier_foundation, name) is not None


def test_the_names_of_workflows_are_imported_at_their_first_use() -> None:
    code = "import sys, amplifier_foundation.flows as flows; a = {*sys.modules}; flows.Task; b = {*sys.modules} - a\n"
    code += "print([name for name in a if name.startswith('amplifier_foundation.flows.')], 'pydantic' in a | b)\n"
    code += "print([name for name in flows.__all__ if getattr(flows, name) is None])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n[]\n"
