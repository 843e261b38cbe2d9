"""Every estimator's confidence for the responses of a case, with what is fitted on its fitting set.

Theta, rates and nothing else are fitted, by the balanced ECE of each, on responses that no figure
uses; a rate once more with the majority's answers in place of grades. What is only tried is made
into a confidence as dtc_weighted is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.benches import Case
from bench.packed import Row
from bench.tried import TRIED
from divtok.errors import DataError
from divtok.evaluate.fit import fit_theta
from divtok.evaluate.fit_rate import FIT_RATES
from divtok.evaluate.metrics import Bools, Floats
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.evaluate.sweep.grid import draws_of
from divtok.evaluate.sweep.rates import rate_figures
from divtok.evaluate.sweep.surfaces import lowest_index
from divtok.evaluate.votes import majority_labels
from divtok.records import Scalar, Trace, Verdict
from divtok.score.estimators.dtc import divergent_count
from divtok.score.registry import ESTIMATORS, Estimator, bind_parameters, in_order
from divtok.score.scoring import score_trace

FITTED = "fitted rate"
BY_AGREEMENT = "rate by agreement"
# Windows of DeepConf's that fit responses of some hundred tokens, as in the embedded recipes.
_GIVEN: Mapping[str, Scalar] = {"window": 32}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to score a trace; `tried` ones are no estimators of divtok."""

    name: str
    score: Callable[[Trace], float]
    params: Mapping[str, Scalar]
    ranking_only: bool = False
    tried: bool = False


def ways_of(case: Case) -> list[Way]:
    """What is compared, in the order of tables, fitted on the case's fitting set."""
    fitting = _usable(case.rows("fit"))
    return [*_facts(fitting), *_estimators(fitting), *_tried(fitting)]


def groups_of(case: Case, ways: Sequence[Way]) -> list[ScoredGroup]:
    """The case's responses with a column for each way, by generator and benchmark."""
    members: dict[tuple[str, str], list[Row]] = {}
    for row in case.rows("test"):
        members.setdefault((row.generator, row.benchmark), []).append(row)
    return [_group(rows, ways) for rows in members.values()]


def _group(rows: Sequence[Row], ways: Sequence[Way]) -> ScoredGroup:
    return ScoredGroup(
        benchmark=rows[0].benchmark,
        generator=rows[0].generator,
        problem_id=[row.problem_id for row in rows],
        verdict=[row.verdict for row in rows],
        truncated=[row.truncated for row in rows],
        length=[len(row.trace) for row in rows],
        count=[None] * len(rows),
        columns=[
            ScoreColumn(w.name, [w.score(r.trace) for r in rows], w.params, w.ranking_only)
            for w in ways
        ],
    )


def _usable(rows: Sequence[Row]) -> list[Row]:
    decided = (Verdict.CORRECT.value, Verdict.INCORRECT.value)
    found = [row for row in rows if row.verdict in decided and not row.truncated]
    if not found:
        raise DataError("A case has no fitting set.", next_step="Pack one with it.")
    return found


def _correct(rows: Sequence[Row]) -> Bools:
    return np.array([row.verdict == Verdict.CORRECT for row in rows], dtype=bool)


def _majority(rows: Sequence[Row]) -> Bools:
    """Which responses give the most frequent answer of their problem: no grade is looked at."""
    problems = problem_numbers([f"{row.benchmark} {row.problem_id}" for row in rows])
    return majority_labels(problems, [row.answer for row in rows])


def _theta(fitting: Sequence[Row]) -> float:
    outcomes = zip((row.trace for row in fitting), _correct(fitting).tolist(), strict=True)
    problems = [f"{row.benchmark} {row.problem_id}" for row in fitting]
    return fit_theta(outcomes, problem_ids=problems).theta


def fitted_rate(sums: Floats, correct: Bools) -> float:
    """The rate with the lowest balanced ECE of exp(-rate * sum)."""
    protocol = Protocol()
    draws = draws_of(correct, protocol)
    if draws is None:
        raise DataError("A fitting set has one class only.", next_step="Take a larger one.")
    figures = rate_figures(sums, draws, protocol.bins, FIT_RATES)
    return float(FIT_RATES[lowest_index(figures.ece)])


def _facts(fitting: Sequence[Row]) -> Iterator[Way]:
    theta = _theta(fitting)
    yield Way("length", lambda trace: -float(len(trace)), {}, ranking_only=True)

    def count(trace: Trace) -> float:
        return -float(divergent_count(trace, theta=theta))

    yield Way("count", count, {"theta": theta}, ranking_only=True)


def _estimators(fitting: Sequence[Row]) -> Iterator[Way]:
    theta, correct = _theta(fitting), _correct(fitting)
    for spec in in_order(s for s in ESTIMATORS if not s.evidence and s.learned is None):
        given = {"theta": theta, **_GIVEN}
        bound = bind_parameters(spec, {n: v for n, v in given.items() if n in spec.parameters})
        yield Way(spec.name, _asked(spec, bound), bound, spec.ranking_only)
        if spec.rate_of is not None:
            sums = [spec.rate_of(row.trace) for row in fitting]
            for label, right in ((FITTED, correct), (BY_AGREEMENT, _majority(fitting))):
                own = {**bound, "rate": fitted_rate(np.array(sums), right)}
                yield Way(f"{spec.name}, {label}", _asked(spec, own), own)


def _asked(spec: Estimator, params: Mapping[str, Scalar]) -> Callable[[Trace], float]:
    def score(trace: Trace) -> float:
        found = score_trace(spec, trace, params)
        if found.value is None:
            raise DataError(f"{spec.name} has no value for {trace.key}: {found.reason}")
        return found.value

    return score


def _tried(fitting: Sequence[Row]) -> Iterator[Way]:
    correct = _correct(fitting)
    for name, total in TRIED.items():
        rate = fitted_rate(np.array([total(row.trace) for row in fitting]), correct)
        yield Way(name, _exponential(total, rate), {"rate": rate}, tried=True)


def _exponential(total: Callable[[Trace], float], rate: float) -> Callable[[Trace], float]:
    return lambda trace: float(np.exp(-rate * total(trace)))
