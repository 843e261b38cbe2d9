"""From a trace, and what else is known, to a confidence: estimators, each a small pure function.

Importing this package registers the estimators that come with divtok; others are found through the
entry-point group `divtok.estimators`.
"""

from divtok.score import (
    basecal,
    dtc,
    likelihood,
    prm,
    ranking,
    relevance,
    sampled,
    uqac,
    verbalized,
)
from divtok.score.registry import (
    ESTIMATORS,
    Estimator,
    bind_parameters,
    check_parameter,
    estimator,
    score_evidence,
    score_trace,
)
from divtok.score.sets import ESTIMATOR_SETS, expand_estimators

__all__ = [
    "ESTIMATORS",
    "ESTIMATOR_SETS",
    "Estimator",
    "basecal",
    "bind_parameters",
    "check_parameter",
    "dtc",
    "estimator",
    "expand_estimators",
    "likelihood",
    "prm",
    "ranking",
    "relevance",
    "sampled",
    "score_evidence",
    "score_trace",
    "uqac",
    "verbalized",
]
