"""Wrong attempts: one wrong result, everything after it consistent, never the right answer."""

from __future__ import annotations

import random
import re
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from divtok.problems.arithmetic import Equation, Step, Story, stories
from training.data import TRAINING_LEVELS
from training.mistakes import (
    Attempt,
    attempt_with_mistake,
    draw_attempt,
    equations_with,
    right_attempt,
    wrong_result,
)
from training.solutions import write_solution

CASES = list(islice(stories(11, "train", TRAINING_LEVELS), 150))
TRUE = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def is_true(equation: Equation) -> bool:
    return TRUE[equation.sign](equation.left, equation.right) == equation.result


def test_a_wrong_product_is_carried_through_by_hand() -> None:
    story = Story("Ada", "eggs", 100, (Step("add_lots", 12, 13), Step("mul", 2)), "?")
    assert equations_with(story, {0: 166}) == (
        Equation(12, "*", 13, 166),
        Equation(100, "+", 166, 266),
        Equation(266, "*", 2, 532),
    )
    assert equations_with(story, {1: 250})[1:] == (
        Equation(100, "+", 156, 250),
        Equation(250, "*", 2, 500),
    )


def test_without_a_mistake_the_equations_are_the_storys() -> None:
    assert all(equations_with(story, {}) == story.equations for story in CASES)


def test_one_equation_is_wrong_and_the_answer_with_it() -> None:
    rng = random.Random(1)
    for story in CASES:
        for line, true in enumerate(story.equations):
            attempt = attempt_with_mistake(story, line, rng)
            wrong = [i for i, equation in enumerate(attempt.equations) if not is_true(equation)]
            assert wrong == [line] == [attempt.first_wrong]
            assert attempt.equations[:line] == story.equations[:line]
            assert attempt.equations[line].result != true.result
            assert attempt.answer == attempt.equations[-1].result != story.answer
            assert min(equation.result for equation in attempt.equations) > 0


def test_a_wrong_closing_line_leaves_the_equations_alone() -> None:
    rng = random.Random(2)
    for story in CASES:
        attempt = attempt_with_mistake(story, len(story.equations), rng)
        assert attempt.equations == story.equations
        assert attempt.answer != story.answer
        assert attempt.line_labels == (1,) * len(story.equations) + (0,)


def test_labels_are_good_up_to_the_mistake_and_never_after() -> None:
    equations = (Equation(1, "+", 1, 2),) * 3
    assert Attempt(equations, 2, None).line_labels == (1, 1, 1, 1)
    assert Attempt(equations, 2, 1).line_labels == (1, 0, 0, 0)


@given(
    left=st.integers(2, 99),
    right=st.integers(2, 99),
    sign=st.sampled_from("+*"),
    seed=st.integers(),
)
def test_a_wrong_result_is_positive_and_near_the_true_one(
    left: int, right: int, sign: str, seed: int
) -> None:
    true = TRUE[sign](left, right)
    wrong = wrong_result(Equation(left, sign, right, true), random.Random(seed))  # type: ignore[arg-type]
    assert wrong > 0
    assert wrong != true
    same = [a == b for a, b in zip(str(wrong), str(true), strict=False)]
    one_digit = len(str(wrong)) == len(str(true)) and same.count(False) == 1
    assert one_digit or abs(wrong - true) in {10, 20, 40, 60, 80, 100, 120, 200, 1000}


def test_harder_stories_go_wrong_more_often_and_about_half_of_all_do() -> None:
    rng = random.Random(3)

    def share_right(chosen: list[Story]) -> float:
        return sum(draw_attempt(story, rng).right for story in chosen * 8) / (8 * len(chosen))

    hard = [
        s
        for s in CASES
        if sum(e.sign == "*" and min(e.left, e.right) > 11 for e in s.equations) > 2
    ]
    assert 0.4 < share_right(CASES) < 0.65
    assert share_right(hard) < share_right([s for s in CASES if s not in hard])


def test_a_worded_attempt_shows_its_own_numbers() -> None:
    rng = random.Random(4)
    for story in CASES:
        attempt = attempt_with_mistake(story, 0, rng)
        *lines, last = write_solution(story, rng, attempt=attempt, boxed=False).split("\n")
        assert len(lines) == len(attempt.equations)
        for line, equation in zip(lines, attempt.equations, strict=True):
            numbers = [int(n) for n in re.findall(r"\d+", line)]
            assert sorted(numbers) == sorted((equation.left, equation.right, equation.result))
        assert re.findall(r"\d+", last) == [str(attempt.answer)]
        assert "boxed" not in last


def test_the_wording_of_a_right_attempt_is_the_plain_one() -> None:
    for story in CASES[:20]:
        plain = write_solution(story, random.Random(5))
        assert write_solution(story, random.Random(5), attempt=right_attempt(story)) == plain
