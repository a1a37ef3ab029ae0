"""The board as a person has it: ``bireme ui`` as a program, and a headless browser in front."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from testbed import browser as browsers

PAGES = ("/", "/waiting", "/running", "/timeline", "/nodes", "/policies", "/pools")
WIDEST, NARROWEST = 1400, 390
_VIOLATIONS = "axe.run({resultTypes: ['violations']}).then(results => results.violations)"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:[0-9]+/open\?token=\S+")


@contextmanager
def board(*arguments: str, log: Path) -> Iterator[str]:
    """Run ``bireme ui`` with ``arguments``; yield the address that it prints."""
    command = [sys.executable, "-m", "bireme.cli", "ui", "--no-browser", *arguments]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as program,
    ):
        try:
            assert program.stdout is not None
            first = program.stdout.readline().strip()
            assert _ADDRESS.fullmatch(first), f"{first!r}: {log.read_text()[-2000:]}"
            yield first
        finally:
            program.terminate()
            program.wait(20)


def processor_seconds() -> float:
    """Return the processor time that the boards of this program have taken."""
    boards = [each for each in psutil.Process().children() if "bireme.cli" in each.cmdline()]
    times = [each.cpu_times() for each in boards]
    return float(sum(each.user + each.system for each in times))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium; without one the test is skipped with the reason."""
    program = browsers.chromium()
    if program is None:
        pytest.skip(f"{browsers.obstacle() or 'Chromium is not installed'}")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=program, args=list(browsers.SWITCHES), timeout=60_000
        )
        try:
            yield launched
        finally:
            launched.close()


@dataclass
class Visitor:
    """Somebody who has opened the board at ``address``, and what went wrong in the browser."""

    browser: Browser
    address: str
    page: Page = field(init=False)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page = self.browser.new_page(viewport={"width": WIDEST, "height": 900})
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.goto(self.address)

    @property
    def base(self) -> str:
        return self.address.partition("/open")[0]

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(message.text)

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # what was under way when the page was left
            self.faults.append(f"failed: {request.url}, {request.failure}")

    def _asked(self, url: str) -> None:
        if not url.startswith((f"{self.base}/", "data:")):
            self.faults.append(f"asked for {url}")

    def open(self, path: str) -> Page:
        self.page.goto(self.base + path)
        return self.page

    def text(self, selector: str = "main") -> str:
        return self.page.inner_text(selector)

    def judge(self, path: str) -> None:
        """A page in all forms: nothing hinders a reader, and nothing is wider than the screen.

        It is loaded in two of them, one of each colour scheme and width.
        """
        for scheme in ("light", "dark"):
            widths = (WIDEST, NARROWEST) if scheme == "light" else (NARROWEST, WIDEST)
            self.page.emulate_media(color_scheme=scheme)
            self.page.set_viewport_size({"width": widths[0], "height": 900})
            self.open(path)
            self.page.evaluate(Axe().axe_script)
            for width in widths:
                self.page.set_viewport_size({"width": width, "height": 900})
                found = self.page.evaluate(_VIOLATIONS)
                words = [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]
                assert not words, f"{path}, {scheme}, {width} px: {words}"
                wide = self.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{path} is {wide} px wide on {width} px"
