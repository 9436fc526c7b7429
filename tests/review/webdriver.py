"""A headless Chromium, driven through chromedriver by the WebDriver protocol and nothing else."""

import base64
import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element in the protocol's JSON."""

SECONDS = 20.0
"""How long is waited for what should be there."""

# Never through a proxy: everything is on this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Browser:
    """One browser window."""

    def __init__(self, session: str) -> None:
        self.session = session

    def call(self, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.session}{path}", data)
        request.add_header("Content-Type", "application/json")
        try:
            with _opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from error

    def open(self, address: str) -> None:
        self.call("/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.call("/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        """Clicks as soon as it can; the page may be about to draw its elements anew."""

        def is_clicked() -> bool:
            try:
                result = self.call("/element", {"using": "css selector", "value": selector})
                self.call(f"/element/{result[ELEMENT]}/click", {})
            except RuntimeError as error:
                if "stale element" in str(error) or "no such element" in str(error):
                    return False
                raise
            return True

        self.wait(is_clicked)

    def type(self, selector: str, text: str) -> None:
        result = self.call("/element", {"using": "css selector", "value": selector})
        self.call(f"/element/{result[ELEMENT]}/clear", {})
        self.call(f"/element/{result[ELEMENT]}/value", {"text": text})

    def choose(self, selector: str, text: str) -> None:
        """Chooses the option of a select that begins with a text."""
        self.run(
            "const [select, text] = [document.querySelector(arguments[0]), arguments[1]];"
            "const option = [...select.options].find((one) => one.text.startsWith(text));"
            "select.value = option.value;"
            "select.dispatchEvent(new Event('change', { bubbles: true }));",
            selector,
            text,
        )

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def count(self, selector: str) -> int:
        return self.run("return document.querySelectorAll(arguments[0]).length", selector)

    def wait(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, "what was waited for is not there"
            time.sleep(0.05)

    def wait_for(self, selector: str, text: str) -> None:
        end = time.monotonic() + SECONDS
        while text not in (result := self.text(selector)):
            assert time.monotonic() < end, f"{text!r} was waited for; there is {result!r}"
            time.sleep(0.05)

    def emulate(self, width: int, height: int, scheme: str = "light") -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        for command, params in (
            ("Emulation.setDeviceMetricsOverride", metrics),
            ("Emulation.setEmulatedMedia", {"features": features}),
        ):
            self.call("/goog/cdp/execute", {"cmd": command, "params": params})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("/screenshot")))

    def errors(self) -> list[str]:
        """What the console said since it was last asked."""
        return [entry["message"] for entry in self.call("/se/log", {"type": "browser"})]


def programs() -> tuple[str | None, str | None]:
    """Chromium and chromedriver, or None where they are not installed."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None), shutil.which("chromedriver")


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile.

    Args:
        profile: An empty folder.
    """
    chromium, driver = programs()
    assert chromium is not None
    assert driver is not None
    with subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = (re.search(r"successfully on port ([0-9]+)", line) for line in process.stdout)
            result = next(filter(None, lines))
            driven = Browser(f"http://127.0.0.1:{result[1]}/session")
            options = {"binary": chromium, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            start = driven.call("", {"capabilities": {"alwaysMatch": wanted}})
            driven.session += f"/{start['sessionId']}"
            yield driven
            request = urllib.request.Request(driven.session, method="DELETE")
            with _opener.open(request, timeout=60):
                pass
        finally:
            process.terminate()
