"""What tokens cost."""

from __future__ import annotations

from math import inf, nan

import pytest

from divtok.decide.cost import TokenCost
from divtok.errors import UsageError


def test_a_response_costs_what_its_tokens_do():
    cost = TokenCost(write=8.0, read=10.0, unit="parameters")
    assert cost.of([0, 3], read=False).tolist() == [0, 24]
    assert cost.of([0, 3], read=True).tolist() == [0, 54]
    assert cost.reading_share == 1.25


@pytest.mark.parametrize(
    ("write", "read"), [(0.0, 1.0), (-1.0, 0.0), (1.0, -0.1), (nan, 0.0), (inf, 0.0), (1.0, inf)]
)
def test_costs_that_are_none_are_refused(write: float, read: float):
    with pytest.raises(UsageError, match="is none"):
        TokenCost(write, read, "price")
