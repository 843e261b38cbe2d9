r"""What is not read for what it means is undetermined; words and open gaps are still incorrect.

The notations themselves are among the tests of faults.
"""

from __future__ import annotations

import time

import pytest

from divtok.grade import judge_answer
from divtok.grade.maths.unread import different, says_no_value
from divtok.records import Verdict, reason_kind


@pytest.mark.parametrize(
    "answer",
    [
        "8",
        "x + 1",
        r"\sqrt{50}",
        "I don't know...",
        "no solution",
        r"\text{undefined}",
        r"\text{a circle of radius √10}",
        "7 apples and 3 pears",
        "x = ...",
        "P(16) = ?",
        r"\begin{pmatrix} \\ \\ \end{pmatrix}",
        r"f(2) = 8",
        r"\angle ABC = 70^\circ",
        "∠ABC ≈ 70°",
        "6 - 5i",
        r"\overline{AB}",
        r"\infty",
    ],
)
def test_another_answer_is_still_incorrect(answer: str) -> None:
    assert judge_answer(gold="7", answer=answer).verdict is Verdict.INCORRECT


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("3", "3"),
        ("6", r"\sum_{i=1}^{3}\sum_{j=1}^{i} 1"),
        (r"\emptyset", r"\varnothing"),
        (r"\emptyset", "∅"),
        ("2", "⌊2.5⌋"),
        ("7", r"\boldsymbol{7}"),
        ("7", r"7 \blacksquare"),
        (r"3 \pmod{4}", r"3 \pmod 4"),
        (r"1, 2, \ldots", r"1,2,\ldots"),
        ("4", "f(2) = 4"),
    ],
)
def test_what_is_found_equal_stays_correct(gold: str, answer: str) -> None:
    assert judge_answer(gold=gold, answer=answer).verdict is Verdict.CORRECT


def test_the_reason_names_the_notation_and_whose_it_is() -> None:
    judgement = judge_answer(gold=r"3 \pmod{4}", answer="7")
    assert judgement.reason == "gold cannot be read (a modulus)"
    assert reason_kind(judgement.reason) == "unread"
    assert judge_answer(gold="7", answer=r"\foo{3}").reason == "answer cannot be read"


@pytest.mark.parametrize(
    "piece", [r"\{:", r"\text{", r"\overline{", "1...", r"\dots", "(", "=?", " "]
)
def test_looking_for_notation_takes_no_longer_than_reading(piece: str) -> None:
    text = piece * (20_000 // len(piece))
    begin = time.monotonic()
    different(gold=text, answer=text)
    says_no_value(text)
    assert time.monotonic() - begin < 1.0
