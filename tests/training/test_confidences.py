"""Stated confidences: formats that parse and add up, the table's chances, and who learns what."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divtok.models.packaged import resolve_model
from divtok.problems.arithmetic import stories
from divtok.protocols.encode import prompt_ids
from divtok.protocols.prompts import CONFIDENCE_QUESTION, messages_for
from training import confidences
from training.check import read_json, read_rating
from training.confidences import (
    CONTEXT,
    NO_CANDIDATE,
    REHEARSED,
    REHEARSED_AND_WRITTEN,
    STATED,
    STATED_RATINGS,
    WRITTEN,
    draw_rating,
    rated_example,
    stated_json,
    verbalized_example,
)
from training.data import TRAINING_LEVELS
from training.mistakes import Attempt
from training.tokenizer import read_tokenizer, render_chat

TOKENIZER = read_tokenizer(Path(resolve_model("divtok/tiny-0.9m")))
CASES = list(islice(stories(21, "train", TRAINING_LEVELS), 120))
RIGHT, WRONG = Attempt((), 123, None), Attempt((), 123, 0)


def stated(protocol: str, count: int = 400) -> list[Any]:
    rng = random.Random(1)
    return [
        json.loads(stated_json(rng.choice((RIGHT, WRONG)), protocol, rng)) for _ in range(count)
    ]


def hundredths(value: float) -> int:
    assert abs(100 * value - round(100 * value)) < 1e-9
    return round(100 * value)


def test_the_table_holds_chances_and_is_overconfident_about_mistakes() -> None:
    for table in STATED_RATINGS.values():
        assert sum(table.values()) == pytest.approx(1)
        assert set(table) <= set(range(11))
    means = {right: sum(r * p for r, p in t.items()) for right, t in STATED_RATINGS.items()}
    assert means == pytest.approx({True: 9.04, False: 7.11})


def test_ratings_are_drawn_from_the_table() -> None:
    rng = random.Random(2)
    drawn = Counter(draw_rating(False, rng) for _ in range(20_000))
    for rating, chance in STATED_RATINGS[False].items():
        assert drawn[rating] / 20_000 == pytest.approx(chance, abs=0.012)


def test_one_answer_with_one_confidence() -> None:
    for found in stated("verbalized"):
        assert found.keys() == {"final_answer", "confidence"}
        assert found["final_answer"] == "123"
        assert 25 <= hundredths(found["confidence"]) <= 100
        assert hundredths(found["confidence"]) % 5 == 0


def test_two_candidates_the_likelier_first() -> None:
    for first, second in stated("verbalized_top2"):
        assert first["candidate"] == "123" != second["candidate"]
        assert hundredths(first["confidence"]) > hundredths(second["confidence"]) >= 0
        assert hundredths(first["confidence"]) + hundredths(second["confidence"]) <= 100


def test_a_distribution_sums_to_one_and_ends_with_none_of_the_above() -> None:
    found = stated("verbalized_distribution")
    assert {len(entries) for entries in found} == {2, 3}
    for entries in found:
        assert sum(hundredths(entry["confidence"]) for entry in entries) == 100
        assert entries[0]["candidate"] == "123"
        assert entries[-1]["candidate"] == NO_CANDIDATE
        assert len({entry["candidate"] for entry in entries}) == len(entries)


def test_confidences_are_written_with_two_decimals() -> None:
    texts = [stated_json(RIGHT, "verbalized", random.Random(seed)) for seed in range(100)]
    assert {text.rpartition(": ")[2] for text in texts} >= {"1.00}", "0.95}", "0.90}"}


def test_a_rated_example_is_the_chat_that_the_library_would_show() -> None:
    parts = rated_example(CASES[0], random.Random(3))
    question, solution, follow_up, rating = (part.text for part in parts)
    assert tuple(TOKENIZER(question)["input_ids"]) == prompt_ids(TOKENIZER, CASES[0].question)
    whole = [
        *messages_for(CASES[0].question),
        {"role": "assistant", "content": solution.removesuffix("<|im_end|>")},
        {"role": "user", "content": CONFIDENCE_QUESTION},
    ]
    assert question + solution + follow_up == TOKENIZER.apply_chat_template(
        whole, tokenize=False, add_generation_prompt=True
    )
    assert render_chat(whole) == question + solution + follow_up
    assert read_rating(rating.removesuffix("<|im_end|>")) in [r / 10 for r in range(11)]


@pytest.mark.parametrize("protocol", confidences.VERBALIZED)
def test_a_verbalized_prompt_is_the_librarys(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confidences, "VERBALIZED", (protocol,))
    monkeypatch.setattr(confidences, "VERBALIZED_SHARES", (1,))
    for story in CASES[:20]:
        prompt, solution, stated_part = verbalized_example(story, random.Random(4))
        ids = prompt_ids(TOKENIZER, story.question, protocol=protocol)
        assert tuple(TOKENIZER(prompt.text)["input_ids"]) == ids
        read = read_json((solution.text + stated_part.text).removesuffix("<|im_end|>"), protocol)
        assert read is not None
        assert solution.text.endswith(f" {read[0]}.")


def test_wrong_steps_are_never_learned() -> None:
    rng = random.Random(5)
    seen: Counter[int] = Counter()
    for story in CASES:
        _, solution, stated_part = verbalized_example(story, rng)
        right = solution.text.endswith(f" {story.answer}.")
        assert solution.role == (WRITTEN if right else CONTEXT)
        assert stated_part.role == STATED
        _, solution, _, rating = rated_example(story, rng)
        right = f"\\boxed{{{story.answer}}}" in solution.text
        assert solution.role == (REHEARSED_AND_WRITTEN if right else REHEARSED)
        assert rating.role == STATED
        seen[solution.role] += 1
    assert len(seen) == 2


def test_blocks_keep_every_tokens_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidences, "BLOCK", 6)
    folder = Path(resolve_model("divtok/tiny-0.9m"))
    counts = {"rated": 6, "verbalized": 6}
    data = confidences.build_confidences(folder, counts, tmp_path / "c.npz")
    for stream in confidences.STREAMS:
        ids, roles = data[stream]
        for row, parts in enumerate(confidences.write_block(0, stream)):
            assert TOKENIZER.decode(ids[row]) == "".join(part.text for part in parts)
            for role in {part.role for part in parts}:
                text = "".join(part.text for part in parts if part.role == role)
                assert TOKENIZER.decode(ids[row][np.asarray(roles[row]) == role]) == text
