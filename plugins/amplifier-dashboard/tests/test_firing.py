"""Events are fired by hand with a form made of what their background session reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from amplifier_core.storage import SessionRecord
from amplifier_dashboard.links import background_path
from amplifier_foundation.background.up import root_id

from .conftest import LIVE, Served, home_of, opened
from .filled import deliver, file_change

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {name: shop, version: 1.0.0}
workflows:
  release:
    input: {goal: a better README, tries: 3}
    steps: [{id: notes, agent: self, prompt: "Write about {input.goal}."}]
background_sessions:
  - name: checker
    instruction_template: "Check {path} in {body.version}; all: {event_data}."
    if: data.exit_code != 0
    triggers: [{module: trigger-manual}]
  - name: release
    workflow: release
---
"""


@pytest.fixture
def project(served: Served, tmp_path: Path) -> str:
    """The folder of a bundle that has run."""
    folder = tmp_path.resolve() / "shop"
    folder.mkdir()
    (folder / "bundle.md").write_text(BUNDLE, encoding="utf-8")

    async def store() -> None:
        root = SessionRecord(
            root_id("shop", str(folder)),
            name="shop",
            bundle="shop",
            project=str(folder),
            bundle_source=str(folder / "bundle.md"),
        )
        await served.store.create(root)
        now = datetime.now(UTC)
        for name in ("checker", "release"):
            delivery = await deliver(served.store, str(folder), f"shop/{name}", "t", file_change("a.py", now), now)
            await served.store.drop(delivery.delivery_id, reason="of yesterday")

    served.run(store())
    return str(folder)


def visit(page: Page, served: Served, project: str, name: str) -> None:
    """Go to the form."""
    page.goto(f"{home_of(page)}{background_path(project, f'shop/{name}')}")
    page.wait_for_selector(LIVE)
    page.keyboard.press("t")
    page.wait_for_selector("#fire")
    page.wait_for_selector(LIVE)


def test_the_form_has_what_the_session_reads_and_its_event_is_accepted(
    served: Served, page: Page, project: str
) -> None:
    visit(page, served, project, "checker")
    labels = [each.split(" ")[0] for each in page.locator("#fire label").all_inner_texts()]
    assert labels == ["path", "body.version", "exit_code", "More"]
    page.get_by_label("path").fill("app.py")
    page.get_by_label("body.version").fill("1.10")
    page.get_by_label("exit_code").fill("2")
    page.get_by_label("More data").fill('{"also": [1]}')
    page.get_by_role("button", name="Fire").click()
    expect(page.locator("#fired")).to_contain_text("shop/checker: accepted; it waits for the next: amplifier up")
    [delivery] = served.run(served.store.deliveries(state="pending"))
    data = {"path": "app.py", "body": {"version": "1.10"}, "exit_code": 2, "also": [1]}
    assert dict(delivery.event.data) == data
    link = page.get_by_role("link", name="Its delivery")
    assert link.evaluate("each => each.href") == f"{home_of(page)}/deliveries/{delivery.delivery_id}"
    expect(page.locator(f"#last-{delivery.delivery_id}")).to_contain_text("waiting")


def test_an_event_that_is_refused_says_why(served: Served, page: Page, project: str) -> None:
    visit(page, served, project, "checker")
    page.get_by_label("exit_code").fill("0")
    page.get_by_role("button", name="Fire").click()
    expect(page.locator("#fired")).to_contain_text("refused: its 'if' does not hold: data.exit_code != 0")


def test_the_input_of_a_workflow_keeps_the_types_of_its_values(served: Served, page: Page, project: str) -> None:
    visit(page, served, project, "release")
    assert page.get_by_label("goal").get_attribute("placeholder") == "a better README"
    page.get_by_label("tries").fill("5")
    page.get_by_role("button", name="Fire").click()
    expect(page.locator("#fired")).to_contain_text("accepted")
    [delivery] = served.run(served.store.deliveries(state="pending"))
    assert dict(delivery.event.data) == {"tries": 5}


def test_a_payload_that_is_none_is_refused_before_and_after_it_is_sent(
    served: Served, browser: Browser, project: str
) -> None:
    with opened(browser, served.link, expected="422") as page:
        visit(page, served, project, "checker")
        page.get_by_label("More data").fill("[1]")
        expect(page.locator("#rest-problem")).to_contain_text("Write an object")
        page.get_by_role("button", name="Fire").click()
        page.get_by_label("More data").fill("")
        page.get_by_label("exit_code").fill("two")
        page.get_by_role("button", name="Fire").click()
        expect(page.locator(".toast.failed")).to_contain_text("exit_code: 'two' is not a number")
    assert served.run(served.store.deliveries(state="pending")) == []
