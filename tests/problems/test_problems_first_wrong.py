"""The first wrong step of a solution, against solutions that are known to go wrong at one line."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice

import pytest

from divtok.problems.arithmetic import (
    _QUESTION,  # pyright: ignore[reportPrivateUsage]
    _SENTENCES,  # pyright: ignore[reportPrivateUsage]
    _START,  # pyright: ignore[reportPrivateUsage]
    LEVELS,
    Step,
    Story,
    stories,
    story_of,
)
from divtok.problems.first_wrong import UNREAD_STEP, first_wrong
from divtok.records import FirstWrong, reason_kind
from training.mistakes import attempt_with_mistake, right_attempt
from training.solutions import write_solution

CASES = list(islice(stories(3, "test", list(LEVELS.values())), 200))
# Tom has 100 nuts; 7 boxes of 20 come (240), 40 are sold (200), then there are 3 times as many.
STORY = Story(
    "Tom", "nuts", 100, (Step("add_lots", 7, 20), Step("sub", 40), Step("mul", 3)), question=""
)
RIGHT = ["7 * 20 = 140.", "100 + 140 = 240.", "240 - 40 = 200.", "200 * 3 = 600."]
ANSWER = r"It is \boxed{600}."


def test_every_story_is_read_back_from_its_question() -> None:
    for story in CASES:
        assert story_of(story.question) == story


@pytest.mark.parametrize("operation", _SENTENCES)
def test_every_wording_of_a_question_is_read_back(operation: str) -> None:
    words = {"name": "Tom", "item": "nuts"}
    for start in _START:
        for told in _SENTENCES[operation]:  # type: ignore[index]
            for asked in _QUESTION:
                parts = (start.format(**words, n=12), told.format(**words, a=3, b=45))
                found = story_of(" ".join([*parts, asked.format(**words)]))
                assert found is not None
                step = Step(operation, 3, 45 if operation.endswith("_lots") else 0)  # type: ignore[arg-type]
                assert (found.start, found.steps) == (12, (step,))


@pytest.mark.parametrize(
    "question",
    [
        "",
        "What is 1 + 1?",
        "Tom has 12 nuts. How many nuts are left?",
        "Tom has 12 nuts. Tom eats 3 nuts. How many nuts are left?",
        "Tom has 12 nuts. Tom sells 3 nuts. Why?",
    ],
)
def test_another_question_is_no_story(question: str) -> None:
    assert story_of(question) is None


def test_right_solutions_in_every_manner_have_no_wrong_step() -> None:
    rng = random.Random(0)
    for story in CASES:
        lines = write_solution(story, rng, attempt=right_attempt(story)).split("\n")
        assert first_wrong(story, lines) == FirstWrong(None)


def test_a_mistake_is_found_at_its_line_in_every_manner() -> None:
    rng = random.Random(0)
    for story in CASES:
        attempt = attempt_with_mistake(story, rng.randrange(len(story.equations) + 1), rng)
        lines = write_solution(story, rng, attempt=attempt).split("\n")
        assert first_wrong(story, lines) == FirstWrong(attempt.first_wrong)


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        ([*RIGHT, ANSWER], None),
        ([RIGHT[0], "140 + 100 = 240.", *RIGHT[2:], ANSWER], None),  # the other way round
        ([*RIGHT[1:], ANSWER], None),  # the product in one's head
        (["So we go.", *RIGHT, ANSWER], None),
        ([" ".join(RIGHT), ANSWER], None),  # all in one line
        ([*RIGHT, "The answer is 600."], None),  # not in a box
        (["7 * 20 = 150.", "100 + 150 = 250.", r"\boxed{250}"], 0),
        ([RIGHT[0], "100 + 140 = 340.", "340 - 40 = 300.", r"\boxed{300}"], 1),
        ([*RIGHT[:2], "40 - 240 = -200."], 2),  # what is less than what
        ([*RIGHT[:2], "240 + 40 = 280."], 2),  # right in itself, another story
        ([*RIGHT[:2], "200 * 3 = 600.", ANSWER], None),
        ([*RIGHT[:3], r"It is \boxed{200}."], 3),  # it stops early
        ([*RIGHT, "The answer is 601."], 4),
        (["7 * 20 = 15 gives 140."], 0),  # what can be read of it is wrong
    ],
)
def test_the_first_step_that_is_not_as_in_the_story(steps: list[str], wrong: int | None) -> None:
    assert first_wrong(STORY, steps) == FirstWrong(wrong)


def test_behind_a_step_that_is_not_read_nothing_is_known() -> None:
    found = first_wrong(STORY, ["He gets 140 nuts.", "100 + 140 = 340.", ANSWER])
    assert (found.step, reason_kind(found.reason)) == (None, UNREAD_STEP)
    assert "step 1" in str(found.reason)
    assert first_wrong(replace(STORY, start=200), [RIGHT[1], "Then 3."]).step == 0
