r"""Answers of responses without a balanced box, as the paper's released code looks for them."""

from __future__ import annotations

import time

import pytest

from divtok.protocols.extract import extract_answer, find_answer_by
from divtok.protocols.fallbacks import find_fallback
from divtok.protocols.protocol import PROTOCOLS

CASES = [
    (r"So 3 + 4 is \boxed{7", "7", "unclosed_box"),
    (r"So it is $\boxed{\frac{1}{2}$. That was 3 steps.", r"\frac{1}{2}", "unclosed_box"),
    ("\\[\\boxed{ x^2 \\] as the answer is 9", "x^2", "unclosed_box"),
    ("\\boxed{12\n\nI checked 4 times.", "12", "unclosed_box"),
    (r"\boxed{3, and then \boxed{4", "4", "unclosed_box"),
    (r"Put it in \boxed{}. The answer is 5, I think of 6.", "5, I think of 6", "phrase"),
    ("The answer is 4. No: the final answer is **18**.", "18", "phrase"),
    ("the answer is: $x = 2$. Done in 9 steps", "x = 2", "phrase"),
    # The last phrase that says anything.
    ("The answer is 4. But the answer is not 5.", "4", "phrase"),
    ("First 3, then 1,234.50 apples.", "1,234.50", "last_number"),
    ("It falls to -12 degrees", "-12", "last_number"),
    ("It is 15-12", "12", "last_number"),
    ("pages 3, 4", "4", "last_number"),
    ("1,23", "23", "last_number"),
    ("half of it, .5", ".5", "last_number"),
    ("My answer: 6. Or 7!", "7", "last_number"),
]


@pytest.mark.parametrize(("text", "answer", "how"), CASES)
def test_the_first_place_that_has_an_answer_counts(text: str, answer: str, how: str) -> None:
    found = find_fallback(text)
    assert found is not None
    span, fallback = found
    assert (span.content, fallback) == (answer, how)
    assert text[span.start : span.stop] == answer
    assert extract_answer(text) is None
    assert extract_answer(text, extract="released") == answer


@pytest.mark.parametrize("text", ["", "I do not know.", r"It goes into \boxed{ }", "the answer is"])
def test_without_a_number_there_is_no_answer(text: str) -> None:
    assert find_fallback(text) is None


def test_a_balanced_box_goes_before_everything_behind_it() -> None:
    text = r"\boxed{7}, the answer is 8, \boxed{9"
    span, fallback = find_answer_by(text, PROTOCOLS.get("cot"), "released")
    assert span is not None
    assert (span.content, fallback) == ("7", None)


@pytest.mark.parametrize("protocol", ["sentence", "letter", "verbalized", "json", "hashes"])
def test_where_no_box_is_asked_for_nothing_changes(protocol: str) -> None:
    assert extract_answer("There are 7 of them", protocol, extract="released") is None


@pytest.mark.parametrize(
    "text",
    ["\\boxed{" * 60_000, "the answer is " * 40_000, "1,111" * 60_000, "{}\\boxed{{" * 30_000],
)
def test_hostile_texts_cost_no_more_than_honest_ones(text: str) -> None:
    begun = time.perf_counter()
    find_fallback(text)
    assert time.perf_counter() - begun < 10
