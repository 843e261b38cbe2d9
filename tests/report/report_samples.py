"""Small evaluations and groups for the report tests."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from divtok.evaluate.fit import ThetaFit, ThetaPoint
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.records import Evaluation, Interval

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "=cmd|' /C calc'!A0",
    "\x1b[31mred\x1b]0;title\x07",
    "a|b\nc & d_e $x$ #1 ~ ^ \\ {z}",
    "../../etc/passwd",
    "[bold]not bold[/bold]",
    "\u202egnp.exe",
    "$\\frac{1}{$",
    "lone \ud800 surrogate",
]


def printed(thing, *, colour=False, width=80):
    out = io.StringIO()
    Console(
        file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    ).print(thing)
    return out.getvalue()


def evaluation(estimator="est", **changes):
    plain = {
        "benchmark": "bench",
        "generator": "gen",
        "estimator": estimator,
        "params": {},
        "n": 82,
        "accuracy": 0.5,
        "n_scored": 80,
        "n_balanced": 40,
        "ece": 0.1234,
        "ece_sd": 0.01,
        "auroc": 0.75,
        "auroc_sd": 0.02,
        "natural_ece": 0.2,
        "natural_auroc": 0.7,
        "brier": 0.2,
        "aurc": 0.3,
        "natural_ece_interval": Interval(0.1, 0.3),
        "natural_auroc_interval": None,
        "excluded": 2,
        "excluded_by": {"unanswered": 1, "truncated": 1, "undetermined": 0, "unscored": 0},
    }
    return Evaluation(**{**plain, **changes})


def group(n=60, *, benchmark="bench", generator="gen"):
    rng = np.random.default_rng(0)
    count = rng.poisson(4, n)
    right = rng.random(n) < np.clip(0.95 - 0.09 * count, 0.05, 1)
    columns = [
        ScoreColumn("dtc_lin", np.clip(0.95 - 0.09 * count, 0.05, 1).tolist(), {"theta": 0.5}),
        ScoreColumn("length", (-100.0 - count).tolist(), ranking_only=True),
        ScoreColumn("broken", [None] * n),
    ]
    return ScoredGroup(
        benchmark=benchmark,
        generator=generator,
        problem_id=[str(i // 2) for i in range(n)],
        verdict=["correct" if y else "incorrect" for y in right],
        truncated=[False] * n,
        length=(100 + 3 * count).tolist(),
        count=count.tolist(),
        columns=columns,
    )


def theta_fit():
    points = tuple(ThetaPoint(t / 10, abs(t - 5) / 20, 0.7, 10.0 - t) for t in range(1, 10))
    return ThetaFit(
        *(0.5, "dtc_lin", points),
        n=100,
        n_balanced=40,
        excluded=3,
        problems=25,
        wrong=40,
        interval=Interval(0.4, 0.6),
    )
