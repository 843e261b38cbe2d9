"""The system's chromium for tests: what a page did there that a page of text does not do."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Seen:
    """What pages did that a page of text does not do."""

    pages: int = 0
    scripts: int = 0
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Browser:
    """Opens files and notes every script that runs and every request for anything else.

    A script that runs is one that opens a dialog, as hostile text tries to.
    """

    def __init__(self, chromium: Any, **options: Any) -> None:
        self.context = chromium.new_context(**options)
        self.page = self.context.new_page()
        self._folder = ""
        self.seen = Seen()
        self.context.route("**/*", self._asked)
        self.page.on("dialog", self._ran)
        self.page.on("pageerror", lambda error: self.seen.errors.append(str(error)))

    def _ran(self, dialog: Any) -> None:
        self.seen.scripts += 1
        with contextlib.suppress(Exception):  # the page may have gone on by itself
            dialog.dismiss()

    def _asked(self, route: Any) -> None:
        url = route.request.url
        if url.startswith((self._folder, "data:")):
            route.continue_()
        else:
            self.seen.requests.append(url)
            route.abort()

    def open(self, path: Path, part: str = "") -> None:
        self._folder = path.parent.as_uri()
        self.page.goto(path.as_uri() + part)
        self.seen.pages += 1

    def styled(self) -> bool:
        return self.page.evaluate("getComputedStyle(document.querySelector('h1')).fontSize") == (
            "27.2px"
        )

    def widths(self) -> list[int]:
        return self.page.evaluate("[...document.images].map(image => image.naturalWidth)")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no chromium here")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    opened = Browser(chromium)
    yield opened
    opened.context.close()
