"""Drive a headless Chromium through its pipe: open a page, press keys, click, and ask the page for facts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CODES = {
    "ArrowDown": 40,
    "ArrowUp": 38,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Enter": 13,
    "Escape": 27,
    "Home": 36,
    "End": 35,
}
AT_3_AND_4 = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
""".strip()
"""A program that runs another one, which reads at 3 and writes at 4."""
NEXT_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


class Page:
    """One page in a browser. Every verb returns when the page has handled it."""

    def __init__(self, read: BinaryIO, write: BinaryIO) -> None:
        self._read, self._write = read, write
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        """Errors and messages of the page's console."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; events in between are noted."""
        self._number += 1
        about = {"sessionId": self._session} if self._session else {}
        self._write.write(
            json.dumps({"id": self._number, "method": method, "params": parameters, **about}).encode() + b"\0"
        )
        self._write.flush()
        while True:
            told = self._receive()
            if told.get("id") == self._number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return dict(told["result"])

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self.call("Browser.close")

    def _receive(self) -> dict[str, Any]:
        parts = bytearray()
        while (byte := self._read.read(1)) != b"\0":
            if not byte:
                raise EOFError("the browser has ended")
            parts += byte
        told: dict[str, Any] = json.loads(parts)
        kind = told.get("method")
        if kind in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.problems.append(json.dumps(told["params"]))
        if kind == "Network.requestWillBeSent" and not told["params"]["request"]["url"].startswith(("file:", "data:")):
            self.problems.append(f"requests {told['params']['request']['url']}")
        return told

    def show(self, width: int, height: int, **features: str) -> None:
        """Set the size of the view in pixels, and media features such as `prefers-color-scheme`."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def open(self, file: Path, fragment: str = "") -> None:
        """Open a file, and wait until it is drawn."""
        self.call("Page.navigate", url="about:blank")  # else another fragment of the same file is no new page
        self.call("Page.navigate", url=f"{file.as_uri()}{fragment}")
        ready = "document.readyState === 'complete' && location.protocol === 'file:'"
        while not self.ask(ready):
            self.ask("new Promise((done) => setTimeout(done, 10))")
        self.ask(NEXT_FRAMES)

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page, awaited."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(json.dumps(told["exceptionDetails"]))
        return told["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the text that is visible in an element."""
        return str(self.ask(f"document.querySelector({json.dumps(selector)}).innerText"))

    def press(self, *keys: str) -> None:
        """Press keys one after the other; a character is typed."""
        for key in keys:
            about: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": CODES.get(key, 0)}
            if key not in CODES:
                about["text"] = key
            elif key == "Enter":
                about["text"] = "\r"
            self.call("Input.dispatchKeyEvent", type="keyDown", **about)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.ask(NEXT_FRAMES)

    def click(self, selector: str) -> None:
        """Click in the middle of an element."""
        element = f"const element = document.querySelector({json.dumps(selector)});"
        measure = (
            "const {x, y, width, height} = element.getBoundingClientRect(); return [x + width / 2, y + height / 2];"
        )
        box = self.ask(f"(() => {{ {element} element.scrollIntoView({{block: 'nearest'}}); {measure} }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)
        self.ask(NEXT_FRAMES)

    def go(self, fragment: str) -> None:
        """Go to another fragment of the page."""
        self.ask(f"location.hash = {json.dumps(fragment)}")
        self.ask(NEXT_FRAMES)

    def back(self, steps: int = -1) -> None:
        """Go back, or on with a positive number, and wait for it."""
        self.ask(
            f"new Promise((done) => {{ addEventListener('hashchange', done, {{once: true}}); history.go({steps}); }})"
        )
        self.ask(NEXT_FRAMES)


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """Run a browser with its profile in a folder, and yield its page. Skips the test where there is none."""
    program = require("chromium")
    to_read, their_write = os.pipe()
    their_read, to_write = os.pipe()
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
    command.append(f"--user-data-dir={folder / 'profile'}")
    with subprocess.Popen(
        [sys.executable, "-S", "-c", AT_3_AND_4, str(their_read), str(their_write), *command],
        pass_fds=(their_read, their_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(their_read)
        os.close(their_write)
        with os.fdopen(to_read, "rb") as read, os.fdopen(to_write, "wb") as write:
            page = Page(read, write)
            try:
                yield page
            finally:
                page.close()
                process.wait(timeout=120)
