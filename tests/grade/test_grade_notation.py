"""Notation of real answers that is easily misread, through the whole grader, in both directions."""

from __future__ import annotations

import json
import time

import pytest

from divtok.grade import grade_answer, judge_answer
from divtok.records import Verdict, reason_kind


def both_ways(gold: str, answer: str) -> set[Verdict]:
    return {grade_answer(gold=gold, answer=answer), grade_answer(gold=answer, answer=gold)}


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("0.00001", "1e-5"),
        ("10^{-5}", "1e-5"),
        (r"\frac{1}{100000}", json.dumps(0.00001)),
        ("100000", "1E5"),
        ("2500", "2.5e+03"),
        (r"3 \times 10^{8}", "3e8"),
        ("2e", "e+e"),
        ("e-5", "-5+e"),
        ("3,2,1", "(3,2,1)"),
        ("1, 2, 3", "3, 2, 1"),
        (r"\{1,2\}", "2, 1"),
        ("(1,2), (3,4)", "(3,4), (1,2)"),
        ("x = 1, y = 2", "y = 2, x = 1"),
        ("x = 1, y = 2", "(1, 2)"),
        (r"1+\sqrt2, 1-\sqrt2", r"1 \pm \sqrt2"),
        (r"\pm 5", "5, -5"),
        (r"\frac{\pi}{2}", r"\frac\pi2"),
        (r"\frac{1}{2}", r"\frac12"),
        (r"\sqrt{\pi}", r"\sqrt\pi"),
        (r"\sqrt{2}", r"\sqrt2"),
        ("1+2i", r"2\mathrm{i}+1"),
        ("1+2i", r"1+2\text{i}"),
        ("-1", "i^2"),
        ("-1", r"e^{i \pi}"),
        ("5", "(2+i)(2-i)"),
        ("E_1", "E_{1}"),
        ("73", r"\text{073}"),
        ("073", r"\text{73}"),
        (r"\frac{1}{2}\ln|x|", r"\ln|x|/2"),
        (r"\frac{\ln|x|}{2}", r"\frac12 \ln |x|"),
        (r"\frac{1}{2}", r"The answer is $\frac12$."),
        ("5", "x = 5"),
        ("5", "5 apples"),
        ("5", r"5 \text{ apples}"),
        ("7", r"7 \text{ m}"),
        (r"3\sqrt{2}", r"\sqrt{18} \text{ cm}"),
        (
            r"2\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
            r"\frac{1}{2}\begin{pmatrix} 4 \\ 8 \end{pmatrix}",
        ),
    ],
)
def test_the_same_value_is_correct(gold: str, answer: str) -> None:
    assert both_ways(gold, answer) == {Verdict.CORRECT}


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1e-5", "e-5"),
        ("1e-5", "1e-6"),
        ("2e", "200"),
        ("(3,2,1)", "1,2,3"),
        ("(1,2)", "(2,1)"),
        ("x = 1, y = 2", "2, 1"),
        ("1, 2", "1, 2, 3"),
        # Brackets of their own around a list, which once were read without end.
        ("((1,2))", "((1,3))"),
        ("((1,2),(3,4))", "((1,2),(3,5))"),
        (r"\{(1,2),((3,4))\}", r"\{(1,2),((3,5))\}"),
        (r"1 \pm \sqrt2", r"1+\sqrt2"),
        (r"\frac\pi2", r"\frac\pi3"),
        ("1+2i", "1-2i"),
        ("E_1", "E_2"),
        (r"\text{073}", "74"),
        (r"\sqrt{2}", r"\sqrt{2} + 10^{-31}"),
        ("1", r"1 + \frac{1}{10^{40}}"),
        ("1.0000000000000000000000000000001", "1.0000000000000000000000000000002"),
        (
            r"2\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
            r"3\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
        ),
    ],
)
def test_another_value_is_incorrect(gold: str, answer: str) -> None:
    assert both_ways(gold, answer) == {Verdict.INCORRECT}


def test_a_worker_tells_exact_values_apart_behind_thirty_digits() -> None:
    gold = r"\cos(\frac{\pi}{7})"
    assert grade_answer(gold=gold, answer=rf"{gold} + 10^{{-35}}") is Verdict.INCORRECT
    assert grade_answer(gold=gold, answer=r"-\cos(\frac{6\pi}{7})") is Verdict.CORRECT


@pytest.mark.parametrize("gold", [r"\frac{1}{", "@@#", "x = ?", "(((", "=", "{", r"\foo{3}", "1+"])
def test_a_gold_answer_that_cannot_be_read_is_undetermined(gold: str) -> None:
    judgement = judge_answer(gold=gold, answer="5")
    assert judgement.verdict is Verdict.UNDETERMINED
    assert reason_kind(judgement.reason) == "unread"


def test_euler_s_number_or_a_power_of_ten_is_undetermined_unless_equal() -> None:
    assert grade_answer(gold="0.2", answer="2e-1") is Verdict.CORRECT
    judgement = judge_answer(gold="-1+2e", answer="2e-1")
    assert judgement.reason == "answer cannot be read (a power of ten or Euler's number)"


@pytest.mark.parametrize(
    "answer",
    [
        "1e999999999",
        "(" * 16 + "1,2" + ")" * 16,
        "(x+1)^{64}(y+2)^{64}",
        r"\sqrt{" * 16 + "x" + "}" * 16,
        "1" + "+1" * 400,
        ", ".join(f"x_{{{n}}}+\\sqrt{{{n}}}" for n in range(60)),
        "500!^{500}",
    ],
)
def test_large_formulas_are_given_up_soon(answer: str) -> None:
    begin = time.monotonic()
    judge_answer(gold="x, y", answer=answer, time_limit=2.0)
    assert time.monotonic() - begin < 20.0
