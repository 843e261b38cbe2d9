"""Planning batches: every row once, under both budgets, with like lengths together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.errors import UsageError
from divtok.trace.batches import plan_batches


def test_longest_first_under_both_budgets() -> None:
    assert plan_batches([3, 9, 4, 9, 1], max_tokens=18, max_rows=2) == [[1, 3], [2, 0], [4]]
    assert plan_batches([3, 9, 4, 9, 1], max_tokens=10, max_rows=9) == [[1], [3], [2, 0], [4]]


def test_a_row_over_the_budget_stands_alone() -> None:
    assert plan_batches([50, 2, 2], max_tokens=10, max_rows=8) == [[0], [1, 2]]
    assert plan_batches([], max_tokens=10, max_rows=8) == []


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 200), st.integers(1, 9))
def test_every_row_once_and_no_budget_broken(
    lengths: list[int], max_tokens: int, max_rows: int
) -> None:
    batches = plan_batches(lengths, max_tokens=max_tokens, max_rows=max_rows)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[i] for i in batch)
        assert len(batch) <= max_rows
        assert padded <= max_tokens or len(batch) == 1


@pytest.mark.parametrize(
    "budget", [{"max_tokens": 0, "max_rows": 1}, {"max_tokens": 1, "max_rows": 0}]
)
def test_budgets_must_be_positive(budget: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        plan_batches([1], **budget)
