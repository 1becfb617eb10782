"""The program's names of events are its own; names beside them are free for bundles."""

from __future__ import annotations

import pytest

from amplifier_core.events import ALL_EVENTS
from amplifier_core.own_events import is_own_event
from amplifier_foundation.background import log_events
from amplifier_foundation.events.names import OVERFLOW
from amplifier_foundation.flows.run_events import ANNOUNCED
from amplifier_foundation.transports import LOST, SET_ASIDE
from amplifier_tool_issue import issues


def test_every_name_that_the_program_logs_is_its_own() -> None:
    logged = [value for name, value in vars(log_events).items() if name.isupper()]
    logged += [LOST, SET_ASIDE, OVERFLOW, *(f"flow:task:{status}" for status in ANNOUNCED)]
    logged += [f"flow:run:{status}" for status in ("cancelled", "completed", "failed")]
    logged += [issues.CREATED, issues.UPDATED, issues.UNBLOCKED, issues.CLOSED]
    assert [name for name in (*ALL_EVENTS, *logged) if not is_own_event(name)] == []


@pytest.mark.parametrize("name", ["flow:run:started", "flow:task:begun", "transport:found", "router:slow"])
def test_names_beside_those_of_runs_transports_and_the_router_are_kept_for_them(name: str) -> None:
    assert is_own_event(name)


@pytest.mark.parametrize("name", ["operator:paged", "issue:triaged", "flow:started", "flow:tasks:begun", "work:done"])
def test_other_names_are_free(name: str) -> None:
    assert not is_own_event(name)
