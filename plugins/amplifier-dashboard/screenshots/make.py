"""Take the screenshots of the README: run the demo in a new folder, serve its store, and open the main views.

Run it with `make screenshots`. It needs Playwright and the system's Chromium.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

HERE = Path(__file__).parent
PROGRAM = [sys.executable, "-m", "amplifier_foundation"]
LIVE = "html[data-live=yes]"
WIDE, PHONE = {"width": 1200, "height": 760}, {"width": 390, "height": 760}


def main() -> None:
    """Write a picture of each main view beside this file."""
    with TemporaryDirectory(prefix="amplifier-screenshots-") as folder:
        place = Path(folder)
        environment = {**os.environ, "AMPLIFIER_HOME": str(place / "home"), "TZ": "UTC", "NO_COLOR": "1"}
        subprocess.run(
            [*PROGRAM, "demo", str(place / "reviews")], env=environment, check=True, stdout=subprocess.DEVNULL
        )
        listed = [*PROGRAM, "session", "list", "--all", "--json"]
        sessions = json.loads(subprocess.check_output(listed, env=environment))["data"]
        forked = next(each["session_id"] for each in sessions if each.get("fork_of"))
        with serving(place / "reviews", environment) as link, sync_playwright() as playwright:
            found = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
            context = browser.new_context(viewport=WIDE, timezone_id="UTC", locale="en-GB")
            page = context.new_page()
            page.goto(link)
            root = page.url.rstrip("/")
            take(page, f"{root}/", "overview")
            take(page, f"{root}/sessions/{forked}", "session")
            take(page, f"{root}/lineage", "lineage")
            page.emulate_media(color_scheme="dark")
            take(page, f"{root}/sessions", "sessions-dark")
            page.set_viewport_size(PHONE)
            take(page, f"{root}/", "overview-phone")
            browser.close()


@contextmanager
def serving(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Serve the page of a folder while the block runs; give a link."""
    command = [*PROGRAM, "dashboard", "--port", "0", "--read-only"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)


def take(page: Page, address: str, name: str) -> None:
    """Write the picture of one view, once it is live."""
    page.goto(address)
    page.wait_for_selector(LIVE)
    page.screenshot(path=HERE / f"{name}.png")
    print(HERE / f"{name}.png")  # noqa: T201 - the command says what it made


if __name__ == "__main__":
    main()
