"""A headless Chromium for tests of web pages: Debian's packages `chromium` and `chromium-driver`."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

COMMAND = "apt-get install --no-install-recommends chromium chromium-driver"
_PROGRAMS = ("chromium", "chromedriver")


def missing() -> str | None:
    """Why there is no browser, and what to type. As root, it is installed."""
    if all(map(shutil.which, _PROGRAMS)):
        return None
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in ("apt-get update -qq", f"{COMMAND} -y -qq"):
            subprocess.run(command.split(), env=quiet, capture_output=True, timeout=600)
    absent = [program for program in _PROGRAMS if not shutil.which(program)]
    return f"{' and '.join(absent)} not found; run: {COMMAND}" if absent else None


class Browser:
    """One window of a fresh profile."""

    def __init__(self, scratch: Path) -> None:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        arguments = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
        for argument in (*arguments, f"--user-data-dir={scratch / 'profile'}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)

    def close(self) -> None:
        self.driver.quit()

    def open(self, page: Path, width: int, height: int = 900, scheme: str = "light", script: bool = True) -> None:
        """Show a page in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._command("Emulation.setDeviceMetricsOverride", **size)
        self._command("Emulation.setScriptExecutionDisabled", value=not script)
        self.media("screen", scheme)
        self.driver.get(page.as_uri())

    def media(self, kind: str, scheme: str) -> None:
        """`screen` or `print`, `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._command("Emulation.setEmulatedMedia", media=kind, features=features)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a piece of JavaScript."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def messages(self) -> list[str]:
        """Errors on the console, since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def picture(self, file: Path, whole: bool = True, scale: float = 1) -> None:
        """A PNG of the window, or of the whole page."""
        layout = self._command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": layout["width"], "height": layout["height"], "scale": scale}
        shot = self._command(
            "Page.captureScreenshot", **({"clip": clip, "captureBeyondViewport": True} if whole else {})
        )
        file.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, file: Path) -> None:
        self.media("print", "light")
        printed = self._command(
            "Page.printToPDF", printBackground=False, preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69
        )
        file.write_bytes(base64.b64decode(printed["data"]))

    def _command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)
