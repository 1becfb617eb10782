"""The editor of bundles: only known files, problems while typing, saving, and what others did meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from amplifier_foundation.operations.acting import read_acts

from .conftest import LIVE, Served, home_of, opened, served_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

TEXT = """---
bundle: {name: shop, version: 1.0.0}
providers:
  - module: provider-playbook
background_sessions:
  - name: nightly
    instruction: Sum up the day.
    triggers:
      - module: trigger-timer
        config: {cron: "30 2 * * *", timezone: Europe/Berlin}
---
Answer in one line.
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The bundle of the page's project."""
    file = tmp_path.resolve() / "shop" / "bundle.md"
    file.parent.mkdir()
    file.write_text(TEXT, encoding="utf-8")
    return file


@pytest.fixture
def served(home: Path, file: Path, tmp_path: Path) -> Iterator[Served]:
    """Serve the page in the folder of the bundle."""
    with served_page(tmp_path, project=str(file.parent)) as served:
        yield served


@pytest.fixture
def editor(served: Served, page: Page, file: Path) -> Page:
    """The page with the editor of the bundle, once it has checked the text."""
    return open_editor(served, page, file)


def open_editor(served: Served, page: Page, file: Path) -> Page:
    page.goto(f"{home_of(page)}/bundles/edit?path={quote(str(file))}")
    page.wait_for_selector(LIVE)
    page.wait_for_selector("#problems li")
    page.wait_for_selector("#editor[data-keys]")
    return page


def write(page: Page, text: str) -> None:
    """Replace the whole text, as by typing."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def go_to(page: Page, line: int) -> None:
    """Set the cursor to the end of a line."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+Home")
    for _ in range(line - 1):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("End")


def test_the_bundle_of_the_project_is_found_and_opened_by_keys(served: Served, page: Page, file: Path) -> None:
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_url("**/bundles")
    page.wait_for_selector(LIVE)
    expect(page.locator("#bundles tbody tr")).to_contain_text(f"{file}")
    expect(page.locator("#bundles tbody tr")).to_contain_text("of this project")
    page.keyboard.press("j")
    page.keyboard.press("e")
    expect(page.locator(".cm-content")).to_contain_text("Sum up the day.")


def test_a_problem_is_underlined_while_typing_at_its_line_and_column(editor: Page) -> None:
    expect(editor.locator("#problems")).not_to_contain_text("AMP102")
    write(editor, TEXT.replace("    instruction: Sum up", "    pool_sizes: 2\n    instruction: Sum up"))
    problem = editor.locator("#problems li", has_text="AMP102")
    expect(problem).to_contain_text("7:5 ✗ error AMP102 background_sessions[0].pool_sizes")
    expect(editor.locator(".cm-lintRange-error")).to_have_text("pool_sizes:")
    problem.get_by_role("button").click()
    expect(editor.locator(".cm-activeLine")).to_have_text("    pool_sizes: 2")


def test_keys_and_values_are_proposed_and_explained(editor: Page) -> None:
    go_to(editor, 7)
    editor.keyboard.press("Enter")
    editor.keyboard.type("work")
    option = editor.locator(".cm-tooltip-autocomplete li", has_text="worktree").first
    expect(option).to_be_visible()
    expect(editor.locator(".cm-completionInfo")).to_contain_text("work")
    editor.keyboard.press("Escape")
    go_to(editor, 4)
    editor.keyboard.press("Control+Space")
    expect(editor.locator(".cm-tooltip-autocomplete")).to_contain_text("provider-playbook")
    editor.keyboard.press("Escape")
    write(editor, TEXT.replace('config: {cron: "30 2 * * *", timezone: Europe/Berlin}', "config:\n"))
    go_to(editor, 11)
    for typed, proposed in (("          cro", "cron"), ('cron: "0 1 * * *"\n          catch_up: l', "latest")):
        for _ in range(3 if proposed == "latest" else 0):
            editor.keyboard.press("Backspace")
        editor.keyboard.insert_text(typed[:-1])
        editor.keyboard.type(typed[-1])
        expect(editor.locator(".cm-tooltip-autocomplete li").first).to_contain_text(proposed)
        editor.keyboard.press("Escape")
    editor.locator(".cm-line", has_text="instruction: Sum").get_by_text("instruction").hover()
    expect(editor.locator(".cm-tooltip-hover")).to_contain_text("background_sessions.instruction")


def test_ctrl_s_saves_and_says_what_happens(editor: Page, served: Served, file: Path) -> None:
    write(editor, TEXT + "Be kind.\n")
    expect(editor.locator("#state")).to_have_text("not saved · Ctrl+S saves")
    editor.keyboard.press("Control+s")
    expect(editor.locator(".toast")).to_contain_text("bundle.md is saved. ")
    expect(editor.locator("#state")).to_have_text("saved")
    assert file.read_text() == TEXT + "Be kind.\n"
    [act] = served.run(read_acts(served.store, str(file)))
    assert (act.data["act"], act.data["by"], act.data["via"]) == ("bundle.save", "ada", "dashboard")
    write(editor, TEXT)
    editor.keyboard.press("Control+s")
    expect(editor.locator("#state")).to_have_text("saved")
    assert file.read_text() == TEXT


def test_a_text_that_is_not_trusted_says_how_to_trust_it(
    editor: Page, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST", raising=False)
    (file.parent / "mine.py").write_text("x = 1\n")
    write(editor, TEXT.replace("module: provider-playbook", "module: provider-mine\n    source: ./mine.py"))
    editor.keyboard.press("Control+s")
    expect(editor.locator(".toast")).to_contain_text("It is not trusted yet: amplifier trust")


def test_a_file_changed_meanwhile_keeps_the_persons_text_and_shows_the_difference(
    served: Served, browser: Browser, file: Path
) -> None:
    with opened(browser, served.link, expected="409") as page:
        open_editor(served, page, file)
        write(page, TEXT + "Mine.\n")
        file.write_text(TEXT + "Theirs.\n")
        page.keyboard.press("Control+s")
        expect(page.locator("#changed")).to_be_visible()
        expect(page.locator("#difference .bad", has_text="-Theirs.")).to_be_visible()
        expect(page.locator("#difference .good", has_text="+Mine.")).to_be_visible()
        expect(page.locator(".cm-content")).to_contain_text("Mine.")
        assert file.read_text() == TEXT + "Theirs.\n"
        page.get_by_role("button", name="Save mine over it").click()
        expect(page.locator("#changed")).to_be_hidden()
        expect(page.locator("#state")).to_have_text("saved")
        assert file.read_text() == TEXT + "Mine.\n"


def test_the_timers_of_a_text_that_is_not_saved_are_simulated(editor: Page, file: Path) -> None:
    write(editor, TEXT.replace("30 2 * * *", "15 4 * * *"))
    editor.get_by_role("button", name="Simulate 7 days").click()
    fires = editor.locator("#plan tbody tr", has_text="04:15:00")
    expect(fires).to_have_count(7)
    expect(fires.first).to_contain_text("Europe/Berlin")
    expect(fires.first).to_contain_text("nightly")
    assert file.read_text() == TEXT


def test_files_that_are_no_known_bundles_are_neither_shown_nor_written(
    served: Served, browser: Browser, file: Path
) -> None:
    other = file.parent / "secret.md"
    other.write_text("do not touch")
    link = file.parent.parent / "link.md"
    link.symlink_to(other)
    with opened(browser, served.link, expected="404") as page:
        for path in (other, link, Path("/etc/passwd"), file.parent.parent, file.parent / ".." / "shop" / "secret.md"):
            answer = page.goto(f"{home_of(page)}/bundles/edit?path={quote(str(path))}")
            assert answer is not None
            assert answer.status == 404
            assert "do not touch" not in answer.text()
        page.goto(f"{home_of(page)}/")
        token = page.locator("html").get_attribute("data-form-token") or ""
        for what in ("edit", "validate", "compare", "simulate"):
            form = {"form_token": token, "text": "x", "digest": ""}
            answer = page.request.post(f"{home_of(page)}/bundles/{what}?path={quote(str(other))}", form=form)
            assert answer.status == 404
    assert other.read_text() == "do not touch"


def test_without_scripts_a_textarea_does(served: Served, browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(served.link)
    page.goto(f"{home_of(page)}/bundles/edit?path={quote(str(file))}")
    assert page.locator("#text").input_value() == TEXT
    page.locator("#text").fill(TEXT + "By hand.\n")
    with page.expect_navigation():
        page.get_by_role("button", name="Save").click()
    assert file.read_text() == TEXT + "By hand.\n"
    context.close()


def test_only_the_editor_lets_style_elements_in_and_with_a_nonce_of_its_own(
    served: Served, page: Page, file: Path
) -> None:
    edit = f"{home_of(page)}/bundles/edit?path={quote(str(file))}"
    policies = [
        page.request.get(address).headers["content-security-policy"] for address in (f"{home_of(page)}/", edit, edit)
    ]
    assert "nonce" not in policies[0]
    assert "'nonce-" in policies[1]
    assert policies[1] != policies[2]
    assert all("'unsafe-inline'" not in each for each in policies)
