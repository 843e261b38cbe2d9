"""A page is one file that lets in nothing but its own style and script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from page_samples import reading, row, run_of

from divtok.page.write import page_html, served_policy

CLOSING = "</script><script>alert(1)</script><!-- & \u2028"


def sha(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def page(text: str = "plain") -> str:
    rows = [row(text, "correct", reading([text, text], [0.1, 0.5], 0.86), question=text, gold=text)]
    return page_html(rows, run=run_of(rows, title=text))


class Parts(HTMLParser):
    """The elements of a page, and what is inside its scripts, style and title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[str] = []
        self.inside: dict[str, str] = {}
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        given = dict(attrs)
        self.attributes += [name for name, _ in attrs]
        self._in = "data" if given.get("type") == "application/json" else tag
        if given.get("http-equiv") == "Content-Security-Policy":
            self.inside["policy"] = given["content"] or ""

    def handle_data(self, data: str) -> None:
        self.inside[self._in] = self.inside.get(self._in, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._in = ""


def test_the_policy_names_what_is_in_the_page() -> None:
    parts = Parts(page())
    script, style = sha(parts.inside["script"]), sha(parts.inside["style"])
    assert parts.inside["policy"] == (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def test_a_served_page_may_ask_its_own_server() -> None:
    parts = Parts(page_html(mode="serve"))
    expected = parts.inside["policy"]
    assert "connect-src 'self';" in expected
    assert served_policy() == f"{expected}; frame-ancestors 'none'"
    assert "form" in parts.elements
    assert json.loads(parts.inside["data"])["rows"] == []


def test_text_ends_no_element_and_comes_back_as_it_was() -> None:
    plain, hostile = Parts(page()), Parts(page(CLOSING))
    assert hostile.elements == plain.elements
    [told] = json.loads(hostile.inside["data"])["rows"]
    assert told["key"] == told["question"] == told["gold"] == CLOSING
    assert told["reading"]["tokens"]["text"] == [CLOSING, CLOSING]


def test_no_element_acts_or_fetches_by_itself() -> None:
    parts = Parts(page())
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(parts.elements)
    assert not [n for n in parts.attributes if n.startswith("on") or n in ("src", "href", "style")]


@pytest.mark.parametrize(
    "name", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
)
def test_the_script_makes_no_element_from_text(name: str) -> None:
    assert name not in Parts(page()).inside["script"]


def test_the_script_names_no_address() -> None:
    script = Parts(page()).inside["script"]
    assert re.findall(r"https?://[^\"' ]*", script) == ["http://www.w3.org/2000/svg"]
