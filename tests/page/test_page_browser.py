"""The page in a browser: what it shows of responses whose every number is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsers import Browser, chromium
from page_samples import THETA, reading, row, run_of

from divtok.evaluate.metrics import ece
from divtok.page.data import PageEstimator, PageRow
from divtok.page.write import page_html, served_policy
from divtok.screen import visible

__all__ = ["chromium"]

TEXTS = ["First", ",", " 2", " +", " 2", " =", " 4", ".\n", "So", " it", " is", " 4", "<|end|>"]
BITS = [0.0, 0.1, 0.3, 0.25, 0.26, 0.02, 0.9, 0.5, 0.0, 0.6, 0.0, 0.95, 0.99]
WHERE = {"answer_start": 11, "answer_stop": 12, "turn_end": 12}
AT_THETA = [2, 4, 6, 7, 9]  # above 0.25, neither the answer nor behind the end
ODD = "\x1b[31mred\x1b[0m \u202egnp \ud800 \x7f\x9b \u200d\n\ttab"


def rows() -> list[PageRow]:
    """Confidences 0.50, 0.95, 0.05 and none; right, wrong, right, right."""
    surprised = np.full(len(BITS), -1.0, np.float32)
    surprised[5] = -9.0
    certain = {name: np.zeros(len(BITS), np.float32) for name in ("entropy_p", "entropy_q")}
    first = reading(TEXTS, BITS, 0.5, logprob_p=surprised, logprob_q=surprised, **certain, **WHERE)
    long = [f"word{i} " + ("\n" if i % 20 == 19 else "") for i in range(4000)]
    return [
        row("a", "correct", first),
        row("b", "incorrect", reading(["sure", "\n"], [0.0, 0.1], 0.95), question=ODD),
        row("c", "correct", reading(long, [0.9] * 12 + [0.0] * 3988, 0.05)),
        row("d/&#=?", "correct", reading(None, [0.5, 0.1], None), response="no tokens here"),
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "view.html"
    found = rows()
    path.write_text(page_html(found, run=run_of(found)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def opened(chromium: Any) -> Iterator[Browser]:
    browser = Browser(chromium, viewport={"width": 1300, "height": 800})
    yield browser
    # All that the tests of this file did ran nothing else and asked for nothing.
    assert (browser.seen.scripts, browser.seen.requests, browser.seen.errors) == (0, [], [])
    browser.context.close()


@pytest.fixture
def page(opened: Browser, made: Path) -> Any:
    opened.page.goto("about:blank")
    opened.open(made)
    return opened.page


def marked(page: Any, name: str = "d") -> list[int]:
    tokens = "[...document.querySelectorAll('.tokens .t')]"
    return page.evaluate(f"{tokens}.flatMap((t, i) => t.matches('.{name}') ? [i] : [])")


def texts(page: Any, chosen: str) -> list[str]:
    return page.locator(chosen).all_text_contents()


def shown_keys(page: Any) -> list[str]:
    return [text.removeprefix("problem ") for text in texts(page, "#table tbody th")]


def until(page: Any, expression: str) -> None:
    """Wait for something to be true; playwright's own way is one that the page's policy forbids."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(10)
    raise AssertionError(expression)


def set_theta(page: Any, theta: str) -> None:
    page.locator("#theta-number").fill(theta)
    until(page, f"location.hash.includes('theta={theta}')")


def test_the_first_response_is_marked_as_it_was_counted(page: Any) -> None:
    assert marked(page) == AT_THETA
    assert marked(page, "u") == [5]
    assert marked(page, "out") == [12]
    assert "".join(texts(page, ".tokens .answer")) == " 4"
    assert texts(page, ".big") == ["0.500", "5", "1"]
    assert page.locator("#theta-own").is_disabled()
    assert texts(page, ".tokens .line") == ["First, 2 + 2 = 4.\u21b5", "So it is 4<|end|>"]
    assert page.get_by_text("rounding").count() == 0


def test_one_slider_moves_marks_count_confidence_and_bins(page: Any) -> None:
    set_theta(page, "0.55")
    assert marked(page) == [6, 9]
    assert texts(page, ".big")[:2] == ["0.770", "2"]  # 0.95 - 0.09 * 2
    assert page.get_by_text("0.500 at its own theta 0.25").count() == 1
    assert texts(page, "#table tbody tr:nth-child(1) td")[-3:] == ["0.770", "2", "13"]
    # a 0.77 right, b 0.95 wrong; c keeps its 12 divergent tokens: 0.05, right
    expected = ece([0.77, 0.95, 0.05], [True, False, True])
    assert f"ECE {expected:.3f} of 3 graded responses" in page.locator("figcaption").inner_text()
    page.locator("#theta").evaluate("s => { s.value = 500; s.dispatchEvent(new Event('input')) }")
    until(page, "!location.hash.includes('theta')")  # 0.5 squared is the run's own
    assert marked(page) == AT_THETA


def test_what_the_pages_rounding_leaves_open_is_said(page: Any) -> None:
    set_theta(page, "0.300001")  # a token has 0.3, and a step of the page is 1.5e-5
    assert page.get_by_text("1 within the page's rounding of theta").count() == 1
    set_theta(page, "0.31")
    assert page.get_by_text("within the page's rounding").count() == 0


def test_another_estimator_keeps_its_stored_value(page: Any) -> None:
    page.locator("#estimator").select_option("nsl")
    set_theta(page, "0.55")
    assert texts(page, ".big")[:2] == ["0.500", "2"]
    assert page.get_by_text("as stored at theta 0.25").count() == 1


def test_a_token_tells_what_its_trace_holds(page: Any) -> None:
    page.locator(".tokens .t").nth(6).hover()
    said = page.locator(".detail").inner_text()
    assert "\u201c 4\u201d 7 of 13" in said
    assert "0.9000 bits divergent" in said
    cells = texts(page, ".measures tbody tr:nth-child(1) td")
    # exp(-1), log-prob -1, entropy 0, and kl_pq, which the sample has as its name's length
    assert cells == ["0.3679", "\u22121.000", "0.000", "5.000"]
    page.locator(".tokens .t").nth(11).hover()
    assert "0.9500 bits answer" in page.locator(".detail").inner_text()


def test_keys_go_from_token_to_token_and_row_to_row(page: Any) -> None:
    at = []
    for key in "nnnnnnp":
        page.keyboard.press(key)
        at += marked(page, "here")
    assert at == [*AT_THETA, AT_THETA[0], AT_THETA[-1]]
    page.locator(".tokens").focus()
    page.keyboard.press("ArrowRight")
    assert marked(page, "here") == [10]
    page.keyboard.press("j")
    assert page.evaluate("location.hash") == "#key=b"
    page.keyboard.press("k")
    assert page.evaluate("location.hash") == "#key=a"
    page.keyboard.press("/")
    page.keyboard.type("nj")  # words, not keys
    assert page.locator("#filter").input_value() == "nj"
    assert page.evaluate("location.hash") == "#key=a"


def test_rows_are_filtered_sorted_and_chosen_by_bin(page: Any) -> None:
    assert shown_keys(page) == ["a", "b", "c", "d/&#=?"]
    page.locator("[data-column=confidence]").click()
    assert shown_keys(page) == ["c", "a", "b", "d/&#=?"]  # what has none comes last
    page.locator("[data-column=confidence]").click()
    assert shown_keys(page) == ["b", "a", "c", "d/&#=?"]
    page.locator("#filter").fill("WHAT c?")
    assert shown_keys(page) == ["c"]
    page.locator("#filter").fill("")
    bar = page.get_by_role("button", name="Confidence 0.95 to 1.00: 1 response, 0 % right")
    bar.focus()
    page.keyboard.press("Enter")
    assert shown_keys(page) == ["b"]
    page.get_by_role("button", name="All bins").click()
    page.get_by_role("button", name="Confidently wrong").click()
    assert shown_keys(page) == ["b"]
    assert page.evaluate("location.hash") == "#key=b"
    page.get_by_role("button", name="Doubted but right").click()
    assert shown_keys(page) == ["c", "a", "d/&#=?"]


def test_a_link_leads_to_a_response_at_a_theta(opened: Browser, made: Path) -> None:
    opened.page.goto("about:blank")
    opened.open(made, "#key=d%2F%26%23%3D%3F&theta=0.7&estimator=nsl")
    page = opened.page
    assert page.locator("h2").inner_text().startswith("problem d/&#=?")
    assert page.locator("#theta-number").input_value() == "0.7"
    assert page.locator("#estimator").input_value() == "nsl"
    assert "no tokens here" in page.locator(".tokens.plain").inner_text()
    assert texts(page, ".big")[1] == "0"
    page.evaluate("location.hash = '#key=a'")
    until(page, "document.querySelector('h2').textContent.startsWith('problem a')")
    assert marked(page) == AT_THETA
    page.evaluate("location.hash = '#key=nowhere&theta=7'")
    page.wait_for_timeout(50)
    assert page.locator("h2").inner_text().startswith("problem a")


def test_the_strip_leads_into_a_long_response(page: Any) -> None:
    page.evaluate("location.hash = '#key=c'")
    until(page, "document.querySelectorAll('.tokens .t').length === 4000")
    strip = page.locator(".strip canvas")
    box = strip.bounding_box()
    strip.click(position={"x": box["width"] * 0.75, "y": 10})
    [here] = marked(page, "here")
    assert abs(here - 3000) <= 4000 / box["width"] + 1
    tokens = page.locator(".tokens").bounding_box()
    found = page.locator(".t.here").bounding_box()
    assert tokens["y"] < found["y"] < tokens["y"] + tokens["height"]
    assert page.locator(".tokens").evaluate("e => e.scrollTop") > 0


def test_lines_say_how_many_of_their_tokens_are_divergent(page: Any) -> None:
    page.keyboard.press("l")
    lines = page.locator(".by-line .line")
    assert [lines.nth(i).get_attribute("data-count") for i in range(2)] == ["4", "1"]
    set_theta(page, "0.7")
    assert [lines.nth(i).get_attribute("data-count") for i in range(2)] == ["1", ""]


def test_text_shows_as_it_does_on_a_terminal(page: Any) -> None:
    page.evaluate("location.hash = '#key=b'")
    until(page, "document.querySelector('h2').textContent.startsWith('problem b')")
    assert page.locator(".question").text_content() == visible(ODD, keep="\n\t")


def test_what_is_copied_is_the_response(opened: Browser, page: Any) -> None:
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as JSON").click()
    page.get_by_role("button", name="Copied").wait_for()
    told = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert (told["key"], told["theta_shown"], told["reading"]["count"]) == ("a", THETA, 5)
    assert told["reading"]["tokens"]["text"] == TEXTS


def test_everything_to_use_has_a_name(opened: Browser, page: Any) -> None:
    tree = opened.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    kinds = {"button", "textbox", "searchbox", "slider", "spinbutton", "combobox", "link", "image"}
    found = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node.get("ignored") and node["role"]["value"] in kinds
    ]
    assert {kind for kind, _ in found} >= {"button", "searchbox", "slider", "combobox", "link"}
    assert [kind for kind, name in found if not name.strip()] == []


CONTRAST = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((c, i) => a * c + (1 - a) * below[i]);
  const one = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const luminance = (c) => {
    const [r, g, b] = c.map((v) => one(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = parts(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll('.probe')].map((probe) => {
    const style = getComputedStyle(probe);
    const of = (colour) => luminance(over(parts(colour), paper));
    const [text, back] = [of(style.color), of(style.backgroundColor)];
    return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
  });
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_every_colour(page: Any, theme: str) -> None:
    page.evaluate(
        """(theme) => {
          document.documentElement.dataset.theme = theme;
          for (const kind of ['t', 't out'])
            for (let level = 0; level <= 12; level++) {
              const probe = document.createElement('span');
              probe.className = `probe ${kind} b${level}`;
              document.querySelector('.tokens').append(probe);
            }
        }""",
        theme,
    )
    found = page.evaluate(CONTRAST)
    assert len(found) == 26
    assert min(found) >= 4.5


def test_the_theme_follows_the_reader(chromium: Any, made: Path) -> None:
    dark = Browser(chromium, color_scheme="dark")
    dark.open(made)
    theme = "document.documentElement.dataset.theme"
    assert dark.page.evaluate(theme) == "dark"
    dark.page.get_by_role("button", name="Dark").click()
    assert dark.page.evaluate(theme) == "light"
    dark.context.close()


def test_on_a_small_screen_everything_is_one_below_the_other(chromium: Any, made: Path) -> None:
    small = Browser(chromium, viewport={"width": 400, "height": 800})
    small.open(made)
    names = ("#reliability", "#table", ".strip canvas", ".tokens")
    boxes = [small.page.locator(name).bounding_box() for name in names]
    assert all(box["height"] > 40 for box in boxes)
    assert all(a["y"] + a["height"] <= b["y"] for a, b in pairwise(boxes))
    assert small.page.evaluate("document.documentElement.scrollWidth") == 400
    small.context.close()


def test_bounds_that_leave_a_token_open_are_hatched(opened: Browser, tmp_path: Path) -> None:
    low = np.array([0.1, 0.1, 0.5], np.float32)
    high = np.array([0.2, 0.4, 0.7], np.float32)
    bounds = {"exact": False, "jsd_low_bits": low, "jsd_high_bits": high}
    found = reading(["one", " two", " three"], list((low + high) / 2), 0.86, **bounds)
    given = [row("a", "correct", found)]
    path = tmp_path / "page.html"
    path.write_text(page_html(given, run=run_of(given)), encoding="utf-8")
    opened.open(path)
    assert marked(opened.page, "open") == [1]
    assert marked(opened.page) == [2]
    set_theta(opened.page, "0.6")
    assert marked(opened.page, "open") == [2]
    assert opened.page.get_by_text("0 to 1").count() == 1
    assert opened.page.get_by_text("between 0.860 and 0.950").count() == 1


def test_two_runs_are_scrolled_together(opened: Browser, tmp_path: Path) -> None:
    long = [f"word{i}\n" for i in range(300)]
    other = reading(long, [0.5] * 5 + [0.0] * 295, 0.5)
    given = [row("a", "correct", reading(long, [0.0] * 300, 0.95), other=other)]
    about = run_of(given, title="other", estimators=[PageEstimator("dtc_lin", True)])
    path = tmp_path / "page.html"
    path.write_text(page_html(given, run=run_of(given), against=about), encoding="utf-8")
    opened.open(path)
    page = opened.page
    assert texts(page, "#table tbody td")[-5:-2] == ["0.950", "0.500", "0.450"]
    assert texts(page, ".big") == ["0.950", "0", "0.500", "5"]
    left, right = page.locator(".tokens").nth(0), page.locator(".tokens").nth(1)
    left.hover()
    left.evaluate("e => { e.scrollTop = 2000 }")
    until(page, "document.querySelectorAll('.tokens')[1].scrollTop > 1000")
    share = "e => e.scrollTop / (e.scrollHeight - e.clientHeight)"
    tops = [pane.evaluate(share) for pane in (left, right)]
    assert tops[0] == pytest.approx(tops[1], abs=0.02)


def test_sixteen_thousand_tokens_are_shown_and_walked_through(
    opened: Browser, tmp_path: Path
) -> None:
    size = 16_000
    bits = np.zeros(size, np.float32)
    bits[[100, 9000, 15_999]] = 0.8
    given = [row("a", "correct", reading([" word"] * size, list(bits), 0.68))]
    path = tmp_path / "page.html"
    path.write_text(page_html(given, run=run_of(given)), encoding="utf-8")
    opened.open(path)
    page = opened.page
    at = []
    for _ in range(3):
        page.keyboard.press("n")
        at += marked(page, "here")
    assert at == [100, 9000, 15_999]
    box, pane = page.locator(".t.here").bounding_box(), page.locator(".tokens").bounding_box()
    assert pane["y"] < box["y"] < pane["y"] + pane["height"]


ANSWER = {
    "version": 1, "confidence": 0.86, "low": None, "high": None, "source": "measured",
    "estimator": "dtc_lin", "theta": 0.5, "count": 1, "reasoning_tokens": 3, "pair": ["P", "Q"],
    "exact": True, "prior": None, "status": "ok", "reason": None,
    "decision": {"action": "accept", "reason": "it is above 0.8"},
    "tokens": {
        "text": ["a", " <b>", " 4"], "jsd_bits": [0.5, 0.75, None],
        "divergent": [False, True, False], "unexpected": [False, False, True],
        "counted": [0, 2], "answer": None,
        "top": {"p": [None, [["x", -0.5]], None], "q": [None, [["y", 0.0]], None]},
    },
}  # fmt: skip


def test_a_served_page_asks_its_server_and_shows_the_answer(chromium: Any) -> None:
    context = chromium.new_context()
    page, asked, answers = context.new_page(), [], [ANSWER]

    def served(route: Any) -> None:
        if route.request.url == "http://divtok.test/":
            headers = {"Content-Security-Policy": served_policy()}
            route.fulfill(body=page_html(mode="serve"), content_type="text/html", headers=headers)
            return
        asked.append((route.request.url, route.request.post_data, route.request.headers))
        if len(asked) == 1:
            route.fulfill(status=401, json={"error": {"message": "a token is needed"}})
        else:
            route.fulfill(json=answers[-1])

    context.route("**/*", served)
    page.goto("http://divtok.test/")
    assert not page.locator("#filter").is_visible()
    page.get_by_role("textbox", name="Question").fill("What?")
    page.get_by_role("textbox", name="Response").fill("a <b> 4")
    page.get_by_role("button", name="How far to trust it").click()
    page.get_by_text("The server says 401: a token is needed").wait_for()
    page.get_by_label("Token, if the server asks for one").fill("secret")
    page.get_by_role("button", name="How far to trust it").click()
    page.locator(".tokens .t").first.wait_for()
    url, body, headers = asked[1]
    assert url == "http://divtok.test/v1/confidence"
    assert json.loads(body) == {"question": "What?", "response": "a <b> 4", "tokens": True}
    assert headers["authorization"] == "Bearer secret"
    assert "authorization" not in asked[0][2]
    assert (marked(page), marked(page, "u")) == ([1], [2])
    assert texts(page, ".big") == ["0.860", "1", "1"]
    assert page.get_by_text("decision: accept, it is above 0.8").count() == 1
    page.keyboard.press("Escape")
    page.locator(".tokens .t").nth(1).hover()
    assert "p: \u201cx\u201d 0.607" in page.locator(".detail").inner_text()
    page.locator("#theta-number").fill("0.4")
    until(page, "document.querySelectorAll('.tokens .d').length === 2")
    assert page.get_by_text("as stored at theta 0.5").count() == 1
    nothing = dict.fromkeys(("confidence", "theta", "count", "tokens", "pair", "decision"))
    answers.append(ANSWER | nothing | {"status": "too_long", "reason": "4,000 tokens"})
    page.get_by_role("button", name="How far to trust it").click()
    page.get_by_text("too_long: 4,000 tokens").wait_for()
    assert texts(page, ".big") == ["\u2013", "\u2013"]
    kept = "[localStorage.length, sessionStorage.length, document.cookie]"
    assert page.evaluate(kept) == [0, 0, ""]
    context.close()
