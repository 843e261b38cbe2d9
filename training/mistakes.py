"""Attempts at a story that go wrong once, as the models' own do: one wrong result, then consistent.

What follows the mistake is computed rightly from the wrong number, so only checking that one line
tells a wrong attempt from a right one. How an attempt is worded is not known here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from divtok.problems.arithmetic import Equation, Story

# The chance that a line goes wrong, about as often as in the samples of tiny-0.5m: wrong digits in
# products of two two-digit numbers are common, lost carries less so. So a story with many hard
# steps is likelier to be answered wrongly, which is all that a model needs to see to be less sure.
HARD_PRODUCT, OTHER_PRODUCT, SUM, CLOSING = 0.20, 0.06, 0.04, 0.01
_TWO_DIGITS = 12  # from here on the benchmarks call a factor of a product hard

# A wrong result is off by a carry, or else has some one digit changed.
_BY_A_CARRY = 0.7
_CARRIES_OF_A_PRODUCT = (10, 20, 20, 40, 40, 60, 80, 80, 100, 120, 200, 1000)
_CARRIES_OF_A_SUM = (10, 100, 100, 100, 1000, 1000)


@dataclass(frozen=True)
class Attempt:
    """The equations and the answer of one solution; line `len(equations)` gives the answer.

    `first_wrong` is the line of the mistake, None where there is none. Lines after it are right in
    themselves, but not for the story.
    """

    equations: tuple[Equation, ...]
    answer: int
    first_wrong: int | None

    @property
    def right(self) -> bool:
        return self.first_wrong is None

    @property
    def line_labels(self) -> tuple[int, ...]:
        """For each line, whether it and every line before it is right (1) or not (0)."""
        lines = len(self.equations) + 1
        good = lines if self.first_wrong is None else self.first_wrong
        return (1,) * good + (0,) * (lines - good)


def right_attempt(story: Story) -> Attempt:
    return Attempt(story.equations, story.answer, None)


def draw_attempt(story: Story, rng: random.Random) -> Attempt:
    """Right or wrong, as chance has it; about half and half over the training stories."""
    chances = [*map(_chance, story.equations), CLOSING]
    slips = [line for line, chance in enumerate(chances) if rng.random() < chance]
    return attempt_with_mistake(story, slips[0], rng) if slips else right_attempt(story)


def attempt_with_mistake(story: Story, line: int, rng: random.Random) -> Attempt:
    """An attempt that goes wrong at one line; its answer is wrong, every amount positive."""
    if line == len(story.equations):
        return Attempt(story.equations, _change_a_digit(story.answer, rng), line)
    while True:
        wrong = wrong_result(story.equations[line], rng)
        equations = equations_with(story, {line: wrong})
        if min(equation.result for equation in equations) > 0:
            return Attempt(equations, equations[-1].result, line)


def equations_with(story: Story, results: Mapping[int, int]) -> tuple[Equation, ...]:
    """The story's equations where line i is given `results[i]`, and later lines build on it."""
    equations: list[Equation] = []

    def state(left: int, sign: Literal["+", "-", "*"], right: int) -> int:
        true = {"+": left + right, "-": left - right, "*": left * right}[sign]
        result = results.get(len(equations), true)
        equations.append(Equation(left, sign, right, result))
        return result

    amount = story.start
    for step in story.steps:
        if step.operation == "mul":
            amount = state(amount, "*", step.a)
            continue
        lots = step.operation in ("add_lots", "sub_lots")
        change = state(step.a, "*", step.b) if lots else step.a
        amount = state(amount, "+" if step.operation in ("add", "add_lots") else "-", change)
    return tuple(equations)


def wrong_result(equation: Equation, rng: random.Random) -> int:
    """A plausible wrong result, positive and never the true one."""
    carries = _CARRIES_OF_A_PRODUCT if equation.sign == "*" else _CARRIES_OF_A_SUM
    while True:
        if rng.random() < _BY_A_CARRY:
            wrong = equation.result + rng.choice((-1, 1)) * rng.choice(carries)
        else:
            wrong = _change_a_digit(equation.result, rng)
        if wrong > 0:
            return wrong


def _chance(equation: Equation) -> float:
    if equation.sign != "*":
        return SUM
    return HARD_PRODUCT if min(equation.left, equation.right) >= _TWO_DIGITS else OTHER_PRODUCT


def _change_a_digit(number: int, rng: random.Random) -> int:
    digits = list(str(number))
    place = rng.randrange(len(digits))
    lowest = 1 if place == 0 else 0
    digits[place] = rng.choice([str(d) for d in range(lowest, 10) if str(d) != digits[place]])
    return int("".join(digits))
