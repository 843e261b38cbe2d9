"""The embedded family states confidences when asked, and its reward model tells wrong lines."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from divtok.evidence.prm import RewardModel, load_prm
from divtok.families.family import FAMILIES
from divtok.generate.jobs import Job, generate_batch
from divtok.generate.replies import reply_batch
from divtok.models.load import LoadedModel, load_model
from divtok.problems.arithmetic import LEVELS, stories
from divtok.problems.benchmark import load_benchmark
from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.stated import read_rating
from divtok.records import Trajectory
from training.check import auroc
from training.mistakes import attempt_with_mistake, draw_attempt
from training.solutions import write_solution

GENERATOR = FAMILIES.get("tiny").generators[0]
PROBLEMS = load_benchmark("arith-easy", limit=40)
SAMPLING = replace(GENERATOR.sampling, max_length=1024)
MOST = 36  # of 40


@pytest.fixture(scope="module")
def generator() -> LoadedModel:
    return load_model(GENERATOR.model, device="cpu")


@pytest.fixture(scope="module")
def prm() -> RewardModel:
    return load_prm("divtok/tiny-prm", device="cpu")


def sample(generator: LoadedModel, protocol: str) -> list[Trajectory]:
    jobs = [Job(problem, 0, GENERATOR.model, protocol, SAMPLING) for problem in PROBLEMS]
    return generate_batch(generator, jobs)


def test_it_rates_its_answers_when_asked_afterwards(generator: LoadedModel) -> None:
    questions = [problem.question for problem in PROBLEMS]
    replies = reply_batch(generator, sample(generator, "cot"), questions, max_tokens=16)
    ratings = [read_rating(reply.text).value for reply in replies]
    assert sum(rating is not None for rating in ratings) >= MOST
    assert len(set(ratings)) > 2, "one rating for everything would say nothing"


@pytest.mark.parametrize("protocol", ["verbalized", "verbalized_top2", "verbalized_distribution"])
def test_it_states_confidences_in_json(generator: LoadedModel, protocol: str) -> None:
    texts = [trajectory.text for trajectory in sample(generator, protocol)]
    asked = PROTOCOLS.get(protocol)
    assert asked.read_confidence is not None
    values = [asked.read_confidence(text).value for text in texts]
    assert sum(value is not None for value in values) >= MOST
    spans = [asked.find_answer(text) for text in texts]
    answers = [span.content if span else None for span in spans]
    right = [a == problem.answer for a, problem in zip(answers, PROBLEMS, strict=True)]
    assert sum(right) >= 16, "it reasons under these prompts too"


def test_a_wrong_small_product_lowers_the_rewards(prm: RewardModel) -> None:
    rng = random.Random(1)
    rows: list[tuple[str, str, str]] = []
    for story in islice(stories(41, "test", [LEVELS["medium"]]), 400):
        products = [i for i, e in enumerate(story.equations) if e.sign == "*" and e.left < 10]
        if products:
            wrong = attempt_with_mistake(story, products[0], rng)
            rows.append(("right", story.question, write_solution(story, rng)))
            rows.append(("wrong", story.question, write_solution(story, rng, attempt=wrong)))
    last = np.array([step.rewards[-1] for step in prm.rewards(rows[:120])])
    assert len(last) == 120
    assert np.mean(last[::2] > last[1::2]) > 0.75


def test_right_responses_are_mostly_rewarded_more_than_wrong_ones(prm: RewardModel) -> None:
    rng = random.Random(2)
    rewards: dict[bool, list[float]] = {True: [], False: []}
    for story in islice(stories(43, "test", [LEVELS["medium"]]), 150):
        attempt = draw_attempt(story, rng)
        text = write_solution(story, rng, attempt=attempt)
        (step,) = prm.rewards([("key", story.question, text)])
        rewards[attempt.right].append(float(step.rewards.mean()))
    assert auroc(rewards[True], rewards[False]) > 0.68
