"""DeepConf and the reverse of self-certainty: by hand, against numpy, and their bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from certainty_samples import Known
from hypothesis import given
from hypothesis import strategies as st
from score_samples import make_trace, numbers

from divtok.errors import UsageError
from divtok.score.estimators.certainty import (
    deepconf_group,
    deepconf_tail,
    self_certainty_reverse,
    window_means,
)
from divtok.score.estimators.likelihood import entropy
from divtok.score.registry import ESTIMATORS, bind_parameters

NAMES = ("deepconf_group", "deepconf_tail", "self_certainty_reverse")
FIVE = (0.0, 1.0, 0.5, 0.0, 0.25)


def trace_of(*entropies: float, answer: tuple[int, int] | None = None, turn_end: int | None = None):
    return make_trace([0.0] * len(entropies), entropy=entropies, answer=answer, turn_end=turn_end)


@pytest.mark.parametrize(
    ("window", "group", "tail"),
    [
        (1, -1.0, -0.25),
        (2, -0.75, -0.125),  # the second and third; the last two
        (3, -0.5, -0.25),
        (4, -0.4375, -0.4375),  # the last four are the least certain ones, too
        (5, -0.35, -0.35),
        (6, -0.35, -0.35),  # shorter than the window: one group, the whole response
        (2048, -0.35, -0.35),
    ],
)
def test_groups_and_tails_by_hand(window: int, group: float, tail: float) -> None:
    assert deepconf_group(trace_of(*FIVE), window=window) == pytest.approx(group, abs=1e-15)
    assert deepconf_tail(trace_of(*FIVE), window=window) == pytest.approx(tail, abs=1e-15)


def test_the_window_is_the_sources_unless_given() -> None:
    for name in ("deepconf_group", "deepconf_tail"):
        assert bind_parameters(ESTIMATORS.get(name), {}) == {"window": 2048}
    late = trace_of(*[1.0] * 100, *[0.0] * 2048)
    assert deepconf_tail(late) == 0.0
    assert deepconf_group(late) == pytest.approx(-100 / 2048, rel=1e-12)


def test_windows_move_by_one_token() -> None:
    assert window_means(numbers(1, 2, 4, 8), 2).tolist() == [1.5, 3.0, 6.0]
    assert window_means(numbers(1, 2), 3).tolist() == [1.5]


@pytest.mark.parametrize("window", [0, -1, math.inf, math.nan])
def test_a_window_of_no_tokens_is_refused(window: float) -> None:
    with pytest.raises(UsageError, match="window must be"):
        bind_parameters(ESTIMATORS.get("deepconf_tail"), {"window": window})


def test_half_a_token_is_refused() -> None:
    with pytest.raises(UsageError, match=r"whole number of tokens, not 2\.5") as caught:
        deepconf_group(trace_of(*FIVE), window=2.5)  # type: ignore[arg-type]
    assert caught.value.next_step


def test_the_answer_and_the_end_of_turn_are_part_of_all() -> None:
    trace = trace_of(0.0, 1.0, 0.0, 1.0, answer=(1, 2), turn_end=3)
    assert deepconf_group(trace, window=1) == deepconf_tail(trace, window=1) == -1.0
    assert self_certainty_reverse(trace) == -0.5


def test_one_token_is_enough() -> None:
    one = trace_of(0.75)
    assert {deepconf_group(one), deepconf_tail(one), self_certainty_reverse(one)} == {-0.75}
    sure = trace_of(0.0)
    for value in (deepconf_group(sure), deepconf_tail(sure), self_certainty_reverse(sure)):
        assert math.copysign(1, value) == 1, "zero, not minus zero"


@given(
    entropies=st.lists(st.floats(0, 12, width=32), min_size=1, max_size=40),
    window=st.integers(1, 50),
)
def test_a_group_is_never_above_the_tail_nor_the_whole(entropies: list[float], window: int) -> None:
    trace = trace_of(*entropies)
    group, tail = deepconf_group(trace, window=window), deepconf_tail(trace, window=window)
    least, most = -max(entropies), -min(entropies)
    assert least - 1e-9 <= group <= tail + 1e-9
    assert tail <= most + 1e-9
    if window >= len(entropies):
        whole = self_certainty_reverse(trace)
        assert (group, tail) == (pytest.approx(whole, abs=1e-12),) * 2


@given(st.lists(st.floats(0, 12, width=32), min_size=1, max_size=40))
def test_the_reverse_of_self_certainty_ranks_as_entropy_does(entropies: list[float]) -> None:
    trace = trace_of(*entropies)
    assert self_certainty_reverse(trace) == pytest.approx(entropy(trace) - 1, abs=1e-12)


def test_they_only_rank_and_learn_nothing_from_grades() -> None:
    for name in NAMES:
        spec = ESTIMATORS.get(name)
        assert (spec.ranking_only, spec.bounded, spec.supervised) == (True, False, False)


def test_all_agree_with_numpy_on_the_embedded_family(known: Known) -> None:
    for found, (under_p, _) in zip(known.traces, known.logs, strict=True):
        size, width = under_p.shape
        assert size > 10
        uniform = np.full(width, 1 / width)
        from_uniform = np.sum(np.exp(under_p) * (under_p - np.log(uniform)), axis=-1)
        entropies = np.log(width) - from_uniform
        groups = [entropies[i : i + 8].mean() for i in range(size - 7)]
        assert deepconf_group(found, window=8) == pytest.approx(-max(groups), abs=1e-4)
        assert deepconf_tail(found, window=8) == pytest.approx(-groups[-1], abs=1e-4)
        whole = from_uniform.mean() - np.log(width)
        assert self_certainty_reverse(found) == pytest.approx(whole, abs=1e-4)
