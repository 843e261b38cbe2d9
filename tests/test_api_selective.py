"""Selective prediction from Python: the figures of `divtok.evaluate`, and plain lists."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import divtok
from divtok.errors import DataError, UsageError

VALUES = [0.95, 0.86, 0.77, 0.41, 0.32, 0.05]
RIGHT = [True, True, False, True, False, False]


def test_figures_are_those_of_an_evaluation() -> None:
    (known,) = divtok.evaluate(VALUES, RIGHT)
    assert divtok.aurc(VALUES, RIGHT) == known.aurc
    assert divtok.coverage_at(VALUES, RIGHT) == known.coverage_at_5 == 2 / 6
    assert divtok.coverage_at(VALUES, RIGHT, risk=0.1) == known.coverage_at_10
    assert divtok.coverage_at(VALUES, RIGHT, risk=0.25) == 4 / 6
    assert divtok.aurc(VALUES, RIGHT) == pytest.approx((0 + 0 + 1 / 3 + 1 / 4 + 2 / 5 + 3 / 6) / 6)


def test_rows_without_a_value_or_an_outcome_are_left_out() -> None:
    curve = divtok.risk_coverage(pd.Series([0.9, None, 0.5, 0.1]), [True, True, None, "incorrect"])
    assert curve.threshold.tolist() == [0.9, 0.1]
    assert curve.accepted.tolist() == [1, 2]
    assert curve.at(0.0) == 0.5


def test_what_fits_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="one or more"):
        divtok.aurc([None], [True])
    with pytest.raises(DataError, match="2 confidences but 1"):
        divtok.risk_coverage([0.1, 0.2], [True])
    with pytest.raises(UsageError, match="between 0 and 1"):
        divtok.coverage_at([0.1], [True], risk=5)


def test_any_number_ranks() -> None:
    scores = -np.array([3.0, 100.0])
    assert divtok.aurc(scores, [True, False]) == 0.25
