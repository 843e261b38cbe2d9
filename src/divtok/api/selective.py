"""Selective prediction from confidences and outcomes: what may be accepted, and how wrong it is.

All rows count once, as they are; those without a value or a decided outcome are left out.
"""

from __future__ import annotations

from divtok.api.figures import Outcomes, Values, usable
from divtok.evaluate import metrics, selective
from divtok.evaluate.selective import RiskCoverage


def risk_coverage(confidences: Values, correct: Outcomes) -> RiskCoverage:
    """The risk-coverage curve: how often accepted rows are wrong, as more of them are accepted.

    Its arrays have one place for each value of a confidence, from the highest on; rows of equal
    confidence are accepted together.

    Example:
        >>> import divtok
        >>> curve = divtok.risk_coverage([0.9, 0.8, 0.8, 0.1], [True, False, True, False])
        >>> curve.threshold.tolist(), curve.accepted.tolist(), curve.wrong.tolist()
        ([0.9, 0.8, 0.1], [1, 3, 4], [0, 1, 2])
    """
    return selective.risk_coverage(*usable(confidences, correct))


def aurc(confidences: Values, correct: Outcomes) -> float:
    """Area under the risk-coverage curve; lower is better.

    The share of wrong rows among the k most confident, averaged over k, and over all orders of rows
    that tie. Without any ranking it is the share of wrong rows.

    Example:
        >>> import divtok
        >>> round(divtok.aurc([0.9, 0.8, 0.4, 0.1], [True, False, True, False]), 3)
        0.333
    """
    return metrics.aurc(*usable(confidences, correct))


def coverage_at(confidences: Values, correct: Outcomes, risk: float = 0.05) -> float:
    """The largest share of rows that a threshold accepts with at most the share `risk` wrong.

    0 where no threshold does. The threshold is the best in hindsight: on other rows it may accept
    more wrong ones.

    Example:
        >>> import divtok
        >>> divtok.coverage_at([0.9, 0.8, 0.4, 0.1], [True, False, True, True], risk=0.25)
        1.0
    """
    return selective.coverage_at_risk(*usable(confidences, correct), risk)
