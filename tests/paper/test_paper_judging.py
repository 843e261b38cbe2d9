"""Verdicts from comparisons: decided only where a whole interval lies on one side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from divtok.evaluate.paired import Figure, Resamples
from divtok.paper.exhibit import Compared
from divtok.paper.judging import Share, above, apart, below, between, judged, verdict, within

RESAMPLES = Resamples([("a", [str(i) for i in range(40)])], resamples=1)


def figure(value: float, spread: float, *, problems: int = 40) -> Figure:
    """A figure whose 95 % interval is the value and twice the spread and a little more each way."""
    used = np.arange(40) < problems
    return Figure(value, np.array([value - spread, value + spread]), used, 40, RESAMPLES)


@pytest.mark.parametrize(
    ("judge", "value", "holds"),
    [
        (below, -0.05, True),
        (below, -0.01, None),
        (below, 0.0, None),
        (below, 0.05, False),
        (above, 0.05, True),
        (above, 0.01, None),
        (above, -0.05, False),
        (lambda name, f: below(name, f, 0.1), 0.05, True),
        (lambda name, f: below(name, f, 0.1), 0.15, False),
        (lambda name, f: within(name, f, 0.1), 0.05, True),
        (lambda name, f: within(name, f, 0.1), -0.05, True),
        (lambda name, f: within(name, f, 0.1), 0.09, None),
        (lambda name, f: within(name, f, 0.1), -0.15, False),
        (lambda name, f: within(name, f, 0.01), 0.0, None),  # wider than what it is held to
        (lambda name, f: between(name, f, 0.1, 0.2), 0.15, True),
        (lambda name, f: between(name, f, 0.1, 0.2), 0.19, None),
        (lambda name, f: between(name, f, 0.1, 0.2), 0.25, False),
        (lambda name, f: between(name, f, 0.1, 0.2), 0.05, False),
        (lambda name, f: apart(name, f, 0.05), 0.1, True),
        (lambda name, f: apart(name, f, 0.05), -0.1, True),
        (lambda name, f: apart(name, f, 0.05), 0.06, None),
        (lambda name, f: apart(name, f, 0.05), 0.01, False),
    ],
)
def test_a_comparison_is_decided_by_its_whole_interval(
    judge: Callable[[str, Figure], Compared], value: float, holds: bool | None
) -> None:
    found = judge("one", figure(value, 0.012))
    assert found.holds is holds
    assert found.low is not None
    assert found.high is not None
    assert found.low < value < found.high


def test_a_comparison_without_an_interval_is_undecided_and_says_why() -> None:
    found = below("one", figure(-0.5, 0.01, problems=19))
    assert (found.holds, found.difference) == (None, -0.5)
    assert (found.low, found.high) == (None, None)
    assert found.reason == "19 problems, and an interval needs 20"


@pytest.mark.parametrize(
    ("parts", "every", "most", "often", "some"),
    [
        ([], None, None, None, None),
        ([True], True, True, True, True),
        ([False], False, False, False, False),
        ([None], None, None, None, None),
        ([True, True, None], None, True, True, True),
        ([True, None, None], None, None, True, True),
        ([True, False], False, False, True, True),  # half is not most
        ([False, None, None], False, None, None, None),
        ([False, False, None], False, False, None, None),
        ([True, True, False], False, True, True, True),
        ([True, False, False], False, False, True, True),  # a third is often
        ([True, False, False, False], False, False, False, True),
    ],
)
def test_many_comparisons(
    parts: list[bool | None],
    every: bool | None,
    most: bool | None,
    often: bool | None,
    some: bool | None,
) -> None:
    shares: dict[Share, bool | None] = {
        "every": every, "most": most, "often": often, "some": some,
    }  # fmt: skip
    assert {share: verdict(parts, share) for share in shares} == shares


def compared(name: str, difference: float, holds: bool | None) -> Compared:
    return Compared(name, difference, difference - 0.01, difference + 0.01, holds)


def test_the_text_counts_and_shows_what_the_verdict_hangs_on() -> None:
    parts = [compared("a", -0.2, True), compared("b", -0.005, None), compared("c", -0.1, True)]
    found = judged("Claim.", "rule", parts)
    assert (found.holds, found.verdict) == (None, "undecided")
    assert found.number == ("of 3: 2 hold, 1 undecided; b -0.5 points (95 % interval -1.5 to +0.5)")
    assert found.compared == tuple(parts)
    one_is_enough = judged("Claim.", "rule", parts, share="some")
    assert one_is_enough.holds is True
    assert "c -10.0 points" in one_is_enough.number


def test_one_comparison_is_shown_alone_and_nothing_says_why() -> None:
    alone = judged("Claim.", "rule", [compared("r", -0.95, True)], unit="")
    assert alone.number == "r -0.950 (95 % interval -0.960 to -0.940)"
    nothing = judged("Claim.", "rule", [], nothing="no pair")
    assert (nothing.holds, nothing.number) == (None, "no pair")
    few = judged("Claim.", "rule", [Compared("a", 0.1, reason="3 problems")])
    assert few.number == "a +10.0 points (no interval: 3 problems)"
