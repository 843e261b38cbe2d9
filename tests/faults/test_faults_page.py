"""The page that shows why, and the one a server sends, where every text is hostile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from browsers import Browser, browser, chromium
from hostile_samples import hostile_strings
from page_samples import reading, row, run_of
from scorecard import tries

from divtok.page.data import PageConfidence, PageEstimator, PageReading
from divtok.page.write import page_html, served_policy
from divtok.screen import visible

__all__ = ["browser", "chromium"]


def view_of(strings: list[str]) -> str:
    """The page of responses that have such a text in every field, and in every token."""
    rows = [
        row(
            text, "correct", _reading([text, *strings[:5]], text), question=text, answer=text,
            response=text, gold=text, benchmark=text, problem=text, generator=text,
            verdict_reason=text, finish=text, other=_reading(None, text),
        )
        for text in strings
    ]  # fmt: skip
    run = run_of(rows, title=strings[0], estimators=[PageEstimator(text, True) for text in strings])
    return page_html(rows, run=run, against=run)


def _reading(texts: list[str] | None, text: str) -> PageReading:
    found = reading(texts, [0.9] * (1 if texts is None else len(texts)), 0.5, answer_start=0)
    confidences = {text: PageConfidence(0.5), "dtc_lin": PageConfidence(None)}
    return replace(found, pair=(text, text), confidences=confidences, reason=text)


# What no text of a page may become.
ACTING = "img, iframe, object, embed, link, form, video, details, svg *[href]"


def test_fault_44_the_page_that_shows_why_runs_no_text(tmp_path: Path, browser: Browser) -> None:
    strings = hostile_strings(tries(short=20, full=300))
    path = tmp_path / "view.html"
    path.write_text(view_of(strings), encoding="utf-8")
    browser.open(path, "#" + urlencode({"key": strings[-1], "estimator": strings[0]}))
    page = browser.page
    assert page.locator("#estimator").input_value() == strings[0]
    page.keyboard.press("l")
    for text in reversed(strings):
        assert page.locator("h2").inner_text() != ""
        assert page.locator(".question").text_content() == visible(text, keep="\n\t")
        page.keyboard.press("n")
        page.keyboard.press("k")
    assert page.locator(ACTING).count() == 0
    assert page.locator("script").count() == 2
    assert (browser.seen.scripts, browser.seen.requests, browser.seen.errors) == (0, [], [])


def test_fault_44_a_served_page_runs_no_answer(chromium: Any) -> None:
    context = chromium.new_context()
    page = context.new_page()
    seen: list[str] = []
    page.on("dialog", lambda dialog: (seen.append("script"), dialog.dismiss()))
    strings = iter(hostile_strings(tries(short=10, full=300)))
    text = ""

    def served(route: Any) -> None:
        if route.request.url.startswith("http://divtok.test/v1"):
            route.fulfill(json=answered(text))
        elif route.request.url == "http://divtok.test/":
            headers = {"Content-Security-Policy": served_policy()}
            body = page_html(mode="serve")
            route.fulfill(body=body, content_type="text/html; charset=utf-8", headers=headers)
        else:
            seen.append(route.request.url)
            route.abort()

    context.route("**/*", served)
    page.goto("http://divtok.test/")
    for text in strings:
        page.locator("#ask-question").fill(text)
        page.locator("#ask-response").fill(f"x{text}")
        page.evaluate("document.querySelector('#response').replaceChildren()")
        page.locator("#ask button").click()
        page.locator("#response .tokens .t").first.wait_for()
        page.locator("#response .tokens .t").first.hover(force=True)
    assert (
        page.locator("#response :is(img, iframe, object, embed, link, form, script)").count() == 0
    )
    assert seen == []
    context.close()


def answered(text: str) -> dict[str, Any]:
    """What a service might say, its words all hostile."""
    top = [[[text, -1.0]], None]
    tokens = {"text": [f"x{text}", text], "jsd_bits": [0.5, None], "divergent": [True, False]}
    tokens |= {"unexpected": [True, False], "counted": [0, 2], "answer": [0, 1]}
    tokens |= {"top": {"p": top, "q": top}}
    return {
        "version": 1, "confidence": None, "low": None, "high": None, "source": text,
        "estimator": text, "theta": 0.25, "count": 1, "reasoning_tokens": 2, "pair": [text, text],
        "exact": True, "prior": {"value": 0.5, "from": text}, "status": text, "reason": text,
        "decision": {"action": text, "reason": text}, "tokens": tokens,
    }  # fmt: skip
