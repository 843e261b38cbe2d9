"""The training code: solutions are right, data is disjoint, and one small size really trains."""

from __future__ import annotations

import json
import random
import re
from itertools import islice
from pathlib import Path

import pytest

from divtok.problems.arithmetic import arithmetic_problems, stories
from training.data import TRAINING_LEVELS
from training.solutions import write_solution


def test_every_solution_boxes_the_right_answer():
    rng = random.Random(3)
    for story in islice(stories(3, "train", TRAINING_LEVELS), 300):
        solution = write_solution(story, rng)
        assert re.findall(r"\\boxed\{(\d+)\}", solution) == [str(story.answer)]


def test_a_solution_has_one_line_for_each_equation_with_its_numbers():
    rng = random.Random(4)
    for story in islice(stories(4, "train", TRAINING_LEVELS), 300):
        lines = write_solution(story, rng).split("\n")
        assert len(lines) == len(story.equations) + 1
        for line, equation in zip(lines, story.equations, strict=False):
            numbers = [int(n) for n in re.findall(r"\d+", line)]
            assert sorted(numbers) == sorted((equation.left, equation.right, equation.result))


def test_wording_varies_while_the_numbers_do_not():
    story = next(stories(5, "train", TRAINING_LEVELS))
    solutions = {write_solution(story, random.Random(seed)) for seed in range(200)}
    assert len(solutions) > 100


def test_training_stories_never_meet_the_benchmarks():
    tested = {
        problem.question
        for difficulty in ("easy", "medium", "hard", "contest")
        for problem in arithmetic_problems(
            "b", difficulties=(difficulty,), split="test", count=100, seed=1
        )
    }
    assert all(
        story.split == "train" for story in islice(stories(6, "train", TRAINING_LEVELS), 500)
    )
    assert not tested & {
        story.question for story in islice(stories(6, "train", TRAINING_LEVELS), 2000)
    }


def test_a_small_size_trains_on_both_stages_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import training.data
    import training.train
    from divtok.models.load import load_model
    from training.tokenizer import train_tokenizer

    monkeypatch.setattr(training.data, "BLOCK", 200)
    monkeypatch.setattr(training.train, "EXAMPLES", 200)
    monkeypatch.setattr(training.train, "BATCH", 4)
    size = training.train.Size(32, 1, 2, 1, 800, base_steps=120, chat_steps=3)
    monkeypatch.setitem(training.train.SIZES, "x", size)
    train_tokenizer(training.data.corpus_sample(), tmp_path / "tokenizer")
    training.train.train_size("x", tmp_path, device="cpu")

    facts = json.loads((tmp_path / "models" / "x-chat" / "training.json").read_text())
    assert facts["loss"].keys() == {"base", "chat"}
    assert facts["loss"]["base"] < 5.5, "a model that learned nothing has a loss of ln 768 = 6.6"
    loaded = load_model(str(tmp_path / "models" / "x-chat"))
    assert loaded.model.config.vocab_size == 800

    base = tmp_path / "models" / "x-base" / "model.safetensors"
    before = base.stat().st_mtime_ns
    (tmp_path / "models" / "x-chat" / "training.json").unlink()
    training.train.train_size("x", tmp_path, device="cpu")
    assert base.stat().st_mtime_ns == before, "a finished stage is not trained again"
