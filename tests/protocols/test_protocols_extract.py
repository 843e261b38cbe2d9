from __future__ import annotations

import time

import pytest
from grade_samples import read_stated
from hypothesis import given
from hypothesis import strategies as st

from divtok.errors import UsageError
from divtok.protocols.extract import extract_answer, find_answer


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


@pytest.mark.parametrize(
    ("text", "protocol", "expected"),
    [
        (r'\boxed{1} {"final_answer": "2", "confidence": 0.9}', "cot", "1"),
        (r'\boxed{1} {"final_answer": "2", "confidence": 0.9}', "verbalized", "2"),
        (r'{"final_answer": "2", "confidence": 0.9} \boxed{1}', "verbalized", "2"),
        ('{"final_answer": "2", "confidence": "high"}', "verbalized", "2"),
        (r'[{"candidate": "2", "confidence": 0.9}] \boxed{1}', "verbalized_top2", "2"),
        (r'[{"candidate": "2", "confidence": 0.9}]', "verbalized_distribution", "2"),
        # Without an answer in JSON the box counts.
        (r"\boxed{1}", "verbalized", "1"),
        (r'\boxed{1} {"final_answer": "", "confidence": 0.9}', "verbalized", "1"),
        (r'\boxed{1} {"confidence": 0.9}', "verbalized", "1"),
        (r'\boxed{1} {"final_answer": "2', "verbalized", "1"),
        (
            r'\boxed{1} [{"candidate": "2", "confidence": 0.9}, {"candidate": "1"}]',
            "verbalized_top2",
            "1",
        ),
        ('{"final_answer": "2", "confidence": 0.9}', "verbalized_top2", None),
        ("2", "verbalized", None),
    ],
)
def test_the_protocol_says_where_the_answer_is(
    text: str, protocol: str, expected: str | None
) -> None:
    assert extract_answer(text, protocol) == expected


def test_the_span_in_json_is_what_is_between_the_quotes() -> None:
    text = r'So: {"final_answer": " \\frac{1}{2} ", "confidence": 0.9}'
    span = find_answer(text, "verbalized")
    assert span is not None
    assert text[span.start : span.stop] == r"\\frac{1}{2}"
    assert span.content == r"\frac{1}{2}"


def test_the_box_that_stands_in_has_no_stated_confidence() -> None:
    text = r'\boxed{1} {"final_answer": null, "confidence": 0.9}'
    assert extract_answer(text, "verbalized") == "1"
    assert read_stated(text, "verbalized").statement.value is None


def test_an_unknown_protocol_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="verbalized"):
        find_answer("", "verbalised")


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
