"""A policy made by hand."""

from __future__ import annotations

from typing import Any

from divtok.decide.policy import HowScored, Policy, quantiles_of

PAIR = ("p", "q")
SCORED = HowScored("dtc_lin", {"theta": 0.5, "n": 10}, "reasoning", PAIR)


def policy(**changes: Any) -> Policy:
    plain: dict[str, Any] = {
        "threshold": 0.86,
        "risk": 0.05,
        "delta": 0.1,
        "scored": SCORED,
        "generator": "g",
        "responses": 400,
        "problems": 200,
        "base_risk": 0.25,
        "coverage": 0.5,
        "accepted_risk": 0.02,
        "quantiles": quantiles_of([i / 400 for i in range(401)]),
        "made_of": {"run": "abc", "tables": {"grades": "def"}, "seed": 0},
        "divtok": "1.0",
    }
    return Policy(**{**plain, **changes})
