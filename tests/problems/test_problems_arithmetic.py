"""The embedded stories: seeded, right, and never in two splits."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from divtok.problems.arithmetic import (
    DIFFICULTIES,
    LARGEST_AMOUNT,
    LEVELS,
    Difficulty,
    Split,
    Step,
    Story,
    arithmetic_problems,
    stories,
)
from divtok.problems.benchmark import BENCHMARKS, load_benchmark
from divtok.problems.sources import EmbeddedSource

SPLITS: tuple[Split, ...] = ("train", "test", "fit")
EMBEDDED = sorted(b.name for b in BENCHMARKS if isinstance(b.source, EmbeddedSource))


def take(seed: int, split: Split, count: int, *difficulties: Difficulty) -> list[Story]:
    levels = [LEVELS[difficulty] for difficulty in difficulties or DIFFICULTIES]
    return list(islice(stories(seed, split, levels), count))


def numbers(story: Story) -> tuple[object, ...]:
    return (story.start, *((step.operation, step.a, step.b) for step in story.steps))


def is_hard(step: Step) -> bool:
    """A product of two two-digit numbers."""
    return step.operation.endswith("_lots") and min(step.a, step.b) >= 10


def amount_after(start: int, steps: tuple[Step, ...]) -> int:
    """The story's end by what its words say, apart from its equations."""
    amount = start
    for step in steps:
        match step.operation:
            case "add":
                amount += step.a
            case "sub":
                amount -= step.a
            case "mul":
                amount *= step.a
            case "add_lots":
                amount += step.a * step.b
            case "sub_lots":
                amount -= step.a * step.b
    return amount


def test_a_stream_is_decided_by_its_seed() -> None:
    assert take(3, "train", 200) == take(3, "train", 200)
    assert take(3, "train", 200) != take(4, "train", 200)


def test_a_stream_cycles_through_the_difficulties() -> None:
    chosen: tuple[Difficulty, ...] = (DIFFICULTIES[-1], DIFFICULTIES[0])
    for index, story in enumerate(take(5, "test", 100, *chosen)):
        low, high = LEVELS[chosen[index % 2]].steps
        assert low <= len(story.steps) <= high


def test_the_answer_is_where_the_steps_lead() -> None:
    for split in SPLITS:
        for story in take(1, split, 300):
            assert story.answer == amount_after(story.start, story.steps)


def test_every_equation_holds_and_leads_to_the_next() -> None:
    for story in take(2, "train", 300):
        equations, amount = iter(story.equations), story.start
        for step in story.steps:
            change = step.a
            if step.operation.endswith("_lots"):  # the size of the lots is worked out first
                lots = next(equations)
                change = step.a * step.b
                assert (lots.left, lots.sign, lots.right) == (step.a, "*", step.b)
                assert lots.result == change
            equation = next(equations)
            sign = {"add": "+", "sub": "-", "mul": "*"}[step.operation.removesuffix("_lots")]
            assert (equation.left, equation.sign, equation.right) == (amount, sign, change)
            amount = {"+": amount + change, "-": amount - change, "*": amount * change}[sign]
            assert equation.result == amount
        assert list(equations) == []
        assert amount == story.answer


def test_amounts_stay_positive_and_within_six_digits() -> None:
    for story in take(6, "train", 500):
        for count in range(len(story.steps) + 1):
            assert 1 <= amount_after(story.start, story.steps[:count]) <= LARGEST_AMOUNT


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_a_difficulty_keeps_to_its_steps_and_hard_steps(difficulty: Difficulty) -> None:
    level = LEVELS[difficulty]
    drawn = take(7, "train", 400, difficulty)
    for story in drawn:
        assert level.steps[0] <= len(story.steps) <= level.steps[1]
        hard = sum(map(is_hard, story.steps))
        assert min(len(story.steps), level.hard_steps[0]) <= hard <= level.hard_steps[1]
    # Both ends come up: a range that is never used is not the level's range.
    assert {level.steps[0], level.steps[1]} <= {len(story.steps) for story in drawn}


def test_the_question_tells_every_number_in_order() -> None:
    for story in take(8, "fit", 300):
        told = [story.start]
        for step in story.steps:
            told += [step.a, step.b] if step.operation.endswith("_lots") else [step.a]
        assert [int(number) for number in re.findall(r"\d+", story.question)] == told
        assert story.item in story.question


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_splits_share_no_numbers(difficulty: Difficulty) -> None:
    train, test, fit = (
        {numbers(story) for story in take(seed, split, count, difficulty)}
        for seed, (split, count) in enumerate(zip(SPLITS, (4000, 300, 300), strict=True))
    )
    assert not train & test
    assert not train & fit
    assert not test & fit


def test_a_story_says_which_split_it_is_of() -> None:
    for split in SPLITS:
        assert {story.split for story in take(9, split, 200)} == {split}


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_benchmarks_have_their_own_ids_and_questions(name: str) -> None:
    source = BENCHMARKS.get(name).source
    assert isinstance(source, EmbeddedSource)
    problems = load_benchmark(name)
    assert len(problems) == source.count
    assert len({problem.id for problem in problems}) == source.count
    assert len({problem.question for problem in problems}) == source.count
    assert {problem.benchmark for problem in problems} == {name}
    assert all((problem.answer or "").isdigit() for problem in problems)


def test_there_is_one_embedded_benchmark_for_each_difficulty_and_one_for_fitting() -> None:
    assert sorted([*(f"arith-{name}" for name in DIFFICULTIES), "arith-fit"]) == EMBEDDED
    splits = {name: BENCHMARKS.get(name).source.split for name in EMBEDDED}
    assert {name for name, split in splits.items() if split == "fit"} == {"arith-fit"}
    assert "train" not in splits.values()


def test_embedded_benchmarks_share_no_question() -> None:
    questions = [problem.question for name in EMBEDDED for problem in load_benchmark(name)]
    assert len(set(questions)) == len(questions)


def test_a_longer_benchmark_begins_with_the_shorter_one() -> None:
    def first(count: int) -> list[object]:
        return list(
            arithmetic_problems("x", difficulties=DIFFICULTIES, split="test", count=count, seed=1)
        )

    assert first(40)[:15] == first(15)
    assert first(0) == []
