"""Responses and figures made by hand, of which it is known what a claim must say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from divtok.evaluate.paired import Figure, Resamples
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.evaluate.sweep.counts import Counted
from divtok.paper.cells import Cell, Cells
from divtok.records import Verdict

PROBLEMS, SAMPLES = 40, 4
RESAMPLES = Resamples([("a", [str(i) for i in range(40)])], resamples=2)


def outcomes(problems: int = PROBLEMS) -> list[bool]:
    """Right and wrong in turn, with a problem now and then that is all of one kind."""
    rng = np.random.default_rng(7)
    return (rng.random(problems * SAMPLES) < np.repeat(rng.random(problems), SAMPLES)).tolist()


def told(correct: Sequence[bool], noise: float, *, shift: float = 0.0, seed: int = 0) -> Any:
    """Confidences that know the outcome but for noise, moved by a shift that calibration sees."""
    rng = np.random.default_rng(seed)
    said = 0.25 + 0.5 * np.array(correct) + rng.normal(0, noise, len(correct)) + shift
    return np.clip(said, 0, 1).tolist()


def group(
    columns: Mapping[str, Sequence[float | None]],
    *,
    generator: str = "owner/gen",
    benchmark: str = "bench",
    problems: int = PROBLEMS,
) -> ScoredGroup:
    correct = outcomes(problems)
    n = len(correct)
    return ScoredGroup(
        benchmark=benchmark,
        generator=generator,
        problem_id=[str(i // SAMPLES) for i in range(n)],
        verdict=[Verdict.CORRECT if y else Verdict.INCORRECT for y in correct],
        truncated=[False] * n,
        length=[10] * n,
        count=[0] * n,
        columns=[
            ScoreColumn(name, values, ranking_only=name == "length")
            for name, values in columns.items()
        ],
    )


def cells(*groups: ScoredGroup, way: str = "cot") -> Cells:
    return Cells([Cell(way, one) for one in groups], Protocol(resamples=200))


def figure(value: float, spread: float = 0.002) -> Figure:
    """Figures of opposite luck where the spreads have opposite signs."""
    values = np.array([value - spread, value + spread])
    return Figure(value, values, np.ones(40, dtype=bool), 40, RESAMPLES)


def counted_at(thetas: Sequence[float], steep: float, *, generator: str, seed: int) -> Counted:
    """Counts that fall with theta, and are higher for wrong responses."""
    rng = np.random.default_rng(seed)
    n = 160
    correct = rng.random(n) < 0.5
    mean = np.where(correct, 2.0, 8.0)[:, None] * np.exp(-steep * np.asarray(thetas))[None, :]
    counts = np.sort(rng.poisson(mean), axis=1)[:, ::-1].astype(np.int32)
    return Counted(
        benchmark="bench",
        generator=generator,
        p=generator,
        q="aux",
        problem_id=tuple(str(i // 4) for i in range(n)),
        correct=correct,
        length=np.full(n, 9),
        reasoning=np.full(n, 9),
        mean_prob=np.full(n, 0.9),
        weighted=np.zeros(n),
        thetas={"jsd": np.asarray(thetas, dtype=np.float64)},
        counts={"jsd": counts},
        excluded=0,
    )
