"""What holds for every task: disjoint splits, repeatable streams, right boxes, many wordings."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

import divtok
from divtok.protocols.prompts import messages_for
from training.bench_models import block_writer
from training.bench_settings import FULL
from training.data import corpus_sample
from training.tasks import TASKS
from training.tasks.task import Case, Task, cases, split_of, task_problems
from training.tokenizer import CONTEXT, render_chat, train_tokenizer

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))


def drawn(task: Task[Case], count: int, *, seed: int = 1, split: str = "train") -> list[Case]:
    return list(islice(cases(task, seed, split, range(task.levels)), count))  # type: ignore[arg-type]


@every_task
def test_a_solution_boxes_the_answer_once_at_its_end(task: Task[Case]):
    rng = random.Random(3)
    for case in drawn(task, 300):
        solution = task.write(case, rng)
        assert re.findall(r"\\boxed\{([^{}]*)\}", solution) == [case.answer]
        assert f"\\boxed{{{case.answer}}}" in solution.split("\n")[-1]


@every_task
def test_the_grader_takes_the_answer_and_no_other(task: Task[Case]):
    first, other = drawn(task, 40)[:2], drawn(task, 40)
    wrong = next(case.answer for case in other if case.answer != first[0].answer)
    for answer, verdict in ((first[0].answer, "correct"), (wrong, "incorrect")):
        assert (
            divtok.grade_answer(gold=first[0].answer, answer=answer, grader=task.grader) == verdict
        )


@every_task
def test_splits_are_disjoint_in_content_not_only_in_wording(task: Task[Case]):
    contents = {
        split: {case.content for case in drawn(task, 300, seed=seed, split=split)}
        for split, seed in (("train", 4), ("test", 5), ("fit", 6))
    }
    assert not contents["train"] & contents["test"]
    assert not contents["train"] & contents["fit"]
    assert not contents["test"] & contents["fit"]


@every_task
def test_most_cases_are_for_training(task: Task[Case]):
    rng = random.Random(7)
    found = [split_of(task.draw(rng, level % task.levels)) for level in range(2000)]
    assert 0.87 < found.count("train") / len(found) < 0.93
    assert {"test", "fit"} < set(found)


@every_task
def test_a_stream_is_the_same_for_the_same_seed_alone(task: Task[Case]):
    questions = [[case.question for case in drawn(task, 50, seed=seed)] for seed in (8, 8, 9)]
    assert questions[0] == questions[1] != questions[2]


@every_task
def test_problems_of_a_benchmark_differ_and_are_of_their_levels(task: Task[Case]):
    problems = task_problems(task, "b", seed=1, split="test", levels=[0, 1], count=40)
    assert len({problem.question for problem in problems}) == len(problems) == 40
    assert [p.id for p in problems[:2]] == ["b-0000", "b-0001"]
    assert problems == task_problems(task, "b", seed=1, split="test", levels=[0, 1], count=40)


@every_task
def test_levels_grow_longer(task: Task[Case]):
    rng = random.Random(10)
    lengths = [
        sum(len(task.write(task.draw(rng, level), rng)) for _ in range(60))
        for level in range(task.levels)
    ]
    assert lengths == sorted(lengths)


@every_task
def test_one_case_can_be_worded_in_many_ways(task: Task[Case]):
    (case,) = drawn(task, 1)
    assert len({task.write(case, random.Random(seed)) for seed in range(200)}) > 100


@every_task
def test_examples_fit_the_context_and_names_are_one_token(task: Task[Case], tmp_path: Path):
    writer = block_writer(task.name, replace(FULL, block=1500))
    tokenizer = train_tokenizer(corpus_sample(writer), tmp_path)
    rng = random.Random(11)
    hardest = [task.draw(rng, task.levels - 1) for _ in range(60)]
    for case in hardest:
        asked = len(tokenizer(render_chat(messages_for(case.question)))["input_ids"])
        solution = task.write(case, rng)
        ids = tokenizer(solution)["input_ids"]
        assert len(ids) < FULL.most_new_tokens
        assert asked + FULL.most_new_tokens < min(CONTEXT, FULL.longest)
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == solution
    names = getattr(hardest[0], "names", ())
    assert all(len(tokenizer(f" {name}")["input_ids"]) == 1 for name in names)
