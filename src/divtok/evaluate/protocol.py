"""The paper's evaluation protocol: balanced draws, with natural-prevalence figures beside them.

Accuracy counts every response. Every other figure leaves out the responses that have no answer,
were cut off, could not be decided or were not scored, and says how many those are. Knows nothing
of models or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from divtok.errors import DataError, UsageError
from divtok.evaluate import metrics
from divtok.evaluate.ece_interval import NO_ESTIMATE, EceEstimate, ece_estimate
from divtok.evaluate.mean_interval import mean_interval
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.resampling import auroc_interval, problem_numbers
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup, exclusions, known_verdicts
from divtok.evaluate.selective_figures import Selective, selective_figures
from divtok.records import Evaluation, Interval, Reason, Verdict

# Such values have an order but no scale, hence no ECE.
RANKING_ONLY = Reason("ranking_only", "ranking only")

# Fewer responses than these are no result: chance alone moves a share, an ECE or an AUROC of so
# many by 13 points and more.
FEWEST_OF_A_CLASS = 30  # in a balanced draw
FEWEST_RESPONSES = 60  # at natural prevalence


@dataclass(frozen=True, slots=True)
class Protocol:
    """How figures are computed; the defaults are the paper's, plus a bootstrap of our own."""

    draws: int = 5
    cap: int = 500  # most responses per class in one balanced draw
    bins: int = 20
    resamples: int = 1000
    seed: int = 0  # of the bootstrap; balanced draw i always uses seed i

    def __post_init__(self) -> None:
        least = {"draws": 1, "cap": 1, "bins": 1, "resamples": 1, "seed": 0}
        wrong = [
            f"{name} must be at least {low}, not {getattr(self, name)}"
            for name, low in least.items()
            if getattr(self, name) < low
        ]
        if wrong:
            raise UsageError("The evaluation protocol is wrong: " + "; ".join(wrong) + ".")

    def describe(self, *, with_bins: bool = True) -> str:
        """One line for a caption: how the balanced figures were made; only ECE has bins."""
        paper = "paper protocol: " if self.is_paper() else ""
        draws = "1 draw" if self.draws == 1 else f"{self.draws} draws"
        bins = f"; {self.bins} bins" if with_bins else ""
        return f"balanced draws, {paper}{draws}, at most {self.cap} per class{bins}"

    def is_paper(self) -> bool:
        return (self.draws, self.cap, self.bins) == (5, 500, 20)


def balanced_draws(correct: Bools, *, draws: int = 5, cap: int = 500) -> list[Ints]:
    """Indices of `draws` class-balanced subsamples of `correct` [N]; empty where a class is empty.

    Pass i uses numpy's legacy `RandomState(i)` and draws n = min(cap, #correct, #incorrect) without
    replacement from the correct responses first, then from the incorrect, so that figures can be
    compared draw for draw with code that does the same.
    """
    right, wrong = np.flatnonzero(correct), np.flatnonzero(~correct)
    n = min(cap, len(right), len(wrong))
    if n == 0:
        return []
    drawn: list[Ints] = []
    for seed in range(draws):
        rng = np.random.RandomState(seed)
        first = rng.choice(right, n, replace=False)
        drawn.append(np.concatenate([first, rng.choice(wrong, n, replace=False)]))
    return drawn


def evaluate_group(group: ScoredGroup, protocol: Protocol | None = None) -> list[Evaluation]:
    """Every estimator of one generator on one benchmark."""
    fallbacks = None if group.fallback is None else sum(group.fallback)
    found = (
        evaluate_estimator(
            benchmark=group.benchmark,
            generator=group.generator,
            column=column,
            problem_id=group.problem_id,
            verdict=group.verdict,
            truncated=group.truncated,
            protocol=protocol,
        )
        for column in group.columns
    )
    return [replace(evaluation, fallbacks=fallbacks) for evaluation in found]


def evaluate_estimator(
    *,
    benchmark: str,
    generator: str,
    column: ScoreColumn,
    problem_id: Sequence[str],
    verdict: Sequence[Verdict | str],
    truncated: Sequence[bool],
    protocol: Protocol | None = None,
) -> Evaluation:
    """One estimator for one generator on one benchmark; all sequences have one item a response.

    Values outside [0, 1] are clipped for ECE and Brier, and counted; ranking uses them as they are.
    With one class only, AUROC and the balanced figures are None; ECE, Brier and AURC at natural
    prevalence are still defined and given.
    """
    protocol = protocol or Protocol()
    n = len(column.values)
    if n == 0 or {len(problem_id), len(verdict), len(truncated)} != {n}:
        raise DataError(
            f"Estimator '{column.estimator}' has {n} values for {len(problem_id)} problem ids, "
            f"{len(verdict)} verdicts and {len(truncated)} truncation flags.",
            next_step="Every column describes the same one or more responses.",
        )
    known_verdicts(verdict)
    values = column.array()
    right = np.array([v == Verdict.CORRECT for v in verdict], dtype=bool)
    kept, excluded_by = exclusions(verdict, truncated, values)
    scores, correct = values[kept], right[kept]
    problem = problem_numbers([p for p, keep in zip(problem_id, kept, strict=True) if keep])
    probability = None if column.ranking_only else np.clip(scores, 0.0, 1.0)
    drawn = balanced_figures(scores, probability, correct, protocol)
    natural = _natural(scores, probability, correct, problem, protocol)
    selective = natural.selective
    unknown = no_accuracy(verdict, truncated)
    reasons = [*([RANKING_ONLY] if column.ranking_only else []), *natural.reasons]
    reasons += [unknown] if unknown else []
    kind = RANKING_ONLY.kind if column.ranking_only else "not_defined"
    return Evaluation(
        benchmark=benchmark,
        generator=generator,
        estimator=column.estimator,
        params=dict(column.params),
        n=n,
        accuracy=None if unknown else float(right.mean()),
        n_scored=len(scores),
        n_balanced=drawn.n,
        ece=drawn.ece,
        ece_sd=drawn.ece_sd,
        auroc=drawn.auroc,
        auroc_sd=drawn.auroc_sd,
        natural_ece=natural.ece,
        natural_auroc=natural.auroc,
        brier=natural.brier,
        aurc=selective.aurc if selective else None,
        natural_ece_interval=natural.true_ece.interval,
        natural_ece_debiased=natural.true_ece.debiased,
        natural_ece_floor=natural.true_ece.floor,
        natural_auroc_interval=natural.auroc_interval,
        brier_interval=natural.brier_interval,
        mean_confidence=None
        if probability is None or not len(scores)
        else float(probability.mean()),
        share_right=float(correct.mean()) if len(scores) else None,
        excluded=n - len(scores),
        excluded_by=excluded_by,
        clipped=0 if probability is None else int((probability != scores).sum()),
        reason=Reason(kind, "; ".join(dict.fromkeys(reasons))) if reasons else None,
        beyond=None if column.beyond is None else int(np.asarray(column.beyond)[kept].sum()),
        trained_length=column.trained_length,
        aurc_interval=selective.aurc_interval if selective else None,
        coverage_at_1=selective.coverage_at_1 if selective else None,
        coverage_at_1_interval=selective.coverage_at_1_interval if selective else None,
        coverage_at_5=selective.coverage_at_5 if selective else None,
        coverage_at_5_interval=selective.coverage_at_5_interval if selective else None,
        coverage_at_10=selective.coverage_at_10 if selective else None,
        coverage_at_10_interval=selective.coverage_at_10_interval if selective else None,
    )


def no_accuracy(verdict: Sequence[Verdict | str], truncated: Sequence[bool]) -> str | None:
    """Why there is no accuracy: an answer that nobody finds is no sign of a wrong one.

    A response that was cut off before its answer has none, which is the generator's doing.
    """
    n = len(verdict)
    unanswered = sum(
        v == Verdict.UNANSWERED and not cut for v, cut in zip(verdict, truncated, strict=True)
    )
    if 2 * unanswered <= n:
        return None
    return f"no accuracy: no answer was found in {unanswered} of {n} responses"


@dataclass(frozen=True, slots=True)
class Balanced:
    """Means and standard deviations over the balanced draws; None where there is no such draw."""

    n: int = 0
    ece: float | None = None
    ece_sd: float | None = None
    auroc: float | None = None
    auroc_sd: float | None = None


@dataclass(frozen=True, slots=True)
class _Natural:
    reasons: list[str]
    ece: float | None = None
    brier: float | None = None
    auroc: float | None = None
    selective: Selective | None = None
    true_ece: EceEstimate = NO_ESTIMATE
    auroc_interval: Interval | None = None
    brier_interval: Interval | None = None
    mean_confidence: float | None = None


def balanced_figures(
    scores: Floats, probability: Floats | None, correct: Bools, protocol: Protocol
) -> Balanced:
    """The figures of the protocol for responses that may all be used, [N] each.

    `probability` is None where scores only rank.
    """
    drawn = balanced_draws(correct, draws=protocol.draws, cap=protocol.cap)
    if not drawn:
        return Balanced()
    ranks = np.array([metrics.auroc(scores[i], correct[i]) for i in drawn], dtype=np.float64)
    auroc, auroc_sd = float(ranks.mean()), float(ranks.std())
    n = len(drawn[0]) // 2
    if probability is None:
        return Balanced(n, auroc=auroc, auroc_sd=auroc_sd)
    gaps = np.array([metrics.ece(probability[i], correct[i], protocol.bins) for i in drawn])
    return Balanced(n, float(gaps.mean()), float(gaps.std()), auroc, auroc_sd)


def _natural(
    scores: Floats, probability: Floats | None, correct: Bools, problem: Ints, protocol: Protocol
) -> _Natural:
    if len(scores) == 0:
        return _Natural(["no response was scored"])
    auroc = metrics.auroc(scores, correct)
    selective = selective_figures(scores, correct, problem)
    resampling = {"resamples": protocol.resamples, "seed": protocol.seed}
    reasons: list[str] = []
    auroc_span = None
    if auroc is None:
        kind = "correct" if correct[0] else "incorrect"
        reasons.append(f"every scored response is {kind}: no AUROC and no balanced draw")
    else:
        ranked = auroc_interval(scores, correct, problem, **resampling)
        auroc_span = ranked.interval
        reasons += [ranked.reason] if ranked.reason else []
    if probability is None:
        return _Natural(reasons, auroc=auroc, selective=selective, auroc_interval=auroc_span)
    true_ece = ece_estimate(probability, correct, problem, bins=protocol.bins, **resampling)
    reasons += [true_ece.reason] if true_ece.reason else []
    return _Natural(
        reasons,
        ece=metrics.ece(probability, correct, protocol.bins),
        brier=metrics.brier(probability, correct),
        auroc=auroc,
        selective=selective,
        true_ece=true_ece,
        auroc_interval=auroc_span,
        brier_interval=mean_interval((probability - correct) ** 2, problem),
        mean_confidence=float(probability.mean()),
    )
