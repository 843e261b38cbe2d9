"""The reward model's examples: labels turn where the text first goes wrong, in the layout read."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from divtok.evidence.prm import step_layout
from divtok.models.load import load_tokenizer
from divtok.models.packaged import resolve_model
from divtok.problems.arithmetic import Step, Story, stories
from training import reward
from training.check import line_labels
from training.data import TRAINING_LEVELS
from training.mistakes import attempt_with_mistake
from training.reward import UNLABELLED, Solved, encode_example, reward_example
from training.solutions import write_solution

TOKENIZER = load_tokenizer("divtok/tiny-prm")
CASES = list(islice(stories(31, "train", TRAINING_LEVELS), 100))


def labelled_text(solved: Solved) -> str:
    """What of the response is labelled right, read back from the tokens."""
    ids, labels = encode_example(TOKENIZER.backend_tokenizer, solved)
    return TOKENIZER.decode([i for i, label in zip(ids, labels, strict=True) if label == 1])


def test_labels_turn_at_the_first_wrong_digit() -> None:
    solved = Solved("How many?", "12 * 13 = 166.\n100 + 166 = 266.", wrong_from=11)
    assert labelled_text(solved) == "12 * 13 = 1"
    assert solved.line_labels == (0, 0)
    later = Solved("How many?", "12 * 13 = 156.\n100 + 156 = 266.", wrong_from=28)
    assert later.line_labels == (1, 0)
    assert Solved("How many?", "a\n\nb", None).line_labels == (1, 1, 1)


def test_the_first_wrong_character_is_found_in_the_result() -> None:
    story = Story("Ada", "eggs", 100, (Step("add_lots", 12, 13),), "?")
    for seed in range(50):
        rng = random.Random(seed)
        attempt = attempt_with_mistake(story, 1, rng)
        response = write_solution(story, rng, attempt=attempt)
        place = reward._first_wrong_character(response, attempt, story)  # pyright: ignore[reportPrivateUsage]
        assert place is not None
        first, second, _ = response.split("\n")
        start = len(first) + 1 + second.rindex(str(attempt.answer))
        done = response[start:place]
        assert "256".startswith(done)
        assert response[place] != "256"[len(done) : len(done) + 1]


def test_line_labels_agree_with_the_storys_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "IN_JSON", 0.0)
    rng = random.Random(1)
    seen: set[int] = set()
    for story in CASES:
        solved = reward_example(story, rng)
        assert list(solved.line_labels) == line_labels(story, solved.response)
        seen.add(sum(solved.line_labels) == len(solved.line_labels))
    assert seen == {True, False}


def test_a_json_line_is_as_right_as_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "IN_JSON", 1.0)
    rng = random.Random(2)
    for story in CASES:
        solved = reward_example(story, rng)
        *_, closing, stated = solved.response.split("\n")
        assert stated.startswith(("{", "["))
        assert solved.line_labels[-1] == int(closing.endswith(f" {story.answer}."))


def test_examples_have_the_layout_that_rewards_are_read_in() -> None:
    rng = random.Random(3)
    for story in CASES:
        solved = reward_example(story, rng)
        ids, labels = encode_example(TOKENIZER.backend_tokenizer, solved)
        layout = step_layout(TOKENIZER, solved.question, solved.response)
        assert tuple(ids) == layout.prompt_ids + layout.token_ids
        prompt = len(layout.prompt_ids)
        assert labels[:prompt] == [UNLABELLED] * prompt
        assert [labels[prompt + place] for place in layout.flagged] == list(solved.line_labels)


def test_new_layers_change_nothing_at_first() -> None:
    import torch
    from transformers import Qwen2ForCausalLM

    folder = resolve_model("divtok/tiny-0.3m")
    chat: Any = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        expected = chat.model(input_ids=ids).last_hidden_state
        grown = reward.taller(chat, 2)
        found = grown.to(torch.float32)(input_ids=ids).last_hidden_state
    assert len(grown.layers) == 5
    torch.testing.assert_close(found, expected)


def test_a_small_reward_model_trains_and_is_read_by_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from divtok.evidence.prm import load_prm

    monkeypatch.setattr(reward, "BLOCK", 64)
    monkeypatch.setattr(reward, "EXAMPLES", 64)
    monkeypatch.setattr(reward, "STARTS_FROM", "tiny-0.3m")
    shutil.copytree(resolve_model("divtok/tiny-0.3m"), tmp_path / "models" / "tiny-0.3m-chat")
    shutil.copytree(resolve_model("divtok/tiny-0.3m"), tmp_path / "tokenizer")
    reward.train_reward(tmp_path, device="cpu", settings=reward.Settings(batch=4, steps=2))
    prm = load_prm(str(tmp_path / "models" / reward.NAME), device="cpu")
    (found,) = prm.rewards([("key", "How many?", "1 + 1 = 2.\nThis gives \\boxed{2}.")])
    assert found.reason is None
    assert found.rewards.shape == (2,)
