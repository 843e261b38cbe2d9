"""Packs: every token once, prompts shared, and every response found again in its rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.errors import UsageError
from divtok.packed import packs
from divtok.packed.packs import attention_groups, build_pack, plan_packs


@pytest.fixture(autouse=True)
def share_every_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples stay short: prompts of any length are worth sharing here."""
    monkeypatch.setattr(packs, "SHARE_FROM", 1)


def test_a_short_prompt_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "SHARE_FROM", 3)
    pack = build_pack([[7, 8], [7, 8]], [[1, 2], [3, 4]])
    assert pack.ids.tolist() == [7, 8, 1, 7, 8, 3]
    assert pack.predicts.tolist() == [1, 2, 4, 5]
    assert attention_groups(pack)[0].span == (0, 6)
    assert plan_packs(["a"] * 2, [2] * 2, [2] * 2, max_tokens=6, max_rows=9) == [[0, 1]]
    assert plan_packs(["a"] * 2, [2] * 2, [2] * 2, max_tokens=5, max_rows=9) == [[0], [1]]


def test_a_prompt_is_read_once_for_all_its_responses() -> None:
    pack = build_pack([[7, 8], [7, 8], [9]], [[1, 2, 3], [4], [5, 6]])
    assert pack.ids.tolist() == [7, 8, 1, 2, 9, 5]
    assert pack.positions.tolist() == [0, 1, 2, 3, 0, 1]
    # The response of one token is predicted by the prompt alone, so it has no lane of its own.
    assert [(lane.rows.tolist(), lane.owned) for lane in pack.lanes] == [
        ([0, 1, 2, 3], 0),
        ([4, 5], 0),
    ]
    assert pack.predicts.tolist() == [1, 2, 3, 1, 4, 5]


def test_a_lane_looks_back_at_the_shared_prompt() -> None:
    pack = build_pack([[7, 8], [7, 8]], [[1, 2], [3, 4, 5]])
    assert pack.ids.tolist() == [7, 8, 1, 3, 4]
    assert [(lane.rows.tolist(), lane.owned) for lane in pack.lanes] == [
        ([0, 1, 2], 0),
        ([0, 1, 3, 4], 2),
    ]
    (group,) = attention_groups(pack)
    assert group.index.tolist() == [[0, 1, 3, 4], [0, 1, 2, 2]]
    assert group.slots.tolist() == [2, 3, 4, 5, 6]
    assert group.rows.tolist() == [3, 4, 0, 1, 2]
    assert group.span is None


def test_equal_lanes_side_by_side_need_no_copy() -> None:
    pack = build_pack([[1], [2], [3]], [[4] * 5] * 3)
    (group,) = attention_groups(pack)
    assert group.index.shape == (3, 5)
    assert group.span == (0, 15)


def test_lengths_far_apart_attend_in_groups_of_their_own() -> None:
    pack = build_pack([[1], [2], [3]], [[4] * 1000, [4] * 900, [4] * 300])
    assert [group.index.shape for group in attention_groups(pack)] == [(2, 1000), (1, 300)]


PROMPTS = st.lists(st.integers(0, 3), min_size=1, max_size=4)
RESPONSES = st.lists(st.integers(0, 9), min_size=1, max_size=90)


@given(st.lists(st.tuples(PROMPTS, RESPONSES), min_size=1, max_size=8))
def test_every_response_is_found_again(rows: list[tuple[list[int], list[int]]]) -> None:
    prompts, responses = [p for p, _ in rows], [r for _, r in rows]
    pack = build_pack(prompts, responses)
    distinct = {tuple(p) for p in prompts}
    assert len(pack.ids) == sum(map(len, distinct)) + sum(len(r) - 1 for r in responses)
    start = 0
    for prompt, response in rows:
        predicts = pack.predicts[start : start + len(response)]
        start += len(response)
        # The row that predicts token i holds the token before it, at the right position.
        assert pack.ids[predicts].tolist() == ([*prompt, *response][len(prompt) - 1 : -1])
        assert pack.positions[predicts].tolist() == list(
            range(len(prompt) - 1, len(prompt) - 1 + len(response))
        )
    assert start == len(pack.predicts)


@given(st.lists(st.tuples(PROMPTS, RESPONSES), min_size=1, max_size=8))
def test_groups_write_every_row_once(rows: list[tuple[list[int], list[int]]]) -> None:
    pack = build_pack([p for p, _ in rows], [r for _, r in rows])
    written = np.concatenate([group.rows for group in attention_groups(pack)])
    assert sorted(written.tolist()) == list(range(len(pack.ids)))
    for group in attention_groups(pack):
        assert group.index.reshape(-1)[group.slots].tolist() == group.rows.tolist()
        # Causal order: within a lane, positions rise one by one up to the padding.
        for lane in group.index:
            steps = np.diff(pack.positions[lane])
            assert set(steps.tolist()) <= {0, 1}
            assert (np.diff(steps) <= 0).all()


def test_responses_to_one_prompt_stay_together_longest_first() -> None:
    plan = plan_packs(
        ["a", "b", "a", "b"], [2, 3, 2, 3], [4, 5, 6, 7], max_tokens=100, max_rows=100
    )
    assert plan == [[2, 0, 3, 1]]


def test_a_shared_prompt_counts_once_a_pack() -> None:
    arguments = ["a"] * 3, [10] * 3, [5] * 3  # of each response four tokens are read
    assert plan_packs(*arguments, max_tokens=22, max_rows=9) == [[0, 1, 2]]
    assert plan_packs(*arguments, max_tokens=21, max_rows=9) == [[0, 1], [2]]
    assert plan_packs(*arguments, max_tokens=22, max_rows=2) == [[0, 1], [2]]


def test_one_over_the_budget_stands_alone() -> None:
    assert plan_packs(["a", "b"], [1, 1], [50, 2], max_tokens=10, max_rows=8) == [[0], [1]]
    assert plan_packs([], [], [], max_tokens=10, max_rows=8) == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60)), max_size=40),
    st.integers(1, 200),
    st.integers(1, 9),
)
def test_every_index_once_and_no_budget_broken(
    rows: list[tuple[int, int]], max_tokens: int, max_rows: int
) -> None:
    prompts = [prompt for prompt, _ in rows]
    lengths = [length for _, length in rows]
    found = plan_packs(
        prompts, [p + 1 for p in prompts], lengths, max_tokens=max_tokens, max_rows=max_rows
    )
    assert sorted(i for pack in found for i in pack) == list(range(len(rows)))
    for pack in found:
        prompt_tokens = sum(p + 1 for p in {prompts[i] for i in pack})
        tokens = prompt_tokens + sum(lengths[i] - 1 for i in pack)
        assert len(pack) <= max_rows
        assert tokens <= max_tokens or len(pack) == 1


@pytest.mark.parametrize(
    "budget", [{"max_tokens": 0, "max_rows": 1}, {"max_tokens": 1, "max_rows": 0}]
)
def test_budgets_must_be_positive(budget: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        plan_packs(["a"], [1], [1], **budget)
