"""Word problems for a real model: right answers, disjoint splits, prompts that ask for them."""

from __future__ import annotations

import re

import pytest

from divtok.records import Problem
from training.make_real_pair import BENCHMARKS, LEARNING, PROMPT, write_benchmarks
from training.word_problems import LEVELS, word_problems

_MORE, _LESS = ("more", "brings", "finds"), ("gives away", "get lost", "sells")


def solved(question: str) -> int:
    """The number in the first sentence, with those of the others added or taken away."""
    first, *rest = re.split(r"(?<=[.?]) ", question)
    amount = int(re.findall(r"\d+", first)[0])
    for sentence in rest:
        if not (found := re.findall(r"\d+", sentence)):
            continue
        assert any(word in sentence for word in (*_MORE, *_LESS)), sentence
        amount += int(found[0]) * (1 if any(word in sentence for word in _MORE) else -1)
    return amount


def of(split: str, level: str) -> list[Problem]:
    return word_problems("w", seed=3, split=split, level=level, count=60)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", LEVELS)
def test_answers_are_right_and_never_below_zero(level: str) -> None:
    for problem in of("train", level):
        assert problem.answer == str(solved(problem.question))
        assert int(problem.answer) >= 0


def numbers(problem: Problem) -> tuple[str, ...]:
    kinds = ["+" if any(w in problem.question for w in _MORE) else "-"]
    return (*re.findall(r"\d+", problem.question), *kinds)


@pytest.mark.parametrize("level", LEVELS)
def test_no_numbers_of_a_test_are_learned_from(level: str) -> None:
    splits = {split: set(map(numbers, of(split, level))) for split in ("train", "test", "fit")}
    assert splits["train"].isdisjoint(splits["test"])
    assert splits["train"].isdisjoint(splits["fit"])
    assert splits["test"].isdisjoint(splits["fit"])


def test_the_same_seed_gives_the_same_problems() -> None:
    assert of("test", "easy") == of("test", "easy")


def test_benchmarks_are_written_and_named_apart(tmp_path) -> None:
    files = write_benchmarks(tmp_path, {**BENCHMARKS, **LEARNING})
    assert len(set(files.values())) == len(BENCHMARKS) + len(LEARNING)
    assert {split for split, *_ in LEARNING.values()} == {"train"}
    assert "train" not in {split for split, *_ in BENCHMARKS.values()}


def test_the_prompt_asks_the_question_last() -> None:
    text = PROMPT.read_text()
    assert "kind: sentence" in text
    assert text.rstrip().endswith("Problem: {question}\n  Solution:")
