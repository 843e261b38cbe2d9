"""What the paper says of accuracy against the count of divergent tokens, its ratio, and length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from divtok.evaluate.ece_interval import FEWEST_PROBLEMS
from divtok.evaluate.equal_length import within_length
from divtok.evaluate.metrics import Bools, Ints, auroc
from divtok.evaluate.paired import Resamples
from divtok.evaluate.sweep.counts import Counted
from divtok.paper.claims.said import REPRODUCED, Said
from divtok.paper.exhibit import Compared, Finding
from divtok.paper.judging import above, between, judged
from divtok.paper.published_numbers import FACTS
from divtok.paper.trends import ALMOST, ENOUGH, Trend

_BOTH, _RATIO = ("figure-count", "figure-count-ratio"), ("figure-count-ratio",)
# By whether two auxiliaries read.
FALLS: Mapping[bool, Said] = {
    False: Said(
        "3.4",
        "Accuracy falls almost monotonically as the count rises (generator and auxiliary).",
        _BOTH,
    ),
    True: Said(
        "3.4",
        "Accuracy falls almost monotonically as the count rises (two auxiliaries).",
        _BOTH[:1],
    ),
}
FALLS_WITH_RATIO = Said("C.3", "Accuracy falls almost monotonically as the ratio rises.", _RATIO)
LONGER = Said("C.3", "Longer responses are less often right.", _RATIO)
GROWS = Said("C.3", "The count grows with the length of the reasoning.", _RATIO)
NOT_LENGTH = Said("C.3", "The count is not only length.", _RATIO)
AT_COUNTS = Said(
    "C.3",
    "Accuracy is about 0.97 to 0.99 at a count of 0 and 0.24 to 0.29 from 11 on.",
    _RATIO,
)
AT_RATIOS = Said(
    "C.3",
    "Accuracy is about 0.97 to 0.99 in the lowest tenth of the ratio and 0.45 to 0.54 in the "
    "highest.",
    _RATIO,
)
CORRELATIONS = Said(
    "C.3",
    "The correlation with accuracy is -0.985 for the count and -0.937 for the ratio.",
    _RATIO,
)
COUNTS = (
    *FALLS.values(), LONGER, GROWS, AT_COUNTS, FALLS_WITH_RATIO, AT_RATIOS, CORRELATIONS,
    NOT_LENGTH,
)  # fmt: skip


def falls_with(said: Said, trends: Sequence[Trend], what: str) -> Finding:
    return judged(
        said.text,
        f"correlation of accuracy with the {what}, over levels with {ENOUGH} or more responses: "
        f"95 % interval below {ALMOST} for every pair",
        [trend.compared() for trend in trends],
        nothing="no pair has a theta",
        unit="",
    )


def longer_is_worse(length: Ints, correct: Bools, problem_id: Sequence[str]) -> Finding:
    rule = "AUROC of being shorter: 95 % interval above 50 %"
    value = auroc(-length.astype(np.float64), correct) if len(length) else None
    if value is None:
        return Finding(LONGER.text, rule, None, "needs both right and wrong responses")
    resamples = Resamples([("", problem_id)])
    problem = resamples.places("", problem_id)
    figure = resamples.auroc(value, problem, -length.astype(np.float64), correct)
    return judged(LONGER.text, rule, [above("AUROC of being shorter", figure, 0.5)], unit="%")


@dataclass(frozen=True, slots=True, eq=False)
class Grown:
    """Counts and reasoning tokens of the responses that one pair read."""

    name: str
    count: Ints
    reasoning: Ints
    correct: Bools
    problem_id: Sequence[str]

    def correlation(self) -> Compared:
        x, y = self.count.astype(np.float64), self.reasoning.astype(np.float64)
        name = f"{self.name}: r"
        if len(x) == 0 or x.std() == 0 or y.std() == 0:
            return Compared(name, float("nan"), reason="they are all alike")
        resamples = Resamples([("", self.problem_id)])
        problem = resamples.places("", self.problem_id)
        one = np.zeros(len(problem), dtype=np.int64)
        x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
        n, sx, sy, sxx, syy, sxy = (
            resamples.summed(problem, one, 1, values)[:, 0]
            for values in (np.ones_like(x), x, y, x * x, y * y, x * y)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            r = (sxy - sx * sy / n) / np.sqrt((sxx - sx**2 / n) * (syy - sy**2 / n))
        figure = resamples.figure(float((x * y).mean()), r, problem, self.correct)
        return above(name, replace(figure, rarer=len(x)))  # whatever is right or wrong


def grows_with_length(pairs: Sequence[Grown]) -> Finding:
    return judged(
        GROWS.text,
        "correlation of the count with the number of reasoning tokens, over responses: 95 % "
        "interval above 0 for every pair",
        [pair.correlation() for pair in pairs],
        nothing="no pair has a theta",
        unit="",
    )


def at_ends(
    said: Said, trends: Sequence[Trend], facts: tuple[str, str], reason: str | None
) -> Finding:
    """The accuracy at the first and last level; `reason` says why these are not the paper's."""
    first, last = (FACTS[key] for key in facts)
    rule = (
        f"on the paper's models: accuracy at both ends within {100 * REPRODUCED:g} points of the "
        "paper's, for every pair: the whole 95 % interval"
    )
    if reason is not None:
        return Finding(said.text, rule, None, reason)
    compared = [
        between(f"{trend.name}, {fact.what}", figure, fact.low - REPRODUCED, fact.high + REPRODUCED)
        for trend in trends
        for fact, figure in ((first, trend.ends[0]), (last, trend.ends[1]))
    ]
    return judged(said.text, rule, compared, nothing="no pair has a theta", unit="%")


def correlations(
    by_count: Sequence[Trend], by_ratio: Sequence[Trend], reason: str | None
) -> Finding:
    rule = (
        f"on the paper's models: every pair's correlation within {REPRODUCED:g} of the paper's: "
        "the whole 95 % interval"
    )
    if reason is not None:
        return Finding(CORRELATIONS.text, rule, None, reason)
    compared: list[Compared] = []
    for trends, key in ((by_count, "count-r"), (by_ratio, "ratio-r")):
        low, high = FACTS[key].low - REPRODUCED, FACTS[key].high + REPRODUCED
        for one in (trend.compared() for trend in trends):
            if one.low is None or one.high is None:
                compared.append(one)
                continue
            inside = low <= one.low and one.high <= high
            outside = one.high < low or one.low > high
            holds = True if inside else False if outside else None
            name = f"{one.name} ({key.removesuffix('-r')})"
            compared.append(Compared(name, one.difference, one.low, one.high, holds))
    return judged(CORRELATIONS.text, rule, compared, nothing="no pair has a theta", unit="")


def not_only_length(rows: Sequence[tuple[Counted, float]]) -> Finding:
    """`rows` are counted responses with the theta in use; each is compared within itself."""
    claim = NOT_LENGTH.text
    rule = (
        "within quintiles of equal length, AUROC of the count above that of length: 95 % interval "
        "of the difference above 0"
    )
    # Benchmarks from files may use the same ids for other problems.
    found = within_length(
        [
            (c.at(theta), c.length, c.correct, [f"{c.benchmark} {p}" for p in c.problem_id])
            for c, theta in rows
        ]
    )
    if found is None:
        number = "no bin of equal length holds both right and wrong responses"
        return Finding(claim, rule, None, number)
    name, gain = "count less length", found.count - found.length
    number = (
        f"{100 * found.count:.1f} (95 % interval {100 * found.low:.1f} to {100 * found.high:.1f}) "
        f"within bins of equal length, where length itself has {100 * found.length:.1f}"
    )
    if found.problems < FEWEST_PROBLEMS:
        reason = f"{found.problems} problems, and an interval needs {FEWEST_PROBLEMS}"
        only = Compared(name, gain, reason=reason)
    else:
        low, high = found.gain_low, found.gain_high
        only = Compared(name, gain, low, high, True if low > 0 else False if high < 0 else None)
    judgement = judged(claim, rule, [only])
    return Finding(claim, rule, judgement.holds, f"{number}; {judgement.number}", (only,))
