"""Expanded percentiles, with the exact quantile of Student's t."""

from __future__ import annotations

from math import sqrt

from scipy.stats import norm, t


def expanded_levels(problems: int) -> tuple[float, float]:
    level = float(norm.cdf(-sqrt(problems / (problems - 1)) * t.ppf(0.975, problems - 1)))
    return level, 1 - level
