"""Sessions of bundles that a program has made: no file has their instruction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.errors import SessionConflict
from amplifier_core.storage import SessionRecord
from amplifier_foundation import open_store
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.spawning.conversation import converse
from amplifier_foundation.spawning.opening import BundleOpener, refuse

pytestmark = pytest.mark.usefixtures("home")

OTHER = """---
bundle: {name: other}
providers: [{module: provider-playbook, config: {otherwise: {say: "OTHER says {prompt}"}}}]
---
I am another.
"""
PROVIDERS = [{"module": "provider-playbook", "config": {"otherwise": {"say": "PROG says {prompt}"}}}]


@pytest.fixture(params=["made", "of data"])
def session(request: pytest.FixtureRequest, project: Path) -> SessionRecord:
    """Return the stored session of a program's bundle."""
    sections: dict[str, Any] = {"providers": PROVIDERS, "instruction": "I am prog."}
    if request.param == "made":
        bundle = Bundle(name="prog", **sections)
    else:
        bundle = Bundle.from_dict({"bundle": {"name": "prog"}, **sections}, project)

    async def run() -> SessionRecord:
        store = open_store(plugins := load_plugins())
        try:
            turn = await converse(bundle, "first", store, plugins, working_dir=project)
            assert turn.output == "PROG says first"
            return await store.get(turn.session_id)
        finally:
            await store.close()

    return asyncio.run(run())


@pytest.mark.parametrize("has_bundle", [False, True])
@pytest.mark.parametrize("command", [("run", "second", "--resume"), ("run", "second", "--fork"), ("session", "resume")])
def test_a_session_of_a_programs_bundle_goes_on_with_another_one_only_when_that_is_named(
    command: tuple[str, ...],
    has_bundle: bool,
    session: SessionRecord,
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = project / ("bundle.md" if has_bundle else "other.md")
    other.write_text(OTHER, encoding="utf-8")
    call = (*command, session.session_id, *(() if command[0] == "run" else ("second",)))
    assert invoke(call) == exits.CONFLICT
    out, err = capsys.readouterr()
    assert out == ""
    assert f"amplifier run --resume {session.session_id} -b BUNDLE" in err
    assert invoke((*call, "-b", str(other))) == exits.OK
    assert capsys.readouterr().out == "OTHER says second\n"


async def test_the_page_and_an_editor_refuse_a_session_of_a_programs_bundle(
    session: SessionRecord, project: Path
) -> None:
    (project / "bundle.md").write_text(OTHER, encoding="utf-8")
    with pytest.raises(SessionConflict, match="no file has"):
        await BundleOpener(load_plugins()).load(str(project), session, refuse)
    chosen = await BundleOpener(load_plugins(), "bundle.md").load(str(project), session, refuse)
    assert chosen.name == "other"
