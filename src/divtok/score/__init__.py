"""From a trace to a confidence: estimators, each a small pure function.

Importing this package registers the estimators that come with divtok; others are found through the
entry-point group `divtok.estimators`.
"""

from divtok.score import dtc, likelihood, ranking
from divtok.score.registry import (
    ESTIMATORS,
    Estimator,
    bind_parameters,
    check_parameter,
    estimator,
    score_trace,
)

__all__ = [
    "ESTIMATORS",
    "Estimator",
    "bind_parameters",
    "check_parameter",
    "dtc",
    "estimator",
    "likelihood",
    "ranking",
    "score_trace",
]
