"""People watch the runs of workflows, answer their questions, and go on with them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.background.up import Control, run_background
from amplifier_foundation.flows.reading import find_workflow
from amplifier_foundation.flows.runs import RunResult, run_workflow
from amplifier_foundation.security.loading import load_to_run
from amplifier_foundation.settings import read_settings

from .conftest import LIVE, Served, home_of

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {name: work}
providers:
  - module: provider-playbook
    config: {otherwise: {say: "You said: {prompt}"}}
workflows:
  release:
    steps:
      - {id: build, agent: self, prompt: build it}
      - {id: publish, agent: self, prompt: publish it, fork: build, needs_approval: "Publish it?"}
---
You work.
"""


@pytest.fixture
def run(served: Served, tmp_path: Path) -> RunResult:
    """A run that waits for a person after its first task."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    plugins = load_plugins()
    bundle = load_to_run(str(folder / "bundle.md"), plugins, read_settings(folder), folder)
    work = run_workflow(find_workflow(bundle), bundle, served.store, plugins, working_dir=folder)
    result: RunResult = served.run(work)
    assert result.status == "waiting"
    return result


def go(page: Page, served: Served, path: str) -> None:
    page.goto(home_of(page) + path)
    page.wait_for_selector(LIVE)


def test_an_answer_that_is_given_before_the_page_is_complete_counts(served: Served, page: Page, run: RunResult) -> None:
    held: list[Route] = []
    page.route("**/idiomorph.min.js", lambda route: held.append(route))
    page.goto(f"{home_of(page)}/flows/{run.run_id}", wait_until="commit")
    page.get_by_role("button", name="Approve").click()
    page.wait_for_function("document.readyState === 'interactive'")
    held[0].continue_()
    page.wait_for_selector("#questions form", state="detached")
    page.wait_for_selector("button:has-text('Go on with the run')")


def test_a_run_shows_its_graph_and_goes_on_when_its_question_is_answered(
    served: Served, page: Page, run: RunResult
) -> None:
    go(page, served, "/flows")
    assert page.locator("#runs .state").inner_text() == "? waiting"
    page.get_by_role("link", name="release").click()
    page.wait_for_selector(".flow .task.completed:has-text('build')")
    page.wait_for_selector(".flow .task.waiting:has-text('publish')")
    assert "Publish it?" in page.inner_text("#questions")
    page.get_by_role("button", name="Approve").click()
    page.wait_for_selector("#questions form", state="detached")
    page.get_by_role("button", name="Go on with the run").click()
    page.wait_for_selector(".flow .task.completed:has-text('publish')")
    page.wait_for_selector("#state .state:has-text('completed')")
    assert "You said: publish it" in page.inner_text("#tasks tr:has-text('publish')")
    page.locator(".flow .task.completed").first.click()
    page.wait_for_selector("#messages li:has-text('You said: build it')")
    acts = [each.data["act"] for each in served.run(served.store.events()) if each.name == "operator:acted"]
    assert acts == ["flow.approve", "flow.resume"]


def test_a_denied_task_fails(served: Served, page: Page, run: RunResult) -> None:
    go(page, served, f"/flows/{run.run_id}")
    page.get_by_label("Reason").fill("not today")
    page.get_by_role("button", name="Deny").click()
    page.get_by_role("button", name="Yes").click()
    page.wait_for_selector("#questions form", state="detached")
    page.get_by_role("button", name="Go on with the run").click()
    page.wait_for_selector("#state .state:has-text('failed')")
    assert "not today" in page.inner_text("#state")


def test_a_waiting_run_is_cancelled(served: Served, page: Page, run: RunResult) -> None:
    go(page, served, f"/flows/{run.run_id}")
    page.get_by_role("button", name="Cancel the run").click()
    page.get_by_role("button", name="Yes").click()
    page.wait_for_selector("#state .state:has-text('cancelled')")


async def _wake(served: Served, folder: Path) -> str:
    """Let a background session run a workflow for one event; return the id of the run when it waits for a person."""
    plugins, control = load_plugins(), Control()
    bundle = load_to_run(str(folder / "bundle.md"), plugins, read_settings(folder), folder)
    async with run_background([bundle], served.store, plugins, control=control), asyncio.timeout(120):
        assert await control.running[0].manager.fire("back")
        while True:
            for each in await served.store.deliveries(state="pending"):
                if each.session_id is not None:
                    return each.session_id
            await asyncio.sleep(0.01)


def test_a_cancelled_run_of_a_background_session_is_given_back_to_it(
    served: Served, page: Page, tmp_path: Path
) -> None:
    bundle = BUNDLE.replace("workflows:", "background_sessions: [{name: back, workflow: release}]\nworkflows:")
    (tmp_path / "bundle.md").write_text(bundle, encoding="utf-8")
    run_id = served.run(_wake(served, tmp_path))
    go(page, served, f"/flows/{run_id}")
    page.get_by_role("button", name="Cancel the run").click()
    page.get_by_role("button", name="Yes").click()
    page.get_by_role("button", name="Go on with the run").click()
    page.wait_for_selector("text=The run goes on when its background session runs.")
    assert [each.state for each in served.run(served.store.deliveries())] == ["pending"]


def test_a_fork_before_a_task_runs_it_again(served: Served, page: Page, run: RunResult) -> None:
    go(page, served, f"/flows/{run.run_id}")
    page.get_by_role("button", name="Fork before it: build").click()
    page.wait_for_url(lambda url: url.rpartition("/")[2] not in ("", run.run_id))
    page.wait_for_selector(LIVE)
    page.get_by_role("button", name="Go on with the run").click()
    page.wait_for_selector(".flow .task.completed:has-text('build')")
    page.wait_for_selector("#questions form")
