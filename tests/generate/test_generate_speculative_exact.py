"""What is written speculatively is distributed as the generator alone would write it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from speculative_samples import FakeModel, Tokens, exact, p_value

from divtok.generate.decoding import Ask
from divtok.generate.speculative import rounds
from divtok.generate.speculative.acceptance import settle
from divtok.generate.speculative.chances import Chances
from divtok.generate.speculative.rounds import Spoken, write_in_rounds
from divtok.generate.speculative.writing import SpeculativePair, make_pair
from divtok.generate.steps import Row
from divtok.models.load import load_model
from divtok.records import Sampling

DRAWS = 8_000  # 100,000 in the slow tests
END, WIDTH, LIMIT = 0, 5, 4
PROMPT = (3, 1)
SAMPLINGS = {
    "open": Sampling(temperature=1.0, top_p=1.0),
    "cool, top-p": Sampling(temperature=0.7, top_p=0.8),
    "warm, top-k": Sampling(temperature=1.6, top_p=1.0, top_k=3),
    "penalty": Sampling(temperature=1.0, top_p=0.95, presence_penalty=1.2),
}


def table(seed: int, *, padding: int, like: np.ndarray | None = None) -> np.ndarray:
    """Logits by the last two tokens; ids that only pad the head are the most likely of all."""
    rng = np.random.default_rng(seed)
    found = rng.normal(scale=1.3, size=(WIDTH, WIDTH, WIDTH + padding))
    if like is not None:
        found[..., :WIDTH] = 0.6 * found[..., :WIDTH] + 0.7 * like[..., :WIDTH]
    found[..., WIDTH:] = 6.0
    return found


def both() -> tuple[FakeModel, FakeModel]:
    """The generator's head is the wider one."""
    of_generator = table(1, padding=3)
    return FakeModel(of_generator), FakeModel(table(2, padding=1, like=of_generator))


def drawn(sampling: Sampling, k: int, draws: int = DRAWS) -> tuple[list[Spoken], FakeModel]:
    generator, auxiliary = both()
    keys = [f"{sampling} {k} {number}" for number in range(draws)]
    chances = Chances(keys, sampling, width=WIDTH, drafts=k, device=torch.device("cpu"))
    rows = [Row(number, PROMPT, LIMIT) for number in range(draws)]
    return write_in_rounds(generator, auxiliary, rows, chances, end_ids={END}), generator


def fit(spoken: list[Spoken], sampling: Sampling, generator: FakeModel) -> float:
    expected = exact(generator.logits, PROMPT, sampling, width=WIDTH, limit=LIMIT, end=END)
    assert sum(expected.values()) == pytest.approx(1.0)
    return p_value((tuple(row.token_ids) for row in spoken), expected)


@pytest.mark.parametrize(
    ("name", "k"), [("open", 1), ("cool, top-p", 3), ("warm, top-k", 3), ("penalty", 2)]
)
def test_every_response_comes_up_as_often_as_it_should(name: str, k: int) -> None:
    spoken, generator = drawn(SAMPLINGS[name], k)
    assert fit(spoken, SAMPLINGS[name], generator) > 1e-3
    lengths = [len(row.token_ids) for row in spoken]
    # More than a token a round, and not the whole draft each time: both ways out were taken.
    assert 1.1 < sum(lengths) / sum(row.rounds for row in spoken) < min(k + 1, LIMIT) - 0.1


def test_one_token_a_round_without_drafts() -> None:
    spoken, generator = drawn(SAMPLINGS["penalty"], 0, draws=5_000)
    assert fit(spoken, SAMPLINGS["penalty"], generator) > 1e-3
    assert all(row.rounds == len(row.token_ids) for row in spoken)


def test_the_test_would_notice_drafts_that_are_always_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def accept(drafted: Any, q: Any, p: Any, numbers: Any) -> Any:
        return settle(drafted, q, p, numbers * torch.tensor([0.8, 1.0]))

    monkeypatch.setattr(rounds, "settle", accept)
    spoken, generator = drawn(SAMPLINGS["open"], 1, draws=5_000)
    assert fit(spoken, SAMPLINGS["open"], generator) < 1e-6


def test_by_hand_a_rejected_draft_is_replaced_by_what_p_has_more() -> None:
    """p = (0.5, 0.3, 0.2) and q = (0.2, 0.3, 0.5): token 2 stays with 0.4, then only 0 is left."""
    p = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]])
    q = torch.tensor([[[0.2, 0.3, 0.5]]])

    def settled(token: int, accept: float, last: float) -> list[int]:
        numbers = torch.tensor([[accept, last]], dtype=torch.float64)
        tokens, counts = settle(torch.tensor([[token]]), q, p, numbers)
        return tokens[0, : int(counts)].tolist()

    assert settled(2, 0.41, 0.0) == settled(2, 0.41, 0.99) == [0]
    assert settled(2, 0.39, 0.15) == [2, 1]  # on top by p: 0.1, 0.2 and 1.0 cumulated
    assert settled(0, 0.999, 0.25) == [0, 2]
    assert settled(1, 0.999, 0.05) == [1, 0]


def test_equal_distributions_leave_nothing_over_and_still_give_a_token() -> None:
    p = torch.tensor([[[0.25, 0.75], [0.25, 0.75]]])
    numbers = torch.tensor([[1.0, 0.5]], dtype=torch.float64)  # 1.0 is never drawn: rejects
    tokens, counts = settle(torch.tensor([[0]]), p[:, :1], p, numbers)
    assert (tokens[0, 0].item(), counts.item()) == (1, 1)


# Models of the embedded family, on a short prompt.
GENERATOR, AUXILIARY = "divtok/tiny-0.5m", "divtok/tiny-0.3m"


@pytest.fixture(scope="module")
def tiny() -> SpeculativePair:
    generator, auxiliary = (load_model(name, device="cpu") for name in (GENERATOR, AUXILIARY))
    return make_pair(generator, auxiliary, drafts=1)


def tiny_fit(pair: SpeculativePair, sampling: Sampling, *, draws: int, limit: int) -> float:
    model = pair.generator.model
    prompt = tuple(pair.generator.tokenizer("Ada has")["input_ids"])

    @torch.inference_mode()
    def logits(row: Tokens) -> np.ndarray:
        return model(input_ids=torch.tensor([row])).logits[0, -1].double().numpy()

    expected = exact(
        logits,
        prompt,
        sampling,
        width=pair.generator.tokenizer_width,
        limit=limit,
        end=min(pair.generator.end_ids),
        least=20 / draws,
    )
    found: list[Tokens] = []
    for start in range(0, draws, 250):
        asks = [Ask(f"{sampling} {start + i}", prompt, limit) for i in range(250)]
        found += [tuple(row.token_ids) for row in pair.speak(asks, sampling)]
    return p_value(found, expected)


def test_the_embedded_models_write_by_the_generators_distribution(tiny: SpeculativePair) -> None:
    sampling = Sampling(temperature=1.5, top_p=0.9, presence_penalty=0.5)
    assert tiny_fit(tiny, sampling, draws=DRAWS, limit=2) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "top_p"), [(0.6, 1.0), (1.0, 0.9), (1.5, 0.95)])
def test_a_hundred_thousand_responses(
    tiny: SpeculativePair, temperature: float, top_p: float
) -> None:
    sampling = Sampling(temperature=temperature, top_p=top_p)
    assert tiny_fit(replace(tiny, drafts=2), sampling, draws=100_000, limit=4) > 1e-3
