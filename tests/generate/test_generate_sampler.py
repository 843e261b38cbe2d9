"""The keyed sampler: its draws follow the distribution asked for, and depend on the key alone."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.errors import ModelError
from divtok.generate.sampler import KeyedSampler, key_generator
from divtok.records import Sampling

LOGITS = [1.0, -0.5, 2.0, 0.0, 1.5, -3.0]
KEYS = [f"key-{i}" for i in range(5000)]
# The 99.9 % points of the chi-square distribution, by degrees of freedom.
CHI_SQUARE_LIMIT = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52}
PLAIN = Sampling(temperature=1.0, top_p=1.0)
PROMPT = torch.tensor([[0, 1]])  # not looked at


def draw(
    sampling: Sampling, logits: Any = LOGITS, keys: list[str] = KEYS, written: Any = ()
) -> list[int]:
    """One token for each key, all from the same logits; `written` is what was drawn before."""
    sampler = KeyedSampler(keys, sampling)
    for token in written:  # there was no other choice
        only = torch.full((len(keys), len(logits)), -torch.inf)
        only[:, token] = 0.0
        assert sampler.draw(only).tolist() == [token] * len(keys)
    scores = sampler(PROMPT, torch.tensor([logits] * len(keys), dtype=torch.float32))
    assert scores.shape == (len(keys), len(logits))
    return scores.argmax(dim=-1).tolist()


def expected(logits: Any, temperature: float, kept: set[int]) -> np.ndarray:
    weights = [math.exp(z / temperature) if i in kept else 0.0 for i, z in enumerate(logits)]
    return np.array(weights) / math.fsum(weights)


def chi_square(tokens: list[int], probabilities: np.ndarray) -> float:
    counts = np.bincount(tokens, minlength=len(probabilities))
    assert counts[probabilities == 0].sum() == 0, "a token that was cut off has been drawn"
    wanted = probabilities[probabilities > 0] * len(tokens)
    return float(((counts[probabilities > 0] - wanted) ** 2 / wanted).sum())


# At temperature 1 the tokens 2, 4, 0, 3, 1, 5 have the probabilities 0.455, 0.276, 0.167, 0.062,
# 0.037 and 0.003, in running sum 0.455, 0.731, 0.898, 0.960, 0.997, 1: the cuts can be read off.
@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(temperature=1.0, top_p=1.0), {0, 1, 2, 3, 4, 5}),
        (Sampling(temperature=0.6, top_p=1.0), {0, 1, 2, 3, 4, 5}),
        (Sampling(temperature=2.5, top_p=1.0), {0, 1, 2, 3, 4, 5}),
        (Sampling(temperature=1.0, top_p=1.0, top_k=3), {0, 2, 4}),
        (Sampling(temperature=0.7, top_p=1.0, top_k=2), {2, 4}),
        (Sampling(temperature=1.0, top_p=0.8), {0, 2, 4}),
        (Sampling(temperature=1.0, top_p=0.9), {0, 2, 3, 4}),
        (Sampling(temperature=1.0, top_p=0.6), {2, 4}),
        # Of the best three's mass the first two hold 0.814, of all mass 0.731.
        (Sampling(temperature=1.0, top_p=0.8, top_k=3), {2, 4}),
    ],
)
def test_frequencies_follow_the_cut_and_tempered_softmax(
    sampling: Sampling, kept: set[int]
) -> None:
    probabilities = expected(LOGITS, sampling.temperature, kept)
    assert chi_square(draw(sampling), probabilities) < CHI_SQUARE_LIMIT[len(kept) - 1]


def test_the_draws_of_one_key_follow_the_distribution_too() -> None:
    sampler = KeyedSampler(["one key"], PLAIN)
    scores = torch.tensor([LOGITS])
    tokens = [int(sampler(PROMPT, scores).argmax()) for _ in range(4000)]
    probabilities = expected(LOGITS, 1.0, set(range(6)))
    assert chi_square(tokens, probabilities) < CHI_SQUARE_LIMIT[5]
    pairs = [a * 6 + b for a, b in zip(tokens[::2], tokens[1::2], strict=True)]
    first, second = np.divmod(pairs, 6)
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(len(pairs))


def test_temperature_is_applied_before_top_p() -> None:
    # At temperature 0.25 the best token alone holds 0.867 of the mass; at temperature 1 only 0.455.
    assert set(draw(Sampling(temperature=0.25, top_p=0.85))) == {2}


def test_the_presence_penalty_is_taken_once_from_each_token_of_the_response() -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, presence_penalty=1.5)
    tokens = draw(sampling, written=[2, 4, 2, 2])
    # The prompt is [0, 1]; its tokens are not drawn ones.
    penalised = [1.0, -0.5, 0.5, 0.0, 0.0, -3.0]
    assert chi_square(tokens, expected(penalised, 1.0, set(range(6)))) < CHI_SQUARE_LIMIT[5]


def test_the_presence_penalty_comes_before_temperature_and_cuts() -> None:
    sampling = Sampling(temperature=0.5, top_p=1.0, top_k=2, presence_penalty=1.5)
    tokens = draw(sampling, written=[2])
    # After the penalty tokens 4 (1.5) and 0 (1.0) are the best two.
    probabilities = expected([1.0, -0.5, 0.5, 0.0, 1.5, -3.0], 0.5, {0, 4})
    assert chi_square(tokens, probabilities) < CHI_SQUARE_LIMIT[1]


def test_a_negative_presence_penalty_rewards_what_is_written() -> None:
    sampling = Sampling(temperature=0.0, presence_penalty=-2.0)
    assert draw(sampling, keys=["k"], written=[0]) == [0]
    assert draw(sampling, keys=["k"]) == [2]


def test_temperature_zero_is_greedy_whatever_the_key_and_the_cuts() -> None:
    sampling = Sampling(temperature=0.0, top_p=0.1, top_k=1)
    assert set(draw(sampling)) == {2}


def test_temperature_zero_with_presence_penalty_is_greedy_after_the_penalty() -> None:
    sampling = Sampling(temperature=0.0, presence_penalty=1.0)
    assert draw(sampling, keys=["a", "b"], written=[2]) == [4, 4]


def test_only_the_sampled_token_is_left_possible() -> None:
    sampler = KeyedSampler(KEYS[:50], PLAIN)
    scores = sampler(PROMPT, torch.tensor([LOGITS] * 50))
    assert (torch.isfinite(scores).sum(dim=-1) == 1).all()


@given(rows=st.permutations(range(6)), width=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_a_row_depends_on_its_key_and_logits_alone(rows: list[int], width: int) -> None:
    """Whatever rows stand beside it, and in whatever order."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(5, 6, 40)).astype(np.float32)  # step, row, token
    sampling = Sampling(temperature=0.8, top_p=0.9, top_k=30)

    def tokens(chosen: list[int]) -> dict[int, list[int]]:
        sampler = KeyedSampler([KEYS[row] for row in chosen], sampling)
        steps = [sampler(PROMPT, torch.tensor(step[chosen])).argmax(-1).tolist() for step in logits]
        return dict(zip(chosen, map(list, zip(*steps, strict=True)), strict=True))

    alone = {row: tokens([row])[row] for row in rows[:width]}
    assert tokens(rows[:width]) == alone


def test_rows_that_leave_take_their_streams_with_them() -> None:
    logits = torch.tensor([LOGITS] * 5)
    alone = {key: KeyedSampler([key], PLAIN) for key in KEYS[:5]}
    expected = {
        key: [int(sampler.draw(logits[:1])) for _ in range(150)] for key, sampler in alone.items()
    }
    sampler = KeyedSampler(KEYS[:5], PLAIN)
    rows = list(range(5))
    for step in range(150):  # more numbers than are fetched at a time
        tokens = sampler.draw(logits[: len(rows)]).tolist()
        assert tokens == [expected[KEYS[row]][step] for row in rows]
        if step in (10, 30):
            kept = [3, 1, 2] if step == 10 else [2, 0]
            sampler.keep(kept)
            rows = [rows[place] for place in kept]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_as_a_processor_it_leaves_the_token_it_draws(temperature: float) -> None:
    sampling = Sampling(temperature=temperature, top_p=0.9, presence_penalty=0.5)
    scores = torch.tensor([LOGITS] * 20)
    processor, sampler = (KeyedSampler(KEYS[:20], sampling) for _ in range(2))
    for _ in range(3):
        left, drawn = processor(PROMPT, scores.clone()), sampler.draw(scores.clone())
        assert drawn.shape == (20,)
        assert left.isfinite().nonzero()[:, 1].tolist() == drawn.tolist()


def test_the_stream_of_a_key_is_its_own() -> None:
    assert key_generator("a").random(8).tolist() == key_generator("a").random(8).tolist()
    firsts = {float(key_generator(key).random()) for key in KEYS}
    assert len(firsts) == len(KEYS)


def test_masked_tokens_are_never_drawn() -> None:
    logits = [-math.inf, 0.0, -math.inf, 0.0, -math.inf]
    assert chi_square(draw(PLAIN, logits), expected(logits, 1.0, {1, 3})) < CHI_SQUARE_LIMIT[1]


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 1), (0.5, 3), (1 - 2**-53, 3)])
def test_the_outermost_numbers_find_a_possible_token(
    monkeypatch: pytest.MonkeyPatch, uniform: float, token: int
) -> None:
    """Zero skips the masked tokens in front, and the largest number stays before those behind."""

    def stuck_stream(key: str) -> Any:
        return SimpleNamespace(random=lambda count: np.full(count, uniform))

    monkeypatch.setattr("divtok.generate.sampler.key_generator", stuck_stream)
    logits = [-math.inf, 0.0, -math.inf, 0.0, -math.inf]
    assert draw(PLAIN, logits, keys=["k"]) == [token]


def test_half_precision_logits_are_sampled_in_full_precision() -> None:
    sampler = KeyedSampler(["k"], PLAIN)
    logits = torch.tensor([LOGITS], dtype=torch.bfloat16)
    assert sampler(PROMPT, logits).dtype == torch.float32


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(temperature: float, bad: float) -> None:
    with pytest.raises(ModelError, match=r"not numbers .*dtype=float32"):
        draw(Sampling(temperature=temperature), [0.0, bad, 1.0], keys=["a", "b"])


def test_a_row_with_every_token_masked_is_refused() -> None:
    with pytest.raises(ModelError, match="not numbers"):
        draw(PLAIN, [-math.inf, -math.inf], keys=["a"])


def test_padded_ids_beyond_the_tokenizer_are_never_drawn():
    import torch

    sampler = KeyedSampler(KEYS[:50], PLAIN, vocab_size=3)
    scores = torch.tensor([[0.0, 0.0, 0.0, 50.0, 50.0]]).repeat(50, 1)
    drawn = sampler(PROMPT, scores).argmax(dim=-1)
    assert set(drawn.tolist()) == {0, 1, 2}
