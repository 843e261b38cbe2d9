"""Write the two pictures of docs/page.md, of a run of the embedded family, with a browser.

    divtok run --family tiny --generator divtok/tiny-1.6m --benchmark arith-hard --limit 60 \\
        --samples 2 --name arith-hard
    python docs/make_page_pictures.py runs/arith-hard docs/images

Light, with a divergent token looked at; dark, with theta moved. The response is the wrong one with
the most divergent tokens among those that fit on a picture.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import sync_playwright

import divtok

SIZE = {"width": 1320, "height": 800}
AT_MOST = 190  # tokens
MOVED = "0.12"  # bits


def shown_key(run: divtok.Run) -> str:
    rows = run.rows(tokens=False).to_dicts()
    wrong = [row for row in rows if row["verdict"] == "incorrect" and row["tokens"] <= AT_MOST]
    return max(wrong, key=lambda row: (row["count"], row["key"]))["key"]


def pictures(page: Any, address: str, key: str, folder: Path) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(f"{address}#{urlencode({'key': key})}")
    marked = page.locator(".tokens .t.d")
    marked.nth(min(2, marked.count() - 1)).hover()
    kept(page, folder / "page-light.png")
    page.emulate_media(color_scheme="dark")
    page.goto("about:blank")
    page.goto(f"{address}#{urlencode({'key': key, 'theta': MOVED})}")
    page.keyboard.press("n")
    kept(page, folder / "page-dark.png")


def kept(page: Any, path: Path) -> None:
    """A picture of few colours, which is a third of the size."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.quantize(256).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    run = divtok.Run(given.run)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = run.view(Path(folder) / "view.html")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        pictures(browser.new_page(viewport=SIZE), path.as_uri(), shown_key(run), given.out)
        browser.close()


if __name__ == "__main__":
    main()
