"""The record of a session holds its config without secrets, however many sessions have the same one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath

import pytest

from amplifier_foundation.sessions.records import new_record
from tests.foundation.conftest import MakeBundle

HIDDEN = "[REDACTED]"


def test_a_config_is_redacted_by_the_secrets_known_at_that_moment(
    make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = make_bundle()
    plan = {"providers": [{"module": "provider-x", "config": {"api_key": "short", "note": "say word-of-house"}}]}

    def note() -> object:
        return new_record(prepared, "s", config=plan).config["providers"][0]["config"]

    assert note() == {"api_key": HIDDEN, "note": "say word-of-house"}
    monkeypatch.setenv("HOUSE_PASSWORD", "word-of-house")
    assert note() == {"api_key": HIDDEN, "note": f"say {HIDDEN}"}
    monkeypatch.delenv("HOUSE_PASSWORD")
    assert note() == {"api_key": HIDDEN, "note": "say word-of-house"}


def test_records_share_no_config_and_leave_the_given_one_alone(make_bundle: MakeBundle) -> None:
    plan = {"tools": [{"module": "tool-x", "config": {"token": "a"}}]}
    first, second = (new_record(make_bundle(), name, config=plan).config for name in ("first", "second"))
    first["tools"].append("mine")
    assert second == {"tools": [{"module": "tool-x", "config": {"token": HIDDEN}}]}
    assert plan == {"tools": [{"module": "tool-x", "config": {"token": "a"}}]}


def test_a_value_that_json_has_not_is_kept(make_bundle: MakeBundle) -> None:
    plan = {"when": datetime(2026, 1, 1, tzinfo=UTC), "folder": PurePosixPath("/p"), "password": "x"}
    assert new_record(make_bundle(), "s", config=plan).config == {**plan, "password": HIDDEN}
