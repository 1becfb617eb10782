"""Keep every test apart from the person, and from the tests before it in the same process."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests import canary

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVEL = logging.getLogger().level
"""The level of the log before any test."""

os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"  # no test touches the keyring of a person
canary.plant()
gc.disable()  # until all tests are found: among a growing million of objects, it takes 40 % of that time


def pytest_collection_finish() -> None:
    """Leave what was found out of each later garbage collection: it would take half a second, in hundreds of tests."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _no_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep every test away from the data folder of a person; in its place there is nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMPLIFIER_HOME", str(tmp_path_factory.mktemp("nobody") / "home"))
        patch.setenv("AMPLIFIER_TRUST", "1")  # the tests of trust do without
        patch.setattr("amplifier_foundation.security.session_mark.mark_process", lambda: None)  # tests are no session
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_file_holds_the_canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail the run when a file of its tests holds the secret that all of them have in their environment."""
    yield
    found = sorted(map(str, canary.find(tmp_path_factory.getbasetemp(), os.environ[canary.NAME])))
    assert not found, f"files with the secret {canary.NAME}: {found[:20]}"


@pytest.fixture(autouse=True)
def _no_secret_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the secrets of earlier tests in this process: texts and streams of this one may have a part of them."""
    monkeypatch.setattr("amplifier_core.utils.secrets._secrets_of_process", set())


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """Undo what command lines within a test, or within a fixture of several tests, do to the level of the log."""
    yield
    logging.getLogger().setLevel(LEVEL)


@pytest.fixture(autouse=True)
def _no_failure_waits_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the process of a `with Popen` that something fails in: to leave it waits for the end without a limit."""
    leave = subprocess.Popen.__exit__

    def killed(process: subprocess.Popen[bytes], kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            process.kill()
        leave(process, kind, *rest)

    monkeypatch.setattr(subprocess.Popen, "__exit__", killed)
