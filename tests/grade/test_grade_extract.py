from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.grade import extract_answer, find_answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{7}", "7"),
        (r"\boxed{1}, no, \boxed{2}", "2"),
        (r"\boxed{\frac{a}{b}}", r"\frac{a}{b}"),
        (r"\boxed{ 12 }", "12"),
        (r"\fbox{left}", "left"),
        (r"\boxed {8}", "8"),
        (r"\boxed{x = \boxed{9}}", "9"),
        (r"\boxed{3} and then \boxed{4", "3"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"a } stray brace \boxed{5}", "5"),
        (r"\boxed{6} goes in \boxed{}", "6"),
        (r"\\boxed{004}", "004"),
        (r"it is \boxed 42$.", "42"),
        (r"it is \boxed -3.5.", "-3.5"),
        (r"use the \boxed form", None),
        (r"in \boxed{}", None),
        (r"in \boxed{  }", None),
        ("boxed{3}", None),
        (r"\boxedfoo{3}", None),
        ("", None),
    ],
)
def test_the_last_balanced_box_counts(text: str, expected: str | None) -> None:
    assert extract_answer(text) == expected


def test_the_span_covers_exactly_the_content() -> None:
    text = "Thus\n\\boxed{ \\sqrt{2} } done"
    span = find_answer(text)
    assert span is not None
    assert (span.start, span.stop) == (13, 21)
    assert text[span.start : span.stop] == span.content == r"\sqrt{2}"


balanced = st.recursive(
    st.text(alphabet="ab1 +-=,", max_size=5),
    lambda inner: st.lists(st.one_of(inner, inner.map(lambda s: "{" + s + "}")), max_size=4).map(
        "".join
    ),
)


@given(before=st.text(max_size=30), content=balanced, after=st.text(alphabet="ab{}$. \n"))
def test_a_balanced_box_is_always_found(before: str, content: str, after: str) -> None:
    # The space keeps a backslash at the end of `before` from joining the command.
    text = f"{before} \\boxed{{{content}}}{after}"
    span = find_answer(text)
    if not content.strip():
        return
    assert span is not None
    assert span.content == content.strip()
    assert text[span.start : span.stop] == content.strip()


@pytest.mark.parametrize(
    "hostile",
    [
        "\\boxed{" * 100_000,
        "\\boxed{1" * 100_000 + "}" * 100_000,
        "\\" * 200_000,
        "\\boxed" + " " * 200_000,
        "\\boxed 1" * 100_000,
        "\\boxed 1" + "." * 200_000,
        "{" * 200_000 + "}" * 200_000,
    ],
    ids=["open", "nested", "backslashes", "blanks", "braceless", "stops", "braces"],
)
def test_hostile_text_takes_linear_time(hostile: str) -> None:
    started = time.monotonic()
    find_answer(hostile)
    assert time.monotonic() - started < 5.0  # quadratic time would be minutes
