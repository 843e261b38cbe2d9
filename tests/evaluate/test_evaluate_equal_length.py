"""Does the count add anything at equal length?"""

from __future__ import annotations

import numpy as np
import pytest

from divtok.errors import DataError
from divtok.evaluate.equal_length import count_in_group, what_count_adds
from divtok.evaluate.metrics import auroc
from divtok.evaluate.scored_group import ScoredGroup


def test_a_count_that_follows_the_answer_at_equal_length_scores_one():
    length = np.repeat([100, 200, 300, 400, 500], 4)
    correct = np.tile([True, True, False, False], 5)
    found = what_count_adds(np.where(correct, 1, 5), length, correct)
    assert found.count_within == 1.0
    assert found.length == found.length_within == 0.5
    assert found.usable_bins == 5
    assert [b.n for b in found.bins] == [4] * 5


def test_a_count_that_is_length_adds_nothing():
    length = np.repeat([100, 200, 300, 400, 500], 4)
    correct = np.array([True] * 7 + [False, True] * 3 + [False] * 7)
    found = what_count_adds(length // 10, length, correct)
    assert found.count == found.length
    assert found.count is not None
    assert found.count > 0.8
    assert found.count_within == 0.5


def test_the_mean_is_weighted_by_pairs_and_skips_bins_with_one_class():
    length = [1] * 4 + [2] * 3 + [3] * 2
    count = [0, 1, 2, 3, 5, 1, 9, 0, 0]
    correct = [True, False, True, False, True, False, True, True, True]
    found = what_count_adds(count, length, correct, bins=3)
    first = auroc([-c for c in count[:4]], correct[:4])
    second = auroc([-c for c in count[4:7]], correct[4:7])
    assert (first, second) == (0.75, 0.0)
    assert found.count_within == pytest.approx((0.75 * 4 + 0.0 * 2) / 6)
    assert found.usable_bins == 2
    assert [b.count_auroc for b in found.bins] == [0.75, 0.0, None]


def test_equal_lengths_share_one_bin():
    found = what_count_adds([0, 1, 2, 3], [7, 7, 7, 7], [True, False, True, False])
    assert len(found.bins) == 1
    assert found.count_within == found.count == 0.75


def test_no_usable_bin_is_none_with_a_reason():
    found = what_count_adds([0, 1], [1, 2], [True, True])
    assert found.count_within is None
    assert found.reason


def test_shapes_must_agree():
    with pytest.raises(DataError):
        what_count_adds([1], [1, 2], [True, False])


def test_a_group_uses_graded_responses_with_a_count():
    group = ScoredGroup(
        benchmark="b",
        generator="g",
        problem_id=["1", "2", "3", "4"],
        verdict=["correct", "incorrect", "unanswered", "correct"],
        truncated=[False, False, False, False],
        length=[5, 5, 5, 5],
        count=[0, 3, 9, None],
        columns=[],
    )
    found = count_in_group(group)
    assert found is not None
    assert (found.n, found.count_within) == (2, 1.0)
