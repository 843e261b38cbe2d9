"""Draws by a number: the same tokens as by hand, and none without weight."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from divtok.generate.draw import draw


@pytest.mark.parametrize(
    ("number", "token"), [(0.0, 1), (0.2499, 1), (0.25, 3), (0.99, 3), (1 - 2**-53, 3)]
)
def test_weights_are_shares_of_the_numbers(number: float, token: int) -> None:
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0]])
    assert draw(weights, torch.tensor([number], dtype=torch.float64)).tolist() == [token]


@given(
    st.integers(1, 5000), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.9, 0.999]), st.data()
)
def test_it_is_the_inverse_of_the_cumulative_weights(
    width: int, seed: int, empty: float, data: st.DataObject
) -> None:
    """Weights are whole numbers, so that no sum is rounded."""
    random = torch.Generator().manual_seed(seed)
    weights = torch.randint(1, 1000, (3, width), generator=random).double()
    weights *= torch.rand(3, width, generator=random) >= empty
    weights[:, data.draw(st.integers(0, width - 1))] += 1.0
    numbers = torch.rand(3, generator=random, dtype=torch.float64)
    for row, number, token in zip(weights, numbers, draw(weights, numbers), strict=True):
        sums = list(accumulate(row.tolist()))
        assert int(token) == next(i for i, s in enumerate(sums) if s > float(number) * sums[-1])


def test_no_token_without_weight_is_drawn_at_the_end() -> None:
    """Whatever rounding does to sums of many small weights."""
    random = torch.Generator().manual_seed(1)
    weights = torch.rand(64, 151_665, generator=random)
    weights[:, 100_000:] = 0.0
    last = torch.full((64,), 1 - 2**-53, dtype=torch.float64)
    for numbers in (last, torch.ones(64, dtype=torch.float64)):
        tokens = draw(weights, numbers)
        assert (weights.gather(1, tokens[:, None]) > 0).all()


def test_numbers_spread_over_blocks_as_the_weights_do() -> None:
    weights = torch.zeros(1, 3000)
    weights[0, [5, 1500, 2999]] = torch.tensor([1.0, 2.0, 1.0])
    numbers = (torch.arange(8, dtype=torch.float64) + 0.5) / 8
    assert draw(weights.expand(8, -1), numbers).tolist() == [
        5,
        5,
        1500,
        1500,
        1500,
        1500,
        2999,
        2999,
    ]
