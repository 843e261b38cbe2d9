"""The count within bins of equal length, over several groups, and its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from level_samples import expanded_levels

from divtok.evaluate.equal_length import within_length

Rows = tuple[list[int], list[int], list[bool], list[str]]


def rows(*responses: tuple[int, int, bool, str]) -> Rows:
    count, length, correct, problem = (list(column) for column in zip(*responses, strict=True))
    return count, length, correct, problem


response = st.tuples(st.integers(0, 6), st.integers(1, 12), st.booleans(), st.sampled_from("abcde"))
group = st.lists(response, min_size=1, max_size=25).map(lambda found: rows(*found))


def bin_of(length: Sequence[int], bins: int) -> list[int]:
    """How many of the inner quantiles, linearly interpolated, lie below each length."""
    ordered = sorted(length)
    edges: list[float] = []
    for number in range(1, bins):
        place = (len(ordered) - 1) * number / bins
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        edges.append(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
    return [sum(edge < tokens - 1e-9 for edge in edges) for tokens in length]


def by_hand(groups: Sequence[Rows], bins: int) -> tuple[float, float] | None:
    """Every pair of a right and a wrong response of one bin, one after the other."""
    won = {"count": 0.0, "length": 0.0}
    pairs = 0
    for count, length, correct, _ in groups:
        where = bin_of(length, bins)
        for i in range(len(count)):
            for j in range(len(count)):
                if where[i] != where[j] or not correct[i] or correct[j]:
                    continue
                pairs += 1
                for name, of in (("count", count), ("length", length)):
                    won[name] += 1.0 if of[i] < of[j] else 0.5 if of[i] == of[j] else 0.0
    return (won["count"] / pairs, won["length"] / pairs) if pairs else None


@settings(deadline=None, max_examples=60)
@given(st.lists(group, min_size=1, max_size=3), st.integers(1, 6))
def test_figures_are_those_of_a_loop_over_all_pairs(groups: list[Rows], bins: int) -> None:
    found = within_length(groups, bins=bins, resamples=20)
    expected = by_hand(groups, bins)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (found.count, found.length) == pytest.approx(expected)
    assert 0 <= found.low <= found.high <= 1


def test_each_pair_of_responses_weighs_the_same() -> None:
    # One bin each: 2 of 2 pairs won in the first group, and 1 of 4 in the second.
    first = rows((0, 5, True, "a"), (1, 5, True, "a"), (2, 5, False, "b"))
    second = rows((3, 7, True, "a"), (5, 7, True, "a"), (4, 7, False, "c"), (2, 7, False, "c"))
    found = within_length([first, second])
    assert found is not None
    assert found.count == pytest.approx(3 / 6)
    assert found.length == 0.5


def test_a_constant_count_knows_nothing() -> None:
    rng = np.random.default_rng(0)
    length, correct = rng.integers(1, 100, 60), rng.random(60) < 0.5
    found = within_length([(np.full(60, 3), length, correct, [str(i // 4) for i in range(60)])])
    assert found is not None
    assert (found.count, found.low, found.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    "groups",
    [
        [],
        [rows((0, 1, True, "a"), (4, 1, True, "b"))],
        [rows((0, 1, False, "a")), rows((0, 1, True, "a"))],  # groups are not compared
        [rows((0, 1, True, "a"), (4, 90, False, "b"))],  # nor are bins
    ],
)
def test_none_where_no_bin_holds_both(groups: list[Rows]) -> None:
    assert within_length(groups) is None


def random_group(seed: int, problems: int = 15, samples: int = 4) -> Rows:
    rng = np.random.default_rng(seed)
    n = problems * samples
    right = rng.random(n) < 0.5
    count = rng.poisson(3, n) + rng.poisson(2, n) * ~right
    problem = [f"p{i // samples}" for i in range(n)]
    return count.tolist(), rng.integers(5, 60, n).tolist(), right.tolist(), problem


def test_a_shared_problem_is_resampled_in_all_groups_at_once() -> None:
    one = random_group(1)
    count, length, correct, problem = one
    found = within_length([one], resamples=400)
    assert found is not None
    # A second copy of the same responses brings no evidence ...
    assert within_length([one, one], resamples=400) == found
    # ... unless it is of other problems, which narrows the interval.
    other = (count, length, correct, [f"other {name}" for name in problem])
    wider = within_length([one, other], resamples=400)
    assert wider is not None
    assert (wider.count, wider.length) == (found.count, found.length)
    assert 0.5 < (wider.high - wider.low) / (found.high - found.low) < 0.9


def test_the_interval_is_that_of_responses_that_were_drawn_again() -> None:
    count, length, correct, problem = random_group(2)
    bins = 3
    found = within_length([(count, length, correct, problem)], bins=bins, resamples=300, seed=7)
    assert found is not None
    where = np.array(bin_of(length, bins))
    values, right = np.array([count, length]), np.array(correct)
    names = sorted(set(problem), key=problem.index)
    members = [np.flatnonzero(np.array(problem) == name) for name in names]
    rng = np.random.default_rng(7)
    sampled: list[list[float]] = []
    for _ in range(300):
        drawn = np.concatenate([members[i] for i in rng.integers(len(names), size=len(names))])
        won, pairs = [0.0, 0.0], 0
        for number in range(bins):
            inside = drawn[where[drawn] == number]
            rights, wrongs = inside[right[inside]], inside[~right[inside]]
            pairs += len(rights) * len(wrongs)
            for which in (0, 1):
                good, bad = values[which][rights][:, None], values[which][wrongs]
                won[which] += float((good < bad).sum() + 0.5 * (good == bad).sum())
        sampled.append([share / pairs for share in won])
    counts, lengths = np.array(sampled).T
    ends = expanded_levels(len(names))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(counts, ends)), abs=5e-4)
    assert (found.gain_low, found.gain_high) == pytest.approx(
        tuple(np.quantile(counts - lengths, ends)), abs=5e-4
    )
    assert found.problems == len(names)


def test_a_count_that_is_length_gains_nothing() -> None:
    _, length, correct, problem = random_group(5)
    found = within_length([([3 * tokens for tokens in length], length, correct, problem)])
    assert found is not None
    assert found.count == found.length
    assert (found.gain_low, found.gain_high) == (0.0, 0.0)


def test_a_group_without_responses_adds_nothing() -> None:
    one = random_group(6)
    assert within_length([one, ([], [], [], [])], resamples=50) == within_length(
        [one], resamples=50
    )


def test_the_same_every_time_and_another_with_another_seed() -> None:
    one = random_group(3)
    first, again = (within_length([one], resamples=100) for _ in range(2))
    other = within_length([one], resamples=100, seed=1)
    assert first is not None
    assert other is not None
    assert first == again
    assert (first.count, first.length) == (other.count, other.length)
    assert (first.low, first.high) != (other.low, other.high)


def test_the_order_of_the_responses_does_not_matter_to_the_figures() -> None:
    count, length, correct, problem = random_group(4)
    turned = (count[::-1], length[::-1], correct[::-1], problem[::-1])
    one, other = (
        within_length([g], resamples=10) for g in ((count, length, correct, problem), turned)
    )
    assert one is not None
    assert other is not None
    assert (one.count, one.length) == pytest.approx((other.count, other.length))
