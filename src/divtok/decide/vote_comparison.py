"""Ways to vote set beside a majority, for one generator over its benchmarks: the numbers of tables.

Knows curves and names; reads no run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from divtok.decide.cost import TokenCost
from divtok.decide.vote_curves import (
    ORDERS,
    Difference,
    VoteCurve,
    Voters,
    Voting,
    at_equal_cost,
    cost_of,
    curves,
)
from divtok.decide.votes import SETTLED, Strategy
from divtok.evaluate.metrics import Floats

LEVEL = 0.95  # of the vote's own confidence, at which it stops where nothing else is asked
SHOWN = ("dtc_lin", "dtc_weighted", "dtc_guarded", "nsl")
Written = Literal["tokens", "samples"]
_USUAL = ("dtc_weighted", "dtc_lin")


@dataclass(frozen=True, slots=True)
class VotePoint:
    """A way to vote with at most so many `samples`; means over benchmarks.

    `used` samples and `tokens` are those until it stops, `confidence` is the vote's own, None where
    it has none. `against` is the difference to a majority of as many tokens; None for that itself.
    """

    samples: int
    accuracy: float
    used: float
    tokens: float
    confidence: float | None
    against: Difference | None


@dataclass(frozen=True, slots=True)
class VotedRow:
    """A way to vote with 1, 2, ... samples, and what it is compared with.

    `rival` is the majority that stops alike; of a majority that stops, the one of all samples, and
    of that itself there is none. `costs` are those of the points in written tokens a problem,
    reading counted, and `equal_cost` is the difference to the rival at equal cost.
    """

    voting: Voting
    points: tuple[VotePoint, ...]
    costs: tuple[float, ...]
    rival: Voting | None
    equal_cost: Difference | None

    @property
    def last(self) -> VotePoint:
        return self.points[-1]


@dataclass(frozen=True, slots=True)
class GeneratorVotes:
    """All ways to vote of one generator. `usual` is the estimator that is shown first.

    `written` is what is counted: tokens, or samples where those have none that are known. `notes`
    say what could not be done as it is described.
    """

    generator: str
    benchmarks: tuple[str, ...]
    problems: int
    cost: TokenCost
    usual: str | None
    rows: tuple[VotedRow, ...]
    written: Written = "tokens"
    notes: tuple[str, ...] = ()

    @property
    def samples(self) -> int:
        return self.rows[0].last.samples


def shown_samples(most: int) -> list[int]:
    """1, 2, 4, ... and all."""
    powers = [2**k for k in range(most.bit_length()) if 2**k < most]
    return [*powers, most]


def usual_estimator(there: Iterable[str]) -> str | None:
    """The one that weighs votes where none is named; None where there is no confidence."""
    names = list(there)
    return next((name for name in (*_USUAL, *names) if name in names), None)


def shown_votings(
    there: Iterable[str],
    estimators: Sequence[str] | None = None,
    *,
    stopping: Strategy = "weighted",
    level: float = LEVEL,
) -> list[Voting]:
    """Majority, then every way to weigh by each estimator; by the usual one `stopping` stops early,
    too."""
    names = list(there)
    chosen = [e for e in (estimators or SHOWN) if e in names] or names[:1]
    first = usual_estimator(chosen)
    chosen.sort(key=lambda name: name != first)
    found = [Voting("majority"), Voting("majority", stop=SETTLED), Voting("majority", stop=level)]
    for name in chosen:
        found += [Voting("weighted", name), Voting("log_odds", name), Voting("best", name)]
        if name == first:
            found += [Voting(stopping, name, SETTLED), Voting(stopping, name, level)]
    return found


def compared(
    generator: str,
    voters: Sequence[Voters],
    votings: Sequence[Voting],
    cost: TokenCost,
    *,
    orders: int = ORDERS,
) -> GeneratorVotes:
    """`voters` are those of each benchmark. A way to vote needs its rival among the others."""
    most = min(v.answer.shape[1] for v in voters)
    if not all(v.in_tokens for v in voters):
        voters = [replace(v, tokens=np.ones(v.tokens.shape)) for v in voters]
    of_each = [_cut(curves(v, votings, orders=orders), most) for v in voters]
    by_way = {voting: [found[place] for found in of_each] for place, voting in enumerate(votings)}
    rows = [
        _row(of, None if rival is None else (rival, by_way[rival]), cost)
        for voting, of in by_way.items()
        for rival in [_rival(voting)]
    ]
    names = tuple(v.benchmark for v in voters)
    problems = sum(len(v.answer) for v in voters)
    usual = usual_estimator(v.estimator for v in votings if v.estimator is not None)
    written: Written = "tokens" if all(v.in_tokens for v in voters) else "samples"
    notes = tuple(_notes(generator, voters))
    return GeneratorVotes(generator, names, problems, cost, usual, tuple(rows), written, notes)


def _notes(generator: str, voters: Sequence[Voters]) -> Iterator[str]:
    unknown = [v.benchmark for v in voters if v.crowd.rate is None]
    if unknown:
        yield (
            f"How often samples are right is not known of {generator} on {', '.join(unknown)} (it "
            "takes 20 problems of 3 samples): a majority stops there only when it is settled, and "
            "confidences are not shifted."
        )
    if not all(v.in_tokens for v in voters):
        yield f"The tokens of {generator} are not known, so every sample costs the same."


def _rival(voting: Voting) -> Voting | None:
    if voting == Voting("majority"):
        return None
    return Voting("majority", stop=None if voting.strategy == "majority" else voting.stop)


def _cut(found: Sequence[VoteCurve], most: int) -> list[VoteCurve]:
    """To as many samples as every benchmark has."""
    return [
        VoteCurve(
            c.voting,
            c.benchmark,
            *(values[:, :most] for values in (c.samples, c.right, c.tokens, c.confidence)),
        )
        for c in found
    ]


def _row(
    of: Sequence[VoteCurve],
    rival: tuple[Voting, Sequence[VoteCurve]] | None,
    cost: TokenCost,
) -> VotedRow:
    def mean(name: str) -> Floats:
        return np.mean([getattr(curve, name).mean(axis=0) for curve in of], axis=0)

    columns = {name: mean(name) for name in ("right", "samples", "tokens", "confidence")}
    points = tuple(
        VotePoint(
            samples=n,
            accuracy=float(columns["right"][n - 1]),
            used=float(columns["samples"][n - 1]),
            tokens=float(columns["tokens"][n - 1]),
            confidence=_known(columns["confidence"][n - 1]),
            against=None if rival is None else at_equal_cost(of, rival[1], samples=n),
        )
        for n in range(1, len(columns["right"]) + 1)
    )
    costs = tuple(map(float, cost_of(of, cost.reading_share)))
    if rival is None:
        return VotedRow(of[0].voting, points, costs, None, None)
    equal = at_equal_cost(of, rival[1], reading_share=cost.reading_share)
    if of[0].voting.reads and cost.unit == "tokens":
        equal = Difference(None, None, None, "what reading costs is not known")
    return VotedRow(of[0].voting, points, costs, rival[0], equal)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
