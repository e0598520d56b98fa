"""A headless Chromium of our own, driven over its DevTools protocol: real pages, real clicks, and everything that failed.

Plain classes without pytest, so that a shell can take pictures with them too.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import connect

from tests.processes import LOOPBACK, Missing, Process

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--mute-audio",
    "--remote-debugging-port=0",
)  # fmt: skip


def chromium_program() -> str:
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise Missing("chromium (Debian, Ubuntu: apt-get install chromium)")


class Chromium(Process):
    """The browser, with a profile of its own below `directory`, which should be fresh."""

    def __init__(self, directory: Path, *, size: tuple[int, int] = (1280, 900)) -> None:
        super().__init__("chromium", directory=directory)
        self.profile = directory / "profile"
        self.size = size
        self._program = chromium_program()

    def command(self) -> Sequence[str]:
        width, height = self.size
        # Chromium's sandbox does not run as root.
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        window = f"--window-size={width},{height}"
        return [self._program, *QUIET, *root, window, f"--user-data-dir={self.profile}", "about:blank"]

    def is_ready(self) -> bool:
        try:
            return len((self.profile / "DevToolsActivePort").read_text().splitlines()) == 2
        except FileNotFoundError:
            return False

    @property
    def port(self) -> int:
        return int((self.profile / "DevToolsActivePort").read_text().splitlines()[0])

    def open_page(self) -> Page:
        """A new tab."""
        request = urllib.request.Request(f"http://{LOOPBACK}:{self.port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return Page(json.load(answer)["webSocketDebuggerUrl"])


class Page:
    """One tab. `problems` collects what a person would find in the console: errors, failed requests, dialogs."""

    def __init__(self, url: str) -> None:
        self._socket = connect(url, max_size=None, open_timeout=20)
        self._number = 0
        self._loaded = False
        self.problems: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its result; events on the way are noted."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        about = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Page.javascriptDialogOpening":
                self.problems.append(f"dialog: {about['message']}")
                self._number += 1
                self._socket.send(
                    json.dumps(
                        {"id": self._number, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                    )
                )
            case "Runtime.exceptionThrown":
                self.problems.append(f"exception: {about['exceptionDetails'].get('exception', about)}")
            case "Network.responseReceived" if about["response"]["status"] >= 400:
                self.problems.append(f"{about['response']['status']} {about['response']['url']}")
            case "Network.loadingFailed" if not about.get("canceled"):
                self.problems.append(f"failed: {about.get('errorText')}")
            case "Log.entryAdded" if about["entry"]["level"] == "error":
                self.problems.append(f"console: {about['entry']['text']}")

    def goto(self, url: str) -> None:
        """Open an address and wait until it has loaded."""
        self._loaded = False
        failed = self.call("Page.navigate", url=url).get("errorText")
        if failed:
            raise RuntimeError(f"{url}: {failed}")
        self._wait_for_load()

    def reload(self) -> None:
        """Load again as the button does: a page that answered a form sends the form again."""
        self._loaded = False
        self.call("Page.reload")
        self._wait_for_load()

    def click(self, selector: str) -> None:
        """Click what the selector finds first, and wait for the page that it leads to."""
        self._loaded = False
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        self._wait_for_load()

    def fill(self, selector: str, text: str) -> None:
        """Put text into a field."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}")

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, as JSON carries it."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, script: str, *, timeout: float = 20) -> Any:
        """Wait until the expression is true, and return it."""
        deadline = time.monotonic() + timeout
        while not (value := self.evaluate(script)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {timeout:g} s: {script}")
            time.sleep(0.02)
        return value

    @property
    def text(self) -> str:
        """What a person can read."""
        return str(self.evaluate("document.body.innerText"))

    @property
    def address(self) -> str:
        return str(self.evaluate("location.href"))

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(data["data"]))

    def _wait_for_load(self, timeout: float = 30) -> None:
        deadline = time.monotonic() + timeout
        while not self._loaded:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the page did not load within {timeout:g} s")
            self.call("Runtime.evaluate", expression="1")  # takes what has happened meanwhile
            time.sleep(0.02)
